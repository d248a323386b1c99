//! How far a rollout is. Pure.

use ostler_api::machine_deployment::{
    MachineDeploymentConditionType as Of, MachineDeploymentStatus as Status, StrategyType,
};
use ostler_api::machine_pool::MachinePoolStatus;
use ostler_api::machine_reserve::ReserveConditionType;
use ostler_api::names::annotation::{CLUSTER_API_PAUSED, PAUSED};
use ostler_api::{MachineDeployment, MachinePool, MachineReserve, MachineSet};
use ostler_lifecycle::deployment::conditions::{find, hindrance, reason};
use ostler_lifecycle::deployment::status::is_paused;
use ostler_lifecycle::{numbered, selector};

/// Of a selector that is there and empty.
pub(crate) const SELECTS_ALL: &str =
    "its selector is empty and would select every machineset, so nothing is done";

/// How far a rollout is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No controller has seen the last change.
    Unseen,
    /// All machines are of the newest template and available.
    Complete(String),
    /// Not yet.
    GoesOn(String),
    /// Its deadline is exceeded.
    Failed(String),
}

impl Progress {
    /// Whether nothing is left to be done.
    pub(crate) const fn is_complete(&self) -> bool {
        matches!(self, Self::Complete(_))
    }

    /// The state for scripts.
    pub(crate) const fn state(&self) -> &'static str {
        match self {
            Self::Unseen => "NotObserved",
            Self::Complete(_) => "Complete",
            Self::GoesOn(_) => "Progressing",
            Self::Failed(_) => "Failed",
        }
    }

    /// What is said.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Unseen => "waiting for a controller to see the change",
            Self::Complete(text) | Self::GoesOn(text) | Self::Failed(text) => text,
        }
    }
}

/// Reads it from the status.
pub(crate) fn of(deployment: &MachineDeployment) -> Progress {
    let name = deployment.name();
    let none = Status::default();
    let status = deployment.status.as_ref().unwrap_or(&none);
    if deployment.is_deleting() {
        return being_deleted(status.replicas);
    }
    if status.observed_generation < deployment.metadata.generation
        || status.observed_generation.is_none()
    {
        return Progress::Unseen;
    }
    let condition = |kind: Of| status.conditions.iter().find(|condition| condition.type_ == kind);
    if let Some(refused) = condition(Of::Valid) {
        let why = refused.message.as_deref().unwrap_or("no reason is given");
        return Progress::Failed(format!("its spec is refused: {why}"));
    }
    let reason = condition(Of::Progressing).and_then(|it| it.reason.as_deref());
    if reason == Some("ProgressDeadlineExceeded") {
        return Progress::Failed(format!(
            "no progress before its deadline; `ostler describe machinedeployment {name}` says why"
        ));
    }
    if deployment.spec.selector.as_ref().is_some_and(selector::is_empty) {
        return Progress::Failed(SELECTS_ALL.to_owned());
    }
    let wanted = deployment.spec.replicas();
    let in_place = deployment.spec.strategy.type_ == Some(StrategyType::InPlaceUpdate);
    let old = status.replicas.saturating_sub(status.updated_replicas);
    let done = match (in_place, old) {
        (true, _) => "updated",
        (false, 0) => "created",
        (false, _) => "replaced",
    };
    let held = held(deployment, status).map(|by| format!("; {by}")).unwrap_or_default();
    if status.updated_replicas < wanted {
        return Progress::GoesOn(format!(
            "{} of {wanted} machines are {done}{held}",
            status.updated_replicas
        ));
    }
    if old > 0 {
        let machines = if old == 1 { "machine is" } else { "machines are" };
        return Progress::GoesOn(format!("{old} old {machines} still being deleted{held}"));
    }
    let surplus = status.updated_replicas - wanted;
    if status.available_replicas < wanted || surplus > 0 {
        let deleting = match surplus {
            ..=0 => String::new(),
            1 => "; 1 more machine is still being deleted".to_owned(),
            more => format!("; {more} more machines are still being deleted"),
        };
        return Progress::GoesOn(format!(
            "{} of {wanted} machines are available{deleting}",
            status.available_replicas.min(wanted)
        ));
    }
    Progress::Complete(format!("rolled out: {}", machines(wanted)))
}

/// Reads from the status of a pool how far that is.
pub(crate) fn of_pool(pool: &MachinePool) -> Progress {
    let none = MachinePoolStatus::default();
    let status = pool.status.as_ref().unwrap_or(&none);
    let wanted = pool.replicas();
    if pool.is_deleting() {
        return being_deleted(status.replicas);
    }
    if status.observed_generation < pool.metadata.generation || status.observed_generation.is_none()
    {
        return Progress::Unseen;
    }
    if let Some(why) = &status.failure_message {
        return Progress::Failed(why.clone());
    }
    let MachinePoolStatus { replicas, ready_replicas: ready, up_to_date_replicas: new, .. } =
        status;
    if *ready < wanted {
        return Progress::GoesOn(format!("{ready} of {} running", machines(wanted)));
    }
    if new < replicas {
        let are = if *replicas == 1 { "is" } else { "are" };
        return Progress::GoesOn(format!("{new} of {} {are} up to date", machines(*replicas)));
    }
    match replicas - wanted {
        ..=0 => Progress::Complete(format!("running: {}", machines(wanted))),
        more => Progress::GoesOn(format!("{} too many", machines(more))),
    }
}

