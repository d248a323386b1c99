//! What cluster-autoscaler asks with `externalgrpc`, by a client of its own service. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use ostler_api::machine::Machine;
use ostler_api::names::annotation::{AUTOSCALER_MAX, AUTOSCALER_MIN, TRIGGER_DELETION};
use ostler_api::names::taint;
use ostler_api::{MachineClass, MachineDeployment, MachinePool, MachineReserve};
use ostler_autoscaler::wire::cloud_provider_client::CloudProviderClient;
use ostler_autoscaler::wire::instance_status::InstanceState as State;
use ostler_autoscaler::wire::*;
use ostler_tests::objects::{class, instances};
use ostler_tests::world::{Setup, World, serve_autoscaler};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::pools;

type Client = CloudProviderClient<Channel>;

const D: &str = "MachineDeployment/default/d";
const P: &str = "MachinePool/default/p";
/// The end of a wait for what comes.
const HOURS: Duration = Duration::from_hours(3);
/// Long enough for anything that would still happen.
const QUIET: Duration = Duration::from_mins(15);

pub(crate) async fn world() -> World {
    let setup = Setup::tuned(|options| options.settings.controllers = "*".parse().unwrap());
    World::start_with(setup).await
}

pub(crate) fn deployment(replicas: i32, class: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {
            "name": "d", "namespace": "default",
            "annotations": { AUTOSCALER_MIN: "0", AUTOSCALER_MAX: "4" }
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "name": "d" } },
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
            },
            "template": {
                "metadata": { "labels": { "name": "d" } },
                "spec": {
                    "class": { "kind": "MachineClass", "name": class },
                    "nodeTemplate": {
                        "metadata": { "labels": { "team": "a" } },
                        "spec": { "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] }
                    }
                }
            }
        }
    })
}

/// Asks until the answer is as wanted: a cache may be a moment behind.
pub(crate) async fn until<T: std::fmt::Debug, F>(
    what: &str,
    ask: impl Fn() -> F,
    wanted: impl Fn(&T) -> bool,
) -> T
where
    F: Future<Output = T>,
{
    let end = Instant::now() + HOURS;
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "never {what}: {answer:#?}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn listed(client: &Client, id: &str) -> Vec<(String, State, Option<InstanceErrorInfo>)> {
    let ask = NodeGroupNodesRequest { id: id.to_owned() };
    let answer = client.clone().node_group_nodes(ask).await.unwrap().into_inner();
    let shown = |it: Instance| {
        let status = it.status.unwrap();
        (it.id, status.instance_state(), status.error_info)
    };
    answer.instances.into_iter().map(shown).collect()
}

async fn until_running(client: &Client, id: &str, count: usize) -> Vec<String> {
    let all = |it: &Vec<(String, State, Option<InstanceErrorInfo>)>| {
        it.len() == count && it.iter().all(|one| one.1 == State::InstanceRunning)
    };
    let all = until("as many run", || listed(client, id), all).await;
    all.into_iter().map(|one| one.0).collect()
}

