use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use ostler_api::names::annotation;
use serde_json::{Value, json};

use super::super::by_leases;
use super::*;
use crate::serving::Leases;

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn minutes_ago(minutes: i64) -> String {
    (noon() - SignedDuration::from_mins(minutes)).to_string()
}

fn deployment() -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "d", "generation": 3,
            "creationTimestamp": minutes_ago(180)
        },
        "spec": {
            "replicas": 3,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": "25%" } },
            "template": { "spec": { "class": { "kind": "MachineClass", "name": "big" } } }
        },
        "status": {
            "observedGeneration": 3, "replicas": 4, "updatedReplicas": 1, "readyReplicas": 3, "availableReplicas": 3,
            "conditions": [
                { "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable" },
                { "type": "Progressing", "status": "True", "reason": "MachineSetUpdated" }
            ]
        }
    })
}

fn set(name: &str, revision: i64, replicas: i32) -> MachineSet {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": { "deployment.kubernetes.io/revision": revision.to_string() }
        },
        "spec": { "replicas": replicas }
    }))
    .unwrap()
}

fn machine(name: &str, status: &Value) -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "class": { "kind": "MachineClass", "name": "big" } }, "status": status
    }))
    .unwrap()
}

fn running(name: &str) -> Machine {
    machine(name, &json!({ "currentStatus": { "phase": "Running" } }))
}

fn waiting(name: &str, reason: &str, message: &str) -> Machine {
    let status = json!({
        "currentStatus": { "phase": "Pending" }, "step": "JoinNode",
        "waitingFor": { "reason": reason, "message": message, "since": minutes_ago(2) }
    });
    machine(name, &status)
}

fn fleet_of(deployment: Value) -> Fleet {
    Fleet {
        deployment: Some(serde_json::from_value(deployment).unwrap()),
        sets: vec![set("web-new", 2, 1), set("web-old", 1, 3)],
        machines: [
            ("web-new".to_owned(), vec![waiting("web-new-a", "NodeMissing", "no node yet")]),
            (
                "web-old".to_owned(),
                vec![running("web-old-c"), running("web-old-b"), running("web-old-a")],
            ),
        ]
        .into(),
        runner: Runner::Process {
            holder: "core-0".to_owned(),
            runs_machines: Some(true),
            silent: None,
        },
        events: Vec::new(),
    }
}

#[test]
fn a_deployment_is_a_tree_of_sets_and_machines_with_what_each_of_them_waits_for() {
    let page = render(&fleet_of(deployment()), noon());
    assert_eq!(
        page,
        "\
MachineDeployment  default/web, 3h0m old
Strategy           RollingUpdate: at most 1 more than wanted, at most 0 (25%) fewer available
Class              big
Machines           3 desired, 4 current, 1 up-to-date, 3 ready, 3 available
Available          True (MinimumReplicasAvailable)
Progressing        True (MachineSetUpdated)
Run by             core-0, which runs the machines too
Waits for          machine web-new-a waits for NodeMissing: no node yet

Tree
  machinedeployment web
  ├─ machineset web-new: 1 desired, 1 current, 0 available (revision 2, newest)
  │  └─ web-new-a  Pending, JoinNode, waits for NodeMissing: no node yet for 2m0s
  └─ machineset web-old: 3 desired, 3 current, 3 available (revision 1)
     ├─ web-old-a  Running
     ├─ web-old-b  Running
     └─ web-old-c  Running
"
    );
}

#[test]
fn a_set_of_many_machines_shows_those_with_something_to_say_and_counts_the_rest() {
    let mut fleet = fleet_of(deployment());
    fleet.deployment = None;
    fleet.sets = vec![set("web-old", 1, 99)];
    let mut machines: Vec<Machine> =
        (0..98).map(|index| running(&format!("m-{index:02}"))).collect();
    machines.push(waiting("z", "DriverUnavailable", ""));
    fleet.machines = [("web-old".to_owned(), machines)].into();
    let page = render(&fleet, noon());
    let tree = page.split("Tree\n").nth(1).unwrap();
    assert!(tree.lines().nth(1).unwrap().contains("z  Pending"), "{page}");
    assert_eq!(tree.lines().count(), 13, "{page}");
    assert!(page.contains("└─ … and 88 more like these\n"), "{page}");
}

