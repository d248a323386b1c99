//! The relevant fields of a pod. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, EnvVar, Pod};

use super::expand::expand;

/// As Kubernetes, if a pod says nothing.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// No grace is longer: a clock cannot count any that a pod may have.
const LONGEST_GRACE: Duration = Duration::from_hours(24 * 365);

/// A pod on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodSpec {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) restart: Restart,
    pub(super) containers: Vec<ContainerSpec>,
    /// A requested feature that the agent lacks.
    pub(super) unsupported: Option<&'static str>,
    /// Its own grace.
    pub(super) grace: Duration,
    /// Being deleted, with this grace.
    pub(super) deleted: Option<Duration>,
    pub(super) reported: Reported,
}

/// When containers are started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerSpec {
    pub(super) name: String,
    pub(super) image: String,
    /// `None`: a pause.
    pub(super) command: Option<Command>,
    /// Why it cannot be started.
    pub(super) problem: Option<String>,
}

/// The command of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) directory: Option<String>,
    pub(super) user: Option<u32>,
    pub(super) group: Option<u32>,
}

/// What the API was told before, perhaps by the agent of an earlier start of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reported {
    /// `Succeeded` or `Failed`: the pod has ended by itself.
    pub(super) ended: bool,
    pub(super) started: Option<Timestamp>,
    pub(super) containers: BTreeMap<String, ReportedContainer>,
}

/// The reported state of a container that had been started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedContainer {
    pub(super) restarts: u32,
    /// The end of the container; `None`: the container ran.
    pub(super) end: Option<ReportedEnd>,
}

/// An end that the API knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedEnd {
    pub(super) code: i32,
    pub(super) started: Option<Timestamp>,
    pub(super) at: Option<Timestamp>,
}

impl PodSpec {
    /// `None`: the object is no pod that a node could run.
    pub(super) fn of(pod: &Pod, address: Option<IpAddr>) -> Option<Self> {
        let (metadata, spec) = (&pod.metadata, pod.spec.as_ref()?);
        let user = spec.security_context.as_ref();
        let about = About { pod, address };
        let containers = spec.containers.iter().map(|container| {
            let mut read = container_spec(container, &about);
            if let (Some(command), Some(user)) = (&mut read.command, user) {
                command.user = command.user.or_else(|| id(user.run_as_user));
                command.group = command.group.or_else(|| id(user.run_as_group));
            }
            read
        });
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            restart: match spec.restart_policy.as_deref() {
                Some("Never") => Restart::Never,
                Some("OnFailure") => Restart::OnFailure,
                Some(_) | None => Restart::Always,
            },
            containers: containers.collect(),
            unsupported: spec
                .init_containers
                .as_ref()
                .is_some_and(|list| !list.is_empty())
                .then_some("init containers are not run by this node"),
            grace: spec.termination_grace_period_seconds.map_or(DEFAULT_GRACE, seconds),
            deleted: metadata
                .deletion_timestamp
                .as_ref()
                .map(|_| metadata.deletion_grace_period_seconds.map_or(Duration::ZERO, seconds)),
            reported: reported(pod),
        })
    }
}

/// At most [`LONGEST_GRACE`].
fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).min(LONGEST_GRACE)
}

fn id(id: Option<i64>) -> Option<u32> {
    id.and_then(|id| u32::try_from(id).ok())
}

/// The sources of variables.
struct About<'a> {
    pod: &'a Pod,
    address: Option<IpAddr>,
}

fn container_spec(container: &Container, about: &About<'_>) -> ContainerSpec {
    let read = |command: &Vec<String>| -> Result<Option<Command>, String> {
        let env = environment(container, about)?;
        let mut words = command.iter().chain(container.args.iter().flatten());
        let Some(program) = words.next() else { return Ok(None) };
        let user = container.security_context.as_ref();
        Ok(Some(Command {
            program: expand(program, &env),
            args: words.map(|word| expand(word, &env)).collect(),
            directory: container.working_dir.clone().filter(|dir| !dir.is_empty()),
            user: user.and_then(|it| id(it.run_as_user)),
            group: user.and_then(|it| id(it.run_as_group)),
            env,
        }))
    };
    let read = container.command.as_ref().map_or(Ok(None), read);
    let (command, problem) = match read {
        Ok(command) => (command, None),
        Err(problem) => (None, Some(problem)),
    };
    ContainerSpec {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        command,
        problem,
    }
}

fn environment(container: &Container, about: &About<'_>) -> Result<Vec<(String, String)>, String> {
    if container.env_from.as_ref().is_some_and(|list| !list.is_empty()) {
        return Err("envFrom is not filled in by this node: write the values out".to_owned());
    }
    let mut env: Vec<(String, String)> = Vec::new();
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => expand(variable.value.as_deref().unwrap_or_default(), &env),
            Some(_) => field(variable, about).ok_or_else(|| {
                format!(
                    "the source of variable {} is not known to this node: it knows metadata.name, \
                     metadata.namespace, metadata.uid, spec.nodeName, status.podIP and status.hostIP",
                    variable.name
                )
            })?,
        };
        env.push((variable.name.clone(), value));
    }
    Ok(env)
}

fn field(variable: &EnvVar, about: &About<'_>) -> Option<String> {
    let metadata = &about.pod.metadata;
    match variable.value_from.as_ref()?.field_ref.as_ref()?.field_path.as_str() {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "spec.nodeName" => about.pod.spec.as_ref()?.node_name.clone(),
        "status.podIP" | "status.hostIP" => Some(about.address?.to_string()),
        _ => None,
    }
}

