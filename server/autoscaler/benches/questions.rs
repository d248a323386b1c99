//! How long an autoscaler waits for what it asks in each loop, over gRPC: 10,000 Machines in 100 groups.
//! `cargo bench -p ostler-autoscaler`

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::convert::Infallible;
use std::future::pending;
use std::time::{Duration, Instant};

use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use ostler_autoscaler::routes;
use ostler_autoscaler::wire::cloud_provider_client::CloudProviderClient;
use ostler_autoscaler::wire::{
    ExternalGrpcNode, NodeGroupForNodeRequest, NodeGroupNodesRequest, NodeGroupsRequest,
    RefreshRequest,
};
use ostler_controllers::{Scaler, Settings, Stores, system_clock};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tower::service_fn;

const GROUPS: usize = 100;
const MACHINES: usize = 100;
const CALLS: usize = 5000;

fn owned(kind: &str, name: &str, by: (&str, &str), rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind,
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": by.0, "name": by.1, "uid": by.1,
                "controller": true
            }]
        }
    });
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

fn filled() -> Stores {
    let stores = Stores::default();
    stores.classes.apply(Event::Init);
    stores.classes.apply(Event::InitDone);
    for event in [Event::Init, Event::InitDone] {
        stores.machines.apply(event);
    }
    for event in [Event::Init, Event::InitDone] {
        stores.sets.apply(event);
    }
    for event in [Event::Init, Event::InitDone] {
        stores.deployments.apply(event);
    }
    for group in 0..GROUPS {
        let (name, set) = (format!("group-{group}"), format!("set-{group}"));
        let spec = json!({ "spec": { "replicas": MACHINES, "template": {} } });
        let mut deployment = owned("MachineDeployment", &name, ("None", "none"), &spec);
        deployment["metadata"]["annotations"] = json!({
            "machine.sapcloud.io/cluster-api-autoscaler-node-group-min-size": "0",
            "machine.sapcloud.io/cluster-api-autoscaler-node-group-max-size": "1000"
        });
        stores.deployments.apply(Event::Apply(serde_json::from_value(deployment).unwrap()));
        let set_of = owned("MachineSet", &set, ("MachineDeployment", &name), &spec);
        stores.sets.apply(Event::Apply(serde_json::from_value(set_of).unwrap()));
        for machine in 0..MACHINES {
            let name = format!("machine-{group}-{machine}");
            let rest = json!({ "spec": { "providerID": format!("fake:///zone/{name}") } });
            let machine = owned("Machine", &name, ("MachineSet", &set), &rest);
            stores.machines.apply(Event::Apply(serde_json::from_value(machine).unwrap()));
        }
    }
    stores
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 1000];
    println!("{what}: p50 {:?}, p99 {:?}, p99.9 {:?}", at(500), at(990), at(999));
}

#[tokio::main]
async fn main() {
    let never =
        service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, Infallible>>());
    let client = Client::new(never, "default");
    let scaler = Scaler::over(filled(), client, &Settings::default(), &system_clock());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(Server::builder().add_routes(routes(scaler)).serve_with_incoming(incoming));
    let core = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = CloudProviderClient::new(core.connect().await.unwrap());
    let mut times = [const { Vec::new() }; 4];
    for call in 0..CALLS {
        let begun = Instant::now();
        client.refresh(RefreshRequest {}).await.unwrap();
        times[0].push(begun.elapsed());
        let begun = Instant::now();
        let groups = client.node_groups(NodeGroupsRequest {}).await.unwrap().into_inner();
        times[1].push(begun.elapsed());
        assert_eq!(groups.node_groups.len(), GROUPS);
        let (group, machine) = (call % GROUPS, call / GROUPS % MACHINES);
        let name = format!("machine-{group}-{machine}");
        let provider_id = format!("fake:///zone/{name}");
        let node = Some(ExternalGrpcNode { provider_id, name, ..ExternalGrpcNode::default() });
        let begun = Instant::now();
        let found = client.node_group_for_node(NodeGroupForNodeRequest { node }).await.unwrap();
        times[2].push(begun.elapsed());
        let id = found.into_inner().node_group.unwrap().id;
        assert_eq!(id, format!("MachineDeployment/default/group-{group}"));
        let begun = Instant::now();
        let nodes = client.node_group_nodes(NodeGroupNodesRequest { id }).await.unwrap();
        times[3].push(begun.elapsed());
        assert_eq!(nodes.into_inner().instances.len(), MACHINES);
    }
    for (what, times) in
        ["Refresh", "NodeGroups", "NodeGroupForNode", "NodeGroupNodes"].into_iter().zip(times)
    {
        tell(what, times);
    }
}
