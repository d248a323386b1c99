//! Pools whose user data are a bootstrap provider's: one copy of a template for each. On a paused clock.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use ostler_api::MachinePool;
use ostler_tests::objects::instances;
use ostler_tests::rights::Request;
use ostler_tests::setup::Deaths;
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::pool_drivers::another_token;
use crate::pool_safety::Dying;
use crate::pools::{
    machines, patch, pool, pools, rest, scale, start, start_with, until, until_runs,
};
use crate::preboot::{configs, install, install_labelled};
use crate::sets::told;
use crate::templates::{booted, copies, create_template};

/// A world with a bootstrap provider, its template `one`, and the task that it is.
async fn provided(setup: Setup) -> (World, JoinHandle<()>) {
    let world = start_with(setup).await;
    install(&world, "Recipe").await;
    install_labelled(&world, "RecipeTemplate", &json!({})).await;
    create_template(&world, "one").await;
    let task = provider(&world);
    (world, task)
}

/// Of each object it makes a Secret, and names that.
fn provider(world: &World) -> JoinHandle<()> {
    let (recipes, client) = (configs(world, "Recipe"), world.client());
    tokio::spawn(async move {
        loop {
            for recipe in recipes.list(&ListParams::default()).await.into_iter().flatten() {
                if recipe.data["status"]["ready"] != json!(true) {
                    let name = recipe.metadata.name.unwrap();
                    put_data(client.clone(), &name, "p00lex").await;
                    let status = json!({ "ready": true, "dataSecretName": name });
                    let patch = Patch::Merge(json!({ "status": status }));
                    drop(recipes.patch_status(&name, &PatchParams::default(), &patch).await);
                }
            }
            sleep(Duration::from_secs(5)).await;
        }
    })
}

async fn put_data(client: kube::Client, name: &str, token: &str) {
    let secrets = Api::<Secret>::default_namespaced(client);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "stringData": { "value": format!("kubelet --token={token}.0123456789abcdef") }
    });
    let apply = PatchParams::apply("provider").force();
    secrets.patch(name, &apply, &Patch::Apply(secret)).await.unwrap();
}

fn name(copy: &DynamicObject) -> String {
    copy.metadata.name.clone().unwrap()
}

async fn uids(world: &World) -> BTreeSet<String> {
    machines(world).await.iter().map(|it| it.metadata.uid.clone().unwrap()).collect()
}

async fn said(world: &World, type_: &str) -> (String, String) {
    let status = pools(world).get("p").await.unwrap().status.unwrap_or_default();
    let said = status.conditions.into_iter().find(|it| it.type_ == type_).unwrap();
    (said.reason, said.message)
}

