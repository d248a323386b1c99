//! Properties over generated sets.

use std::sync::Arc;

use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::set::{
    Blind, Policy, Rank, Snapshot, decide as plan, is_active, plan as writes,
};
use ostler_lifecycle::write::Object;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api::Api;
use crate::set::objects::{machine, now, set, snapshot};

const PHASES: [&str; 11] = [
    "",
    "Pending",
    "Available",
    "Running",
    "Terminating",
    "Unknown",
    "Failed",
    "CrashLoopBackOff",
    "InPlaceUpdating",
    "InPlaceUpdateSuccessful",
    "InPlaceUpdateFailed",
];

type Traits = (usize, u32, Option<i32>, Option<u32>, Option<u32>, u8);

fn any_machine() -> impl Strategy<Value = Traits> {
    (
        0..PHASES.len(),
        0..3_u32,
        proptest::option::of(-1..5),
        proptest::option::of(0..3_u32),
        proptest::option::of(0..3_u32),
        0..8_u8,
    )
}

fn made((index, it): (usize, &Traits)) -> Arc<Machine> {
    let (phase, created, priority, mark, preserved, odd) = *it;
    let hour = |hour: u32| format!("2026-01-01T{hour:02}:00:00Z");
    let text = |value: Option<String>| value.map_or(Value::Null, Value::from);
    let labels = json!({
        "app": if odd == 1 { "b" } else { "a" },
        "node.machine.sapcloud.io/update-result": if odd == 2 { json!("successful") } else { Value::Null }
    });
    machine(
        &format!("m{index}"),
        json!({
            "metadata": {
                "creationTimestamp": hour(created),
                "labels": labels,
                "deletionTimestamp": if odd == 3 { json!(hour(11)) } else { Value::Null },
                "ownerReferences": if odd == 4 { Value::Null } else { json!([{
                    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s",
                    "uid": if odd == 5 { "another" } else { "set-uid" }, "controller": true
                }]) },
                "annotations": {
                    "machinepriority.machine.sapcloud.io": text(priority.map(|it| it.to_string())),
                    "machine.sapcloud.io/marked-for-deletion-time": text(mark.map(|it| hour(it + 9)))
                }
            },
            "status": { "currentStatus": {
                "phase": PHASES[phase],
                "preserveExpiryTime": text(preserved.map(|it| hour(it + 11)))
            } }
        }),
    )
}

fn a_set(replicas: i32, policy: usize) -> MachineSet {
    let policy = ["Oldest", "Newest", "Random"][policy];
    let annotations = json!({
        "ostler.dev/delete-policy": policy,
        "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time": "2026-01-01T10:00:00Z"
    });
    set(replicas, json!({ "metadata": { "annotations": annotations } }))
}

