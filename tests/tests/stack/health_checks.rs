//! MachineHealthChecks: unhealthy machines of sets, deployments and pools are replaced. On a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::wait::{Condition, await_condition};
use ostler_api::machine::{FailureReason, Machine, MachinePhase, WaitReason};
use ostler_api::names::annotation::{SKIP_REMEDIATION, UNHEALTHY};
use ostler_api::{MachineClass, MachineDeployment, MachineHealthCheck, MachinePool, MachineSet};
use ostler_tests::objects::{class, get, in_phase, instances, machine, waits_for};
use ostler_tests::tools::root;
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::pools;
use crate::sets::{machines, rest, set, told, until_runs, with_sets};

fn check(spec: &Value) -> Value {
    let mut whole = json!({
        "selector": { "matchLabels": { "app": "web" } },
        "unhealthyConditions": [
            { "type": "Ready", "status": "Unknown", "timeout": "2m" },
            { "type": "Ready", "status": "False", "timeout": "2m" },
            { "type": "Broken", "status": "True", "timeout": "2m" }
        ]
    });
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
        "metadata": { "name": "c", "namespace": "default" }, "spec": whole
    })
}

fn checks(world: &World) -> Api<MachineHealthCheck> {
    Api::default_namespaced(world.client())
}

async fn until(world: &World, what: &str, condition: impl Condition<MachineHealthCheck>) {
    let waited = await_condition(checks(world), "c", condition);
    let Ok(met) = timeout(Duration::from_hours(3), waited).await else {
        let (check, machines) = (checks(world).get_opt("c").await, machines(world).await);
        panic!("the check was never {what} within hours: {check:#?} {machines:#?}");
    };
    met.unwrap();
}

/// It looks at so many machines, and all are healthy.
fn all_healthy(count: i32) -> impl Fn(Option<&MachineHealthCheck>) -> bool {
    move |check| {
        let status = check.and_then(|check| check.status.as_ref());
        status.is_some_and(|it| it.expected_machines == count && it.current_healthy == count)
    }
}

/// `RemediationAllowed` has this reason.
fn says(reason: &str) -> impl Fn(Option<&MachineHealthCheck>) -> bool + '_ {
    move |check| {
        let status = check.and_then(|check| check.status.as_ref());
        let mut all = status.into_iter().flat_map(|status| &status.conditions);
        all.any(|it| it.type_ == "RemediationAllowed" && it.reason == reason)
    }
}