#[test]
fn machines_that_wait_alike_are_one_line_with_what_the_first_of_them_says() {
    let mut fleet = fleet_of(deployment());
    fleet.deployment = None;
    fleet.sets = vec![set("web-old", 1, 1000)];
    let mut machines: Vec<Machine> = (0..999)
        .map(|index| waiting(&format!("m-{index:03}"), "CapacityExhausted", "no quota"))
        .collect();
    machines.push(waiting("z", "NodeMissing", ""));
    fleet.machines = [("web-old".to_owned(), machines)].into();
    let page = render(&fleet, noon());
    let tree: Vec<_> = page.split("Tree\n").nth(1).unwrap().lines().skip(1).collect();
    assert_eq!(tree.len(), 2, "{page}");
    assert!(tree[0].contains("├─ 999 machines  Pending"), "{page}");
    assert!(tree[0].contains("waits for CapacityExhausted: no quota"), "{page}");
    assert!(tree[0].ends_with("(m-000, m-001, m-002 and 996 more)"), "{page}");
    assert!(tree[1].contains("└─ z  Pending"), "{page}");
    let why = page.lines().find(|line| line.starts_with("Waits for")).unwrap();
    let expected = "999 machines, such as m-000, wait for CapacityExhausted: no quota";
    assert!(why.ends_with(expected), "{why}");
}

type Change = fn(&mut Fleet);

/// After each change the line says what is expected.
fn assert_waits_for<const N: usize>(cases: [(Change, &str); N]) {
    for (change, expected) in cases {
        let mut fleet = fleet_of(deployment());
        change(&mut fleet);
        let page = render(&fleet, noon());
        let line = page.lines().find(|line| line.starts_with("Waits for")).unwrap();
        assert!(line.contains(expected), "{expected:?} is not in {line:?}");
    }
}

#[test]
fn the_most_important_thing_that_holds_a_deployment_up_is_named() {
    assert_waits_for([
        (
            |fleet| fleet.runner = Runner::Nobody,
            "no process runs sets: start a core whose --controllers include them",
        ),
        (
            |fleet| fleet.deployment.as_mut().unwrap().metadata.generation = Some(4),
            "the last change was not looked at yet",
        ),
        (
            |fleet| fleet.deployment.as_mut().unwrap().spec.paused = Some(true),
            "paused: a new template is not rolled out until `ostler rollout resume web`",
        ),
        (
            |fleet| {
                let deployment = fleet.deployment.as_mut().unwrap();
                deployment.spec.progress_deadline_seconds = Some(600);
                let conditions = &mut deployment.status.as_mut().unwrap().conditions;
                conditions[1].reason = Some("ProgressDeadlineExceeded".to_owned());
            },
            "no progress for 600 s, the deadline is exceeded; machine web-new-a waits for NodeMissing",
        ),
        (
            |fleet| {
                let held = waiting("z", "ReplacementBudget", "machine y is being deleted");
                fleet.machines.get_mut("web-old").unwrap().push(held);
            },
            "no more machines may be replaced at the same time: machine z waits for ReplacementBudget",
        ),
        (
            |fleet| {
                let held = waiting("z", "PodDisruptionBudget", "");
                fleet.machines.get_mut("web-old").unwrap().push(held);
            },
            "a PodDisruptionBudget refuses evictions: machine z waits for PodDisruptionBudget",
        ),
        (
            |fleet| {
                let deployment = fleet.deployment.as_mut().unwrap();
                let refused = json!({ "type": "Valid", "status": "False", "message": "spec.selector is missing" });
                let refused = serde_json::from_value(refused).unwrap();
                deployment.status.as_mut().unwrap().conditions.push(refused);
            },
            "its spec is refused: spec.selector is missing",
        ),
    ]);
}