pub(crate) async fn until_group(client: &Client, id: &str) {
    let groups = || async {
        let all = client.clone().node_groups(NodeGroupsRequest {}).await.unwrap().into_inner();
        all.node_groups.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    until("listed", groups, |all| all.iter().any(|it| it == id)).await;
}

async fn target(client: &Client, id: &str) -> i32 {
    let ask = NodeGroupTargetSizeRequest { id: id.to_owned() };
    client.clone().node_group_target_size(ask).await.unwrap().into_inner().target_size
}

async fn grow(client: &Client, id: &str, delta: i32) -> Result<(), Status> {
    let ask = NodeGroupIncreaseSizeRequest { delta, id: id.to_owned() };
    client.clone().node_group_increase_size(ask).await.map(drop)
}

async fn lower(client: &Client, id: &str, delta: i32) -> Result<(), Status> {
    let ask = NodeGroupDecreaseTargetSizeRequest { delta, id: id.to_owned() };
    client.clone().node_group_decrease_target_size(ask).await.map(drop)
}

async fn delete(client: &Client, id: &str, ids: &[&str]) -> Result<(), Status> {
    // As the autoscaler names what is no Node yet: by the id alone.
    let node = |id: &&str| ExternalGrpcNode {
        provider_id: (*id).to_owned(),
        name: (*id).to_owned(),
        ..ExternalGrpcNode::default()
    };
    let ask =
        NodeGroupDeleteNodesRequest { nodes: ids.iter().map(node).collect(), id: id.to_owned() };
    client.clone().node_group_delete_nodes(ask).await.map(drop)
}

async fn group_of(client: &Client, provider_id: &str, name: &str) -> String {
    let (provider_id, name) = (provider_id.to_owned(), name.to_owned());
    let node = Some(ExternalGrpcNode { provider_id, name, ..ExternalGrpcNode::default() });
    let answer = client.clone().node_group_for_node(NodeGroupForNodeRequest { node }).await;
    answer.unwrap().into_inner().node_group.unwrap().id
}

pub(crate) async fn get(world: &World) -> MachineDeployment {
    Api::default_namespaced(world.client()).get("d").await.unwrap()
}

pub(crate) async fn machines(world: &World) -> Vec<Machine> {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.list(&ListParams::default()).await.unwrap().items
}

pub(crate) async fn edit(world: &World, patch: Value) {
    let api = Api::<MachineDeployment>::default_namespaced(world.client());
    api.patch("d", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// A class whose instances cannot be made.
pub(crate) async fn broken_class(world: &World, error: &str) {
    let faults = json!([{ "operation": "CreateMachine", "code": error }]);
    let spec = json!({ "region": "local", "image": "fake-1.0", "faults": faults });
    world.apply::<MachineClass>(class("broken", &spec)).await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_grows_by_as_many_as_the_autoscaler_asks_for_and_each_node_is_in_its_group() {
    let world = world().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(1, "fake")).await;
    until_group(&client, D).await;
    client.clone().refresh(RefreshRequest {}).await.unwrap();
    until_running(&client, D, 1).await;
    grow(&client, D, 2).await.unwrap();
    assert_eq!(target(&client, D).await, 3, "the next question sees it");
    let ids = until_running(&client, D, 3).await;
    let nodes = Api::<Node>::all(world.client()).list(&ListParams::default()).await.unwrap().items;
    for node in nodes {
        let id = node.spec.unwrap().provider_id.unwrap();
        assert!(ids.contains(&id), "{id} is compared byte for byte: {ids:?}");
        let name = node.metadata.name.unwrap();
        assert_eq!(group_of(&client, &id, &name).await, D);
        assert_eq!(group_of(&client, "", &name).await, D, "by its name");
    }
    assert_eq!(group_of(&client, "fake:///other", "other").await, "", "a Node of others");
    let said = get(&world).await;
    let said = said.annotation("ostler.dev/last-scaling").unwrap().to_owned();
    assert!(said.ends_with("scaled from 1 to 3"), "{said}");
    world.stop().await;
}

/// The autoscaler asks about a Node as it last saw it. If the core counted a closed Node, the autoscaler would ask for
/// one machine more.
#[tokio::test(start_paused = true)]
async fn a_node_is_of_its_group_once_the_autoscaler_sees_it_out_of_the_reserve() {
    let world = world().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(0, "fake")).await;
    until_group(&client, D).await;
    let reserve = json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve",
        "metadata": { "name": "r", "namespace": "default" },
        "spec": { "targetRef": { "kind": "MachineDeployment", "name": "d" }, "replicas": 1 }
    });
    world.apply::<MachineReserve>(reserve).await;
    let reserves = Api::<MachineReserve>::default_namespaced(world.client());
    until_some(|| async {
        let status = reserves.get("r").await.unwrap().status?;
        (status.ready_replicas == 1).then_some(())
    })
    .await;
    let nodes = Api::<Node>::all(world.client());
    let closed = nodes.list(&ListParams::default()).await.unwrap().items.remove(0);
    let name = closed.metadata.name.clone().unwrap();
    grow(&client, D, 1).await.unwrap();
    until_running(&client, D, 1).await;
    let is_closed = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|it| it.taints.as_ref());
        taints.into_iter().flatten().any(|it| it.key == taint::RESERVE)
    };
    assert!(is_closed(&closed));
    let open = until_some(|| async {
        Some(nodes.get(&name).await.unwrap()).filter(|node| !is_closed(node))
    })
    .await;
    for (seen, group) in [(closed, ""), (open, D)] {
        let node = Some(ExternalGrpcNode {
            provider_id: seen.spec.unwrap().provider_id.unwrap(),
            name: name.clone(),
            annotations: seen.metadata.annotations.into_iter().flatten().collect(),
            ..ExternalGrpcNode::default()
        });
        let answer = client.clone().node_group_for_node(NodeGroupForNodeRequest { node }).await;
        assert_eq!(answer.unwrap().into_inner().node_group.unwrap().id, group);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn exactly_the_chosen_nodes_go_and_the_target_is_lowered_once() {
    let world = world().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(4, "fake")).await;
    until_group(&client, D).await;
    let ids = until_running(&client, D, 4).await;
    let victims = [ids[1].as_str(), ids[3].as_str()];
    delete(&client, D, &victims).await.unwrap();
    assert_eq!(target(&client, D).await, 2);
    for _ in 0..3 {
        // Afterwards, the core answers that it does not know the Nodes.
        delete(&client, D, &victims).await.ok();
        assert_eq!(target(&client, D).await, 2, "asked again in each loop");
    }
    let left = until_running(&client, D, 2).await;
    assert_eq!(left, [ids[0].clone(), ids[2].clone()]);
    sleep(QUIET).await;
    assert_eq!(until_running(&client, D, 2).await, left, "none came in their place");
    assert_eq!(get(&world).await.annotation(TRIGGER_DELETION), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_failed_is_told_with_its_class_and_what_was_asked_for_goes_again() {
    for (error, of_class) in [("ResourceExhausted", 1), ("Internal", 99)] {
        let world = world().await;
        broken_class(&world, error).await;
        let client = world.autoscaler().await;
        world.apply::<MachineDeployment>(deployment(0, "broken")).await;
        until_group(&client, D).await;
        let asked = Instant::now();
        grow(&client, D, 2).await.unwrap();
        let faulty = |all: &Vec<(String, State, Option<InstanceErrorInfo>)>| {
            all.len() == 2 && all.iter().all(|one| one.2.is_some())
        };
        let all = until("told", || listed(&client, D), faulty).await;
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        for (id, state, fault) in &all {
            let fault = fault.as_ref().unwrap();
            assert_eq!((*state, fault.instance_error_class), (State::InstanceCreating, of_class));
            assert_eq!(fault.error_code, error);
            assert_eq!(group_of(&client, id, id).await, D, "a placeholder is known again");
        }
        let ids: Vec<_> = all.iter().map(|one| one.0.as_str()).collect();
        for _ in 0..3 {
            delete(&client, D, &ids).await.unwrap();
            assert_eq!(target(&client, D).await, 0);
        }
        until("gone", || listed(&client, D), Vec::is_empty).await;
        assert_eq!(instances(&world), 0);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_away_is_no_creation_that_failed() {
    let mut world = world().await;
    world.stop_driver().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(1, "fake")).await;
    until_group(&client, D).await;
    sleep(QUIET).await;
    let all = listed(&client, D).await;
    assert!(all.iter().all(|it| it.1 == State::InstanceCreating && it.2.is_none()), "{all:?}");
    world.start_driver();
    until_running(&client, D, 1).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_is_lowered_by_what_has_no_node_and_by_nothing_else() {
    let world = world().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(1, "fake")).await;
    until_group(&client, D).await;
    let first = until_running(&client, D, 1).await;
    broken_class(&world, "ResourceExhausted").await;
    edit(&world, json!({ "spec": { "paused": true } })).await;
    let refused = lower(&client, D, -1).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    let api = Api::<MachineClass>::default_namespaced(world.client());
    let faults = json!([{ "operation": "CreateMachine", "code": "ResourceExhausted" }]);
    let patch = Patch::Merge(json!({ "providerSpec": { "faults": faults } }));
    api.patch("fake", &PatchParams::default(), &patch).await.unwrap();
    sleep(QUIET).await;
    grow(&client, D, 2).await.unwrap();
    until("there", || listed(&client, D), |all| all.len() == 3).await;
    lower(&client, D, -2).await.unwrap();
    assert_eq!(target(&client, D).await, 1);
    assert_eq!(until_running(&client, D, 1).await, first);
    assert_eq!(lower(&client, D, 1).await.unwrap_err().code(), Code::InvalidArgument);
    world.stop().await;
}

/// How versions until 1.34 read the answer, and those since.
#[derive(Clone, PartialEq, prost::Message)]
struct Embedded {
    #[prost(message, optional, tag = "1")]
    node: Option<TheirNode>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TheirNode {
    #[prost(message, optional, tag = "1")]
    metadata: Option<TheirMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<TheirSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<TheirStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TheirMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TheirSpec {
    #[prost(message, repeated, tag = "5")]
    taints: Vec<TheirTaint>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TheirTaint {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(string, tag = "3")]
    effect: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TheirStatus {
    #[prost(btree_map = "string, message", tag = "2")]
    allocatable: std::collections::BTreeMap<String, TheirQuantity>,
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<TheirCondition>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TheirQuantity {
    #[prost(string, tag = "1")]
    text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TheirCondition {
    #[prost(string, tag = "1")]
    type_: String,
    #[prost(string, tag = "2")]
    status: String,
}

#[tokio::test(start_paused = true)]
async fn an_empty_group_shows_what_its_node_would_be_in_both_forms() {
    let world = world().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(0, "fake")).await;
    until_group(&client, D).await;
    let ask = || NodeGroupTemplateNodeInfoRequest { id: D.to_owned() };
    let answer = client.clone().node_group_template_node_info(ask()).await.unwrap().into_inner();
    let since = TheirNode::decode(answer.node_bytes.as_slice()).unwrap();
    let until = Embedded::decode(answer.encode_to_vec().as_slice()).unwrap().node.unwrap();
    assert_eq!(since, until);
    let (meta, status) = (since.metadata.unwrap(), since.status.unwrap());
    for (key, value) in [
        ("team", "a"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("topology.kubernetes.io/zone", "eu-1a"),
        ("node.kubernetes.io/instance-type", "small"),
    ] {
        assert_eq!(meta.labels[key], value, "{key}");
    }
    for (resource, amount) in [("cpu", "4"), ("memory", "16Gi"), ("pods", "110")] {
        assert_eq!(status.allocatable[resource].text, amount, "{resource}");
    }
    let ready = &status.conditions[0];
    assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "True"));
    assert_eq!(since.spec.unwrap().taints[0].key, "k");
    // A class that says nothing: no empty answer, which would end the autoscaler.
    broken_class(&world, "Internal").await;
    edit(&world, json!({ "spec": { "template": { "spec": { "class": { "name": "broken" } } } } }))
        .await;
    let refused = || async { client.clone().node_group_template_node_info(ask()).await.err() };
    let refused = until_some(refused).await;
    assert_eq!(refused.code(), Code::Unimplemented);
    world.stop().await;
}

pub(crate) async fn until_some<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    let waited = timeout(HOURS, async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn options_of_a_group_are_told_whole_and_in_both_forms_and_without_any_there_is_no_answer() {
    let world = world().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(0, "fake")).await;
    until_group(&client, D).await;
    let defaults = NodeGroupAutoscalingOptions {
        scale_down_utilization_threshold: 0.5,
        scale_down_unready_duration: Some(prost_types::Duration { seconds: 1200, nanos: 0 }),
        max_node_provision_time: Some(KubernetesDuration { duration: 900_000_000_000 }),
        ..NodeGroupAutoscalingOptions::default()
    };
    let ask = || NodeGroupAutoscalingOptionsRequest { id: D.to_owned(), defaults: Some(defaults) };
    let none = client.clone().node_group_get_options(ask()).await.unwrap_err();
    assert_eq!(none.code(), Code::Unimplemented);
    let key = "machine.sapcloud.io/autoscaling-options-scaledownunneededtime";
    edit(&world, json!({ "metadata": { "annotations": { key: "3m" } } })).await;
    let told = || async { client.clone().node_group_get_options(ask()).await.ok() };
    let told = until_some(told).await.into_inner().node_group_autoscaling_options.unwrap();
    let both = |old: Option<KubernetesDuration>, new: Option<prost_types::Duration>| {
        (old.unwrap().duration / 1_000_000_000, new.unwrap().seconds)
    };
    let unneeded = both(told.scale_down_unneeded_time, told.scale_down_unneeded_duration);
    let unready = both(told.scale_down_unready_time, told.scale_down_unready_duration);
    let provision = both(told.max_node_provision_time, told.max_node_provision_duration);
    assert_eq!([unneeded, unready, provision], [(180, 180), (1200, 1200), (900, 900)]);
    assert!((told.scale_down_utilization_threshold - 0.5).abs() < f64::EPSILON);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_and_nothing_is_marked() {
    let world = world().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(2, "fake")).await;
    let mut other = deployment(1, "fake");
    other["metadata"]["name"] = json!("e");
    other["spec"]["selector"]["matchLabels"]["name"] = json!("e");
    other["spec"]["template"]["metadata"]["labels"]["name"] = json!("e");
    other["metadata"]["annotations"] = json!({ AUTOSCALER_MIN: "1", AUTOSCALER_MAX: "3" });
    world.apply::<MachineDeployment>(other).await;
    let mut own = deployment(0, "fake");
    own["metadata"]["name"] = json!("mine");
    own["metadata"]["annotations"] = json!({});
    own["spec"]["selector"]["matchLabels"]["name"] = json!("mine");
    own["spec"]["template"]["metadata"]["labels"]["name"] = json!("mine");
    world.apply::<MachineDeployment>(own).await;
    let e = "MachineDeployment/default/e";
    until_group(&client, e).await;
    let (ids, others) = (until_running(&client, D, 2).await, until_running(&client, e, 1).await);
    for unknown in ["MachineDeployment/default/none", "MachineDeployment/default/mine", "x", ""] {
        assert_eq!(grow(&client, unknown, 1).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(delete(&client, unknown, &[]).await.unwrap_err().code(), Code::NotFound);
        let ask = NodeGroupNodesRequest { id: unknown.to_owned() };
        let refused = client.clone().node_group_nodes(ask).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
    }
    let refused = grow(&client, D, 3).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains('5') && refused.message().contains('4'), "{refused:?}");
    assert_eq!(grow(&client, D, 0).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(grow(&client, D, i32::MAX).await.unwrap_err().code(), Code::FailedPrecondition);
    let before = get(&world).await;
    for strange in [others[0].as_str(), "fake:///nowhere", "ostler://elsewhere/none"] {
        let refused = delete(&client, D, &[&ids[0], strange]).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{strange}");
    }
    let refused = delete(&client, e, &[&others[0]]).await.unwrap_err();
    assert!(refused.message().contains("minimum is 1"), "{refused:?}");
    sleep(QUIET).await;
    let after = get(&world).await;
    assert_eq!(
        (before.spec, before.metadata.annotations),
        (after.spec, after.metadata.annotations)
    );
    assert_eq!(machines(&world).await.len(), 3);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn any_replica_answers_and_follows_whether_it_leads_or_not() {
    let world = world().await;
    world.apply::<MachineDeployment>(deployment(1, "fake")).await;
    let replica = world.start_replica().await;
    let client = serve_autoscaler(replica.core.scaler()).await;
    let answered = || async { client.clone().refresh(RefreshRequest {}).await.ok() };
    until_some(answered).await;
    until_group(&client, D).await;
    until_running(&client, D, 1).await;
    grow(&client, D, 1).await.unwrap();
    let ids = until_running(&client, D, 2).await;
    delete(&client, D, &[&ids[0]]).await.unwrap();
    assert_eq!(until_running(&client, D, 1).await, [ids[1].clone()]);
    replica.stop().await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_grows_loses_exactly_the_chosen_and_says_why_it_cannot_grow() {
    let world = pools::start().await;
    let client = world.autoscaler().await;
    let mut pool = pools::pool("p", 1);
    pool["metadata"]["annotations"] = json!({ AUTOSCALER_MIN: "1", AUTOSCALER_MAX: "5" });
    world.apply::<MachinePool>(pool).await;
    until_group(&client, P).await;
    grow(&client, P, 2).await.unwrap();
    assert_eq!(target(&client, P).await, 3);
    let ids = until_running(&client, P, 3).await;
    delete(&client, P, &[&ids[0]]).await.unwrap();
    delete(&client, P, &[&ids[0]]).await.unwrap();
    assert_eq!(target(&client, P).await, 2);
    let left = until_running(&client, P, 2).await;
    assert_eq!(left, [ids[1].clone(), ids[2].clone()]);
    assert_eq!(group_of(&client, &left[0], "any").await, P);
    let refused = lower(&client, P, -1).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    // The group of the infrastructure refuses to grow: those that are missing are named, and go when they are deleted.
    let api = Api::<MachineClass>::default_namespaced(world.client());
    let faults = json!([{ "operation": "UpdatePool", "code": "ResourceExhausted" }]);
    let patch = Patch::Merge(json!({ "providerSpec": { "faults": faults } }));
    api.patch("group", &PatchParams::default(), &patch).await.unwrap();
    sleep(QUIET).await;
    grow(&client, P, 2).await.unwrap();
    let all = until("told", || listed(&client, P), |all| all.len() == 4).await;
    let missing: Vec<_> = all.iter().filter(|one| one.2.is_some()).collect();
    assert_eq!(missing.len(), 2, "{all:?}");
    for (id, state, fault) in &missing {
        let class = fault.as_ref().unwrap().instance_error_class;
        assert_eq!((*state, class), (State::InstanceCreating, 1));
        assert_eq!(group_of(&client, id, id).await, P);
    }
    let ids: Vec<_> = missing.iter().map(|one| one.0.as_str()).collect();
    delete(&client, P, &ids).await.unwrap();
    delete(&client, P, &ids).await.unwrap();
    assert_eq!(target(&client, P).await, 2);
    world.stop().await;
}
