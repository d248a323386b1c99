//! Finding the group of a pool: by the labels of its containers.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use ostler_driver_sdk::{Context, DriverError, Pool, PoolIdentity};

use super::state::State;
use crate::driver::find::{NotOurs, READS, claim, looked, unless_going};
use crate::driver::{DockerDriver, files};
use crate::engine::{EngineError, Labels, Life, Summary};
use crate::identity::{CLUSTER, GROUP, INSTANCE, NUMBER, POOL, POOL_UID, instance_of, provider_id};
use crate::spec::GROUP_FILE;

/// A group, as the engine has it.
#[derive(Clone)]
pub(super) struct Group {
    /// Name of the container that stands for the group.
    pub(super) name: String,
    /// The container that stands for the group, which never runs. `None`: somebody removed it.
    pub(super) holder: Option<Summary>,
    /// The desired state of the group; `None`: lost, or not written yet.
    pub(super) state: Option<State>,
    /// Its identity.
    pub(super) tags: Labels,
    /// The containers of its instances.
    pub(super) members: Vec<Summary>,
}

impl Group {
    pub(super) fn tag(&self, key: &str) -> &str {
        self.tags.get(key).map_or("", String::as_str)
    }

    pub(super) fn is_doomed(&self, member: &Summary) -> bool {
        self.state.as_ref().is_some_and(|state| state.doomed.contains(&member.name))
    }

    /// Instances that are there and not on their way out. A container that never ran is none yet.
    pub(super) fn live(&self) -> impl Iterator<Item = &Summary> {
        let lives = |it: &&Summary| !matches!(it.life, Life::Made | Life::Going);
        self.members.iter().filter(move |it| lives(it) && !self.is_doomed(it))
    }

    /// How many instances it is to have. Where that is lost, as many as there are.
    pub(super) fn desired(&self) -> i32 {
        match &self.state {
            Some(state) => state.desired,
            None => count(self.live().count()),
        }
    }

    /// The number of the next instance.
    pub(super) fn next(&self) -> u64 {
        let used = self.members.iter().filter_map(number_of).max();
        let next = used.map_or(0, |number| number.saturating_add(1));
        self.state.as_ref().map_or(next, |state| state.next.max(next))
    }

    /// The group, as the core gets it.
    pub(super) fn shown(&self) -> Pool {
        let (live, desired) = (count(self.live().count()), self.desired());
        let there = self.members.iter().filter(|it| it.life != Life::Made).count();
        let hash = self.state.as_ref().map(|state| state.model.hash.clone());
        let pool = Pool::new(provider_id(&self.name), desired, count(there))
            .pool(self.tag(POOL), self.tag(POOL_UID))
            .cluster_id(self.tag(CLUSTER))
            .model_hash(hash.unwrap_or_default())
            .busy(live < desired || count(self.members.len()) > live);
        match self.holder.as_ref().and_then(|holder| holder.created_at) {
            Some(time) => pool.created_at(time),
            None => pool,
        }
    }

    fn carries(&self, identity: &PoolIdentity) -> bool {
        identity.tags().iter().all(|(key, value)| self.tag(key) == value)
    }

    /// Whether the tags of the group name the current identity of the pool.
    pub(super) fn is_of(&self, ctx: &Context) -> bool {
        self.carries(&ctx.pool_identity())
    }

    fn not_ours(&self) -> NotOurs {
        NotOurs { provider_id: provider_id(&self.name), cluster_id: self.tag(CLUSTER).to_owned() }
    }
}

/// The number of an instance within its group.
pub(super) fn number_of(member: &Summary) -> Option<u64> {
    member.labels.get(NUMBER)?.parse().ok()
}

pub(super) fn count(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}

impl DockerDriver {
    /// The group of the pool; an error if there is none.
    pub(super) async fn own_group(
        &self,
        ctx: &Context,
        provider_id: Option<&str>,
    ) -> Result<Group, DriverError> {
        let found = self.find_group(ctx, provider_id).await?;
        let gone = || DriverError::not_found("the engine has no group of this pool").not_applied();
        found.ok_or_else(gone)
    }

    /// The group of the pool.
    pub(super) async fn find_group(
        &self,
        ctx: &Context,
        provider_id: Option<&str>,
    ) -> Result<Option<Group>, DriverError> {
        match self.look_for_group(ctx, provider_id).await? {
            (None, Some(NotOurs { provider_id, cluster_id })) => {
                Err(DriverError::not_ours(provider_id).of_cluster(cluster_id))
            }
            (found, _) => Ok(found),
        }
    }

