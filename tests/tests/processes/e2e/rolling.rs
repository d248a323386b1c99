//! Upgrades at noon: drivers and cores are replaced as a Deployment does it, while 200 machines come and go.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ostler_tests::stack::Stack;

use crate::e2e::manifests::{apply_examples, class, machine};

const BATCHES: usize = 4;
const OF_A_BATCH: usize = 50;
const SLOW: &str =
    r#"{"region":"local","image":"fake-1.0","latency":{"create":"5s","delete":"5s"}}"#;

/// A new driver beside the old one, which gets SIGTERM; then a new core for the old one.
fn upgrade(stack: &mut Stack) {
    let _when = stack.replace_driver();
    stack.replace_core();
}

fn names(batch: usize) -> impl Iterator<Item = String> {
    (0..OF_A_BATCH).map(move |index| format!("noon-{batch}-{index}"))
}

#[test]
fn two_hundred_machines_come_and_go_while_drivers_and_cores_are_replaced() {
    let Some(mut stack) = Stack::start() else { return };
    apply_examples(stack.kubectl());
    stack.kubectl().run(["delete", "machine", "fake-1"]);
    stack.kubectl().apply(&class("slow", SLOW));
    for batch in 0..BATCHES {
        let mut manifests = String::new();
        for name in names(batch) {
            let _infallible = writeln!(manifests, "---\n{}", machine(&name, "slow"));
        }
        stack.kubectl().apply(&manifests);
        upgrade(&mut stack);
    }
    let running = "--for=jsonpath={.status.currentStatus.phase}=Running";
    stack.kubectl().run(["wait", "machines", "--all", running, "--timeout=300s"]);
    assert_eq!(stack.instances().len(), BATCHES * OF_A_BATCH);
    for batch in 0..BATCHES {
        let delete = ["delete", "machine", "--wait=false"].map(str::to_owned);
        stack.kubectl().run(delete.into_iter().chain(names(batch)));
        upgrade(&mut stack);
    }
    stack.kubectl().run(["wait", "machines", "--all", "--for=delete", "--timeout=300s"]);
    stack.wait_for_replaced_drivers();
    assert_eq!(stack.instances().len(), 0, "no instance is left");
    every_operation_is_accounted_for(&stack);
}

/// Each create and each delete was asked for once, and every call ended well, reads as well: cores and drivers that are
/// told to end let reads end first. `Dropped` marks a read whose core was killed, lost its Lease, or waited 5 s for the
/// read; none of these happens here.
fn every_operation_is_accounted_for(stack: &Stack) {
    let mut done: BTreeMap<(String, String), u32> = BTreeMap::new();
    for call in stack.calls().iter().filter(|call| call.name.starts_with("noon-")) {
        let outcome = call.outcome.as_ref().map(|outcome| outcome.word.as_str());
        let verb = format!("{:?}", call.operation);
        assert!(matches!(outcome, Some("OK" | "NotFound")), "{call:?}");
        if verb == "CreateMachine" || verb == "DeleteMachine" {
            *done.entry((verb, call.name.clone())).or_default() += 1;
        }
    }
    assert_eq!(done.len(), 2 * BATCHES * OF_A_BATCH);
    let twice: Vec<_> = done.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "done more than once: {twice:?}");
    let failures = "-o=jsonpath={range .items[?(@.type==\"Warning\")]}\
                    {.involvedObject.name} {.reason} {.message}{\"\\n\"}{end}";
    let told = stack.kubectl().run(["get", "events", failures]);
    let failed: Vec<_> = told
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, story)| name.starts_with("noon-") && !story.starts_with("Waiting "))
        .collect();
    assert!(failed.is_empty(), "machines reported failures: {failed:?}");
}
