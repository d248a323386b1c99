//! What autoscalers read and write on objects: Cluster API's provider, and limits that none can follow. On a paused clock.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use ostler_api::machine::{LifecyclePhase, MachinePhase};
use ostler_api::names::annotation::AUTOSCALER_MAX;
use ostler_api::{MachineClass, MachineDeployment, MachineSet};
use ostler_autoscaler::wire::NodeGroupsRequest;
use serde_json::json;

use crate::autoscaler::{
    broken_class, deployment, edit, get, machines, until, until_group, until_some, world,
};

const D: &str = "MachineDeployment/default/d";

#[tokio::test(start_paused = true)]
async fn the_provider_of_cluster_api_finds_what_a_node_would_have_and_which_machine_one_is_of() {
    let world = world().await;
    world.apply::<MachineDeployment>(deployment(1, "fake")).await;
    let mut set = deployment(0, "fake");
    set["kind"] = json!("MachineSet");
    set["metadata"]["name"] = json!("s");
    set["spec"].as_object_mut().unwrap().remove("strategy");
    for place in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        *set.pointer_mut(place).unwrap() = json!({ "set": "s" });
    }
    world.apply::<MachineSet>(set).await;
    let sets = Api::<MachineSet>::default_namespaced(world.client());
    let key = |name: &str| format!("capacity.cluster-autoscaler.kubernetes.io/{name}");
    let shown = || async {
        let (deployment, set) = (get(&world).await, sets.get("s").await.unwrap());
        let said = |name: &str| {
            let key = key(name);
            [deployment.annotation(&key), set.annotation(&key)].map(|it| it.map(str::to_owned))
        };
        (said("cpu"), said("memory"), said("taints"))
    };
    let both = |text: &str| [Some(text.to_owned()), Some(text.to_owned())];
    let wanted = (both("4"), both("16Gi"), both("k=v:NoSchedule"));
    until("shown", shown, |said| *said == wanted).await;
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    let more = Patch::Merge(json!({ "nodeTemplate": { "capacity": { "cpu": "8" } } }));
    classes.patch("fake", &PatchParams::default(), &more).await.unwrap();
    until("the class is followed", shown, |said| said.0 == both("8")).await;
    let nodes = || async {
        Api::<Node>::all(world.client()).list(&ListParams::default()).await.unwrap().items
    };
    let noted = |all: &Vec<Node>| {
        let notes = all.first().and_then(|node| node.metadata.annotations.clone());
        notes.is_some_and(|notes| {
            notes.get("machine.sapcloud.io/cluster-namespace").is_some_and(|it| it == "default")
                && notes.contains_key("machine.sapcloud.io/machine")
        })
    };
    until("noted", nodes, noted).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_set_without_quota_is_failed_to_the_provider_of_cluster_api_until_it_is_made()
 {
    let world = world().await;
    broken_class(&world, "ResourceExhausted").await;
    world.apply::<MachineDeployment>(deployment(1, "broken")).await;
    let first = || async { machines(&world).await.into_iter().next()?.status };
    let failed = until_some(|| async {
        let status = first().await?;
        status.failure_message.is_some().then_some(status)
    })
    .await;
    assert_eq!(failed.phase, Some(LifecyclePhase::Failed));
    assert_eq!(failed.machine_phase(), MachinePhase::CrashLoopBackOff, "no set replaces it");
    let api = Api::<MachineClass>::default_namespaced(world.client());
    let patch = Patch::Merge(json!({ "providerSpec": { "faults": null } }));
    api.patch("broken", &PatchParams::default(), &patch).await.unwrap();
    let made = until_some(|| async {
        let status = first().await?;
        (status.machine_phase() == MachinePhase::Running).then_some(status)
    })
    .await;
    assert_eq!((made.phase, made.failure_message), (Some(LifecyclePhase::Running), None));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_no_number_is_told_on_the_object_and_the_other_groups_go_on() {
    let world = world().await;
    let client = world.autoscaler().await;
    world.apply::<MachineDeployment>(deployment(0, "fake")).await;
    until_group(&client, D).await;
    edit(&world, json!({ "metadata": { "annotations": { AUTOSCALER_MAX: "many" } } })).await;
    let condition = || async {
        let all = get(&world).await.status.unwrap_or_default().conditions;
        all.into_iter().find(|it| it.type_.as_str() == "AutoscalerLimits")
    };
    let told = until_some(condition).await;
    assert_eq!(told.status, "False");
    assert!(told.message.as_ref().unwrap().contains("\"many\""), "{told:?}");
    let groups = client.clone().node_groups(NodeGroupsRequest {}).await.unwrap().into_inner();
    assert!(groups.node_groups.is_empty());
    until_some(|| async {
        let events = Api::<Event>::default_namespaced(world.client());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|it| it.reason.as_deref() == Some("AnnotationInvalid"))
    })
    .await;
    edit(&world, json!({ "metadata": { "annotations": { AUTOSCALER_MAX: "4" } } })).await;
    until_group(&client, D).await;
    until("no condition", condition, Option::is_none).await;
    world.stop().await;
}