/// Reads from the status of a set how far that is.
pub(crate) fn of_set(set: &MachineSet) -> Progress {
    let status = set.status.clone().unwrap_or_default();
    let wanted = set.spec.replicas();
    if set.is_deleting() {
        return being_deleted(status.replicas);
    }
    if status.observed_generation < set.metadata.generation || status.observed_generation.is_none()
    {
        return Progress::Unseen;
    }
    if status.available_replicas < wanted {
        let available = status.available_replicas;
        return Progress::GoesOn(format!("{available} of {} available", machines(wanted)));
    }
    match status.replicas - wanted {
        ..=0 => Progress::Complete(format!("running: {}", machines(wanted))),
        more => Progress::GoesOn(format!("{} too many", machines(more))),
    }
}

/// Reads from the status of a reserve how far that is.
pub(crate) fn of_reserve(reserve: &MachineReserve) -> Progress {
    let status = reserve.status.clone().unwrap_or_default();
    if reserve.metadata.deletion_timestamp.is_some() {
        return being_deleted(status.replicas);
    }
    if status.observed_generation.is_none() {
        return Progress::Unseen;
    }
    let ready = status.condition(&ReserveConditionType::Ready);
    match ready.filter(|it| it.status != "True") {
        Some(not) if !not.message.is_empty() => Progress::GoesOn(not.message.clone()),
        Some(not) => Progress::GoesOn(not.reason.clone()),
        None => Progress::Complete(format!("ready: {}", machines(status.ready_replicas))),
    }
}

fn being_deleted(left: i32) -> Progress {
    Progress::GoesOn(format!("being deleted, with {}", machines(left)))
}

fn machines(number: i32) -> String {
    numbered(number, "machine")
}

/// The obstacle of a deployment, as its controller reports it.
fn held<'a>(deployment: &'a MachineDeployment, status: &'a Status) -> Option<&'a str> {
    if is_paused(deployment) {
        return Some("it is paused");
    }
    creation_error(deployment).or_else(|| hindrance(&status.conditions))
}

/// Why there is no set for the template, if the last try to create it failed.
pub(crate) fn creation_error(deployment: &MachineDeployment) -> Option<&str> {
    let progress = find(&deployment.status.as_ref()?.conditions, &Of::Progressing)?;
    let message = progress.message.as_deref().unwrap_or("cannot create a machine set");
    (progress.reason.as_deref() == Some(reason::CREATE_ERROR)).then_some(message)
}

/// Says how to resume a paused deployment.
pub(crate) fn resuming(deployment: &MachineDeployment) -> Option<String> {
    let annotations: Vec<_> =
        deployment.annotation(CLUSTER_API_PAUSED).map(|_| CLUSTER_API_PAUSED).into_iter().collect();
    let paused = deployment.spec.paused == Some(true);
    ends_of_pause("machinedeployment", deployment.name(), paused, &annotations)
}

/// Says how to resume a paused pool.
pub(crate) fn resuming_pool(pool: &MachinePool) -> Option<String> {
    let mut annotations: Vec<_> =
        pool.annotation(CLUSTER_API_PAUSED).map(|_| CLUSTER_API_PAUSED).into_iter().collect();
    annotations.extend(pool.annotation(PAUSED).filter(|it| *it != "false").map(|_| PAUSED));
    let paused = pool.spec.paused == Some(true);
    ends_of_pause("machinepool", pool.name(), paused, &annotations)
}

