//! MachinePools whose core and driver are killed in the middle of what they do, with kubectl.

#![expect(clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use ostler_driver_fake::cloud::{Clock, Cloud};
use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::{PATIENCE, pause};
use ostler_tests::stack::{Part, Stack};
use serde_json::Value;

use crate::e2e::docker::World;
use crate::e2e::pools::{class_and_pool, cloud, has, names, one, scale, upgrade};

/// The events of kubectl's watches of pools and their Machines.
struct News {
    watches: Vec<Child>,
    told: Receiver<Value>,
    /// The pool as it was told last.
    pool: Value,
    /// Names of Machines that went.
    gone: BTreeSet<String>,
}

impl News {
    /// Both are watched when this returns.
    fn follow(kubectl: &Kubectl) -> Self {
        let (teller, told) = channel();
        let (watches, pool, gone) = (Vec::new(), Value::Null, BTreeSet::new());
        let mut news = Self { watches, told, pool, gone };
        for kind in ["machines", "machinepools"] {
            let watch = ["get", kind, "--watch", "--output-watch-events", "-o", "json"];
            let until = format!("--request-timeout={}s", PATIENCE.as_secs());
            let mut watch =
                kubectl.command(watch).arg(until).stdout(Stdio::piped()).spawn().unwrap();
            let (events, teller) = (watch.stdout.take().unwrap(), teller.clone());
            news.watches.push(watch);
            std::thread::spawn(move || {
                let events = serde_json::Deserializer::from_reader(events).into_iter::<Value>();
                events.map_while(Result::ok).try_for_each(|event| teller.send(event))
            });
            while news.next()["kind"] != kind_of(kind) {}
        }
        news
    }

    /// The next object of which something is told.
    fn next(&mut self) -> Value {
        let event = self.told.recv_timeout(PATIENCE).unwrap();
        let object = event["object"].clone();
        if object["kind"] == "MachinePool" {
            self.pool = object.clone();
        } else if event["type"] == "DELETED" {
            self.gone.insert(object["metadata"]["name"].as_str().unwrap().to_owned());
        }
        object
    }

    /// So many machines of the current model run, and nothing is left to do.
    fn has(&self, count: usize) -> bool {
        let (status, generation) = (&self.pool["status"], &self.pool["metadata"]["generation"]);
        let counts = ["upToDateReplicas", "readyReplicas", "replicas"];
        status["observedGeneration"] == *generation
            && status["operation"].is_null()
            && counts.iter().all(|field| status[field] == count)
    }
}

impl Drop for News {
    fn drop(&mut self) {
        for watch in &mut self.watches {
            let _already_gone = watch.kill();
            let _already_reaped = watch.wait();
        }
    }
}

fn kind_of(plural: &str) -> &str {
    if plural == "machines" { "Machine" } else { "MachinePool" }
}

/// Cores that die in one change: a driver dials the next ones later and later.
const DEATHS: usize = 2;

/// Does something to a pool, and kills the core at the first change that the API server tells of, and then at each one that
/// is so many later, until all is done.
fn while_cores_die(
    stack: &mut Stack,
    act: impl FnOnce(&Stack),
    apart: usize,
    done: impl Fn(&News) -> bool,
) {
    // A fresh driver, which has seen no core die.
    stack.kill(Part::Driver);
    stack.restart(Part::Driver);
    wait_for_driver(stack);
    let mut news = News::follow(stack.kubectl());
    act(stack);
    let mut killed = 0;
    for heard in 0.. {
        news.next();
        if done(&news) {
            break;
        }
        if killed < DEATHS && heard % apart == 0 {
            stack.kill(Part::Core);
            stack.restart(Part::Core);
            killed += 1;
            wait_for_driver(stack);
        }
    }
    assert!(killed == DEATHS, "{killed} cores died");
}

fn wait_for_driver(stack: &Stack) {
    stack.wait_for_metric("ostler_driver_sessions{", |sessions| sessions >= 1.0);
}

/// How many instances the group has made, and its id.
fn group(stack: &Stack) -> (u64, String) {
    let state = Cloud::read(&stack.file("cloud.jsonl")).unwrap();
    let group = state.groups().next().unwrap();
    (group.next, group.provider_id.clone())
}

/// As it is to be after each change: two Machines, and nothing else in the cloud.
fn two_are_left(stack: &Stack, made: u64) {
    assert_eq!((cloud(stack), group(stack).0), ((vec![2], 2), made));
    assert_eq!(names(stack.kubectl()).len(), 2);
    let nodes = stack.kubectl().run(["get", "nodes", "--no-headers"]);
    let taking = nodes.lines().filter(|line| !line.contains("SchedulingDisabled"));
    assert!(nodes.lines().count() == 2 && taking.count() == 2, "{nodes}");
}