    /// The group of the pool, and beside it the one that may be meant and is not the pool's, as with machines.
    pub(super) async fn look_for_group(
        &self,
        ctx: &Context,
        provider_id: Option<&str>,
    ) -> Result<(Option<Group>, Option<NotOurs>), DriverError> {
        let pool = ctx.target().name.as_str();
        let mut not_ours = None;
        if let Some(name) = provider_id.and_then(instance_of)
            && let Some(named) = self.group(name).await?
        {
            if ctx.is_own_cluster(named.tag(CLUSTER)) && named.tag(POOL) == pool {
                return Ok((Some(named), None));
            }
            not_ours = Some(named.not_ours());
        }
        let mut namesakes = self.groups_of(ctx, &[(POOL, pool)]).await?;
        if provider_id.is_none() {
            let before = namesakes.iter().find(|it| {
                ctx.is_previous_cluster(it.tag(CLUSTER)) && it.tag(POOL_UID) != ctx.target().uid
            });
            not_ours = before.map(Group::not_ours);
        }
        namesakes.retain(|it| it.tag(POOL_UID) == ctx.target().uid);
        match (namesakes.pop(), namesakes.pop()) {
            (one, None) => Ok((one, not_ours)),
            (Some(one), Some(two)) => {
                let message = format!("both {} and {} are of this pool", one.name, two.name);
                Err(DriverError::out_of_range(message).reason("SEVERAL_GROUPS").not_applied())
            }
            (None, Some(_)) => Ok((None, not_ours)),
        }
    }

    /// The group of this name.
    pub(super) async fn group(&self, name: &str) -> Result<Option<Group>, DriverError> {
        let containers = self.engine.containers(&[(GROUP, name)]).await.map_err(looked)?;
        Ok(self.assembled(containers).await?.pop())
    }

    /// The groups of the cluster with all of `labels`.
    pub(super) async fn groups_of(
        &self,
        ctx: &Context,
        labels: &[(&str, &str)],
    ) -> Result<Vec<Group>, DriverError> {
        let containers = self.engine.containers(labels).await.map_err(looked)?;
        let mut groups = self.assembled(containers).await?;
        groups.retain(|group| ctx.is_own_cluster(group.tag(CLUSTER)));
        Ok(groups)
    }

    async fn assembled(&self, containers: Vec<Summary>) -> Result<Vec<Group>, DriverError> {
        let mut groups = BTreeMap::<String, Vec<Summary>>::new();
        for container in containers {
            if let Some(group) = container.labels.get(GROUP) {
                groups.entry(group.clone()).or_default().push(container);
            }
        }
        let groups = futures::stream::iter(groups)
            .map(|(name, containers)| self.group_of(name, containers))
            .buffered(READS);
        groups.try_collect().await.map_err(looked)
    }

    async fn group_of(&self, name: String, all: Vec<Summary>) -> Result<Group, EngineError> {
        let (mut members, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|it| it.labels.contains_key(INSTANCE));
        members.sort_by_key(number_of);
        let holder = rest.into_iter().find(|it| it.name == name);
        let mut state = None;
        if let Some(holder) = &holder {
            let read = files::read::<State>(&self.engine, &holder.id, GROUP_FILE).await;
            state = unless_going(&self.engine, holder, read).await?;
        }
        let tags = match (&state, &holder, members.first()) {
            (Some(state), _, _) => state.tags.clone(),
            (None, Some(holder), _) => holder.labels.clone(),
            (None, None, Some(member)) => {
                let mut tags = member.labels.clone();
                tags.extend(claim(&self.engine, member).await?);
                tags
            }
            (None, None, None) => Labels::new(),
        };
        Ok(Group { name, holder, state, tags, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u64, life: Life) -> Summary {
        let labels = [(NUMBER.to_owned(), number.to_string())].into();
        let name = format!("m-{number}");
        Summary { id: name.clone(), name, labels, life, addresses: Vec::new(), created_at: None }
    }

    fn group(state: Option<State>, members: Vec<Summary>) -> Group {
        Group { name: "g".to_owned(), holder: None, state, tags: Labels::new(), members }
    }

    fn state(desired: i32, next: u64, doomed: &[&str]) -> State {
        let spec = serde_json::from_value(serde_json::json!({"image": "i"})).unwrap();
        State {
            tags: Labels::new(),
            desired,
            next,
            doomed: doomed.iter().map(|name| (*name).to_owned()).collect(),
            model: super::super::state::Model {
                hash: "h".to_owned(),
                spec,
                user_data: String::new(),
            },
        }
    }

    #[test]
    fn what_is_half_made_or_on_its_way_out_is_no_instance_that_lives() {
        let members = vec![
            member(0, Life::Running),
            member(1, Life::Made),
            member(2, Life::Going),
            member(3, Life::Running),
            member(4, Life::Stopped),
        ];
        let group = group(Some(state(9, 3, &["m-3"])), members);
        let live: Vec<_> = group.live().map(|it| it.name.as_str()).collect();
        assert_eq!(live, ["m-0", "m-4"]);
        assert_eq!((group.desired(), group.next()), (9, 5), "no number is given twice");
    }

    #[test]
    fn a_group_that_lost_its_state_is_to_have_what_it_has() {
        let lost = group(None, vec![member(7, Life::Running), member(2, Life::Made)]);
        assert_eq!((lost.desired(), lost.next()), (1, 8));
        assert_eq!((group(None, Vec::new()).desired(), group(None, Vec::new()).next()), (0, 0));
    }
}
