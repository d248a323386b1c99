//! Machines of pools.
//!
//! * POOL-5: when a core deletes a Running Machine of a pool that stays, whose instance is there, then `replicas` less
//!   `maxUnavailable` others run, or ran lately.
//! * POOL-6: when a core begins an update in place, no more Machines are missing for one than may be, and as many others
//!   run as POOL-5 asks for.
//! * POOL-7: the driver may restart an instance, or make it anew, only after its update in place began and its Node is
//!   drained, as INV-4 has it.

use ostler_api::machine::{Machine, MachinePhase};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::pool::is_begun;
use tokio::time::Instant;

use super::super::groups::rules::Lately;
use super::rules::Rules;

/// A Machine of a pool.
#[derive(Debug, Default)]
pub struct Member {
    pool: String,
    /// The Machine goes, and a core knows that.
    taken: bool,
    runs: Lately,
    /// It is missing for an update in place.
    updated: bool,
    /// When that began.
    begun: Option<Instant>,
}

fn is_missing(machine: &Machine) -> bool {
    use MachinePhase::{InPlaceUpdateFailed, InPlaceUpdateSuccessful, InPlaceUpdating};
    let phases = [InPlaceUpdating, InPlaceUpdateFailed, InPlaceUpdateSuccessful];
    is_begun(machine) || phases.contains(&machine.phase())
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

impl Rules {
    /// A Machine was written; `lives`: its instance is there. Returns the violation, if a core wrote the Machine.
    pub fn machine(
        &mut self,
        before: Option<&Machine>,
        machine: &Machine,
        method: &str,
        (ours, lives): (bool, bool),
    ) -> Option<String> {
        let pool = controller(&machine.metadata).filter(|_| machine.has_pool())?.uid.clone();
        let uid = machine.uid();
        let goes = method == "DELETE" && before.is_some_and(|it| !it.is_deleting());
        let ran = before.is_some_and(|it| it.phase() == MachinePhase::Running);
        let begins = is_begun(machine) && before.is_some_and(|it| !is_begun(it));
        let member = self.members.entry(uid.to_owned()).or_default();
        member.pool.clone_from(&pool);
        let deleting = machine.is_deleting() || method == "DELETE";
        member.taken |= deleting && ours;
        member.updated = is_missing(machine) && !deleting;
        member.runs.is(!deleting && machine.phase() == MachinePhase::Running && !is_begun(machine));
        if begins {
            member.begun = Some(Instant::now());
        }
        if !ours {
            return None;
        }
        let name = machine.name();
        if goes && ran && lives && self.pools.get(&pool)?.is_scaled_by_others() {
            return self.chooses(&pool, name);
        }
        if goes && ran && lives {
            return self
                .too_few(&pool, |wants| wants.missing)
                .map(|why| format!("POOL-5: {name} goes, {why}"));
        }
        if !begins {
            return None;
        }
        let most = self.pools.get(&pool)?.lately(self.lag).map(|it| it.in_place).max()?;
        let missing = |it: &&Member| it.pool == pool && it.updated;
        let missing = count(self.members.values().filter(missing).count());
        if missing > most {
            return Some(format!("POOL-6: {missing} are updated with {name}, and {most} may be"));
        }
        self.too_few(&pool, |wants| wants.in_place)
            .map(|why| format!("POOL-6: {name} is updated, {why}"))
    }

    /// How many run, if those are fewer than have to.
    fn too_few(&self, pool: &str, missing: impl Fn(super::rules::Wants) -> i32) -> Option<String> {
        let wants = self.pools.get(pool)?.lately(self.lag);
        let least = wants.map(|it| it.least - missing(it)).min()?;
        let runs =
            |it: &&Member| it.pool == pool && !it.taken && !it.updated && it.runs.was(self.lag);
        let left = count(self.members.values().filter(runs).count());
        (left < least).then(|| format!("and {left} run, of which {least} have to"))
    }

    /// A Machine is gone for good.
    pub fn machine_gone(&mut self, uid: &str) {
        if let Some(member) = self.members.get_mut(uid) {
            member.taken = true;
            member.updated = false;
        }
    }

    /// When the update in place of a Machine began that is not over.
    pub fn updated_since(&self, uid: &str) -> Option<Instant> {
        self.members.get(uid).filter(|it| it.updated)?.begun
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(name: &str, phase: &str, more: &Value) -> Machine {
        let mut machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "uid": name,
                "labels": { "cluster.x-k8s.io/pool-name": "p" },
                "ownerReferences": [{
                    "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool", "name": "p",
                    "uid": "u", "controller": true,
                }],
            },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } },
            "status": { "currentStatus": { "phase": phase } },
        });
        machine["metadata"]["annotations"] = more.clone();
        serde_json::from_value(machine).unwrap()
    }

    fn three() -> Rules {
        let mut rules = Rules::default();
        let pool = json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "p", "uid": "u" },
            "spec": {
                "replicas": 3, "template": {},
                "strategy": { "type": "InPlaceUpdate", "inPlaceUpdate": { "maxUnavailable": 1 } },
            },
        });
        rules.pool(&serde_json::from_value(pool).unwrap(), false);
        for name in ["a", "b", "c"] {
            rules.machine(None, &machine(name, "Running", &json!({})), "POST", (true, true));
        }
        rules
    }

    fn begins(rules: &mut Rules, name: &str) -> bool {
        let (before, begun) = (json!({}), json!({ "ostler.dev/update-begun": "h" }));
        let (before, now) = (machine(name, "Running", &before), machine(name, "Running", &begun));
        rules.machine(Some(&before), &now, "PATCH", (true, true)).is_some()
    }

    fn goes(rules: &mut Rules, name: &str, lives: bool) -> bool {
        let it = machine(name, "Running", &json!({}));
        rules.machine(Some(&it), &it, "DELETE", (true, lives)).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_updated_in_place_than_may_be_missing() {
        let mut rules = three();
        assert!(!begins(&mut rules, "a"));
        assert!(rules.updated_since("a").is_some());
        assert!(begins(&mut rules, "b"), "one may be missing");
        rules.machine_gone("a");
        assert!(begins(&mut rules, "c"), "one is gone, and another one is updated");
    }

    #[tokio::test(start_paused = true)]
    async fn no_running_machine_goes_that_has_to_stay() {
        let mut rules = three();
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert!(!goes(&mut rules, "a", true));
        assert!(goes(&mut rules, "b", true), "two have to run");
        assert!(!goes(&mut rules, "c", false), "its instance is gone");
        assert!(begins(&mut rules, "c"), "none is left");
    }
}
