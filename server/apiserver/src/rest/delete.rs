//! DELETE: the state machine of deletion, and what it answers.

use serde_json::{Value, json};

use super::{
    Api, Target,
    delete_options::{DeleteOptions, Preconditions, Propagation},
    is,
    metadata::time,
    stored::{self, meta_number, meta_text, meta_texts, set_meta},
    write::write_failure,
};
use crate::{
    kinds::{
        BuiltIn, Resource,
        access::{items, number, object_in, set, text},
        begin_deletion,
        status::{Answer, Status},
    },
    store::{Change, Expect, Record, WriteError},
};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Namespaces that the system stands on.
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

/// How often a deletion that names no version is tried against a changing object.
const ATTEMPTS: usize = 64;

/// The effect of a deletion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deletion {
    /// The deletion has begun already and this request changes nothing.
    Pending,
    /// The object is marked, or marked with a shorter grace, and stays until others let it go.
    Mark(Value),
    /// The object is marked and goes immediately: watchers see both.
    MarkAndRemove(Value),
    /// The object goes immediately.
    Remove,
}

/// The object after a deletion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deleted {
    /// The object, which is still there.
    Waiting(Value),
    /// The last state of an object that is gone.
    Gone(Value),
}

/// Checks what must hold of an object.
///
/// # Errors
/// It does not (409).
pub(crate) fn check_preconditions(
    resource: &Resource,
    object: &Value,
    preconditions: &Preconditions,
) -> Answer<()> {
    let name = meta_text(object, "name");
    let uid = meta_text(object, "uid");
    if let Some(wanted) = preconditions.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(Status::precondition(resource, name, &why));
    }
    let version = meta_text(object, "resourceVersion");
    let wanted = preconditions.resource_version.as_deref();
    if let Some(wanted) = wanted.filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(Status::precondition(resource, name, &why));
    }
    Ok(())
}

/// Decides what deleting `object` comes to.
pub(crate) fn decide_delete(
    resource: &Resource,
    object: &Value,
    options: &DeleteOptions,
    now: jiff::Timestamp,
) -> Deletion {
    if is(resource, BuiltIn::Namespace)
        && let Some(deletion) = namespace_deletion(object, now)
    {
        return deletion;
    }
    let marked = !meta_text(object, "deletionTimestamp").is_empty();
    let begun;
    let object = if is(resource, BuiltIn::CustomResourceDefinition) && !marked {
        begun = begin_deletion(object, now);
        &begun
    } else {
        object
    };
    let mut next = object.clone();
    let graceful = is(resource, BuiltIn::Pod);
    if graceful {
        match grace(object, options, marked) {
            Grace::Pending => return Deletion::Pending,
            Grace::None => {}
            Grace::Seconds(seconds) => mark(&mut next, seconds, now),
        }
    }
    let finalizers = wanted_finalizers(resource, object, options);
    let held = !finalizers.is_empty();
    if held {
        set_meta(&mut next, "finalizers", json!(finalizers));
    } else if let Some(metadata) = stored::metadata_mut(&mut next) {
        metadata.remove("finalizers");
    }
    if held && !graceful {
        mark(&mut next, 0, now);
    }
    let waits = held || meta_number(&next, "deletionGracePeriodSeconds").is_some_and(|s| s > 0);
    match (waits, graceful) {
        (true, _) if next == *object => Deletion::Pending,
        (true, _) => Deletion::Mark(next),
        (false, true) if next != *object => Deletion::MarkAndRemove(next),
        (false, _) => Deletion::Remove,
    }
}

/// A namespace is only marked; it goes when its contents are gone. None if it may go now.
fn namespace_deletion(object: &Value, now: jiff::Timestamp) -> Option<Deletion> {
    if meta_text(object, "deletionTimestamp").is_empty() {
        let mut next = object.clone();
        set_meta(&mut next, "deletionTimestamp", time(now));
        if let Some(status) = object_in(&mut next, "status") {
            set(status, "phase", "Terminating");
        }
        return Some(Deletion::Mark(next));
    }
    (!items(object, "/spec/finalizers").is_empty()).then_some(Deletion::Pending)
}

/// The grace of a pod's deletion.
enum Grace {
    /// Nothing new.
    Pending,
    /// The pod was marked without grace: it has none to wait for.
    None,
    /// So many seconds from now, or from when it was first marked.
    Seconds(i64),
}