fn freeze(set: &mut MachineSet) {
    set.metadata.labels = Some([("freeze".to_owned(), "True".to_owned())].into());
}

#[test]
fn a_frozen_set_is_waited_for_only_if_it_lacks_machines_and_nothing_blocks_those_that_go() {
    assert_waits_for([
        (
            |fleet| freeze(&mut fleet.sets[1]),
            "Waits for          machine web-new-a waits for NodeMissing",
        ),
        (
            |fleet| {
                (fleet.sets[1].spec.replicas, fleet.deployment) = (Some(0), None);
                freeze(&mut fleet.sets[1]);
                fleet.machines = [("web-new".to_owned(), vec![running("a")])].into();
            },
            "Waits for          nothing; up to date",
        ),
        (
            |fleet| {
                freeze(&mut fleet.sets[1]);
                fleet.sets[1].spec.replicas = Some(4);
            },
            "frozen: machineset web-old wants 4 machines, has 3 and deletes 0 more; it creates none until enough are \
             gone, or until `kubectl annotate machineset web-old safety.machine.sapcloud.io/unfreeze=true`; machine \
             web-new-a waits for NodeMissing",
        ),
        (
            |fleet| {
                freeze(&mut fleet.sets[1]);
                let machine = &mut fleet.machines.get_mut("web-old").unwrap()[0];
                machine.metadata.deletion_timestamp = Some(Time(noon()));
            },
            "frozen: machineset web-old wants 3 machines, has 2 and deletes 1 more",
        ),
        (
            |fleet| {
                freeze(&mut fleet.sets[1]);
                fleet.sets[1].spec.replicas = Some(9);
                let held = waiting("z", "PodDisruptionBudget", "");
                fleet.machines.get_mut("web-old").unwrap().push(held);
            },
            "a PodDisruptionBudget refuses evictions: machine z waits for PodDisruptionBudget",
        ),
    ]);
}

#[test]
fn of_several_waits_the_one_that_blocks_most_is_named_wherever_its_machine_stands() {
    let order = [
        "HotUpdateRefused",
        "NodeUnhealthy",
        "NodeUpdating",
        "PodsTerminating",
        "PodDisruptionBudget",
        "DriverUnavailable",
        "ReplacementBudget",
        "MassFailure",
    ];
    let mut fleet = fleet_of(deployment());
    fleet.machines.clear();
    for reason in order {
        let machine = waiting(&format!("of-{reason}"), reason, "");
        fleet.machines.entry("web-old".to_owned()).or_default().push(machine);
        let page = render(&fleet, noon());
        let line = page.lines().find(|line| line.starts_with("Waits for")).unwrap();
        assert!(line.contains(&format!("machine of-{reason} waits for {reason}")), "{line}");
    }
}

#[test]
fn the_limits_of_a_strategy_are_those_that_count() {
    for (surge, unavailable, limits) in [
        (json!(0), json!(0), "at most 0 more than wanted, at most 1 fewer available\n"),
        (json!(2), json!(0), "at most 2 more than wanted, at most 0 fewer available\n"),
        (
            json!("30%"),
            json!("40%"),
            "at most 1 (30%) more than wanted, at most 1 (40%) fewer available\n",
        ),
    ] {
        let mut deployment = deployment();
        deployment["spec"]["strategy"]["rollingUpdate"] =
            json!({ "maxSurge": surge, "maxUnavailable": unavailable });
        let page = render(&fleet_of(deployment), noon());
        assert!(page.contains(limits), "{page}");
    }
}

