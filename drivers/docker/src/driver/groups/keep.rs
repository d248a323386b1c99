//! The work of a group between operations. The Engine has no groups, and the driver no loop of its own: only a driver
//! that a core asks may make containers, and of two drivers a core asks only one. So operations note the desired state,
//! and each read of a group with its instances carries out the notes first. A core reads after each operation and from
//! time to time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, TryStreamExt as _};
use ostler_driver_sdk::{Context, DriverError, Identity};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::find::{Group, number_of};
use super::state::State;
use crate::driver::DockerDriver;
use crate::driver::files::{twice, twice_secret};
use crate::driver::find::{READS, looked, tag_file};
use crate::driver::initialize::{STILL, runs_still};
use crate::driver::make::Plan;
use crate::engine::{EngineError, File, Labels, Life, Limits, NewContainer, Part, Summary};
use crate::errors::{Left, driver_error};
use crate::identity::{GROUP, INSTANCE, MODEL, NUMBER, POOL, host_name, member_name};
use crate::spec::{CLAIM_FILE, GROUP_FILE, ProviderSpec, RestartPolicy};
use crate::tags::TagFile;

/// Instances that are made or removed concurrently.
const AT_A_TIME: usize = 8;
/// For how long one read goes on to begin instances; the next one makes the others.
const MAKING: Duration = Duration::from_secs(20);
/// For how long one read waits for the removal or the set-up of an instance; the next one looks again.
const WAIT: Duration = Duration::from_secs(30);

/// The faults of a group.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Why instances are missing, or why parts of those that are gone are left.
    pub(super) group: Option<DriverError>,
    /// The faults of instances, by name.
    pub(super) of: BTreeMap<String, DriverError>,
}

/// The Node that an instance becomes. Node and Machine have it as the value of a label; the Machine is named by the container.
pub(super) fn node_name(pool: &str, number: u64) -> String {
    host_name(&format!("{pool}-{number}"))
}

impl DockerDriver {
    /// Removes doomed instances, and makes missing ones. Returns the faults by instance: one instance holds up no
    /// other.
    pub(super) async fn keep(
        &self,
        ctx: &Context,
        group: &mut Group,
    ) -> Result<Faults, DriverError> {
        let Some(mut state) = group.state.clone() else { return Ok(Faults::default()) };
        let unready = self.unready(group, &state).await?;
        let stale = |it: &Summary| it.labels.get(MODEL) != Some(&state.model.hash);
        let goes = |it: &Summary| {
            // One that never ran, or was not set up before the model changed, is only parts of an instance.
            let unfinished = it.life == Life::Made || unready.contains(&it.name) && stale(it);
            group.is_doomed(it) || unfinished
        };
        let going: Vec<_> =
            group.members.iter().filter(|it| goes(it)).map(|it| it.name.clone()).collect();
        let mut faults = Faults { of: self.remove_members(ctx, going.clone()).await, group: None };
        group.members.retain(|it| !going.contains(&it.name) || faults.of.contains_key(&it.name));
        let swept = self.sweep(group).await;
        faults.of.extend(self.set_up(ctx, group, &state, &unready).await);
        let missing = u64::try_from(state.desired).unwrap_or_default();
        let missing = missing.saturating_sub(group.live().count() as u64);
        let first = group.next();
        let doomed = state.doomed.len();
        state.doomed.retain(|name| faults.of.contains_key(name));
        if missing > 0 || state.doomed.len() < doomed {
            state.next = first.saturating_add(missing);
            self.write_state(group, state.clone()).await?;
        }
        if missing > 0 {
            faults.group = self.make_members(ctx, group, &state, first..state.next).await;
        }
        if missing > 0 || !going.is_empty() {
            let name = group.name.clone();
            if let Some(now) = self.group(&name).await? {
                *group = now;
            }
        }
        faults.group = faults.group.or_else(|| swept.err());
        Ok(faults)
    }

    /// Removes the named instances; returns the errors of instances that are left, by name.
    pub(super) async fn remove_members(
        &self,
        ctx: &Context,
        names: Vec<String>,
    ) -> BTreeMap<String, DriverError> {
        futures::stream::iter(names)
            .map(|name| async move {
                let late = || {
                    let message = format!("container {name} is not removed yet");
                    Err(DriverError::aborted(message).reason("REMOVAL_IN_PROGRESS").partial())
                };
                let removed = timeout(WAIT, self.remove_member(ctx, &name)).await;
                let error = removed.unwrap_or_else(|_| late()).err()?;
                Some((name, error))
            })
            .buffer_unordered(AT_A_TIME)
            .filter_map(std::future::ready)
            .collect()
            .await
    }

