//! Users' wishes about checks, and Nodes that are not Ready.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{Api, Patch, PatchParams, PostParams};
use ostler_api::MachineHealthCheck;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::names::{annotation, label};
use ostler_lifecycle::health_check::selects;
use ostler_lifecycle::owner::controller;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::super::groups::users::LABEL;
use super::super::pools::pool_name;
use super::super::users::Users;
use super::super::world::World;
use super::{Most, Of, Wish, check_name};

/// Why a Node is not Ready that is so by a plan.
const SICK: &str = "Sick";

/// The label of the selected machines, and its value.
fn label_of(of: Of) -> (&'static str, String) {
    match of {
        Of::Pool(pool) => (label::POOL_NAME, pool_name(pool)),
        Of::Group(group) => (LABEL, group.name()),
    }
}

fn spec(of: Of, (seconds, startup): (u16, u16), most: Most) -> Value {
    let (key, value) = label_of(of);
    let timeout = format!("{seconds}s");
    let mut spec = json!({
        "selector": { "matchLabels": { key: value } },
        "unhealthyConditions": [
            { "type": "Ready", "status": "False", "timeout": timeout },
            { "type": "Ready", "status": "Unknown", "timeout": timeout },
        ],
        "nodeStartupTimeout": format!("{startup}s"),
    });
    match most {
        Most::All => {}
        Most::Number(number) => spec["maxUnhealthy"] = json!(number),
        Most::Percent(percent) => spec["maxUnhealthy"] = json!(format!("{percent}%")),
        Most::Range(least, most) => spec["unhealthyRange"] = json!(format!("[{least}-{most}]")),
    }
    spec
}

/// Carries a wish out.
pub async fn happen(world: &World, wish: Wish) {
    let users = &world.users;
    let checks = Api::<MachineHealthCheck>::default_namespaced(users.client());
    match wish {
        Wish::Keep { check, of, seconds, startup, most } => {
            let check: MachineHealthCheck = serde_json::from_value(json!({
                "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
                "metadata": { "name": check_name(check), "namespace": "default" },
                "spec": spec(of, (seconds, startup), most),
            }))
            .expect("this is a check");
            checks.create(&PostParams::default(), &check).await.ok();
        }
        Wish::Delete { check } => {
            users.delete_by_name::<MachineHealthCheck>(&check_name(check)).await;
        }
        Wish::Sick { of, machine, silent, millis } => {
            let all = named(world, of);
            let chosen = machine.and_then(|number| nth(&all, number));
            let sick: Vec<_> = if machine.is_some() { chosen.into_iter().collect() } else { all };
            for node in sick {
                sicken(world, node, silent, Duration::from_millis(millis)).await;
            }
        }
        Wish::Remediate { of, machine } => {
            annotate(world, (of, machine), json!({ annotation::REMEDIATE_MACHINE: "" })).await;
        }
        Wish::Skip { of, machine, on } => {
            let value = on.then_some("");
            annotate(world, (of, machine), json!({ annotation::SKIP_REMEDIATION: value })).await;
        }
    }
}

async fn annotate(world: &World, (of, machine): (Of, u8), annotations: Value) {
    if let Some(name) = nth(&named(world, of), machine) {
        let patch = json!({ "metadata": { "annotations": annotations } });
        world.users.patch_machine(&name, patch).await;
    }
}

fn named(world: &World, of: Of) -> Vec<String> {
    let (key, value) = label_of(of);
    let lives = world.around.oracle.lives().into_values();
    let meant = lives.filter(|it| it.machine.label(key) == Some(value.as_str()));
    let mut names: Vec<_> = meant.map(|it| it.name).collect();
    names.sort();
    names
}

fn nth(names: &[String], number: u8) -> Option<String> {
    names.get(usize::from(number).checked_rem(names.len())?).cloned()
}

/// A Node is not Ready for a while, if it is there and its instance is.
async fn sicken(world: &World, node: String, silent: bool, time: Duration) {
    let (users, around) = (world.users.clone(), world.around.clone());
    let status = if silent { "Unknown" } else { "False" };
    let lives = move |node: &Node| {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
        around.clouds.iter().any(|cloud| cloud.instance(&id).ok().flatten().is_some())
    };
    let now = world.around.oracle.now();
    let is_well = |node: &Node| lives(node) && ready(node).is_some_and(|it| it.status == "True");
    if !users.say_ready(&node, (status, SICK), now, is_well).await {
        return;
    }
    let oracle = world.around.oracle.clone();
    tokio::spawn(async move {
        sleep(time).await;
        let is_sick = |node: &Node| {
            lives(node) && ready(node).is_some_and(|it| it.reason.as_deref() == Some(SICK))
        };
        users.say_ready(&node, ("True", "KubeletReady"), oracle.now(), is_sick).await;
    });
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    let mut all = node.status.as_ref()?.conditions.iter().flatten();
    all.find(|it| it.type_ == "Ready")
}

impl Users {
    /// Has a Node say whether it is Ready, if it `fits`. Whether it did.
    async fn say_ready(
        &self,
        name: &str,
        (status, reason): (&str, &str),
        now: Timestamp,
        fits: impl Fn(&Node) -> bool,
    ) -> bool {
        let api = Api::<Node>::all(self.client());
        let Some(node) = api.get_opt(name).await.ok().flatten().filter(|node| fits(node)) else {
            return false;
        };
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": format!("{now:.0}"), "lastHeartbeatTime": format!("{now:.0}"),
        });
        let version = &node.metadata.resource_version;
        let patch = json!({
            "metadata": { "resourceVersion": version }, "status": { "conditions": [condition] }
        });
        let patch = Patch::Strategic(patch);
        api.patch_status(name, &PatchParams::default(), &patch).await.is_ok()
    }

    /// The faults are over: from now on checks are as patient as they usually are, and find what is unhealthy for good.
    pub async fn calm_checks(&self) {
        let api = Api::<MachineHealthCheck>::default_namespaced(self.client());
        for check in self.all::<MachineHealthCheck>().await {
            let rule = |status| json!({ "type": "Ready", "status": status, "timeout": "10m" });
            let patch = Patch::Merge(json!({ "spec": {
                "unhealthyConditions": [rule("False"), rule("Unknown")], "nodeStartupTimeout": "20m",
            } }));
            api.patch(check.name(), &PatchParams::default(), &patch).await.ok();
        }
    }
}

/// What checks do not say as it is, once nothing goes wrong any more.
pub async fn unsettled(users: &Users, machines: &[Machine]) -> Vec<String> {
    let checks: Vec<MachineHealthCheck> = users.all().await;
    let mut found = Vec::new();
    for check in &checks {
        let skipped =
            |it: &Machine| it.annotation(annotation::SKIP_REMEDIATION).is_some() || it.is_paused();
        let targets = machines.iter().filter(|it| selects(check, it) && !skipped(it)).count();
        let status = check.status.clone().unwrap_or_default();
        let said = usize::try_from(status.expected_machines).unwrap_or(usize::MAX);
        if said != targets || status.observed_generation != check.metadata.generation {
            found.push(format!("check {} says {said} machines of {targets}", check.name()));
        }
    }
    for machine in machines {
        let runs = machine.phase() == MachinePhase::Running && !machine.is_deleting();
        let wanted = machine.annotation(annotation::REMEDIATE_MACHINE).is_some();
        let Some(mark) = machine.unhealthy_mark() else { continue };
        if runs && !wanted || controller(&machine.metadata).is_some() && !runs {
            found.push(format!("check {} finds {} unhealthy", mark.check, machine.name()));
        }
    }
    found
}
