//! The verbs of groups: a number of containers, and one that stands for the group and never runs. Everything about a
//! group is on the engine: its owner in labels, its desired state in a file of the container that stands for it
//! (`state`).

mod find;
mod keep;
mod state;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_driver_sdk::{
    Context, CreatePool, DeletePool, DeletePoolMachines, Deletion, DriverError, GetPoolStatus,
    ListPools, Pool, PoolInstance, PoolMachinesDeleted, PoolModel, PoolState, PoolStatus,
    UpdatePool, UpdatePoolMachine,
};

use self::find::{Group, number_of};
use self::keep::{Faults, node_name};
use self::state::{Model, State};
use super::DockerDriver;
use super::answer::shown;
use super::find::{NotOurs, looked};
use super::make::Plan;
use super::update::fixed_changes;
use crate::engine::{EngineError, File, Labels, Life, Part, Summary};
use crate::identity::{
    CLUSTER, GROUP, MODEL, POOL, POOL_UID, group_name, instance_of, provider_id,
};
use crate::spec::ProviderSpec;
use crate::tags::TagFile;

/// Where the node agent keeps what it joined with, unless the class says otherwise.
const NODE_STATE: &str = "/var/lib/ostler";

impl DockerDriver {
    pub(super) async fn make_pool(&self, request: CreatePool) -> Result<Pool, DriverError> {
        let CreatePool { ctx, desired, model, mut tags, provider_id } = request;
        let model = self.model(&ctx, model).await?;
        tags.extend(ctx.pool_identity().tags());
        let _turn = self.busy.wait_for_group(&ctx).await?;
        let found = self.find_group(&ctx, provider_id.as_deref()).await?;
        let is_new = found.as_ref().is_none_or(|it| it.state.is_none() && it.members.is_empty());
        let mut group = self.held(&ctx, found, &tags, &model).await?;
        if !group.is_of(&ctx) {
            self.claim_members(&group, &tags).await?;
        }
        let doomed = group.state.as_ref().map(|state| state.doomed.clone()).unwrap_or_default();
        let desired = if is_new { desired } else { group.desired() };
        let next = group.next();
        self.write_state(&mut group, State { tags, desired, next, doomed, model }).await?;
        tracing::info!(pool = %ctx.target().name, group = %group.name, "group exists");
        Ok(group.shown())
    }

    pub(super) async fn change_pool(&self, request: UpdatePool) -> Result<Pool, DriverError> {
        let ctx = request.ctx.clone();
        let model = match request.model.clone() {
            Some(model) => Some(self.model(&ctx, model).await?),
            None => None,
        };
        let _turn = self.busy.wait_for_group(&ctx).await?;
        let group = self.own_group(&ctx, Some(&request.provider_id)).await?;
        let desired = request.allow(group.desired(), find::count(group.live().count()))?;
        let Some(model) = model.or_else(|| group.state.as_ref().map(|it| it.model.clone())) else {
            return Err(forgotten());
        };
        let tags = identity_of(&group);
        let mut group = self.held(&ctx, Some(group), &tags, &model).await?;
        let doomed = group.state.as_ref().map(|state| state.doomed.clone()).unwrap_or_default();
        let next = group.next();
        self.write_state(&mut group, State { tags, desired, next, doomed, model }).await?;
        Ok(group.shown())
    }

    pub(super) async fn remove_pool(&self, request: DeletePool) -> Result<Deletion, DriverError> {
        let DeletePool { ctx, provider_id } = request;
        let _turn = self.busy.wait_for_group(&ctx).await?;
        let (found, not_ours) = self.look_for_group(&ctx, provider_id.as_deref()).await?;
        let mut gone = found.is_some();
        if let Some(mut group) = found {
            if let Some(state) = group.state.clone() {
                // From now on, no read makes an instance.
                let doomed = group.members.iter().map(|it| it.name.clone()).collect();
                self.write_state(&mut group, State { desired: 0, doomed, ..state }).await?;
            }
            let names: Vec<_> = group.members.iter().map(|it| it.name.clone()).collect();
            if let Some(error) = self.remove_members(&ctx, names).await.into_values().next() {
                return Err(error.partial());
            }
            self.remove_group_parts(&[(GROUP, &group.name)], |_| true).await?;
            self.remove_container(&ctx, &group.name).await.map_err(DriverError::partial)?;
        } else {
            // Somebody removed all of its containers.
            let named = provider_id.as_deref().and_then(instance_of).unwrap_or_default();
            let label = |part: &Part, key| part.labels.get(key).cloned().unwrap_or_default();
            let ours = |part: &Part| {
                let ours = label(part, POOL_UID) == ctx.target().uid || label(part, GROUP) == named;
                ours && ctx.is_own_cluster(&label(part, CLUSTER))
            };
            gone = self.remove_group_parts(&[(POOL, &ctx.target().name)], ours).await?;
        }
        if let Some(NotOurs { provider_id, cluster_id }) = not_ours {
            return Ok(Deletion::NotOurs { provider_id, cluster_id });
        }
        Ok(if gone { Deletion::Deleted } else { Deletion::WasAbsent })
    }

