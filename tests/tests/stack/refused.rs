//! What the definitions refuse on a real API server, the embedded one refuses in the same words.

use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use ostler_tests::tools::root;
use ostler_tests::world::World;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn each_object_that_the_definitions_refuse_is_refused_for_the_reason_that_stands_with_it() {
    let world = World::start().await;
    let text = std::fs::read_to_string(root().join("tests/crds/refused.yaml")).unwrap();
    let objects: Vec<DynamicObject> = serde_saphyr::from_multiple(&text).unwrap();
    assert!(objects.len() > 20, "{}", objects.len());
    for mut object in objects {
        let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let api: Api<DynamicObject> =
            Api::default_namespaced_with(world.client(), &ApiResource::from_gvk(&kind));
        let name = object.name_any();
        let reason = object.annotations()["test/refused-for"].clone();
        let created = PostParams::default();
        let answer = if let Some(before) = object.annotations().get("test/replaces-spec") {
            let before: Value = serde_json::from_str(before).unwrap();
            let wanted = std::mem::replace(&mut object.data["spec"], before);
            api.create(&created, &object).await.unwrap();
            let patch = json!([{ "op": "replace", "path": "/spec", "value": wanted }]);
            let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
            api.patch(&name, &PatchParams::default(), &patch).await
        } else {
            api.create(&created, &object).await
        };
        let Err(kube::Error::Api(status)) = answer else { panic!("{name}: {answer:?}") };
        assert_eq!(status.code, 422, "{name}: {status}");
        assert!(status.message.contains(&reason), "{name}: {status}");
    }
    world.stop().await;
}
