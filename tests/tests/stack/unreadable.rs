//! Objects that the core cannot read, stored before the definitions refused them: they block their own namespace, and
//! the user learns which object is at fault.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use ostler_api::{MachineDeployment, MachineSet};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};

use crate::sets::set;

/// With labels that are a number, which `ostler-api` cannot parse.
fn spoiled(kind: &str) -> Value {
    let template = json!({ "metadata": { "labels": 5 } });
    let spec = if kind == "Machine" {
        json!({ "nodeTemplate": template })
    } else {
        let mut spec = set("spoiled", 0)["spec"].take();
        spec["template"]["spec"]["nodeTemplate"] = template;
        spec
    };
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind,
        "metadata": { "name": "spoiled" }, "spec": spec
    })
}

fn open(world: &World, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let plural = format!("{}s", kind.to_lowercase());
    let resource = ApiResource {
        group: "machine.sapcloud.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "machine.sapcloud.io/v1alpha1".to_owned(),
        kind: kind.to_owned(),
        plural,
    };
    Api::namespaced_with(world.client(), namespace, &resource)
}

async fn try_to_spoil(world: &World, kind: &str, namespace: &str) -> kube::Result<DynamicObject> {
    let object = serde_json::from_value(spoiled(kind)).unwrap();
    open(world, kind, namespace).create(&PostParams::default(), &object).await
}

/// As the definitions were before they had types for labels.
async fn loosen(world: &World, crd: &str, path: &[&str]) {
    let definitions = Api::<CustomResourceDefinition>::all(world.client());
    let mut definition = json!(definitions.get(crd).await.unwrap());
    let mut schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for field in path {
        schema = &mut schema["properties"][field];
    }
    schema.as_object_mut().unwrap().remove("properties").unwrap();
    let definition = serde_json::from_value(definition).unwrap();
    definitions.replace(crd, &PostParams::default(), &definition).await.unwrap();
}

fn deployment() -> MachineDeployment {
    let mut object = set("d", 2);
    object["kind"] = "MachineDeployment".into();
    object["metadata"]["namespace"] = Value::Null;
    object["spec"]["strategy"] = json!({
        "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
    });
    serde_json::from_value(object).unwrap()
}

async fn available(world: &World, namespace: &str, count: i32) {
    let api = Api::<MachineDeployment>::namespaced(world.client(), namespace);
    let has = move |it: Option<&MachineDeployment>| {
        it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.updated_replicas == count)
    };
    let hour = Duration::from_hours(1);
    tokio::time::timeout(hour, await_condition(api, "d", has)).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_holds_up_its_own_namespace_only_and_is_named() {
    let mut world = World::start_with(Setup::tuned(|options| {
        options.settings.controllers = "*".parse().unwrap();
        options.settings.namespaces = "default,b".parse().unwrap();
    }))
    .await;
    for namespace in ["b", "not-served"] {
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
        world.create(&namespace).await;
    }
    for kind in ["Machine", "MachineSet"] {
        let refused = try_to_spoil(&world, kind, "b").await.unwrap_err();
        assert!(refused.to_string().contains("labels"), "{refused}");
    }
    let template = ["spec", "nodeTemplate", "metadata"];
    loosen(&world, "machines.machine.sapcloud.io", &template).await;
    let template = ["spec", "template", "spec", "nodeTemplate", "metadata"];
    loosen(&world, "machinesets.machine.sapcloud.io", &template).await;
    world.stop_core().await;
    for (kind, namespace) in [("Machine", "b"), ("MachineSet", "b"), ("Machine", "not-served")] {
        try_to_spoil(&world, kind, namespace).await.unwrap();
    }
    world.start_core().await;

    let here = Api::<MachineDeployment>::namespaced(world.client(), "default");
    let there = Api::<MachineDeployment>::namespaced(world.client(), "b");
    for api in [&here, &there] {
        api.create(&PostParams::default(), &deployment()).await.unwrap();
    }
    available(&world, "default", 2).await;

    let sets = Api::<MachineSet>::namespaced(world.client(), "b");
    let mut plain = set("s", 1);
    plain["metadata"]["namespace"] = Value::Null;
    sets.create(&PostParams::default(), &serde_json::from_value(plain).unwrap()).await.unwrap();
    let told = |set: Option<&MachineSet>| {
        let status = set.and_then(|set| set.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        conditions.any(|it| {
            let text = it.message.as_deref().unwrap_or_default();
            it.reason.as_deref() == Some("MachineUnreadable") && text.contains("b/spoiled")
        })
    };
    let hour = Duration::from_hours(1);
    let waited = await_condition(sets.clone(), "s", told);
    tokio::time::timeout(hour, waited).await.unwrap().unwrap();
    let machines = open(&world, "Machine", "b");
    assert_eq!(machines.list(&ListParams::default()).await.unwrap().items.len(), 1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let events = Api::<Event>::namespaced(world.client(), "b");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    for reason in ["MachineUnreadable", "MachineSetUnreadable"] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }

    for kind in ["Machine", "MachineSet"] {
        let delete = DeleteParams::default();
        open(&world, kind, "b").delete("spoiled", &delete).await.unwrap();
    }
    available(&world, "b", 2).await;
    let has = |set: Option<&MachineSet>| {
        set.and_then(|set| set.status.as_ref()).is_some_and(|status| status.replicas == 1)
    };
    let waited = await_condition(sets, "s", has);
    tokio::time::timeout(hour, waited).await.unwrap().unwrap();
    world.stop().await;
}