    pub(super) async fn read_pool(
        &self,
        request: GetPoolStatus,
    ) -> Result<PoolStatus, DriverError> {
        let GetPoolStatus { ctx, provider_id, with_instances } = request;
        let turn = self.busy.turn_of_group(&ctx);
        let mut group = self.own_group(&ctx, provider_id.as_deref()).await?;
        if !with_instances {
            return Ok(PoolStatus { pool: group.shown(), instances: Vec::new() });
        }
        let mut faults = match turn {
            Some(_turn) => self.keep(&ctx, &mut group).await?,
            None => Faults::default(),
        };
        let tags = self.tags_of(&group).await?;
        let going = |it: &&Summary| it.life == Life::Going || group.is_doomed(it);
        let going = group.members.iter().filter(going).map(|it| (it, None));
        let all = tags.iter().map(|(member, tags)| (member, Some(tags))).chain(going);
        let told = |(member, tags): (&Summary, Option<&TagFile>)| {
            instance(&group, member, tags, faults.of.remove(&member.name))
        };
        let instances = all.map(told).collect();
        // A fault of an instance that is not listed any more.
        let pool = match faults.group.or_else(|| faults.of.into_values().next()) {
            Some(fault) => group.shown().fault(fault),
            None => group.shown(),
        };
        Ok(PoolStatus { pool, instances })
    }

    pub(super) async fn read_pools(&self, request: ListPools) -> Result<Vec<Pool>, DriverError> {
        let groups = self.groups_of(&request.ctx, &[]).await?;
        Ok(groups.iter().map(Group::shown).collect())
    }

    /// Notes size and doomed instances in one write. The read that follows removes the instances.
    pub(super) async fn remove_pool_machines(
        &self,
        request: DeletePoolMachines,
    ) -> Result<PoolMachinesDeleted, DriverError> {
        let ctx = request.ctx.clone();
        let _turn = self.busy.wait_for_group(&ctx).await?;
        let mut group = self.own_group(&ctx, Some(&request.provider_id)).await?;
        let there = |id: &str| group.live().any(|it| provider_id(&it.name) == id);
        let plan = request.plan(group.desired(), there)?;
        let mut not_deleted = Vec::new();
        for id in &request.instances {
            if let Some(strange) = self.strange(&group, id).await? {
                not_deleted.push((id.clone(), strange));
            }
        }
        if !plan.instances.is_empty() {
            let mut state = group.state.clone().ok_or_else(forgotten)?;
            state.desired = plan.size;
            let names = plan.instances.iter().filter_map(|id| instance_of(id));
            state.doomed.extend(names.map(str::to_owned));
            self.write_state(&mut group, state).await?;
        }
        Ok(PoolMachinesDeleted { pool: group.shown(), not_deleted })
    }

    /// Why a container that is there is none of the group.
    async fn strange(&self, group: &Group, id: &str) -> Result<Option<DriverError>, DriverError> {
        let Some(name) = instance_of(id) else { return Ok(None) };
        let Some(found) = self.inspect(name).await.map_err(looked)? else { return Ok(None) };
        if found.container.summary.labels.get(GROUP) == Some(&group.name) && name != group.name {
            return Ok(None);
        }
        let error = DriverError::not_ours(id).of_cluster(found.tag(CLUSTER));
        Ok(Some(error.not_applied()))
    }

    pub(super) async fn bring_pool_machine(
        &self,
        request: UpdatePoolMachine,
    ) -> Result<PoolInstance, DriverError> {
        let UpdatePoolMachine { ctx, provider_id, instance: id, model_hash, drained } = request;
        let _turn = self.busy.wait_for_group(&ctx).await?;
        let group = self.own_group(&ctx, Some(&provider_id)).await?;
        let state = group.state.clone().ok_or_else(forgotten)?;
        if state.model.hash != model_hash {
            let message = format!("the group has model {}", state.model.hash);
            return Err(DriverError::aborted(message).reason("MODEL_CHANGED").not_applied());
        }
        if let Some(strange) = self.strange(&group, &id).await? {
            return Err(strange);
        }
        let gone = || DriverError::not_found("the group has no such instance").not_applied();
        let name = instance_of(&id).ok_or_else(gone)?;
        let member = group.live().find(|it| it.name == name).ok_or_else(gone)?;
        let mut found = self.inspect(name).await.map_err(looked)?.ok_or_else(gone)?;
        let fixed = fixed_changes(&found, &state.model.spec)?;
        if fixed.is_empty() {
            self.bring(&mut found, &state.model.spec, Some(&model_hash)).await?;
        } else if drained {
            // The running instance stays unless its replacement can be made.
            self.have_image(&ctx, &state.model.spec).await?;
            let image = &state.model.spec.image;
            if !self.engine.has_image(image).await.map_err(looked)? {
                let message = format!("image {image} is not there, and is not to be pulled");
                return Err(DriverError::failed_precondition(message).not_applied());
            }
            // In its place: the name stays, which is the id, and what the Node is known by. Networks and volumes stay if
            // they are to be as they are.
            let kept = self.kept(name, &state.model.spec).await.map_err(looked)?;
            if fixed.iter().any(|path| path.starts_with("networks") || path.starts_with("volumes"))
            {
                self.remove_member(&ctx, name).await?;
            } else {
                self.remove_container(&ctx, name).await?;
            }
            let number = number_of(member).unwrap_or_default();
            let made = self.make_member(&ctx, &group, &state, number, kept).await;
            made.map_err(DriverError::partial)?;
            found = self.inspect(name).await.map_err(looked)?.ok_or_else(gone)?;
        } else {
            return Err(DriverError::not_hot_updatable(fixed));
        }
        Ok(instance(&group, &found.container.summary, Some(&found.tags), None))
    }

