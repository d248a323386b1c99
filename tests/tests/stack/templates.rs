//! Templates of bootstrap providers in sets and deployments: each Machine gets a copy of its own. On a paused clock.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_api::{MachineDeployment, MachineSet};
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{gone, instances, waits_for};
use ostler_tests::rights::Request;
use ostler_tests::setup::Deaths;
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::pool_safety::Dying;
use crate::preboot::{JOIN, configs, install, install_labelled};
use crate::sets::{machines, set, sets, told, with_sets};

const LONG: Duration = Duration::from_hours(1);

/// A deployment, or a set, whose Machines get copies of this template.
pub(crate) fn booted(mut of: Value, template: &str) -> Value {
    of["spec"]["template"]["spec"]["bootstrap"] = json!({ "configRef": {
        "apiVersion": "bootstrap.example.com/v1", "kind": "RecipeTemplate", "name": template
    } });
    of
}

fn deployment(name: &str, replicas: i32) -> Value {
    let mut deployment = set(name, replicas);
    deployment["kind"] = json!("MachineDeployment");
    deployment["spec"]["strategy"] = json!({
        "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
    });
    deployment
}

pub(crate) async fn create_template(world: &World, name: &str) {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "bootstrap.example.com/v1", "kind": "RecipeTemplate", "metadata": { "name": name },
        "spec": { "template": {
            "metadata": { "labels": { "of": "template" } }, "spec": { "greeting": "hello" }
        } }
    }))
    .unwrap();
    let templates = configs(world, "RecipeTemplate");
    templates.create(&PostParams::default(), &object).await.unwrap();
}

/// A bootstrap provider.
fn provider(world: &World) -> JoinHandle<()> {
    let recipes = configs(world, "Recipe");
    tokio::spawn(async move {
        loop {
            for recipe in recipes.list(&ListParams::default()).await.into_iter().flatten() {
                if recipe.data["status"]["ready"] != json!(true) {
                    let status = json!({ "status": { "ready": true, "bootstrapData": JOIN } });
                    let name = recipe.metadata.name.unwrap();
                    let patch = Patch::Merge(status);
                    drop(recipes.patch_status(&name, &PatchParams::default(), &patch).await);
                }
            }
            sleep(Duration::from_secs(5)).await;
        }
    })
}

pub(crate) async fn copies(world: &World) -> Vec<DynamicObject> {
    configs(world, "Recipe").list(&ListParams::default()).await.unwrap().items
}

