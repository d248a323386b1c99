//! Pools whose groups another system scales, and what is asked of cores then.
//!
//! POOL-9: no core changes the size of such a group, or deletes a Running Machine of such a pool that stays, whose instance is
//! there.

use std::time::Duration;

use ostler_api::MachinePool;

use super::super::world::World;
use super::pool_name;
use super::rules::{Resized, Rules};

/// How long an instance lives on that this system does not want any more.
const NOTICE: Duration = Duration::from_secs(30);

/// The other system wants so many instances of the group of a pool that it scales, unless that is on its way out.
pub(super) async fn resize(world: &World, pool: u8, size: u8) {
    let Some(pool) = world.users.get::<MachinePool>(&pool_name(pool)).await else { return };
    if !pool.is_externally_scaled() {
        return;
    }
    for cloud in &world.around.clouds {
        let all = cloud.groups(|_| true).expect("a cloud in memory has no journal");
        let own = all.into_iter().filter(|it| it.group.identity.pool_uid == pool.uid());
        for seen in own.filter(|it| !pool.is_deleting() || it.group.desired > 0) {
            let id = &seen.group.provider_id;
            world.around.trace.note("others", format_args!("want {size} instances of {id}"));
            let live = seen.members.iter().filter(|it| !it.deleting);
            for one in live.skip(size.into()) {
                world.falls_silent(&one.identity.machine_name, &one.provider_id);
            }
            world.around.oracle.others_scale(|| {
                cloud.rescale(id, size.into(), NOTICE).expect("a cloud in memory has no journal");
            });
        }
    }
}

impl Rules {
    /// Whether another system scales the group of this pool, or did to its end.
    pub fn is_scaled_by_others(&self, uid: &str) -> bool {
        self.pools.get(uid).is_some_and(|it| it.others)
    }

    /// What is wrong with a size that a core wrote, if another system scales the group.
    pub(super) fn meddles(&self, uid: &str, size: Resized) -> Option<String> {
        let kept = self.pools.get(uid).filter(|it| it.is_scaled_by_others())?;
        let Resized { before, after, new, .. } = size;
        (!new && before != after).then(|| {
            format!(
                "POOL-9: {} has size {after} in place of {before}, which is not up to us",
                kept.name
            )
        })
    }

    /// The violation, if a core deletes a Running Machine of such a pool.
    pub(super) fn chooses(&self, uid: &str, machine: &str) -> Option<String> {
        let kept = self.pools.get(uid).filter(|it| it.is_scaled_by_others())?;
        Some(format!("POOL-9: {machine} of {} goes, which is not up to us", kept.name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_size_that_another_system_says_is_not_that_of_a_core() {
        let mut rules = Rules::default();
        let pool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": {
                "name": "p", "uid": "u",
                "annotations": { "cluster.x-k8s.io/replicas-managed-by": "others" },
            },
            "spec": { "replicas": 3, "template": {} },
        }));
        let pool: MachinePool = pool.unwrap();
        rules.pool(&pool, false);
        let wrong = |rules: &mut Rules, before, after, new| {
            let size = Resized { before, after, live: 0, new };
            rules.resized("g", "u", size).is_some()
        };
        assert!(!wrong(&mut rules, 0, 3, true), "it is made");
        assert!(wrong(&mut rules, 3, 4, false) && wrong(&mut rules, 3, 2, false));
        assert!(!wrong(&mut rules, 3, 3, false));
        assert!(rules.chooses("u", "m").is_some());
        rules.others = true;
        assert!(!wrong(&mut rules, 3, 9, false));
        rules.others = false;
        rules.pool(&pool, true);
        assert!(!wrong(&mut rules, 9, 0, false), "it goes");
    }
}
