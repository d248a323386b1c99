//! Decides the next action for an object.

use super::graph::{Graph, Node, Owner, Uid};

/// Holds an object until its blocking dependents are gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Holds an object until its dependents have dropped their references to the object.
pub(super) const ORPHAN: &str = "orphan";

/// The treatment of dependents at a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Background,
    Foreground,
    Orphan,
}

impl Policy {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// The action for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing.
    Keep,
    /// Delete it: no owner is left.
    Delete { uid: Uid, policy: Policy },
    /// Take the references to owners that are gone out of it: others are left.
    Disown { uid: Uid, owners: Vec<Uid> },
    /// Take a finalizer of the collector off it.
    Release { uid: Uid, finalizer: &'static str },
    /// Remove the references to the object from its dependents, then its orphan finalizer.
    Orphan { uid: Uid, dependents: Vec<Uid> },
}

/// The state of an owner, for its dependent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The owner exists: it keeps the dependent.
    Solid,
    /// It is being deleted in the foreground and waits for this dependent.
    Waiting,
    /// It is not there.
    Gone,
    /// It cannot be told: its kind is not served, it cannot be an owner at all, or it may be an object that
    /// cannot be read.
    Unknown,
}

/// Decides about one object. `namespaced` says of an apiVersion and kind whether its objects live
/// in namespaces; nothing if the kind is not served.
pub(super) fn decide(
    graph: &Graph,
    uid: &Uid,
    namespaced: impl Fn(&str, &str) -> Option<bool>,
) -> Action {
    let Some(node) = graph.node(uid) else { return Action::Keep };
    if node.deleting {
        return see_through(graph, uid, node);
    }
    if node.owners.is_empty() {
        return Action::Keep;
    }
    let standing: Vec<(Standing, &Owner)> = node
        .owners
        .iter()
        .map(|owner| (standing(graph, node, owner, &namespaced), owner))
        .collect();
    let any = |wanted| standing.iter().any(|(found, _)| *found == wanted);
    if any(Standing::Unknown) {
        return Action::Keep;
    }
    if any(Standing::Solid) {
        let owners: Vec<Uid> = standing
            .iter()
            .filter(|(found, _)| *found != Standing::Solid)
            .map(|(_, owner)| owner.uid.clone())
            .collect();
        return if owners.is_empty() {
            Action::Keep
        } else {
            Action::Disown { uid: uid.clone(), owners }
        };
    }
    let dependents = graph.dependents(uid).next().is_some();
    let policy = if any(Standing::Waiting) && dependents {
        Policy::Foreground
    } else if node.holds(ORPHAN) {
        Policy::Orphan
    } else if node.holds(FOREGROUND) {
        Policy::Foreground
    } else {
        Policy::Background
    };
    Action::Delete { uid: uid.clone(), policy }
}

/// The next step of a deletion in progress.
fn see_through(graph: &Graph, uid: &Uid, node: &Node) -> Action {
    if node.holds(ORPHAN) {
        let dependents = graph.dependents(uid).cloned().collect();
        return Action::Orphan { uid: uid.clone(), dependents };
    }
    let blocked = || {
        graph
            .dependents(uid)
            .filter_map(|dependent| graph.node(dependent))
            .any(|dependent| blocks(uid, dependent) && !in_circle(graph, uid, dependent))
    };
    if node.holds(FOREGROUND) && !blocked() {
        return Action::Release { uid: uid.clone(), finalizer: FOREGROUND };
    }
    Action::Keep
}

fn blocks(owner: &Uid, dependent: &Node) -> bool {
    let mut references = dependent.owners.iter().filter(|reference| reference.uid == *owner);
    references.any(|reference| reference.block_owner_deletion == Some(true))
}

/// Two objects that own each other and are both being deleted in the foreground would wait for
/// each other for ever.
fn in_circle(graph: &Graph, owner: &Uid, dependent: &Node) -> bool {
    dependent.deleting
        && dependent.holds(FOREGROUND)
        && graph.node(owner).is_some_and(|owner| {
            owner.owners.iter().any(|reference| {
                graph.node(&reference.uid).is_some_and(|node| node.key == dependent.key)
            })
        })
}

fn standing(
    graph: &Graph,
    node: &Node,
    owner: &Owner,
    namespaced: &impl Fn(&str, &str) -> Option<bool>,
) -> Standing {
    let inside = !node.key.namespace().is_empty();
    let lives_inside = namespaced(&owner.api_version, &owner.kind);
    if !inside && lives_inside == Some(true) {
        return Standing::Unknown;
    }
    let found = graph.node(&owner.uid).filter(|found| is(found, owner));
    let reachable = |found: &&Node| {
        found.key.namespace().is_empty() || found.key.namespace() == node.key.namespace()
    };
    match (found.filter(reachable), lives_inside) {
        (Some(found), _) if found.deleting && found.holds(FOREGROUND) => Standing::Waiting,
        (Some(_), _) => Standing::Solid,
        (None, Some(_)) if !graph.has_unreadable() => Standing::Gone,
        (None, Some(_) | None) => Standing::Unknown,
    }
}