proptest! {
    /// Whatever order the cache has, the same ones go.
    #[test]
    fn the_order_is_total_and_the_same_for_every_order_of_the_cache(
        all in proptest::collection::vec(any_machine(), 0..20),
        replicas in 0..20_i32,
        policy in 0..3_usize,
        turn in 0..20_usize,
    ) {
        let machines: Vec<_> = all.iter().enumerate().map(made).collect();
        let policy_of = Policy::of(&a_set(0, policy));
        let mut ranks: Vec<_> = machines.iter().map(|it| Rank::of(it, policy_of, now())).collect();
        ranks.sort();
        prop_assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]), "two are equal");
        let mut turned = machines.clone();
        turned.rotate_left(if all.is_empty() { 0 } else { turn % all.len() });
        turned.reverse();
        let goes = |machines| plan(&snapshot(a_set(replicas, policy), machines)).delete;
        prop_assert_eq!(goes(machines), goes(turned));
    }

    /// An update in place makes no Machine go that would not go as Running.
    #[test]
    fn a_machine_that_is_updated_goes_no_sooner_than_one_that_runs(one in any_machine()) {
        let with = |phase| {
            let (_, created, priority, mark, preserved, odd) = one;
            let traits = (phase, created, priority, mark, preserved, odd);
            Rank::of(&made((0, &traits)), Policy::Oldest, now())
        };
        for phase in 8..11 {
            prop_assert_eq!(with(phase), with(3));
        }
    }

    /// INV-11, INV-13 and INV-14 are asserted in `plan`; what follows is said from outside.
    #[test]
    fn no_plan_makes_more_than_wanted_and_no_plan_both_creates_and_removes_surplus(
        all in proptest::collection::vec(any_machine(), 0..20),
        replicas in 0..20_i32,
        unanswered in 0..4_usize,
        blind in 0..4_usize,
    ) {
        let mut snap = snapshot(a_set(replicas, 0), all.iter().enumerate().map(made).collect());
        snap.unanswered = (0..unanswered).map(|index| format!("s-{index}")).collect();
        snap.blind = [
            None,
            Some(Blind::OwnWrites),
            Some(Blind::Predecessor),
            Some(Blind::Unreadable(String::new())),
        ][blind].clone();
        let plan = plan(&snap);
        let active = plan.claimed.iter().filter(|it| is_active(it)).count();
        let wanted = usize::try_from(replicas).unwrap();
        prop_assert!(active + plan.create <= wanted.max(active));
        let surplus = plan.delete.iter().filter(|it| it.cause == ostler_lifecycle::set::Cause::Surplus);
        let surplus = surplus.count();
        prop_assert!(plan.create == 0 || surplus == 0);
        prop_assert!(active - surplus >= wanted.min(active), "never below what is wanted");
        prop_assert!(blind == 0 || plan.create == 0);
    }

    /// An autoscaler marks some and lowers the number by as many, in either order: exactly those go.
    #[test]
    fn exactly_the_marked_ones_go(
        all in proptest::collection::vec((any::<bool>(), 0..6_usize, 0..3_u32), 1..20),
        lowered in any::<bool>(),
        policy in 0..3_usize,
    ) {
        // No phase of these makes a Machine go by itself.
        let phase = |index: usize| [0, 1, 2, 3, 5, 8][index];
        let one = |(index, (marked, at, created)): (usize, &(bool, usize, u32))| {
            let (priority, mark) = if *marked { (Some(1), Some(0)) } else { (None, None) };
            made((index, &(phase(*at), *created, priority, mark, None, 0)))
        };
        let machines: Vec<_> = all.iter().enumerate().map(one).collect();
        let marked = all.iter().enumerate().filter(|(_, it)| it.0);
        let marked: Vec<_> = marked.map(|(index, _)| format!("m{index}")).collect();
        let less = if lowered { marked.len() } else { 0 };
        let replicas = i32::try_from(all.len() - less).unwrap();
        let plan = plan(&snapshot(a_set(replicas, policy), machines));
        let mut goes: Vec<_> = plan.delete.iter().map(|it| it.machine.name().to_owned()).collect();
        goes.sort_by_key(|name| name[1..].parse::<usize>().unwrap());
        prop_assert_eq!(goes, marked);
    }

    /// An environment that answers every plan comes to rest with as many as wanted.
    #[test]
    fn it_comes_to_rest_with_as_many_as_wanted(
        all in proptest::collection::vec(any_machine(), 0..12),
        replicas in 0..12_i32,
    ) {
        let own = Object::Set(Arc::new(a_set(replicas, 0)));
        let machines = all.iter().enumerate().map(|it| Object::Machine(made(it)));
        let mut api = Api::with(machines.chain([own.clone()]));
        let seen = |api: &Api, seed| {
            let machines = api.objects().filter_map(Object::machine).cloned().collect();
            let set = api.objects().find_map(|it| if let Object::Set(it) = it { Some(it) } else { None });
            Snapshot { seed, ..snapshot(set.unwrap().as_ref().clone(), machines) }
        };
        for round in 0..40 {
            let snap = seen(&api, round);
            if plan(&snap).is_idle() {
                break;
            }
            prop_assert!(round < 39, "it never rests: {:?}", plan(&snap));
            let own = Object::Set(Arc::clone(&snap.set));
            prop_assert!(api.execute(&own, &writes(&snap), now()).is_some());
        }
        let last = plan(&seen(&api, 40));
        let active = last.claimed.iter().filter(|it| is_active(it));
        let handed = active.clone().filter(|it| {
            it.label("node.machine.sapcloud.io/update-result").is_some()
        }).count();
        let wanted = usize::try_from(replicas).unwrap();
        prop_assert!((wanted..=wanted + handed).contains(&active.count()));
    }
}