fn grace(pod: &Value, options: &DeleteOptions, marked: bool) -> Grace {
    let wanted = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if marked {
        return match (meta_number(pod, "deletionGracePeriodSeconds"), wanted) {
            (None | Some(0), _) => Grace::None,
            (Some(current), Some(wanted)) if wanted < current => Grace::Seconds(wanted),
            (Some(_), _) => Grace::Pending,
        };
    }
    let unscheduled = text(pod, "/spec/nodeName").is_empty();
    let ended = matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
    if unscheduled || ended {
        return Grace::Seconds(0);
    }
    let own = number(pod, "/spec/terminationGracePeriodSeconds");
    let seconds = wanted.or(own).unwrap_or(0);
    Grace::Seconds(if seconds < 0 { 1 } else { seconds })
}

/// Marks an object as being deleted with so much grace. The generation rises with the first mark;
/// a shorter grace counts from the moment of the first mark.
fn mark(object: &mut Value, seconds: i64, now: jiff::Timestamp) {
    let first = meta_text(object, "deletionTimestamp").parse::<jiff::Timestamp>().ok();
    let end = |start: jiff::Timestamp, seconds: i64| {
        start.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(start)
    };
    let deadline = match first {
        Some(first) => {
            let current = meta_number(object, "deletionGracePeriodSeconds").unwrap_or(0);
            if current == seconds { first } else { end(first, seconds - current) }
        }
        None => end(now, seconds),
    };
    if first.is_none()
        && let Some(generation) = meta_number(object, "generation").filter(|number| *number > 0)
    {
        set_meta(object, "generation", generation.saturating_add(1).into());
    }
    set_meta(object, "deletionTimestamp", time(deadline));
    set_meta(object, "deletionGracePeriodSeconds", seconds.into());
}

/// The finalizers an object has after a deletion with these options: the two of garbage
/// collection follow the wanted propagation, the others stay.
fn wanted_finalizers<'a>(
    resource: &Resource,
    object: &'a Value,
    options: &DeleteOptions,
) -> Vec<&'a str> {
    let finalizers = meta_texts(object, "finalizers");
    if is(resource, BuiltIn::CoreEvent) || is(resource, BuiltIn::Event) {
        return finalizers;
    }
    let collecting = |finalizer: &str| matches!(finalizer, FOREGROUND | ORPHAN);
    let propagation = options.propagation.or_else(|| {
        if finalizers.contains(&ORPHAN) {
            Some(Propagation::Orphan)
        } else if finalizers.contains(&FOREGROUND) {
            Some(Propagation::Foreground)
        } else {
            None
        }
    });
    let mut wanted: Vec<&str> = finalizers.iter().copied().filter(|one| !collecting(one)).collect();
    match propagation {
        Some(Propagation::Orphan) => wanted.push(ORPHAN),
        Some(Propagation::Foreground) => wanted.push(FOREGROUND),
        Some(Propagation::Background) | None => {}
    }
    let same =
        wanted.len() == finalizers.len() && wanted.iter().all(|one| finalizers.contains(one));
    if same { finalizers } else { wanted }
}