/// Waits until `count` Machines run, and each has its copy and no other copies exist.
async fn until_alike(world: &World, count: usize) {
    let alike = async {
        loop {
            let machines = machines(world).await;
            let mut names: Vec<_> = machines.iter().map(|it| it.name().to_owned()).collect();
            let mut of: Vec<_> =
                copies(world).await.into_iter().filter_map(|it| it.metadata.name).collect();
            names.sort();
            of.sort();
            let run = machines.iter().all(|it| it.phase() == MachinePhase::Running);
            if run && names.len() == count && names == of {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    if timeout(LONG, alike).await.is_err() {
        let set = sets(world).list(&ListParams::default()).await;
        let all = (machines(world).await, copies(world).await);
        assert_eq!(count, usize::MAX, "never: {set:#?} {all:#?}");
    }
}

async fn until_failing(world: &World, words: &str) {
    let says = async {
        loop {
            let all = sets(world).list(&ListParams::default()).await.unwrap();
            let conditions =
                all.iter().filter_map(|it| it.status.as_ref()).flat_map(|it| &it.conditions);
            let said: Vec<_> = conditions.filter_map(|it| it.message.as_deref()).collect();
            if said.iter().any(|it| it.contains("RecipeTemplate one") && it.contains(words)) {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(LONG, says).await.unwrap_or_else(|_| unreachable!("no set said {words:?}"));
}

async fn edit<K>(world: &World, name: &str, patch: Value)
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api = Api::<K>::default_namespaced(world.client());
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deployment_whose_template_comes_last_gives_each_machine_a_copy_and_rolls_to_another_one()
{
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineDeployment>(booted(deployment("d", 2), "one")).await;
    until_failing(&world, "does not serve").await;
    install(&world, "Recipe").await;
    install_labelled(&world, "RecipeTemplate", &json!({})).await;
    until_failing(&world, "does not exist").await;
    assert_eq!((machines(&world).await.len(), copies(&world).await.len()), (0, 0));

    create_template(&world, "one").await;
    let provider = provider(&world);
    until_alike(&world, 2).await;
    for copy in copies(&world).await {
        let [owner] = copy.metadata.owner_references.unwrap().try_into().unwrap();
        let name = copy.metadata.name.unwrap();
        assert_eq!((&*owner.kind, &owner.name, owner.controller), ("Machine", &name, Some(true)));
        let labels = copy.metadata.labels.unwrap();
        assert_eq!((&*labels["of"], &*labels["app"]), ("template", "d"));
        let annotations = copy.metadata.annotations.unwrap();
        assert_eq!(annotations["cluster.x-k8s.io/cloned-from-name"], "one");
        let kind = &annotations["cluster.x-k8s.io/cloned-from-groupkind"];
        assert_eq!(kind, "RecipeTemplate.bootstrap.example.com");
        assert_eq!(copy.data["spec"]["greeting"], "hello");
    }
    let before: Vec<_> = machines(&world).await.iter().map(|it| it.uid().to_owned()).collect();

    // Edited in place: told, and nothing is replaced.
    let patch = json!({ "spec": { "template": { "spec": { "greeting": "good bye" } } } });
    let templates = configs(&world, "RecipeTemplate");
    templates.patch("one", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    sleep(Duration::from_mins(5)).await;
    let after: Vec<_> = machines(&world).await.iter().map(|it| it.uid().to_owned()).collect();
    assert_eq!((before, told(&world, "TemplateChangedInPlace").await.len()), (after, 1));

    create_template(&world, "two").await;
    edit::<MachineDeployment>(&world, "d", booted(json!({}), "two")).await;
    sleep(Duration::from_mins(10)).await;
    until_alike(&world, 2).await;
    for copy in copies(&world).await {
        assert_eq!(copy.metadata.annotations.unwrap()["cluster.x-k8s.io/cloned-from-name"], "two");
    }
    edit::<MachineDeployment>(&world, "d", json!({ "spec": { "replicas": 0 } })).await;
    until_alike(&world, 0).await;
    assert_eq!(templates.list(&ListParams::default()).await.unwrap().items.len(), 2);
    provider.abort();
    world.stop().await;
}

/// Each life is interrupted once, at a later write than the one before.
#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_each_write_leaves_no_copy_behind_and_makes_none_twice() {
    let deaths = Arc::<Deaths>::default();
    let world = World::start_with(Setup { deaths: Arc::clone(&deaths), ..with_sets() }).await;
    install(&world, "Recipe").await;
    install_labelled(&world, "RecipeTemplate", &json!({})).await;
    create_template(&world, "one").await;
    let provider = provider(&world);
    let mut dying = Dying { world, deaths, died: 0 };
    dying.world.apply::<MachineSet>(booted(set("s", 0), "one")).await;
    for turn in 0.. {
        dying.deaths.after(Some(turn));
        for count in [1_usize, 0] {
            let replicas = json!({ "spec": { "replicas": count } });
            edit::<MachineSet>(&dying.world, "s", replicas).await;
            while dying.dies_before(&async |world: &World| until_alike(world, count).await).await {}
            assert_eq!(instances(&dying.world), count, "turn {turn}");
        }
        if dying.died == turn {
            break;
        }
    }
    assert!(dying.died > 9, "{} cores died", dying.died);
    let templates = configs(&dying.world, "RecipeTemplate");
    assert!(templates.get_opt("one").await.unwrap().is_some(), "the user's own stays");
    provider.abort();
    dying.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_its_copy_that_a_finalizer_holds_and_names_it() {
    let mut world = World::start_with(with_sets()).await;
    install(&world, "Recipe").await;
    install_labelled(&world, "RecipeTemplate", &json!({})).await;
    create_template(&world, "one").await;
    world.apply::<MachineSet>(booted(set("s", 1), "one")).await;
    let provider = provider(&world);
    until_alike(&world, 1).await;
    provider.abort();
    let name = machines(&world).await[0].name().to_owned();
    let recipes = configs(&world, "Recipe");
    let hold = |names: &[&str]| Patch::Merge(json!({ "metadata": { "finalizers": names } }));
    recipes.patch(&name, &PatchParams::default(), &hold(&["example.com/oven"])).await.unwrap();
    edit::<MachineSet>(&world, "s", json!({ "spec": { "replicas": 0 } })).await;
    world.until(&name, "waiting", waits_for(WaitReason::BootstrapConfigDeleting)).await;
    assert_eq!(instances(&world), 0, "the instance does not wait for it");
    // Whatever wakes the Machine, also in another core: what was deleted is not asked for again.
    for _ in 0..2 {
        sleep(Duration::from_mins(20)).await;
        edit::<Machine>(&world, &name, json!({ "metadata": { "labels": { "wakes": "it" } } }))
            .await;
        world.crash_core();
        world.start_core().await;
        world.until(&name, "waiting", waits_for(WaitReason::BootstrapConfigDeleting)).await;
    }
    let deletions = world.calls().iter().filter(|it| it.operation == Verb::DeleteMachine).count();
    assert_eq!(deletions, 1);
    let said = machines(&world).await[0].status.clone().unwrap().waiting_for.unwrap();
    assert!(said.message.unwrap().contains("example.com/oven"));
    recipes.patch(&name, &PatchParams::default(), &hold(&[])).await.unwrap();
    world.until(&name, "gone", gone).await;

    // A copy without a Machine, as a core that died leaves it, is deleted.
    let uid = sets(&world).get("s").await.unwrap().metadata.uid;
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "bootstrap.example.com/v1", "kind": "Recipe",
        "metadata": { "name": "s-left0", "ownerReferences": [{
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": uid
        }] }
    }))
    .unwrap();
    recipes.create(&PostParams::default(), &object).await.unwrap();
    sleep(Duration::from_mins(11)).await;
    assert!(recipes.get_opt("s-left0").await.unwrap().is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_sets_of_one_template_never_share_a_copy() {
    let world = World::start_with(with_sets()).await;
    install(&world, "Recipe").await;
    install_labelled(&world, "RecipeTemplate", &json!({})).await;
    create_template(&world, "one").await;
    let provider = provider(&world);
    for name in ["a", "b"] {
        world.apply::<MachineSet>(booted(set(name, 5), "one")).await;
    }
    until_alike(&world, 10).await;
    let named = |machine: &Machine| {
        machine.spec.bootstrap.clone().unwrap().config_ref.map(|it| (it.kind, it.name)).unwrap()
    };
    for machine in machines(&world).await {
        assert_eq!(named(&machine), ("Recipe".to_owned(), machine.name().to_owned()));
    }
    provider.abort();
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_with_the_copy_and_no_loop_asks_for_it() {
    let forbids: fn(&Request) -> bool =
        |asked| asked.verb == "create" && asked.resource == "recipes";
    let world = World::start_with(Setup { forbids, ..with_sets() }).await;
    install(&world, "Recipe").await;
    install_labelled(&world, "RecipeTemplate", &json!({})).await;
    create_template(&world, "one").await;
    world.apply::<MachineSet>(booted(set("s", 5), "one")).await;
    until_failing(&world, "cannot make Recipe s-").await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(machines(&world).await.len(), 0);
    let metrics = world.metrics();
    let failures = r#"ostler_api_write_failures_total{kind="BootstrapConfig",verb="create"} "#;
    let count = metrics.lines().find_map(|line| line.strip_prefix(failures)).unwrap();
    let count: u32 = count.parse().unwrap();
    assert!((5..50).contains(&count), "{count} in five minutes");
    world.stop().await;
}