#[test]
fn cores_that_are_killed_at_the_changes_of_a_pool_make_and_delete_none_too_many() {
    let Some(mut stack) = Stack::start() else { return };
    let pool = class_and_pool(stack.kubectl());
    stack.kubectl().apply(&pool);
    has(stack.kubectl(), "pool", 2);

    while_cores_die(&mut stack, |it| scale(it.kubectl(), "pool", 3), 2, |news| news.has(3));
    while_cores_die(&mut stack, |it| scale(it.kubectl(), "pool", 2), 2, |news| news.has(2));
    two_are_left(&stack, 3);
    let before = names(stack.kubectl());
    let replaced = |news: &News| news.gone.is_superset(&before) && news.has(2);
    while_cores_die(&mut stack, |it| upgrade(it.kubectl()), 5, replaced);
    two_are_left(&stack, 5);

    let name = one(stack.kubectl());
    let deletes = |it: &Stack| drop(it.kubectl().run(["delete", "machine", &name, "--wait=false"]));
    while_cores_die(&mut stack, deletes, 3, |news| news.gone.contains(&name) && news.has(2));
    two_are_left(&stack, 6);
    let name = one(stack.kubectl());
    let id = stack.kubectl().get("machine", &name)["spec"]["providerID"].clone();
    let loses = |it: &Stack| from_outside(it).remove(&[id.as_str().unwrap().to_owned()]).unwrap();
    while_cores_die(&mut stack, loses, 2, |news| news.gone.contains(&name) && news.has(2));
    two_are_left(&stack, 7);
    let ((_, lost), all) = (group(&stack), names(stack.kubectl()));
    let loses = |it: &Stack| from_outside(it).remove_group(&lost).unwrap();
    while_cores_die(&mut stack, loses, 2, |news| news.gone.is_superset(&all) && news.has(2));
    assert_ne!(group(&stack).1, lost);
    two_are_left(&stack, 2);
    is_deleted_while_the_driver_is_away(&mut stack);
}

/// The cloud, for who is neither driver nor core.
fn from_outside(stack: &Stack) -> Cloud {
    Cloud::open(&stack.file("cloud.jsonl"), Clock::system()).unwrap()
}

fn is_deleted_while_the_driver_is_away(stack: &mut Stack) {
    stack.kill(Part::Driver);
    stack.kubectl().run(["delete", "machinepool", "pool", "--wait=false"]);
    let waits = |stack: &Stack| {
        let reason = r#".status.conditions[?(@.type=="InfrastructureReady")].reason"#;
        stack.kubectl().wait("machinepool", "pool", ".status.phase", "Deleting");
        stack.kubectl().wait("machinepool", "pool", reason, "DriverUnavailable");
    };
    waits(stack);
    stack.kill(Part::Core);
    stack.restart(Part::Core);
    waits(stack);
    assert_eq!(cloud(stack), (vec![2], 2));
    stack.restart(Part::Driver);
    stack.kubectl().wait_gone("machinepool", "pool");
    assert_eq!(cloud(stack), (Vec::new(), 0));
    assert!(
        stack.kubectl().list("machines").is_empty() && stack.kubectl().list("nodes").is_empty()
    );
}

#[test]
fn a_core_and_a_driver_that_are_killed_in_the_middle_of_changes_leave_no_container() {
    let Some(mut world) = World::start(&["pool/pool.yaml"]) else { return };
    has(&world.kubectl, "pool", 2);
    let before = names(&world.kubectl);
    let changes: [fn(&Kubectl); 3] =
        [|it| scale(it, "pool", 3), upgrade, |it| scale(it, "pool", 2)];
    for (change, count) in changes.into_iter().zip([3, 3, 2]) {
        both_die_in(&mut world, change);
        has(&world.kubectl, "pool", count);
        assert_eq!(world.of_cluster().len(), count + 1, "those, and the one of the group");
    }
    assert!(names(&world.kubectl).is_disjoint(&before), "each was replaced");
    both_die_in(&mut world, |it| {
        it.run(["delete", "machinepool", "pool", "--wait=false"]);
    });
    world.kubectl.wait_gone("machinepool", "pool");
    assert_eq!(world.of_cluster(), [""; 0]);
    assert!(world.kubectl.list("machines").is_empty() && world.kubectl.list("nodes").is_empty());
}

/// Changes the pool; the driver dies when the core has seen that, and the core when another Machine is there, or one goes.
fn both_die_in(world: &mut World, change: impl FnOnce(&Kubectl)) {
    let before = names(&world.kubectl);
    change(&world.kubectl);
    let deadline = Instant::now() + PATIENCE;
    let until = |met: &dyn Fn() -> bool| {
        while !met() {
            assert!(Instant::now() < deadline, "nothing happens");
            pause();
        }
    };
    let kubectl = world.kubectl.clone();
    until(&|| {
        let pool = kubectl.get("machinepool", "pool");
        pool["status"]["observedGeneration"] == pool["metadata"]["generation"]
    });
    world.signal_driver("KILL");
    until(&|| {
        let all = kubectl.list("machines");
        let goes = all.iter().any(|it| !it["metadata"]["deletionTimestamp"].is_null());
        goes || names(&kubectl) != before
    });
    world.kill_up();
    world.restart_up();
}