impl Api {
    /// Deletes an object, or begins to.
    ///
    /// # Errors
    /// There is no such object, it may not be deleted, or a precondition does not hold.
    pub(crate) async fn delete(&self, target: &Target, options: &DeleteOptions) -> Answer<Deleted> {
        let resource = &target.resource;
        if is(resource, BuiltIn::Namespace) && UNDELETABLE.contains(&target.name.as_str()) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(resource, &target.name, why));
        }
        let key = stored::key(resource, &target.namespace, &target.name);
        for _ in 0..ATTEMPTS {
            let Some(record) = self.context.store.get(&key) else {
                return Err(Status::not_found(resource, &target.name));
            };
            let Ok(object) = stored::load(resource, &record) else {
                if let Some(deleted) = self.discard(resource, &record, options).await? {
                    return Ok(deleted);
                }
                continue;
            };
            check_preconditions(resource, &object, &options.preconditions)?;
            let deletion = decide_delete(resource, &object, options, self.now());
            if options.dry_run {
                return Ok(foreseen(object, deletion));
            }
            if let Some(deleted) = self.commit(resource, &record, object, deletion).await? {
                return Ok(deleted);
            }
        }
        Err(Status::stale(resource, &target.name))
    }

    /// Does what was decided; none if the object changed meanwhile.
    async fn commit(
        &self,
        resource: &Resource,
        record: &Record,
        object: Value,
        deletion: Deletion,
    ) -> Answer<Option<Deleted>> {
        let (mut next, goes) = match deletion {
            Deletion::Pending => return Ok(Some(Deleted::Waiting(object))),
            Deletion::Mark(next) => (next, false),
            Deletion::MarkAndRemove(next) => (next, true),
            Deletion::Remove => return self.remove(record, object).await,
        };
        let text = stored::encode_marked(resource, &mut next)?;
        let expect = Expect::Revision(record.revision);
        let change = Change::Put(text.clone());
        let revision = match self.context.store.write(record.key.clone(), expect, change).await {
            Ok(revision) => revision,
            Err(WriteError::Conflict { .. }) => return Ok(None),
            Err(error) => return Err(write_failure(&error)),
        };
        let object = stored::load_at(resource, &record.key, &text, revision)?;
        if !goes {
            return Ok(Some(Deleted::Waiting(object)));
        }
        let marked = Record { key: record.key.clone(), revision, value: text };
        let removed = self.remove(&marked, object.clone()).await?;
        // Another deletion may have removed the marked object.
        let gone = removed.is_none() && self.context.store.get(&record.key).is_none();
        Ok(if gone { Some(Deleted::Gone(object)) } else { removed })
    }

    /// Removes an unreadable object: whatever its finalizers were, no controller can see to them. No other request
    /// removes an unreadable object.
    async fn discard(
        &self,
        resource: &Resource,
        record: &Record,
        options: &DeleteOptions,
    ) -> Answer<Option<Deleted>> {
        let remains = stored::remains(resource, record);
        check_preconditions(resource, &remains, &options.preconditions)?;
        if options.dry_run {
            return Ok(Some(Deleted::Gone(remains)));
        }
        tracing::warn!(key = %record.key, "an object that cannot be read is deleted, whatever held it");
        // Watchers see what can be read.
        let value = serde_json::to_vec(&remains).unwrap_or_default().into();
        self.remove(&Record { value, ..record.clone() }, remains).await
    }

    async fn remove(&self, record: &Record, mut object: Value) -> Answer<Option<Deleted>> {
        let expect = Expect::Revision(record.revision);
        let change = Change::Delete(record.value.clone());
        match self.context.store.write(record.key.clone(), expect, change).await {
            Ok(revision) => {
                set_meta(&mut object, "resourceVersion", revision.to_string().into());
                Ok(Some(Deleted::Gone(object)))
            }
            Err(WriteError::Conflict { .. }) => Ok(None),
            Err(error) => Err(write_failure(&error)),
        }
    }
}