/// What a controller that looks into nodes says of that of a machine: since now, it is broken, or is not.
async fn say_broken(world: &World, machine: &str, status: &str) {
    let node = get(world, machine).await.node_name().unwrap().to_owned();
    let patch = json!({ "status": { "conditions": [{
        "type": "Broken", "status": status, "reason": "Test",
        "lastTransitionTime": world.now().round(jiff::Unit::Second).unwrap()
    }] } });
    let nodes = Api::<Node>::all(world.client());
    nodes.patch_status(&node, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

async fn names(world: &World) -> BTreeSet<String> {
    machines(world).await.iter().map(|it| it.name().to_owned()).collect()
}

async fn until_gone(world: &World, name: &str) {
    world.until(name, "gone", |it: Option<&Machine>| it.is_none()).await;
}

/// A check that finds nothing, finds something, and goes.
pub(crate) async fn life_of_a_check(world: &World) {
    world.apply::<MachineSet>(set("web", 1)).await;
    until_runs(world, "web", 1).await;
    world.apply::<MachineHealthCheck>(check(&json!({}))).await;
    until(world, "healthy", all_healthy(1)).await;
    let first = names(world).await.pop_first().unwrap();
    say_broken(world, &first, "True").await;
    until_gone(world, &first).await;
    until(world, "healthy", all_healthy(1)).await;
    let example = root().join("deploy/examples/health-check/check.yaml");
    let example = serde_saphyr::from_str(&std::fs::read_to_string(example).unwrap()).unwrap();
    world.apply::<MachineHealthCheck>(example).await;
    for name in ["c", "workers"] {
        checks(world).delete(name, &DeleteParams::default()).await.unwrap();
    }
    let sets = Api::<MachineSet>::default_namespaced(world.client());
    sets.delete("web", &DeleteParams::default()).await.unwrap();
    let gone = |set: Option<&MachineSet>| set.is_none();
    timeout(Duration::from_hours(3), await_condition(sets, "web", gone)).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_set_whose_node_is_not_ready_is_replaced_when_the_time_of_the_check_is_over()
{
    let world = World::start_with(with_sets()).await;
    let spec = json!({
        "region": "local", "image": "fake-1.0", "kubelet": { "notReadyAfter": "20m" }
    });
    world.apply::<MachineClass>(class("sick", &spec)).await;
    let mut of_sick = set("web", 1);
    of_sick["spec"]["template"]["spec"]["class"]["name"] = json!("sick");
    world.apply::<MachineSet>(of_sick).await;
    world.apply::<MachineHealthCheck>(check(&json!({}))).await;
    until_runs(&world, "web", 1).await;
    until(&world, "healthy", all_healthy(1)).await;
    let first = names(&world).await.pop_first().unwrap();
    world.until(&first, "unhealthy", in_phase(MachinePhase::Unknown)).await;
    let since = world.now();
    until_gone(&world, &first).await;
    let took = world.now().duration_since(since).as_secs();
    assert!((115..240).contains(&took), "the health timeout is 600 s, this took {took} s");
    until_runs(&world, "web", 1).await;
    until(&world, "healthy", all_healthy(1)).await;
    let marks = told(&world, "MachineMarkedUnhealthy").await;
    assert_eq!(marks.len(), 1, "{marks:?}");
    assert!(marks.iter().all(|note| note.contains("Ready of its node has been False for 2m")));
    assert!(world.metrics().contains(r#"health_check_marks_total{reason="UnhealthyNode"} 1"#));
    assert_eq!(instances(&world), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_is_made_late_counts_from_the_transition_and_one_that_goes_leaves_no_mark() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("web", 2)).await;
    until_runs(&world, "web", 2).await;
    let [kept, lost]: [String; 2] = Vec::from_iter(names(&world).await).try_into().unwrap();
    say_broken(&world, &lost, "True").await;
    sleep(Duration::from_mins(3)).await;
    world.apply::<MachineHealthCheck>(check(&json!({}))).await;
    let made = world.now();
    until_gone(&world, &lost).await;
    assert!(world.now().duration_since(made).as_secs() < 60);
    until_runs(&world, "web", 2).await;
    assert!(names(&world).await.contains(&kept));
    // A machine that waits for its health to be looked at again has a mark; the check goes, and so does that.
    world
        .patch_machine(
            &kept,
            json!({ "metadata": { "annotations": { UNHEALTHY:
        r#"{"check":"c","reason":"NodeDeleted","since":"2026-01-01T00:00:00Z","message":"m"}"#
    } } }),
        )
        .await;
    checks(&world).delete("c", &DeleteParams::default()).await.unwrap();
    let clean = |it: Option<&Machine>| it.is_some_and(|it| it.annotation(UNHEALTHY).is_none());
    world.until(&kept, "without a mark", clean).await;
    rest().await;
    assert_eq!(get(&world, &kept).await.phase(), MachinePhase::Running);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_pool_is_drained_and_replaced_by_its_pool() {
    is_replaced(pools::pool("web", 3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_pool_that_another_system_scales_is_replaced_and_the_size_stays() {
    let mut pool = pools::pool("web", 3);
    let by = json!({ "annotations": { "cluster.x-k8s.io/replicas-managed-by": "autoscaler" } });
    json_patch::merge(&mut pool, &json!({ "metadata": by }));
    is_replaced(pool).await;
}

async fn is_replaced(pool: Value) {
    let world = pools::start_with(with_sets()).await;
    world.apply::<MachinePool>(pool).await;
    world.apply::<MachineHealthCheck>(check(&json!({}))).await;
    until(&world, "healthy", all_healthy(3)).await;
    let before = names(&world).await;
    let lost = before.first().unwrap();
    let id = get(&world, lost).await.provider_id().unwrap().to_string();
    say_broken(&world, lost, "True").await;
    until_gone(&world, lost).await;
    until(&world, "healthy", all_healthy(3)).await;
    rest().await;
    let after = names(&world).await;
    assert_eq!(before.intersection(&after).count(), 2, "{before:?} {after:?}");
    let there = world.cloud().instances().unwrap();
    let size = world.cloud().groups(|_| true).unwrap().first().map(|it| it.group.desired);
    assert_eq!(size, Some(3));
    assert!(there.len() == 3 && there.iter().all(|it| it.provider_id != id));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_more_unhealthy_ones_than_allowed_none_is_replaced_until_enough_are_well() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("web", 3)).await;
    until_runs(&world, "web", 3).await;
    world.apply::<MachineHealthCheck>(check(&json!({ "maxUnhealthy": "40%" }))).await;
    let before = names(&world).await;
    for name in before.iter().take(2) {
        say_broken(&world, name, "True").await;
    }
    until(&world, "restricted", says("TooManyUnhealthy")).await;
    rest().await;
    assert_eq!(told(&world, "RemediationRestricted").await.len(), 1);
    sleep(Duration::from_hours(2)).await;
    assert_eq!(names(&world).await, before);
    let all = machines(&world).await;
    assert!(all.iter().all(|it| it.phase() == MachinePhase::Running));
    let status = checks(&world).get("c").await.unwrap().status.unwrap();
    assert_eq!((status.expected_machines, status.current_healthy), (3, 1));
    assert_eq!(status.remediations_allowed, 0);
    let (well, sick) = (before.first().unwrap(), before.iter().nth(1).unwrap());
    say_broken(&world, well, "False").await;
    until_gone(&world, sick).await;
    until(&world, "healthy", all_healthy(3)).await;
    assert!(names(&world).await.contains(well));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_deployment_that_is_lost_as_a_whole_one_machine_is_replaced_at_a_time() {
    let world = World::start_with(with_sets()).await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": { "create": "1m" } });
    world.apply::<MachineClass>(class("slow", &spec)).await;
    world
        .apply::<MachineDeployment>(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "d", "namespace": "default" },
            "spec": {
                "replicas": 4,
                "selector": { "matchLabels": { "app": "web" } },
                "strategy": {
                    "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
                },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "class": { "kind": "MachineClass", "name": "slow" } }
                }
            }
        }))
        .await;
    world.apply::<MachineHealthCheck>(check(&json!({}))).await;
    until(&world, "healthy", all_healthy(4)).await;
    let before = names(&world).await;
    for name in &before {
        say_broken(&world, name, "True").await;
    }
    let watched = async {
        let (mut held, mut most) = (false, 0);
        loop {
            let there = machines(&world).await;
            held |= there.iter().any(|it| waits_for(WaitReason::MassFailure)(Some(it)));
            let lives = |it: &&Machine| {
                before.contains(it.name())
                    && !it.is_deleting()
                    && it.phase() != MachinePhase::Failed
            };
            let runs =
                |it: &&Machine| !before.contains(it.name()) && it.phase() == MachinePhase::Running;
            let lost = before.len() - there.iter().filter(lives).count();
            let made = there.iter().filter(runs).count();
            most = most.max(lost.saturating_sub(made));
            if made == 4 && there.len() == 4 {
                return (held, most);
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    let (held, most) = timeout(Duration::from_hours(6), watched).await.unwrap();
    assert!(held, "the others are held");
    assert_eq!(most, 1, "at a time");
    until(&world, "healthy", all_healthy(4)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_a_controller_is_not_replaced_and_one_that_is_to_be_skipped_does_not_count()
 {
    let world = World::start_with(with_sets()).await;
    for name in ["alone", "skipped"] {
        let mut one = machine(name, "fake");
        one["metadata"]["labels"] = json!({ "app": "web" });
        world.apply::<Machine>(one).await;
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    let skip = json!({ "metadata": { "annotations": { SKIP_REMEDIATION: "" } } });
    world.patch_machine("skipped", skip).await;
    world.apply::<MachineHealthCheck>(check(&json!({}))).await;
    for name in ["alone", "skipped"] {
        say_broken(&world, name, "True").await;
    }
    sleep(Duration::from_mins(15)).await;
    assert_eq!(told(&world, "NoController").await.len(), 1);
    for name in ["alone", "skipped"] {
        assert_eq!(get(&world, name).await.phase(), MachinePhase::Running, "{name}");
    }
    let status = checks(&world).get("c").await.unwrap().status.unwrap();
    assert_eq!(status.targets, ["alone"]);
    let said = status.conditions.iter().find(|it| it.type_ == "Replaceable").unwrap();
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "NoController"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_gets_no_node_is_replaced_after_the_startup_timeout_of_its_check() {
    let world = World::start_with(with_sets()).await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "kubelet": { "join": "never" } });
    world.apply::<MachineClass>(class("hangs", &spec)).await;
    world.apply::<MachineHealthCheck>(check(&json!({ "nodeStartupTimeout": "5m" }))).await;
    let mut hangs = set("web", 1);
    hangs["spec"]["template"]["spec"]["class"]["name"] = json!("hangs");
    world.apply::<MachineSet>(hangs).await;
    let first = loop {
        if let Some(name) = names(&world).await.pop_first() {
            break name;
        }
        sleep(Duration::from_secs(1)).await;
    };
    let made = world.now();
    let failed = |it: Option<&Machine>| {
        let status = it.and_then(|it| it.status.as_ref());
        it.is_none()
            || status.is_some_and(|it| it.failure_reason == Some(FailureReason::HealthCheck))
    };
    world.until(&first, "failed", failed).await;
    let took = world.now().duration_since(made).as_secs();
    assert!((290..420).contains(&took), "the creation timeout is 1200 s, this took {took} s");
    until_gone(&world, &first).await;
    assert_eq!(told(&world, "MachineMarkedUnhealthy").await.len(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_without_the_definition_runs_as_before_and_takes_checks_up_once_it_is_there() {
    let mut world = World::start_with(with_sets()).await;
    let definitions = Api::<CustomResourceDefinition>::all(world.client());
    let name = "machinehealthchecks.ostler.dev";
    let definition = definitions.get(name).await.unwrap();
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    world.crash_core();
    world.start_core().await;
    world.apply::<MachineSet>(set("web", 2)).await;
    until_runs(&world, "web", 2).await;
    let first = names(&world).await.pop_first().unwrap();
    say_broken(&world, &first, "True").await;
    rest().await;
    let frozen = machines(&world).await.iter().any(|it| it.phase() != MachinePhase::Running);
    assert!(!frozen, "that the definition is not there says nothing of the API server");
    let again = CustomResourceDefinition {
        metadata: kube::core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        status: None,
        ..definition
    };
    world.create(&again).await;
    sleep(Duration::from_secs(5)).await;
    world.apply::<MachineHealthCheck>(check(&json!({}))).await;
    until_gone(&world, &first).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cores_that_die_and_caches_that_lag_replace_the_one_machine_and_no_other() {
    let lagging = Setup { watches_lag: Duration::from_secs(4), ..with_sets() };
    let mut world = World::start_with(lagging).await;
    world.apply::<MachineSet>(set("web", 3)).await;
    world.apply::<MachineHealthCheck>(check(&json!({}))).await;
    until(&world, "healthy", all_healthy(3)).await;
    let before = names(&world).await;
    let lost = before.first().unwrap();
    say_broken(&world, lost, "True").await;
    sleep(Duration::from_secs(115)).await;
    for step in 1..=12 {
        sleep(Duration::from_millis(900 * step)).await;
        world.crash_core();
        world.start_core().await;
    }
    until_gone(&world, lost).await;
    until(&world, "healthy", all_healthy(3)).await;
    rest().await;
    let after = names(&world).await;
    assert_eq!((before.intersection(&after).count(), after.len()), (2, 3), "{after:?}");
    assert_eq!(instances(&world), 3);
    world.stop().await;
}