fn reported(pod: &Pod) -> Reported {
    let Some(status) = &pod.status else { return Reported::default() };
    let containers = status.container_statuses.iter().flatten();
    Reported {
        ended: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
        started: status.start_time.as_ref().map(|time| time.0),
        containers: containers
            .filter_map(|it| Some((it.name.clone(), reported_container(it)?)))
            .collect(),
    }
}

/// `None`: it was never started.
fn reported_container(status: &ContainerStatus) -> Option<ReportedContainer> {
    let restarts = u32::try_from(status.restart_count).unwrap_or_default();
    let state = status.state.as_ref()?;
    let ended = |state: &k8s_openapi::api::core::v1::ContainerState| {
        state.terminated.as_ref().map(|ended| ReportedEnd {
            code: ended.exit_code,
            started: ended.started_at.as_ref().map(|time| time.0),
            at: ended.finished_at.as_ref().map(|time| time.0),
        })
    };
    // A container that waits for its next start has ended before.
    let end = ended(state).or_else(|| status.last_state.as_ref().and_then(ended));
    let ran = state.running.is_some();
    (ran || end.is_some()).then(|| ReportedContainer { restarts, end: end.filter(|_| !ran) })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value, metadata: &Value, status: &Value) -> PodSpec {
        let mut object = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"nodeName": "worker-1"}, "status": status,
        });
        for (part, more) in [("spec", spec), ("metadata", metadata)] {
            for (key, value) in more.as_object().unwrap() {
                object[part][key] = value.clone();
            }
        }
        let pod: Pod = serde_json::from_value(object).unwrap();
        PodSpec::of(&pod, Some([10, 0, 0, 1].into())).unwrap()
    }

    fn containers(containers: &Value) -> Vec<ContainerSpec> {
        pod(&json!({"containers": containers}), &json!({}), &json!({})).containers
    }

    #[test]
    fn a_command_with_its_arguments_and_variables_is_a_process() {
        let found = containers(&json!([{
            "name": "c", "command": ["sh", "-c"], "args": ["echo $(WHO) $$HOME"],
            "workingDir": "/tmp", "securityContext": {"runAsUser": 1000},
            "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "WHO", "value": "$(POD)@$(NODE)/$(IP)"},
            ],
        }]));
        let command = found[0].command.clone().unwrap();
        assert_eq!(command.program, "sh");
        assert_eq!(command.args, ["-c", "echo p@worker-1/10.0.0.1 $HOME"]);
        assert_eq!((command.directory.as_deref(), command.user), (Some("/tmp"), Some(1000)));
        assert_eq!(command.env.len(), 4);
    }

    #[test]
    fn without_a_command_it_is_a_pause_and_what_cannot_be_filled_in_is_a_problem() {
        let found = containers(&json!([
            {"name": "a"},
            {"name": "b", "args": ["x"]},
            {"name": "c", "command": []},
            {"name": "d", "command": ["x"], "env": [{"name": "S", "valueFrom":
                {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            {"name": "e", "command": ["x"], "envFrom": [{"secretRef": {"name": "s"}}]},
        ]));
        assert!(found.iter().all(|it| it.command.is_none()));
        let problems: Vec<_> = found.iter().map(|it| it.problem.is_some()).collect();
        assert_eq!(problems, [false, false, false, true, true]);
        assert!(found[3].problem.as_ref().unwrap().contains("variable S"));
    }

    #[test]
    fn graces_policies_and_what_is_not_supported_are_read() {
        let spec = json!({"containers": []});
        let plain = pod(&spec, &json!({}), &json!({}));
        assert_eq!(
            (plain.restart, plain.grace, plain.deleted),
            (Restart::Always, DEFAULT_GRACE, None)
        );
        let spec = json!({
            "containers": [], "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
            "initContainers": [{"name": "i"}], "securityContext": {"runAsUser": 7},
        });
        let metadata = json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3,
        });
        let found = pod(&spec, &metadata, &json!({}));
        assert_eq!(found.restart, Restart::Never);
        assert_eq!((found.grace.as_secs(), found.deleted.unwrap().as_secs()), (5, 3));
        assert!(found.unsupported.is_some());
        let metadata = json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": i64::MAX,
        });
        let endless = pod(&spec, &metadata, &json!({})).deleted.unwrap();
        assert!(tokio::time::Instant::now().checked_add(endless).is_some(), "a clock counts it");
    }

    #[test]
    fn what_the_api_was_told_before_is_remembered() {
        let status = json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [
            {"name": "a", "restartCount": 2, "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 9}}},
            {"name": "b", "restartCount": 0, "state": {"terminated": {"exitCode": 3}}},
            {"name": "c", "restartCount": 0, "state": {"waiting": {}}},
            {"name": "d", "restartCount": 1, "state": {"waiting": {}},
                "lastState": {"terminated": {"exitCode": 4}}},
        ]});
        let found = pod(&json!({"containers": []}), &json!({}), &status).reported;
        assert!(!found.ended && found.started.is_some());
        let containers: Vec<_> = found
            .containers
            .iter()
            .map(|(name, it)| (name.as_str(), it.restarts, it.end.as_ref().map(|end| end.code)))
            .collect();
        assert_eq!(containers, [("a", 2, None), ("b", 0, Some(3)), ("d", 1, Some(4))]);
        let ended = pod(&json!({"containers": []}), &json!({}), &json!({"phase": "Failed"}));
        assert!(ended.reported.ended);
    }
}