#[test]
fn what_only_a_user_can_end_and_a_rollout_that_goes_on_do_not_pass_for_all_as_wanted() {
    assert_waits_for([
        (
            |fleet| {
                let paused = annotation::CLUSTER_API_PAUSED.to_owned();
                fleet.deployment.as_mut().unwrap().metadata.annotations =
                    Some([(paused, String::new())].into());
            },
            "until `kubectl annotate machinedeployment web cluster.x-k8s.io/paused-`; scaling",
        ),
        (
            |fleet| {
                let status = fleet.deployment.as_mut().unwrap().status.as_mut().unwrap();
                status.conditions[1].reason = Some("MachineSetCreateError".to_owned());
                status.conditions[1].message = Some("cannot create a machine set: no".to_owned());
                fleet.machines.clear();
            },
            "there is no machineset for the template: cannot create a machine set: no",
        ),
        (
            |fleet| {
                fleet.deployment.as_mut().unwrap().spec.selector = Some(LabelSelector::default());
                fleet.machines.clear();
            },
            "its selector is empty and would select every machineset",
        ),
        (
            |fleet| {
                let status = fleet.deployment.as_mut().unwrap().status.as_mut().unwrap();
                let hindered = "it is progressing. Blocked: 3 nodes wait for a user";
                status.conditions[1].message = Some(hindered.to_owned());
            },
            "Waits for          3 nodes wait for a user; machine web-new-a waits for NodeMissing",
        ),
        (
            |fleet| {
                let all = ["a", "b", "c", "d"].map(running);
                fleet.machines = [("web-old".to_owned(), all.to_vec())].into();
            },
            "nothing; it goes on: 1 of 3 machines are replaced",
        ),
        (
            |fleet| {
                fleet.deployment = None;
                fleet.machines.clear();
            },
            "nothing; it goes on: there are 0 machines, and 4 are wanted",
        ),
        (
            |fleet| {
                fleet.sets.truncate(1);
                fleet.machines =
                    [("web-new".to_owned(), vec![running("a"), running("b"), running("c")])].into();
                let status = fleet.deployment.as_mut().unwrap().status.as_mut().unwrap();
                (status.replicas, status.updated_replicas) = (3, 3);
            },
            "nothing; up to date",
        ),
    ]);
}

#[test]
fn a_driver_that_is_asked_and_a_core_that_is_not_there_do_not_pass_for_a_rollout_that_goes_on() {
    assert_waits_for([
        (
            |fleet| fleet.runner = Runner::Unserved("no core serves namespace default".to_owned()),
            "Waits for          no core serves namespace default",
        ),
        (
            |fleet| {
                // A first create that is sent and not answered stands in the metadata.
                let record = json!({ "machineUID": "u", "operation": {
                    "id": "1", "kind": "CreateMachine", "idempotencyKey": "u:c", "term": 1, "attempt": 1,
                    "startedAt": minutes_ago(1)
                } });
                let mut asked = machine("web-new-a", &json!(null));
                let annotation = (annotation::OPERATION.to_owned(), record.to_string());
                asked.metadata.annotations = Some([annotation].into());
                asked.metadata.uid = Some("u".to_owned());
                fleet.machines.insert("web-new".to_owned(), vec![asked]);
            },
            "Waits for          the driver's answer to CreateMachine since ",
        ),
        (
            |fleet| {
                let new = ["a", "b"].map(|name| machine(name, &json!(null)));
                fleet.machines.insert("web-new".to_owned(), new.to_vec());
            },
            "Waits for          the core, which has written nothing about machine a (and 1 more) yet",
        ),
    ]);
}

#[test]
fn the_row_of_a_set_says_what_it_cannot_do_and_what_holds_its_machines() {
    let mut fleet = fleet_of(deployment());
    let conditions = json!([
        { "type": "ReplicaFailure", "status": "True", "message": "quota is exceeded" },
        { "type": "Valid", "status": "False", "message": "no class" }
    ]);
    fleet.sets[0].status.get_or_insert_default().conditions =
        serde_json::from_value(conditions).unwrap();
    let held = ["x", "y"].map(|name| waiting(name, "ReplacementBudget", ""));
    fleet.machines.get_mut("web-old").unwrap().extend(held);
    let page = render(&fleet, noon());
    for row in [
        "0 available (revision 2, newest, refused: no class, failure: quota is exceeded)\n",
        "3 available (revision 1, 2 held by ReplacementBudget)\n",
    ] {
        assert!(page.contains(row), "{page}");
    }
}

