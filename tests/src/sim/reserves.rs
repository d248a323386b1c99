//! MachineReserves of a life: what users do with them, an actor who takes taints away, and where they have to end.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::names::{label, taint};
use ostler_api::{MachineDeployment, MachineReserve, MachineSet};
use ostler_lifecycle::owner::{is_controlled_by, is_in_reserve};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::dice::Dice;
use super::groups::{self, Group};
use super::plan::{Step, What};
use super::users::Users;
use super::world::World;

/// The first seed whose plan may have reserves. Plans of earlier seeds stay the same.
pub const FIRST: u64 = 20_000_000;
/// Machines that a user wants in reserve at most.
const KEPT: u64 = 3;

/// A wish about reserves.
#[expect(missing_docs, reason = "each variant says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// A user wants so many machines ready for a set or a deployment.
    Keep { reserve: u8, group: Group, replicas: u8 },
    /// A user, or an autoscaler, wants another number.
    Size { reserve: u8, replicas: u8 },
    /// The numbers of a reserve and of a set or a deployment change at the same moment.
    Both { reserve: u8, size: u8, group: Group, replicas: u8 },
    /// A user takes the taints from all Nodes in reserve.
    Open,
    /// The same at the moment at which both numbers change.
    All { reserve: u8, size: u8, group: Group, replicas: u8 },
    /// A user deletes a reserve.
    Delete { reserve: u8 },
}

impl Wish {
    /// A word for it if it is a fault; none for what users may do at any time.
    pub const fn fault(self) -> Option<&'static str> {
        match self {
            Self::Open | Self::All { .. } => Some("reserve-opened"),
            Self::Keep { .. } | Self::Size { .. } | Self::Both { .. } | Self::Delete { .. } => None,
        }
    }
}

fn name(reserve: u8) -> String {
    format!("r{reserve}")
}

/// The part of a plan that is about reserves: in half of those that have sets or deployments.
pub fn of(seed: u64, length: u64, others: &[Step]) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(7));
    let kept = |step: &Step| {
        let What::Group(groups::Wish::Keep { group, .. }) = step.what else { return None };
        Some(group)
    };
    let groups: Vec<_> = others.iter().filter_map(kept).collect();
    if seed < FIRST || groups.is_empty() || !dice.percent(50) {
        return Vec::new();
    }
    let byte = |most: u64| u8::try_from(dice.between(0, most)).unwrap_or_default();
    let mut steps = Vec::new();
    let mut step = |at, wish| steps.push(Step { at, what: What::Reserve(wish) });
    let reserves = dice.between(1, 3);
    for reserve in 0..reserves {
        let reserve = u8::try_from(reserve).unwrap_or_default();
        let wish = Wish::Keep { reserve, group: dice.pick(&groups), replicas: byte(KEPT + 1) };
        step(dice.between(0, length / 2), wish);
    }
    for _ in 0..dice.between(4, 14) {
        let (reserve, group) = (byte(reserves), dice.pick(&groups));
        let wish = match dice.between(0, 12) {
            0..=2 => Wish::Size { reserve, replicas: byte(KEPT + 1) },
            3..=6 => Wish::Both { reserve, size: byte(KEPT + 1), group, replicas: byte(6) },
            7 | 8 => Wish::All { reserve, size: byte(KEPT + 1), group, replicas: byte(6) },
            9 => Wish::Open,
            10 => Wish::Delete { reserve },
            _ => Wish::Keep { reserve, group, replicas: byte(KEPT + 1) },
        };
        step(dice.between(length / 4, length + 60_000), wish);
    }
    steps
}

/// Carries a wish out.
pub async fn happen(world: &World, wish: Wish) {
    let users = &world.users;
    match wish {
        Wish::Keep { reserve, group, replicas } => users.reserve(reserve, group, replicas).await,
        Wish::Size { reserve, replicas } => users.size(reserve, replicas).await,
        Wish::Both { reserve, size, group, replicas } => {
            tokio::join!(users.size(reserve, size), users.scale(group, replicas));
        }
        Wish::Open => users.open_reserves().await,
        Wish::All { reserve, size, group, replicas } => {
            let (size, scale) = (users.size(reserve, size), users.scale(group, replicas));
            tokio::join!(size, scale, users.open_reserves());
        }
        Wish::Delete { reserve } => {
            users.delete_by_name::<MachineReserve>(&name(reserve)).await;
        }
    }
}