fn ends_of_pause(kind: &str, name: &str, paused: bool, annotations: &[&str]) -> Option<String> {
    let short = if kind == "machinepool" { "mp/" } else { "" };
    let by_spec = paused.then(|| format!("`ostler rollout resume {short}{name}`"));
    let by_annotation =
        annotations.iter().map(|key| format!("`kubectl annotate {kind} {name} {key}-`"));
    let all: Vec<_> = by_spec.into_iter().chain(by_annotation).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(status: &Value, paused: bool) -> Progress {
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "generation": 2 },
            "spec": { "replicas": 3, "paused": paused }, "status": status
        });
        of(&serde_json::from_value(deployment).unwrap())
    }

    fn numbers(replicas: i32, updated: i32, available: i32) -> Value {
        json!({
            "observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated,
            "readyReplicas": available, "availableReplicas": available
        })
    }

    #[test]
    fn a_rollout_is_told_from_its_first_machine_to_its_last() {
        for (status, text) in [
            (numbers(1, 1, 0), "1 of 3 machines are created"),
            (numbers(3, 0, 3), "0 of 3 machines are replaced"),
            (numbers(4, 2, 3), "2 of 3 machines are replaced"),
            (numbers(4, 3, 3), "1 old machine is still being deleted"),
            (numbers(5, 3, 3), "2 old machines are still being deleted"),
            (numbers(3, 3, 2), "2 of 3 machines are available"),
            (
                numbers(4, 4, 3),
                "3 of 3 machines are available; 1 more machine is still being deleted",
            ),
            (
                numbers(5, 5, 5),
                "3 of 3 machines are available; 2 more machines are still being deleted",
            ),
        ] {
            assert_eq!(at(&status, false), Progress::GoesOn(text.to_owned()));
        }
        assert_eq!(at(&json!({ "observedGeneration": 1 }), false), Progress::Unseen);
        let complete = at(&numbers(3, 3, 3), false);
        assert_eq!(complete, Progress::Complete("rolled out: 3 machines".to_owned()));
    }

    #[test]
    fn one_that_is_deleted_is_not_rolled_out_any_more() {
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {
                "name": "a", "generation": 3, "deletionTimestamp": "2026-01-01T12:00:00Z"
            },
            "spec": { "replicas": 3 }, "status": numbers(1, 0, 1)
        });
        let progress = of(&serde_json::from_value(deployment).unwrap());
        assert_eq!(progress.text(), "being deleted, with 1 machine");
    }

    #[test]
    fn a_pool_tells_how_many_run_and_then_how_many_have_the_current_model() {
        let of = |deleted: Option<&str>, replicas, ready, new| {
            of_pool(
                &serde_json::from_value(json!({
                    "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
                    "metadata": { "name": "p", "generation": 1, "deletionTimestamp": deleted },
                    "spec": { "replicas": 3, "template": {} },
                    "status": {
                        "observedGeneration": 1, "replicas": replicas,
                        "readyReplicas": ready, "upToDateReplicas": new
                    }
                }))
                .unwrap(),
            )
        };
        for (replicas, ready, new, text) in [
            (2, 1, 2, "1 of 3 machines running"),
            (4, 3, 1, "1 of 4 machines are up to date"),
            (4, 4, 4, "1 machine too many"),
            (3, 3, 3, "running: 3 machines"),
        ] {
            let progress = of(None, replicas, ready, new);
            assert_eq!(progress.text(), text);
            assert_eq!(progress.is_complete(), new == 3, "{text}");
        }
        let gone = of(Some("2026-01-01T12:00:00Z"), 2, 2, 2);
        assert_eq!(gone.text(), "being deleted, with 2 machines");
    }

    #[test]
    fn one_that_is_paused_says_so_and_one_that_cannot_end_fails() {
        let paused = at(&numbers(3, 1, 3), true);
        assert_eq!(paused.text(), "1 of 3 machines are replaced; it is paused");
        for (condition, part) in [
            (
                json!({ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" }),
                "deadline",
            ),
            (
                json!({ "type": "Valid", "status": "False", "message": "no selector" }),
                "no selector",
            ),
        ] {
            let mut status = numbers(3, 1, 3);
            status["conditions"] = json!([condition]);
            let failed = at(&status, false);
            assert!(matches!(&failed, Progress::Failed(why) if why.contains(part)), "{failed:?}");
        }
    }

    #[test]
    fn one_that_the_annotation_of_cluster_api_pauses_says_so_too() {
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {
                "name": "a", "generation": 2, "annotations": { "cluster.x-k8s.io/paused": "" }
            },
            "spec": { "replicas": 3 }, "status": numbers(3, 1, 3)
        });
        let progress = of(&serde_json::from_value(deployment).unwrap());
        assert_eq!(progress.text(), "1 of 3 machines are replaced; it is paused");
    }

    #[test]
    fn a_set_that_cannot_be_created_and_an_empty_selector_are_told() {
        let mut status = numbers(0, 0, 0);
        let message = "cannot create a machine set: quota";
        status["conditions"] = json!([{
            "type": "Progressing", "status": "False", "reason": "MachineSetCreateError",
            "message": message
        }]);
        assert_eq!(at(&status, false).text(), format!("0 of 3 machines are created; {message}"));
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "generation": 2 },
            "spec": { "replicas": 3, "selector": {} }, "status": { "observedGeneration": 2 }
        });
        let progress = of(&serde_json::from_value(deployment).unwrap());
        assert_eq!(progress, Progress::Failed(SELECTS_ALL.to_owned()));
    }

    #[test]
    fn what_hinders_a_rollout_is_told_beside_how_far_it_is() {
        let mut status = numbers(3, 1, 3);
        status["conditions"] = json!([{
            "type": "Progressing", "status": "True", "reason": "MachineSetUpdated",
            "message": "Machine set \"a-1\" is progressing. Blocked: 2 nodes wait for a user"
        }]);
        let text = "1 of 3 machines are replaced; 2 nodes wait for a user";
        assert_eq!(at(&status, false).text(), text);
    }
}