/// Whether an object is the one that a reference means. Versions of one kind are the same.
fn is(found: &Node, owner: &Owner) -> bool {
    let group = |api_version: &str| match api_version.split_once('/') {
        Some((group, _)) => group.to_owned(),
        None => String::new(),
    };
    found.kind == owner.kind
        && found.key.name() == owner.name
        && group(&found.api_version) == group(&owner.api_version)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::store::Key;

    fn namespaced(_: &str, kind: &str) -> Option<bool> {
        match kind {
            "ConfigMap" => Some(true),
            "Node" => Some(false),
            _ => None,
        }
    }

    fn owner(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name,
            "blockOwnerDeletion": true})
    }

    /// A ConfigMap in `ns` with `name` as uid.
    fn map(name: &str, owners: &[&str], finalizer: Option<&str>) -> (Key, Value) {
        let mut metadata = json!({"name": name, "namespace": "ns", "uid": name,
            "ownerReferences": owners.iter().map(|name| owner(name)).collect::<Vec<_>>()});
        if let Some(finalizer) = finalizer {
            metadata["finalizers"] = json!([finalizer]);
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        (Key::new("", "configmaps", "ns", name), object)
    }

    fn graph(objects: &[(Key, Value)]) -> Graph {
        let mut graph = Graph::default();
        for (key, object) in objects {
            graph.put(key, object.to_string().as_bytes());
        }
        graph
    }

    fn decided(objects: &[(Key, Value)], uid: &str) -> Action {
        decide(&graph(objects), &uid.into(), namespaced)
    }

    fn delete(uid: &str, policy: Policy) -> Action {
        Action::Delete { uid: uid.into(), policy }
    }

    #[test]
    fn an_object_stays_as_long_as_one_owner_is_there() {
        let objects = [map("o", &[], None), map("d", &["o"], None)];
        assert_eq!(decided(&objects, "d"), Action::Keep);
        let objects = [map("o", &[], None), map("d", &["o", "gone"], None)];
        let disown = Action::Disown { uid: "d".into(), owners: vec!["gone".into()] };
        assert_eq!(decided(&objects, "d"), disown);
        assert_eq!(decided(&[map("d", &["gone"], None)], "d"), delete("d", Policy::Background));
    }

    #[test]
    fn an_owner_that_is_being_deleted_in_the_background_still_keeps_its_dependents() {
        let objects = [map("o", &[], Some("example.org/f")), map("d", &["o"], None)];
        assert_eq!(decided(&objects, "d"), Action::Keep);
    }

    #[test]
    fn a_foreground_deletion_takes_the_dependents_first() {
        let owner = map("o", &[], Some(FOREGROUND));
        let objects = [owner.clone(), map("d", &["o"], None)];
        assert_eq!(decided(&objects, "d"), delete("d", Policy::Background));
        assert_eq!(decided(&objects, "o"), Action::Keep, "it waits for d");
        let objects = [owner.clone(), map("d", &["o"], None), map("e", &["d"], None)];
        assert_eq!(decided(&objects, "d"), delete("d", Policy::Foreground));
        let release = Action::Release { uid: "o".into(), finalizer: FOREGROUND };
        assert_eq!(decided(&[owner], "o"), release);
    }

    #[test]
    fn owners_that_own_each_other_do_not_wait_for_each_other() {
        let objects = [map("a", &["b"], Some(FOREGROUND)), map("b", &["a"], Some(FOREGROUND))];
        let release = Action::Release { uid: "a".into(), finalizer: FOREGROUND };
        assert_eq!(decided(&objects, "a"), release);
    }

    #[test]
    fn an_orphaning_deletion_names_the_dependents_to_be_freed() {
        let objects = [map("o", &[], Some(ORPHAN)), map("d", &["o"], None)];
        let orphan = Action::Orphan { uid: "o".into(), dependents: vec!["d".into()] };
        assert_eq!(decided(&objects, "o"), orphan);
        assert_eq!(decided(&objects, "d"), Action::Keep);
    }

    #[test]
    fn an_owner_of_the_same_uid_in_another_namespace_or_of_another_name_does_not_count() {
        let (_, object) = map("o", &[], None);
        let elsewhere = (Key::new("", "configmaps", "other", "o"), object);
        let objects = [elsewhere, map("d", &["o"], None)];
        assert_eq!(decided(&objects, "d"), delete("d", Policy::Background));
        let (_, object) = map("o", &[], None);
        let renamed = (Key::new("", "configmaps", "ns", "p"), object);
        assert_eq!(
            decided(&[renamed, map("d", &["o"], None)], "d"),
            delete("d", Policy::Background)
        );
    }

    #[test]
    fn an_owner_of_an_unknown_kind_is_not_taken_for_gone() {
        let (key, mut object) = map("d", &["x"], None);
        object["metadata"]["ownerReferences"][0]["kind"] = json!("Widget");
        assert_eq!(decided(&[(key, object)], "d"), Action::Keep);
    }

    #[test]
    fn a_cluster_scoped_object_is_not_collected_for_a_namespaced_owner() {
        let (_, mut object) = map("n", &["gone"], None);
        object["metadata"]["namespace"] = Value::Null;
        let node = (Key::new("", "nodes", "", "n"), object);
        assert_eq!(decided(&[node], "n"), Action::Keep);
    }
}
