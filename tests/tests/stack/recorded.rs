//! Conversations of real autoscalers with a core, as `tests/autoscaler/record.py` wrote them down: asked again, a core answers
//! the same. On a paused clock.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::time::Duration;

use http_body_util::BodyExt as _;
use json_patch::merge;
use kube::client::Body;
use ostler_api::{MachineClass, MachineDeployment};
use ostler_autoscaler::wire::cloud_provider_client::CloudProviderClient;
use ostler_autoscaler::wire::*;
use ostler_tests::objects::{class, instances};
use ostler_tests::world::World;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde::de::DeserializeSeed as _;
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::Status;
use tonic::transport::Channel;

use crate::autoscaler::{machines, until_group, world};

/// How often something is asked again, after a while, before the test gives up.
const TRIES: usize = 2_000;
const A_WHILE: Duration = Duration::from_millis(100);

/// Names and provider ids of the Machines, in the order of their numbers in the records.
#[derive(Default)]
struct Seen(Vec<(String, String)>);

impl Seen {
    async fn look(&mut self, world: &World) {
        let mut all = machines(world).await;
        let made = |it: &ostler_api::Machine| {
            (it.metadata.creation_timestamp.as_ref().map(|at| at.0), it.name().to_owned())
        };
        all.sort_by_key(made);
        for machine in &all {
            let id = machine.provider_id().map(ToString::to_string);
            match (self.0.iter_mut().find(|it| it.0 == machine.name()), id) {
                (Some(known), Some(id)) => known.1 = id,
                (Some(_), None) => {}
                (None, id) => self.0.push((machine.name().to_owned(), id.unwrap_or_default())),
            }
        }
    }

    fn real(&self, step: &Value) -> Value {
        let text = self.0.iter().enumerate().fold(step.to_string(), |text, (at, (name, id))| {
            text.replace(&format!("{{id{at}}}"), id).replace(&format!("{{machine{at}}}"), name)
        });
        serde_json::from_str(&text).unwrap()
    }

    fn numbered(&self, answer: &Value) -> Value {
        let text = self.0.iter().enumerate().fold(answer.to_string(), |text, (at, (name, id))| {
            let text = text.replace(name.as_str(), &format!("{{machine{at}}}"));
            if id.is_empty() { text } else { text.replace(id.as_str(), &format!("{{id{at}}}")) }
        });
        serde_json::from_str(&text).unwrap()
    }
}