impl Users {
    async fn reserve(&self, reserve: u8, group: Group, replicas: u8) {
        let kind = match group {
            Group::Fleet(_) => "MachineDeployment",
            Group::Set(_) => "MachineSet",
        };
        let object = json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve",
            "metadata": { "name": name(reserve), "namespace": "default" },
            "spec": { "targetRef": { "kind": kind, "name": group.name() }, "replicas": replicas },
        });
        let reserve: MachineReserve = serde_json::from_value(object).expect("this is a reserve");
        let api = Api::<MachineReserve>::default_namespaced(self.client());
        api.create(&PostParams::default(), &reserve).await.ok();
    }

    async fn size(&self, reserve: u8, replicas: u8) {
        let api = Api::<MachineReserve>::default_namespaced(self.client());
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        api.patch(&name(reserve), &PatchParams::default(), &patch).await.ok();
    }

    async fn open_reserves(&self) {
        let api = Api::<Node>::all(self.client());
        for node in self.all::<Node>().await.into_iter().filter(is_closed) {
            let spec = node.spec.unwrap_or_default();
            let mut taints = spec.taints.unwrap_or_default();
            taints.retain(|it| it.key != taint::RESERVE);
            let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
            let name = node.metadata.name.unwrap_or_default();
            api.patch(&name, &PatchParams::default(), &patch).await.ok();
        }
    }
}

fn is_closed(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|it| it.taints.as_ref());
    taints.into_iter().flatten().any(|it| it.key == taint::RESERVE)
}

/// What reserves have, or say, that is not as it is wanted, once nothing goes wrong any more.
pub async fn unsettled(users: &Users, machines: &[Machine], nodes: &[Node]) -> Vec<String> {
    let mut found = Vec::new();
    for reserve in users.all::<MachineReserve>().await {
        let target = &reserve.spec.target_ref;
        let there = match target.kind.as_str() {
            "MachineSet" => users.get::<MachineSet>(&target.name).await.is_some(),
            _ => users.get::<MachineDeployment>(&target.name).await.is_some(),
        };
        let asked = serde_json::to_value(&reserve.spec.replicas).unwrap_or_default();
        let wanted = if there { asked.as_u64().unwrap_or_default() } else { 0 };
        let own = machines.iter().filter(|it| is_controlled_by(&it.metadata, reserve.uid()));
        let (own, ready): (Vec<_>, Vec<_>) =
            (own.clone().collect(), own.filter(|it| it.phase() == MachinePhase::Running).collect());
        let status = reserve.status.clone().unwrap_or_default();
        let said = [status.replicas, status.ready_replicas]
            .map(|it| u64::try_from(it).unwrap_or_default());
        let is = [own.len(), ready.len()].map(|it| u64::try_from(it).unwrap_or_default());
        if (is, said) != ([wanted; 2], [wanted; 2]) {
            let name = reserve.name();
            found.push(format!("reserve {name} wants {wanted}, has {is:?} and says {said:?}"));
        }
    }
    for node in nodes {
        let labels = node.metadata.labels.as_ref();
        let named = labels.and_then(|it| it.get(label::MACHINE_NAME));
        let machine = machines.iter().find(|it| Some(it.name()) == named.map(String::as_str));
        let Some(machine) = machine.filter(|it| it.phase() == MachinePhase::Running) else {
            continue;
        };
        // A machine without a controller keeps its template.
        let kept = is_in_reserve(&machine.metadata);
        let set = !kept && machine.metadata.owner_references.is_some();
        if kept && !is_closed(node) || set && is_closed(node) {
            found.push(format!("node of {} is as closed as it must not be", machine.name()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;

    #[test]
    fn some_plans_have_reserves_and_those_of_earlier_seeds_mean_what_they_meant() {
        let with = |from: u64| {
            let has = |seed: &u64| {
                Plan::of(*seed).steps.iter().any(|step| matches!(step.what, What::Reserve(_)))
            };
            (from..from + 200).filter(has).count()
        };
        assert!((30..120).contains(&with(FIRST)), "{}", with(FIRST));
        assert_eq!((with(groups::plans::FIRST), with(groups::plans::FIRST * 100)), (0, 0));
    }
}