    /// Instances that run and were not set up, by name.
    async fn unready(&self, group: &Group, state: &State) -> Result<Vec<String>, DriverError> {
        if !state.model.spec.needs_initialization() {
            return Ok(Vec::new());
        }
        let tags = self.tags_of(group).await?;
        let unready = tags.into_iter().filter(|(_, tags)| !tags.driver.initialized);
        Ok(unready.map(|(member, _)| member.name).collect())
    }

    /// The instances that live, and what is said of each.
    pub(super) async fn tags_of(
        &self,
        group: &Group,
    ) -> Result<Vec<(Summary, TagFile)>, DriverError> {
        let live: Vec<Summary> = group.live().cloned().collect();
        futures::stream::iter(live)
            .map(|member| async move {
                let tags = tag_file(&self.engine, &member).await?;
                Ok((member, tags))
            })
            .buffered(READS)
            .try_collect()
            .await
            .map_err(looked)
    }

    /// Sets instances up; returns the errors by name.
    async fn set_up(
        &self,
        ctx: &Context,
        group: &Group,
        state: &State,
        unready: &[String],
    ) -> BTreeMap<String, DriverError> {
        let runs = |it: &&Summary| it.life == Life::Running && unready.contains(&it.name);
        let names: Vec<_> = group.live().filter(runs).map(|it| it.name.clone()).collect();
        futures::stream::iter(names)
            .map(|name| async move {
                let error = self.set_up_one(ctx, &state.model.spec, &name).await.err()?;
                Some((name, error))
            })
            .buffer_unordered(AT_A_TIME)
            .filter_map(std::future::ready)
            .collect()
            .await
    }

    async fn set_up_one(
        &self,
        ctx: &Context,
        spec: &ProviderSpec,
        name: &str,
    ) -> Result<(), DriverError> {
        let set_up = async {
            match self.inspect(name).await.map_err(looked)? {
                Some(mut found) => self.bring_up(ctx, spec, &mut found).await,
                None => Ok(()),
            }
        };
        timeout(WAIT, set_up).await.unwrap_or_else(|_| Err(runs_still(name)))
    }

    /// Makes instances until one fails, the time is over, or all are there. Returns why not.
    async fn make_members(
        &self,
        ctx: &Context,
        group: &Group,
        state: &State,
        numbers: std::ops::Range<u64>,
    ) -> Option<DriverError> {
        let (began, fault) = (Instant::now(), Mutex::new(None));
        let goes_on = || fault.lock().is_none() && began.elapsed() < MAKING && !ctx.is_cancelled();
        futures::stream::iter(numbers)
            .take_while(|_| std::future::ready(goes_on()))
            .for_each_concurrent(AT_A_TIME, |number| {
                let fault = &fault;
                async move {
                    if let Err(error) =
                        self.make_member(ctx, group, state, number, Vec::new()).await
                    {
                        fault.lock().get_or_insert(error);
                    }
                }
            })
            .await;
        fault.into_inner()
    }

    /// Makes one instance. What is left of one that cannot be made is removed now or by the next read.
    pub(super) async fn make_member(
        &self,
        ctx: &Context,
        group: &Group,
        state: &State,
        number: u64,
        kept: Vec<File>,
    ) -> Result<(), DriverError> {
        let spec = &state.model.spec;
        self.allows(spec)?;
        let plan = plan(group, state, number, kept);
        let made = async {
            self.make(ctx, &plan).await?;
            self.complete(ctx, &plan).await?;
            self.set_up_one(ctx, spec, &plan.instance).await
        };
        match made.await {
            // It is there, and the next read looks how it ended.
            Err(error) if error.reason_word() == STILL => Ok(()),
            Err(error) => {
                if let Err(error) = self.remove_member(ctx, &plan.instance).await {
                    tracing::debug!(container = %plan.instance, %error, "the next read removes it");
                }
                Err(error)
            }
            made => made,
        }
    }

    /// Removes an instance, its networks and volumes.
    pub(super) async fn remove_member(&self, ctx: &Context, name: &str) -> Result<(), DriverError> {
        ctx.progress("RemoveContainer", format!("removing container {name}"));
        self.remove_container(ctx, name).await?;
        self.remove_group_parts(&[(INSTANCE, name)], |_| true).await.map(drop)
    }

    /// Removes networks and volumes whose instance is gone.
    async fn sweep(&self, group: &Group) -> Result<(), DriverError> {
        let owner = |part: &Part| part.labels.get(INSTANCE).cloned();
        let orphaned =
            |part: &Part| !group.members.iter().any(|it| owner(part).as_ref() == Some(&it.name));
        self.remove_group_parts(&[(GROUP, &group.name)], orphaned).await.map(drop)
    }

