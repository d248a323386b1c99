//! The server as kube's own client sees it, in process and on a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use ostler_apiserver::{
    clock::tokio_clock,
    serve::{ApiServer, Options},
};
use serde_json::json;

async fn client() -> (ApiServer, Client) {
    let clock = tokio_clock("2026-01-01T00:00:00Z".parse().unwrap());
    let api = ApiServer::open(Options { clock, ..Options::memory() }).await.unwrap();
    let client = Client::new(api.local_service(), "default");
    (api, client)
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn objects_are_created_read_changed_and_deleted() {
    let (_server, client) = client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let created = maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_ne!(patched.resource_version(), created.resource_version());
    let mut stale = created;
    stale.data = Some([("k".to_owned(), "w".to_owned())].into());
    let refused = maps.replace("a", &PostParams::default(), &stale).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 409));
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn objects_are_applied_by_two_managers_and_taken_by_force() {
    let (_server, client) = client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = |data: serde_json::Value| {
        Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "a"}}))
    };
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    maps.patch("a", &one, &map(json!({"k": "1"}))).await.unwrap();
    let both = maps.patch("a", &two, &map(json!({"l": "2"}))).await.unwrap();
    assert_eq!(both.managed_fields().len(), 2);
    let refused = maps.patch("a", &two, &map(json!({"k": "2"}))).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 409));
    let taken = maps.patch("a", &two.clone().force(), &map(json!({"k": "2"}))).await.unwrap();
    assert_eq!(taken.data.unwrap(), [("k".to_owned(), "2".to_owned())].into());
    // a field that the first manager lost stays
    let left = maps.patch("a", &one, &map(json!({}))).await.unwrap();
    assert_eq!(left.data.unwrap(), [("k".to_owned(), "2".to_owned())].into());
}

#[tokio::test(start_paused = true)]
async fn a_watcher_follows_for_days_without_missing_a_change() {
    let (_server, client) = client().await;
    let nodes: Api<Node> = Api::all(client);
    let node = |name: &str| -> Node {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    };
    nodes.create(&PostParams::default(), &node("first")).await.unwrap();
    let mut watch = watcher(nodes.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    assert_eq!(watch.try_next().await.unwrap().unwrap().name_any(), "first");
    for day in 0..5 {
        let name = format!("day-{day}");
        // The watch must be polled meanwhile: it ends and begins anew all the time.
        let quiet = tokio::time::timeout(Duration::from_hours(24), watch.next()).await;
        assert!(quiet.is_err(), "nothing has changed");
        nodes.create(&PostParams::default(), &node(&name)).await.unwrap();
        assert_eq!(watch.try_next().await.unwrap().unwrap().name_any(), name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_is_of_one_moment() {
    let (_server, client) = client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &map(name)).await.unwrap();
    }
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    maps.delete("c", &DeleteParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &map("d")).await.unwrap();
    let rest = first.metadata.continue_.clone().unwrap();
    let second = maps.list(&ListParams::default().limit(2).continue_token(&rest)).await.unwrap();
    let names: Vec<String> = second.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c"]);
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
}

#[tokio::test]
async fn closing_the_server_ends_its_watches() {
    let (server, client) = client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let watch = maps.watch(&kube::api::WatchParams::default(), "0").await.unwrap();
    server.close().await;
    assert_eq!(watch.boxed().count().await, 0);
}