/// The expected result of a deletion.
fn foreseen(object: Value, deletion: Deletion) -> Deleted {
    match deletion {
        Deletion::Pending => Deleted::Waiting(object),
        Deletion::Mark(next) => Deleted::Waiting(next),
        Deletion::MarkAndRemove(next) => Deleted::Gone(next),
        Deletion::Remove => Deleted::Gone(object),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(grace: Option<i64>, propagation: Option<Propagation>) -> DeleteOptions {
        DeleteOptions { grace_period_seconds: grace, propagation, ..DeleteOptions::default() }
    }

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_object_that_nothing_holds_goes_at_once() {
        let map = BuiltIn::ConfigMap.resource();
        let object = json!({"metadata": {"name": "a"}});
        let decision = decide_delete(&map, &object, &options(Some(50), None), at(0));
        assert_eq!(decision, Deletion::Remove);
    }

    #[test]
    fn a_finalizer_holds_an_object_and_marks_it_once() {
        let map = BuiltIn::ConfigMap.resource();
        let object = json!({"metadata": {"name": "a", "finalizers": ["x/f"], "generation": 1}});
        let Deletion::Mark(marked) = decide_delete(&map, &object, &options(None, None), at(60))
        else {
            panic!("not marked");
        };
        assert_eq!(
            marked,
            json!({"metadata": {"name": "a", "finalizers": ["x/f"], "generation": 2,
                "deletionTimestamp": "1970-01-01T00:01:00Z", "deletionGracePeriodSeconds": 0}})
        );
        let again = decide_delete(&map, &marked, &options(Some(9), None), at(99));
        assert_eq!(again, Deletion::Pending);
    }

    #[test]
    fn propagation_becomes_a_finalizer() {
        let map = BuiltIn::ConfigMap.resource();
        let cases = [
            (json!([]), Some(Propagation::Foreground), json!(["foregroundDeletion"])),
            (json!([]), Some(Propagation::Orphan), json!(["orphan"])),
            (json!(["x/f", "orphan"]), Some(Propagation::Background), json!(["x/f"])),
            (json!(["orphan"]), None, json!(["orphan"])),
        ];
        for (finalizers, propagation, expected) in cases {
            let object = json!({"metadata": {"name": "a", "finalizers": finalizers}});
            let Deletion::Mark(marked) =
                decide_delete(&map, &object, &options(None, propagation), at(0))
            else {
                panic!("not marked: {object}");
            };
            assert_eq!(marked.pointer("/metadata/finalizers"), Some(&expected), "{object}");
        }
    }

    #[test]
    fn a_pod_on_a_node_gets_its_grace_which_can_only_be_shortened() {
        let pod = BuiltIn::Pod.resource();
        let object = json!({"metadata": {"name": "p", "generation": 1},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
        let marked =
            |object: &Value, grace| match decide_delete(&pod, object, &options(grace, None), at(0))
            {
                Deletion::Mark(next) => next,
                other @ (Deletion::Pending | Deletion::MarkAndRemove(_) | Deletion::Remove) => {
                    panic!("{other:?}")
                }
            };
        let first = marked(&object, None);
        assert_eq!(meta_number(&first, "deletionGracePeriodSeconds"), Some(30));
        assert_eq!(meta_text(&first, "deletionTimestamp"), "1970-01-01T00:00:30Z");
        let longer = decide_delete(&pod, &first, &options(Some(100), None), at(5));
        assert_eq!(longer, Deletion::Pending);
        let shorter = marked(&first, Some(5));
        assert_eq!(meta_text(&shorter, "deletionTimestamp"), "1970-01-01T00:00:05Z");
        assert_eq!(meta_number(&shorter, "generation"), Some(2));
        let now = decide_delete(&pod, &shorter, &options(Some(0), None), at(5));
        assert!(matches!(now, Deletion::MarkAndRemove(_)));
    }

    #[test]
    fn a_pod_without_a_node_or_after_its_end_has_no_grace() {
        let pod = BuiltIn::Pod.resource();
        for object in [
            json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 30}}),
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}),
        ] {
            let decision = decide_delete(&pod, &object, &options(Some(9), None), at(0));
            assert!(matches!(decision, Deletion::MarkAndRemove(_)), "{object}");
        }
    }

    #[test]
    fn a_pod_that_was_marked_without_grace_and_is_still_there_goes_unless_something_holds_it() {
        let pod = BuiltIn::Pod.resource();
        let mut object = json!({"metadata": {"name": "p", "deletionGracePeriodSeconds": 0,
            "deletionTimestamp": "1970-01-01T00:00:00Z"}, "spec": {"nodeName": "n"}});
        for grace in [None, Some(0), Some(30)] {
            let decision = decide_delete(&pod, &object, &options(grace, None), at(5));
            assert_eq!(decision, Deletion::Remove, "{grace:?}");
        }
        object["metadata"]["finalizers"] = json!(["x/f"]);
        let held = decide_delete(&pod, &object, &options(Some(0), None), at(5));
        assert_eq!(held, Deletion::Pending);
    }

    #[test]
    fn a_namespace_is_marked_and_goes_when_its_finalizers_are_gone() {
        let namespace = BuiltIn::Namespace.resource();
        let object = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        let Deletion::Mark(marked) =
            decide_delete(&namespace, &object, &options(None, None), at(0))
        else {
            panic!("not marked");
        };
        assert_eq!(text(&marked, "/status/phase"), "Terminating");
        assert_eq!(meta_number(&marked, "deletionGracePeriodSeconds"), None);
        let again = decide_delete(&namespace, &marked, &options(None, None), at(0));
        assert_eq!(again, Deletion::Pending);
        let mut empty = marked;
        empty["spec"] = json!({});
        let last = decide_delete(&namespace, &empty, &options(None, None), at(0));
        assert_eq!(last, Deletion::Remove);
    }

    #[test]
    fn preconditions_name_what_does_not_match() {
        let map = BuiltIn::ConfigMap.resource();
        let object = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        let preconditions =
            Preconditions { uid: Some("v".to_owned()), resource_version: Some("7".to_owned()) };
        let status = check_preconditions(&map, &object, &preconditions).unwrap_err();
        assert_eq!(status.code, 409);
        assert!(status.message.starts_with(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (v)"
        ));
        let preconditions = Preconditions { uid: Some("u".to_owned()), resource_version: None };
        assert!(check_preconditions(&map, &object, &preconditions).is_ok());
    }
}