    /// Removes networks and volumes of a group that have these labels; whether there were any.
    pub(super) async fn remove_group_parts(
        &self,
        labels: &[(&str, &str)],
        goes: impl Fn(&Part) -> bool,
    ) -> Result<bool, DriverError> {
        let failed = |error: EngineError| driver_error(&error, Left::Something);
        let goes = |part: &Part| part.labels.contains_key(GROUP) && goes(part);
        let networks = self.engine.networks(labels).await.map_err(failed)?;
        let volumes = self.engine.volumes(labels).await.map_err(failed)?;
        let mut any = false;
        for network in networks.iter().filter(|it| goes(it)) {
            self.engine.remove_network(&network.id).await.map_err(failed)?;
            any = true;
        }
        for volume in volumes.iter().filter(|it| goes(it)) {
            self.engine.remove_volume(&volume.id).await.map_err(failed)?;
            any = true;
        }
        Ok(any)
    }

    /// Makes the container that stands for a group. It never runs, and holds a file.
    pub(super) async fn make_holder(
        &self,
        ctx: &Context,
        name: &str,
        tags: &Labels,
        spec: &ProviderSpec,
    ) -> Result<(), DriverError> {
        self.have_image(ctx, spec).await?;
        let mut labels = tags.clone();
        labels.insert(GROUP.to_owned(), name.to_owned());
        let new = NewContainer {
            name: name.to_owned(),
            image: spec.image.clone(),
            command: vec!["/group".to_owned()],
            environment: Vec::new(),
            host_name: String::new(),
            labels,
            network: Some("none".to_owned()),
            volumes: Vec::new(),
            ports: Vec::new(),
            limits: Limits { nano_cpus: 0, memory: 0, pids: 0, restart: RestartPolicy::Never },
            privileged: false,
        };
        match self.engine.make_container(new).await {
            // An earlier call made the container, and its answer was lost.
            Err(error) if error.is_refusal(409) => Ok(()),
            made => made.map_err(|error| driver_error(&error, Left::Nothing)),
        }
    }

    /// Writes down what a group is to be.
    pub(super) async fn write_state(
        &self,
        group: &mut Group,
        state: State,
    ) -> Result<(), DriverError> {
        let files = twice_secret(GROUP_FILE, &state);
        let written = self.engine.write_files(&group.name, &files).await;
        written.map_err(|error| driver_error(&error, Left::Nothing))?;
        group.tags.clone_from(&state.tags);
        group.state = Some(state);
        Ok(())
    }

    /// Puts the tags of today on all instances: Docker changes no label, so a file says it.
    pub(super) async fn claim_members(
        &self,
        group: &Group,
        tags: &Labels,
    ) -> Result<(), DriverError> {
        for member in &group.members {
            let written = self.engine.write_files(&member.name, &twice(CLAIM_FILE, tags)).await;
            written.map_err(|error| driver_error(&error, Left::Something))?;
        }
        Ok(())
    }
}

fn plan(group: &Group, state: &State, number: u64, kept: Vec<File>) -> Plan {
    let node = node_name(group.tag(POOL), number);
    let group_id = group.holder.as_ref().map_or(group.name.as_str(), |holder| holder.id.as_str());
    let there = group.members.iter().find(|it| number_of(it) == Some(number));
    let instance = there.map_or_else(|| member_name(&node, group_id, number), |it| it.name.clone());
    let mut member = state.tags.clone();
    let own = [
        (GROUP, group.name.clone()),
        (INSTANCE, instance.clone()),
        (NUMBER, number.to_string()),
        (MODEL, state.model.hash.clone()),
    ];
    member.extend(own.map(|(key, value)| (key.to_owned(), value)));
    Plan {
        // Of no machine: the name is that of its Node.
        identity: Identity {
            cluster_id: group.tag(crate::identity::CLUSTER).to_owned(),
            machine_name: node,
            machine_uid: String::new(),
        },
        instance,
        spec: state.model.spec.clone(),
        tags: Labels::new(),
        user_data: STANDARD.decode(&state.model.user_data).unwrap_or_default(),
        kept,
        member: Some(member),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_a_pool_has_a_name_that_is_a_label_value() {
        assert_eq!(node_name("pool", 7), "pool-7");
        let long = "p".repeat(62);
        let (one, two) = (node_name(&long, 7), node_name(&long, 8));
        assert!(one.len() <= 63 && one != two, "{one} {two}");
    }
}