/// The recorded steps of a file.
fn steps(record: &str) -> Vec<Value> {
    let path = ostler_tests::tools::root().join("tests/autoscaler/recorded").join(record);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Asks step by step. What only reads is asked until the answer is that of the record.
async fn replay(world: &World, steps: Vec<Value>, ask: impl AsyncFn(&Value) -> Value) {
    let mut seen = Seen::default();
    for step in steps {
        let reads = step["method"] == "GET"
            || step["call"].as_str().is_some_and(|it| {
                !["IncreaseSize", "DeleteNodes", "DecreaseTargetSize"]
                    .iter()
                    .any(|end| it.ends_with(end))
            });
        let mut left = if reads { TRIES } else { 1 };
        loop {
            seen.look(world).await;
            let answer = seen.numbered(&ask(&seen.real(&step)).await);
            let of = ["answer", "error", "status"];
            if of.iter().all(|it| step.get(it).is_none_or(|wanted| is_as(&answer[it], wanted))) {
                break;
            }
            left -= 1;
            assert!(left > 0, "asked {step}, answered {answer}");
            sleep(A_WHILE).await;
        }
    }
}

/// Whether an answer has all that was recorded of it, lists in any order.
fn is_as(answer: &Value, wanted: &Value) -> bool {
    match (answer, wanted) {
        (Value::Object(answer), Value::Object(wanted)) => {
            wanted.iter().all(|(key, it)| is_as(answer.get(key).unwrap_or(&Value::Null), it))
        }
        (Value::Array(answer), Value::Array(wanted)) => {
            answer.len() == wanted.len()
                && wanted.iter().all(|it| answer.iter().any(|own| is_as(own, it)))
        }
        _ => answer == wanted,
    }
}

/// The classes and the deployments that the records are about: by name, class and maximum.
async fn groups(groups: &[(&str, &str, u32)]) -> World {
    let world = world().await;
    for (name, cpu, most) in [("plain", "4", None), ("few", "2", Some(1))] {
        let spec = json!({
            "region": name, "image": "linux-1", "nodeCapacity": { "cpu": cpu },
            "capacity": { "maxInstances": most }
        });
        let mut class = class(name, &spec);
        let shape = json!({ "nodeTemplate": {
            "capacity": { "cpu": cpu, "gpu": "0", "memory": "16Gi" },
            "instanceType": name, "region": name, "zone": name, "architecture": "amd64"
        } });
        merge(&mut class, &shape);
        world.apply::<MachineClass>(class).await;
    }
    let limits = |end: &str| format!("machine.sapcloud.io/cluster-api-autoscaler-node-group-{end}");
    for (name, class, most) in groups {
        let mut group = crate::autoscaler::deployment(0, class);
        let own = json!({ limits("min-size"): "0", limits("max-size"): most.to_string() });
        let like = json!({
            "metadata": { "name": name },
            "spec": {
                "selector": { "matchLabels": { "name": name } },
                "template": { "metadata": { "labels": { "name": name } } }
            }
        });
        merge(&mut group, &like);
        group["metadata"]["annotations"] = own;
        world.apply::<MachineDeployment>(group).await;
    }
    world
}

/// A group from 0 to its maximum and back.
const ONE: [(&str, &str, u32); 1] = [("a", "plain", 3)];
/// A group without quota, and the group that is taken instead.
const QUOTA: [(&str, &str, u32); 2] = [("scarce", "few", 5), ("plenty", "plain", 5)];

/// A whole message as JSON, with defaults.
fn text(message: &DynamicMessage) -> Value {
    let all = SerializeOptions::new().use_proto_field_name(true).skip_default_fields(false);
    message.serialize_with_options(serde_json::value::Serializer, &all).unwrap()
}

async fn call(
    mut client: CloudProviderClient<Channel>,
    name: &str,
    asked: &[u8],
) -> Result<Vec<u8>, Status> {
    macro_rules! calls {
        ($($name:literal => $call:ident($asked:ty),)*) => {
            match name {
                $($name => {
                    let answer = client.$call(<$asked>::decode(asked).unwrap()).await?;
                    Ok(answer.into_inner().encode_to_vec())
                })*
                _ => panic!("no autoscaler calls {name}"),
            }
        };
    }
    calls! {
        "NodeGroups" => node_groups(NodeGroupsRequest),
        "NodeGroupForNode" => node_group_for_node(NodeGroupForNodeRequest),
        "NodeGroupTargetSize" => node_group_target_size(NodeGroupTargetSizeRequest),
        "NodeGroupIncreaseSize" => node_group_increase_size(NodeGroupIncreaseSizeRequest),
        "NodeGroupDeleteNodes" => node_group_delete_nodes(NodeGroupDeleteNodesRequest),
        "NodeGroupDecreaseTargetSize" => node_group_decrease_target_size(NodeGroupDecreaseTargetSizeRequest),
        "NodeGroupNodes" => node_group_nodes(NodeGroupNodesRequest),
        "NodeGroupTemplateNodeInfo" => node_group_template_node_info(NodeGroupTemplateNodeInfoRequest),
        "NodeGroupGetOptions" => node_group_get_options(NodeGroupAutoscalingOptionsRequest),
        "Refresh" => refresh(RefreshRequest),
        "Cleanup" => cleanup(CleanupRequest),
        "GPULabel" => gpu_label(GpuLabelRequest),
        "GetAvailableGPUTypes" => get_available_gpu_types(GetAvailableGpuTypesRequest),
    }
}

#[tokio::test(start_paused = true)]
async fn externalgrpc_of_cluster_autoscaler_is_answered_as_it_was() {
    externalgrpc("externalgrpc.json", &ONE).await;
}

#[tokio::test(start_paused = true)]
async fn externalgrpc_hears_of_a_lack_of_quota_and_takes_another_group_as_it_did() {
    externalgrpc("externalgrpc-quota.json", &QUOTA).await;
}

async fn externalgrpc(record: &str, of: &[(&str, &str, u32)]) {
    let world = groups(of).await;
    let client = world.autoscaler().await;
    for (name, ..) in of {
        until_group(&client, &format!("MachineDeployment/default/{name}")).await;
    }
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let service = pool.services().find(|it| it.name() == "CloudProvider").unwrap();
    let method = |step: &Value| service.methods().find(|it| step["call"] == it.name()).unwrap();
    let mut all = steps(record);
    for step in &mut all {
        let Some(answer) = step.get("answer").cloned() else { continue };
        let answer = method(step).output().deserialize(answer).unwrap();
        step["answer"] = text(&answer);
        step["answer"].as_object_mut().unwrap().remove("nodeInfo");
    }
    replay(&world, all, async |step| {
        let method = method(step);
        let request = method.input().deserialize(step["request"].clone()).unwrap();
        match call(client.clone(), method.name(), &request.encode_to_vec()).await {
            Err(status) => json!({ "error": format!("{:?}", status.code()).to_uppercase() }),
            Ok(bytes) => {
                let answer = DynamicMessage::decode(method.output(), bytes.as_slice()).unwrap();
                let mut answer = text(&answer);
                if answer.get("nodeBytes").is_some_and(|it| it != "") {
                    answer["nodeBytes"] = json!("AAAA");
                }
                json!({ "answer": answer })
            }
        }
    })
    .await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

/// One request; a `PUT` is of the object as it is, with the recorded change.
async fn send(world: &World, step: &Value) -> Value {
    let path = step["path"].as_str().unwrap();
    let request = async |method: &str, body: Option<&Value>| {
        let patch =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("Content-Type", patch).header("Accept", "application/json");
        world.client().send(request.body(Body::from(body.into_bytes())).unwrap()).await.unwrap()
    };
    let read = async |answer: http::Response<Body>| -> (u16, Value) {
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    };
    if path.contains("watch=") {
        let answer = request("GET", None).await;
        let (status, mut body) = (answer.status().as_u16(), answer.into_body());
        let mut seen = String::new();
        while path.contains("sendInitialEvents") && !seen.contains("initial-events-end") {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            seen.push_str(std::str::from_utf8(&frame).unwrap());
        }
        return json!({ "status": status });
    }
    let method = step["method"].as_str().unwrap();
    let Some(change) = step.get("change") else {
        let (status, answer) = read(request(method, step.get("body")).await).await;
        return json!({ "status": status, "answer": answer });
    };
    let phase = step["answer"]["status"]["phase"].as_str().unwrap_or("Running");
    let mut last = Value::Null;
    for _ in 0..TRIES {
        let (_, mut object) = read(request("GET", None).await).await;
        if object["status"]["phase"] == phase {
            merge(&mut object, change);
            let (status, answer) = read(request(method, Some(&object)).await).await;
            // Who changed it meanwhile may do so: an autoscaler comes again in its next loop.
            if status != 409 {
                return json!({ "status": status, "answer": answer });
            }
            object = answer;
        }
        last = object;
        sleep(A_WHILE).await;
    }
    panic!("{step} never succeeds: {last}");
}

#[tokio::test(start_paused = true)]
async fn clusterapi_of_cluster_autoscaler_is_answered_as_it_was() {
    clusterapi("clusterapi.json", &ONE).await;
}

#[tokio::test(start_paused = true)]
async fn clusterapi_reads_of_a_lack_of_quota_and_takes_another_group_as_it_did() {
    clusterapi("clusterapi-quota.json", &QUOTA).await;
}

async fn clusterapi(record: &str, of: &[(&str, &str, u32)]) {
    let world = groups(of).await;
    replay(&world, steps(record), async |step| send(&world, step).await).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
}
