//! A class edit reaches running instances, also when the driver fails half way and the edit is taken back.

use ostler_driver_fake::spec::Resource;
use ostler_tests::stack::Stack;

use crate::e2e::manifests::{apply_examples, class, machine};

const ANNOTATION: &str = "machine.sapcloud.io/last-applied-providerspec";

fn spec(color: &str) -> String {
    format!(
        r#"{{"region":"local","image":"fake-1.0","tags":{{"vm":{{"color":"{color}"}},"network":{{"color":"{color}"}},"disk":{{"color":"{color}"}}}}}}"#
    )
}

/// The three colors of the instance of a machine.
fn colors(stack: &Stack, machine: &str) -> Vec<Option<String>> {
    let instance = stack.instances_of(machine).remove(0);
    Resource::ALL.map(|it| instance.tags(it).tags.get("color").cloned()).to_vec()
}

fn all(color: &str) -> Vec<Option<String>> {
    vec![Some(color.to_owned()); 3]
}

#[test]
fn an_edit_of_tags_reaches_the_instance_without_replacing_it() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.apply(&class("tagged", &spec("red")));
    kubectl.apply(&machine("one", "tagged"));
    kubectl.wait("machine", "one", ".status.currentStatus.phase", "Running");
    assert_eq!(colors(&stack, "one"), all("red"));
    let before = kubectl.get("machine", "one")["spec"]["providerID"].clone();

    kubectl.apply(&class("tagged", &spec("blue")));
    kubectl.wait("machine", "one", ".status.lastOperation.type", "Update");
    kubectl.wait("machine", "one", ".status.lastOperation.state", "Successful");
    assert_eq!(colors(&stack, "one"), all("blue"));
    let machine = kubectl.get("machine", "one");
    assert_eq!(machine["spec"]["providerID"], before);
    let applied = machine["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
    assert!(applied.contains("blue") && !applied.contains("red"), "{applied}");
}

#[test]
fn an_edit_that_failed_half_way_and_was_taken_back_heals() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.apply(&class("tagged", &spec("red")));
    kubectl.apply(&machine("one", "tagged"));
    kubectl.wait("machine", "one", ".status.currentStatus.phase", "Running");

    stack.control(
        r#"{"faults":[{"operation":"UpdateMachine","applyPartially":1,"code":"Internal"}]}"#,
    );
    kubectl.apply(&class("tagged", &spec("blue")));
    kubectl.wait("machine", "one", ".status.lastOperation.state", "Failed");
    assert_ne!(colors(&stack, "one"), all("red"), "something was applied");
    assert_ne!(colors(&stack, "one"), all("blue"), "not all of it");
    let machine = kubectl.get("machine", "one");
    let applied = machine["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
    assert!(applied.contains("red"), "only a spec that was fully applied is named: {applied}");

    // The edit is taken back: the spec equals the last applied one, the instance does not.
    kubectl.apply(&class("tagged", &spec("red")));
    stack.control("{}");
    kubectl.wait("machine", "one", ".status.lastOperation.state", "Successful");
    assert_eq!(colors(&stack, "one"), all("red"));
}

#[test]
fn a_change_that_cannot_be_made_in_place_is_refused_whole() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.apply(&class("tagged", &spec("red")));
    kubectl.apply(&machine("one", "tagged"));
    kubectl.wait("machine", "one", ".status.currentStatus.phase", "Running");
    let moved = spec("blue").replace("\"local\"", "\"elsewhere\"");
    kubectl.apply(&class("tagged", &moved));
    let refused = r#".status.conditions[?(@.type=="HotUpdateRefused")].status"#;
    kubectl.wait("machine", "one", refused, "True");
    assert_eq!(colors(&stack, "one"), all("red"), "nothing was changed");
    assert_eq!(kubectl.get("machine", "one")["status"]["currentStatus"]["phase"], "Running");

    kubectl.apply(&class("tagged", &spec("blue")));
    kubectl.wait("machine", "one", ".status.lastOperation.state", "Successful");
    assert_eq!(colors(&stack, "one"), all("blue"));
}