async fn until_said(world: &World, type_: &str, words: &str) {
    let waited = async {
        loop {
            if pools(world).get("p").await.unwrap().status.is_some()
                && said(world, type_).await.1.contains(words)
            {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    let met = timeout(Duration::from_hours(1), waited).await;
    assert!(met.is_ok(), "{words}: {:?}", said(world, type_).await);
}

fn gone(pool: Option<&MachinePool>) -> bool {
    pool.is_none()
}

#[tokio::test(start_paused = true)]
async fn a_pool_joins_by_one_copy_of_its_template_whose_renewed_secret_replaces_no_instance() {
    let world = start().await;
    world.apply::<MachinePool>(booted(pool("p", 1), "one")).await;
    until_said(&world, "BootstrapReady", "does not serve").await;
    install(&world, "Recipe").await;
    install_labelled(&world, "RecipeTemplate", &json!({})).await;
    until_said(&world, "BootstrapReady", "RecipeTemplate one does not exist").await;
    assert_eq!((instances(&world), copies(&world).await.len()), (0, 0));

    create_template(&world, "one").await;
    let provider = provider(&world);
    until_runs(&world, 1).await;
    let [copy] = &copies(&world).await[..] else { panic!("one for all") };
    let [owner] = &copy.metadata.owner_references.clone().unwrap()[..] else { panic!() };
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("MachinePool", "p", Some(true)));
    let labels = copy.metadata.labels.clone().unwrap();
    assert_eq!((&*labels["of"], &*labels["app"]), ("template", "p"));
    let first = name(copy);
    let before = uids(&world).await;

    // The provider renews its token, in its Secret.
    another_token(&world, "sec0nd", "p00lex").await;
    put_data(world.client(), &first, "sec0nd").await;
    rest().await;
    scale(&world, 2).await;
    until_runs(&world, 2).await;
    assert!(uids(&world).await.is_superset(&before), "none was replaced");

    let edit = json!({ "spec": { "template": { "spec": { "greeting": "good bye" } } } });
    let templates = configs(&world, "RecipeTemplate");
    templates.patch("one", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    rest().await;
    assert_eq!(told(&world, "TemplateChangedInPlace").await.len(), 1);
    assert!(uids(&world).await.is_superset(&before));

    // Another template is a rollout, and another copy.
    another_token(&world, "p00lex", "sec0nd").await;
    create_template(&world, "two").await;
    patch(&world, booted(json!({}), "two")).await;
    rest().await;
    until_runs(&world, 2).await;
    let [copy] = &copies(&world).await[..] else { panic!("the one before is gone") };
    assert!(name(copy) != first && uids(&world).await.is_disjoint(&before));

    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    until(&world, "gone", gone).await;
    assert_eq!((instances(&world), copies(&world).await.len()), (0, 0));
    assert_eq!(templates.list(&ListParams::default()).await.unwrap().items.len(), 2);
    provider.abort();
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_each_write_of_a_pool_with_a_copy_leaves_none_behind() {
    let deaths = Arc::<Deaths>::default();
    let (world, provider) =
        provided(Setup { deaths: Arc::clone(&deaths), ..Setup::default() }).await;
    create_template(&world, "two").await;
    let mut dying = Dying { world, deaths, died: 0 };
    for turn in 0.. {
        let died = dying.died;
        dying.deaths.after(Some(turn));
        dying.world.apply::<MachinePool>(booted(pool("p", 1), "one")).await;
        let runs = async |world: &World| until_runs(world, 1).await;
        while dying.dies_before(&runs).await {}
        patch(&dying.world, booted(json!({}), "two")).await;
        let rolled = async |world: &World| {
            rest().await;
            until_runs(world, 1).await;
            while copies(world).await.len() != 1 {
                sleep(Duration::from_secs(1)).await;
            }
        };
        while dying.dies_before(&rolled).await {}
        pools(&dying.world).delete("p", &DeleteParams::default()).await.unwrap();
        let ends = async |world: &World| until(world, "gone", gone).await;
        while dying.dies_before(&ends).await {}
        assert_eq!((instances(&dying.world), copies(&dying.world).await.len()), (0, 0), "{turn}");
        if dying.died == died {
            break;
        }
    }
    assert!(dying.died > 9, "{} cores died", dying.died);
    provider.abort();
    dying.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_waits_for_its_copy_that_a_finalizer_holds_and_names_it() {
    let (mut world, provider) = provided(Setup::default()).await;
    world.apply::<MachinePool>(booted(pool("p", 1), "one")).await;
    until_runs(&world, 1).await;
    let held = name(&copies(&world).await[0]);
    let hold = |names: &[&str]| Patch::Merge(json!({ "metadata": { "finalizers": names } }));
    let recipes = configs(&world, "Recipe");
    recipes.patch(&held, &PatchParams::default(), &hold(&["example.com/oven"])).await.unwrap();
    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    until_said(&world, "Deleting", "example.com/oven").await;
    assert_eq!(instances(&world), 0, "the group does not wait for it");
    let asked = |world: &World| {
        let of_group = ostler_driver_fake::fault::Verb::DeletePool;
        world.calls().iter().filter(|it| it.operation == of_group).count()
    };
    let before = asked(&world);
    for _ in 0..2 {
        sleep(Duration::from_mins(20)).await;
        world.crash_core();
        world.start_core().await;
        rest().await;
    }
    assert_eq!(asked(&world), before, "what is gone is not asked for again");
    recipes.patch(&held, &PatchParams::default(), &hold(&[])).await.unwrap();
    until(&world, "gone", gone).await;
    provider.abort();
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_and_no_loop_asks_for_it_and_what_is_no_template_is_refused() {
    let forbids: fn(&Request) -> bool =
        |asked| asked.verb == "create" && asked.resource == "recipes";
    let (world, provider) = provided(Setup { forbids, ..Setup::default() }).await;
    world.apply::<MachinePool>(booted(pool("p", 1), "one")).await;
    until_said(&world, "BootstrapReady", "has not been made yet").await;
    rest().await;
    let refused = told(&world, "FailedCreate").await;
    assert!(refused.iter().any(|it| it.contains("cannot make Recipe p-")), "{refused:?}");
    let metrics = world.metrics();
    let failures = r#"ostler_api_write_failures_total{kind="BootstrapConfig",verb="create"} "#;
    let count = metrics.lines().find_map(|line| line.strip_prefix(failures)).unwrap();
    let count: u32 = count.parse().unwrap();
    assert!((2..50).contains(&count), "{count} in three minutes");

    let mut shared = booted(json!({}), "one");
    shared["spec"]["template"]["spec"]["bootstrap"]["configRef"]["kind"] = json!("Recipe");
    patch(&world, shared).await;
    until_said(&world, "Valid", "name one of kind RecipeTemplate").await;
    assert_eq!(instances(&world), 0);
    provider.abort();
    world.stop().await;
}