#[test]
fn another_process_that_runs_a_set_is_named_with_what_to_do() {
    let mut fleet = fleet_of(deployment());
    let foreign = json!({
        "type": "ReplicaFailure", "status": "True", "reason": "ForeignController",
        "message": "machine x was made by another process"
    });
    let conditions = vec![serde_json::from_value(foreign).unwrap()];
    fleet.sets[1].status.get_or_insert_default().conditions = conditions;
    let page = render(&fleet, noon());
    let expected = "another process runs machineset web-old: machine x was made by another process";
    assert!(page.contains(expected), "{page}");
}

#[test]
fn while_another_process_has_the_lease_of_the_sets_the_page_says_who() {
    let mut fleet = fleet_of(deployment());
    fleet.runner =
        Runner::Process { holder: "mcm-7d9f".to_owned(), runs_machines: Some(false), silent: None };
    let page = render(&fleet, noon());
    assert!(
        page.contains(
            "Run by             mcm-7d9f, another process than the one that runs the machines\n"
        ),
        "{page}"
    );
}

/// The clocks of two computers are seldom one.
#[test]
fn a_holder_whose_lease_has_expired_by_this_clock_is_named_and_other_reasons_too() {
    let lease = |holder: &str, seconds: i64| -> Lease {
        let renewed = (noon() - SignedDuration::from_secs(seconds)).to_string();
        let spec = json!({
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed
        });
        let meta = json!({ "name": "machine-controller-manager", "namespace": "default" });
        serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap()
    };
    let by = |sets: &Lease| by_leases(&Leases::of(vec![sets.clone()]), "default", noon());
    assert!(matches!(by(&lease("", 0)), Runner::Unserved(why) if why.contains("no core serves")));
    assert_eq!(by(&lease("core-0", 30)).silent(), None);
    assert_eq!(by(&lease("core-0", -95)).silent(), None);
    let mut fleet = fleet_of(deployment());
    fleet.runner = by(&lease("core-0", 95));
    let who = "core-0, whose Lease was renewed 1m35s ago by this computer's clock";
    let page = render(&fleet, noon());
    for (line, text) in [("Run by", who), ("Waits for", "machine web-new-a waits for NodeMissing")]
    {
        let line = page.lines().find(|it| it.starts_with(line)).unwrap();
        assert!(line.contains(text), "{text:?} is not in {line:?}");
    }
    fleet.machines.clear();
    let page = render(&fleet, noon());
    let expected = format!("Waits for          {who}: 1 of 3 machines are replaced");
    assert!(page.contains(&expected), "{page}");
}

#[test]
fn what_others_wrote_begins_no_line_and_does_nothing_to_the_terminal() {
    use crate::terminal::tests::{HOSTILE, assert_harmless};
    let mut fleet = fleet_of(deployment());
    fleet.runner =
        Runner::Process { holder: HOSTILE.to_owned(), runs_machines: None, silent: None };
    fleet.machines.get_mut("web-new").unwrap().push(waiting(HOSTILE, HOSTILE, HOSTILE));
    let conditions = &mut fleet.deployment.as_mut().unwrap().status.as_mut().unwrap().conditions;
    conditions[0].type_ = serde_json::from_value(json!(HOSTILE)).unwrap();
    conditions[0].reason = Some(HOSTILE.to_owned());
    fleet.events.push(
        serde_json::from_value(json!({ "metadata": { "name": "e" }, "note": HOSTILE })).unwrap(),
    );
    let page = render(&fleet, noon());
    assert_harmless(&page);
    assert!(page.matches("PWNED-TITLE").count() > 5, "{page}");
}