    /// Files of an instance for its replacement: the key and certificate of the Node. The bootstrap token of the pool
    /// may have expired by then, and a cluster may refuse a stranger the name of an existing Node.
    async fn kept(&self, name: &str, spec: &ProviderSpec) -> Result<Vec<File>, EngineError> {
        let state = spec.environment.get("OSTLER_NODE_STATE").map_or(NODE_STATE, String::as_str);
        let path = format!("{state}/pki/client.pem");
        let content = self.engine.read_file(name, &path).await?;
        Ok(content.map(|content| File { path, mode: 0o600, content }).into_iter().collect())
    }

    /// The checked model for instances.
    async fn model(&self, ctx: &Context, model: PoolModel) -> Result<Model, DriverError> {
        let spec = self.spec(&*ctx.class().await?)?;
        if !model.zones.is_empty() {
            let message = "an engine has no zones: leave failureDomains out";
            let error = DriverError::invalid_argument(message).reason("NO_ZONES").not_applied();
            return Err(error.violation("failureDomains", message));
        }
        let plan = Plan {
            identity: ctx.identity(),
            instance: String::new(),
            spec,
            tags: Labels::new(),
            user_data: model.user_data.as_bytes().to_vec(),
            kept: Vec::new(),
            member: None,
        };
        plan.user_data_text()?;
        let user_data = STANDARD.encode(&plan.user_data);
        Ok(Model { hash: model.hash, spec: plan.spec, user_data })
    }

    /// The group with its holder; a removed holder is made again.
    async fn held(
        &self,
        ctx: &Context,
        found: Option<Group>,
        tags: &Labels,
        model: &Model,
    ) -> Result<Group, DriverError> {
        if let Some(group) = found.as_ref().filter(|it| it.holder.is_some()) {
            return Ok(group.clone());
        }
        let name = found.map_or_else(|| group_name(&ctx.pool_identity()), |group| group.name);
        self.make_holder(ctx, &name, tags, &model.spec).await?;
        let made = self.group(&name).await.map_err(DriverError::partial)?;
        let gone = || DriverError::aborted("the group went as soon as it was made").partial();
        made.ok_or_else(gone)
    }
}

/// The tags of a group without those that the driver puts on each container.
fn identity_of(group: &Group) -> Labels {
    let own = |key: &str| key.starts_with("docker.ostler.dev/") || key == MODEL;
    group.tags.iter().filter(|(key, _)| !own(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The core makes the group anew then, which finds its instances.
fn forgotten() -> DriverError {
    let message =
        "the container that stands for the group was removed, and what it is to be with it";
    DriverError::not_found(message).reason("GROUP_FORGOTTEN").not_applied()
}

/// An instance, as the core hears of it. An instance without tags is on its way out.
fn instance(
    group: &Group,
    member: &Summary,
    tags: Option<&TagFile>,
    fault: Option<DriverError>,
) -> PoolInstance {
    let number = number_of(member).unwrap_or_default();
    let initialized = tags.is_some_and(|tags| tags.driver.initialized);
    let state = match (tags, member.life) {
        (None, _) | (_, Life::Going) => PoolState::Deleting,
        (Some(_), Life::Dead) => PoolState::Failed,
        (Some(_), _) if initialized => PoolState::Succeeded,
        (Some(_), _) => PoolState::Creating,
    };
    let made_from = member.labels.get(MODEL).cloned().unwrap_or_default();
    let model = tags.and_then(|tags| tags.driver.model.clone()).unwrap_or(made_from);
    let told = shown(member, &node_name(group.tag(POOL), number)).initialized(initialized);
    let mut told = told.cluster_id(group.tag(CLUSTER));
    if let Some(fault) = fault {
        told = told.fault(fault);
    }
    PoolInstance::new(told, number.to_string(), state).name(&member.name).model_hash(model)
}
