//! Groups whose answers are false.

use std::collections::BTreeSet;

use ostler_driver_sdk::{
    Code, Context, CreatePool, DeletePool, DeletePoolMachines, Deletion, Driver, DriverError,
    GetPoolStatus, Instance, ListPools, Pool, PoolInstance, PoolMachinesDeleted, PoolModel,
    PoolSize, PoolState, PoolStatus, UpdatePool, UpdatePoolMachine,
};

use super::{Broken, is_away, is_refused, remember};
use crate::Breakage;
use ostler_driver_fake::cloud::{GroupLookup, NewGroup, Seen};

/// An instance that has a model, as it is told.
fn updated(instance: String, model_hash: String) -> PoolInstance {
    PoolInstance::new(Instance::new(instance), "0", PoolState::Succeeded).model_hash(model_hash)
}

impl Broken {
    /// Whether this breakage speaks in place of an infrastructure that did not answer.
    fn lies_away<T>(&self, breakage: Breakage, answer: &Result<T, DriverError>) -> bool {
        self.breaks(breakage) && answer.as_ref().is_err_and(is_away)
    }

    /// The group of the target as it is.
    fn group(&self, ctx: &Context) -> Option<Seen> {
        let uid = ctx.target().uid.clone();
        let all = self.fake.cloud().groups(|_| true).unwrap_or_default();
        all.into_iter().find(|it| it.group.identity.pool_uid == uid)
    }

    /// Whether the group of the target has the tags of a previous cluster id.
    fn is_of_before(&self, ctx: &Context) -> bool {
        self.group(ctx).is_some_and(|it| it.group.identity.cluster_id != ctx.cluster_id())
    }

    /// The group of this id, of any pool and cluster.
    fn any_group(&self, provider_id: &str) -> Option<Seen> {
        let all = self.fake.cloud().groups(|_| true).unwrap_or_default();
        all.into_iter().find(|it| it.group.provider_id == provider_id)
    }

    /// Sets a size, whatever the group has, and takes the newest instances that are too many.
    async fn force(&self, ctx: &Context, wanted: i32) -> Result<(), DriverError> {
        let Some(Seen { group, members }) = self.group(ctx) else { return Ok(()) };
        let live: Vec<String> =
            members.iter().filter(|it| !it.deleting).map(|it| it.provider_id.clone()).collect();
        let kept = usize::try_from(wanted).unwrap_or_default();
        let expected = group.desired;
        let instances: Vec<String> = live.into_iter().skip(kept).collect();
        let provider_id = group.provider_id.clone();
        if instances.is_empty() {
            let size = Some(PoolSize { expected, wanted });
            let asked = UpdatePool { ctx: ctx.clone(), provider_id, size, model: None };
            return self.fake.update_pool(asked).await.map(drop);
        }
        let size = PoolSize { expected, wanted };
        let asked = DeletePoolMachines { ctx: ctx.clone(), provider_id, instances, size };
        self.fake.delete_pool_machines(asked).await.map(drop)
    }

    pub(super) async fn make_pool(&self, request: CreatePool) -> Result<Pool, DriverError> {
        let (ctx, desired) = (request.ctx.clone(), request.desired);
        if self.breaks(Breakage::PoolCreate) && self.group(&ctx).is_some() {
            self.force(&ctx, desired).await?;
        }
        if self.breaks(Breakage::PoolPreviousTags) && self.is_of_before(&ctx) {
            let asked = GetPoolStatus { ctx, provider_id: None, with_instances: false };
            return self.fake.get_pool_status(asked).await.map(|status| status.pool);
        }
        if self.breaks(Breakage::PoolKilledEarly)
            && remember(&mut self.memory.lock().made, ctx.target().uid.clone())
        {
            self.second_group(&ctx)?;
        }
        let answer = self.fake.create_pool(request).await;
        if self.breaks(Breakage::PoolMaxName) {
            let target = ctx.target();
            let short: String = target.name.chars().take(63).collect();
            return Ok(answer?.pool(short, target.uid.clone()));
        }
        let is_wrong = |error: &DriverError| error.code() == Code::InvalidArgument;
        if self.breaks(Breakage::PoolBadClass) && answer.as_ref().is_err_and(is_wrong) {
            return Err(DriverError::internal("the group cannot be made").not_applied());
        }
        if self.lies_away(Breakage::PoolCloudAwayCreate, &answer) {
            let wrong = DriverError::invalid_argument("the class has another region").not_applied();
            return Err(wrong);
        }
        answer
    }

    /// Another group of a pool, which is found by no UID.
    fn second_group(&self, ctx: &Context) -> Result<(), DriverError> {
        let Some(Seen { group, .. }) = self.group(ctx) else { return Ok(()) };
        let mut identity = group.identity;
        identity.pool_uid.push_str("-again");
        let lookup = GroupLookup {
            provider_id: None,
            identity: &identity,
            previous_clusters: &[],
            region: None,
        };
        let new = NewGroup {
            tags: identity.tags(),
            class: group.class,
            desired: group.desired,
            model: group.model,
        };
        self.fake.cloud().create_group(lookup, new)?;
        Ok(())
    }

    pub(super) async fn change_pool(&self, mut request: UpdatePool) -> Result<Pool, DriverError> {
        let ctx = request.ctx.clone();
        let seen = self.group(&ctx);
        if let Some(Seen { group, .. }) = self.any_group(&request.provider_id)
            && self.breaks(Breakage::PoolNotOurs)
        {
            let identity = &group.identity;
            let provider_id = Some(request.provider_id.as_str());
            let lookup =
                GroupLookup { provider_id, identity, previous_clusters: &[], region: None };
            let Seen { group, .. } = self.fake.cloud().update_group(lookup, &request, None)??;
            return Ok(Pool::new(group.provider_id, group.desired, group.desired));
        }
        if let Some(model) = &mut request.model
            && self.breaks(Breakage::PoolZones)
        {
            model.zones.clear();
        }
        if let (Some(size), Some(Seen { group, .. })) = (&mut request.size, &seen)
            && self.breaks(Breakage::PoolSize)
        {
            size.expected = group.desired;
        }
        if let Some(size) = request.size
            && self.breaks(Breakage::PoolLowerTakesNone)
            && seen.as_ref().is_some_and(|it| it.group.desired > size.wanted)
        {
            self.force(&ctx, size.wanted).await?;
        }
        if let (Some(model), Some(Seen { group, .. })) = (&request.model, &seen)
            && model.hash == group.model.hash
            && self.breaks(Breakage::PoolUserData)
        {
            request.model = None;
        }
        let model = request.model.clone();
        let (provider_id, size) = (request.provider_id.clone(), request.size);
        if self.breaks(Breakage::PoolGone) && seen.is_none() {
            let (desired, model) = (size.map_or(1, |it| it.wanted), model.unwrap_or_default());
            let tags = ctx.pool_identity().tags().into_iter().collect();
            let made = CreatePool { ctx, desired, model, tags, provider_id: None };
            return self.fake.create_pool(made).await;
        }
        let answer = self.fake.update_pool(request).await;
        if self.lies_away(Breakage::PoolCloudAwayUpdate, &answer) {
            let size = size.map_or(0, |size| size.wanted);
            return Ok(Pool::new(provider_id, size, size));
        }
        if self.lies_away(Breakage::PoolCloudAwayLater, &answer) {
            self.memory.lock().later = size.map(|size| size.wanted);
        }
        if let (Some(PoolModel { hash, .. }), Some(seen)) = (model, self.group(&ctx))
            && self.breaks(Breakage::PoolModel)
        {
            let mut members = seen.members;
            for member in members.iter_mut().filter_map(|it| it.member.as_mut()) {
                member.model_hash.clone_from(&hash);
            }
            self.fake.cloud().plant(members)?;
        }
        answer
    }

    pub(super) async fn remove_pool(&self, request: DeletePool) -> Result<Deletion, DriverError> {
        if self.breaks(Breakage::PoolOtherCluster)
            && let Some(id) = &request.provider_id
        {
            self.fake.cloud().remove_group(id)?;
            return Ok(Deletion::Deleted);
        }
        if self.breaks(Breakage::PoolPreviousDelete) && self.is_of_before(&request.ctx) {
            return Ok(Deletion::WasAbsent);
        }
        if self.breaks(Breakage::PoolDelete) && self.group(&request.ctx).is_some() {
            return Ok(Deletion::Deleted);
        }
        let answer = self.fake.delete_pool(request).await;
        let refused = answer.as_ref().is_err_and(is_refused);
        if self.lies_away(Breakage::PoolCloudAwayDelete, &answer)
            || self.breaks(Breakage::PoolBadSecretDelete) && refused
        {
            return Ok(Deletion::WasAbsent);
        }
        answer
    }

    pub(super) async fn list_groups(&self, request: ListPools) -> Result<Vec<Pool>, DriverError> {
        let answer = self.fake.list_pools(request).await;
        if self.lies_away(Breakage::PoolCloudAwayList, &answer) {
            return Ok(Vec::new());
        }
        if self.breaks(Breakage::PoolPrevious) {
            return Ok(answer?.into_iter().map(|pool| pool.cluster_id("")).collect());
        }
        answer
    }

    pub(super) async fn read_pool(
        &self,
        request: GetPoolStatus,
    ) -> Result<PoolStatus, DriverError> {
        let ctx = request.ctx.clone();
        if !self.fake.cloud().is_away() && self.group(&ctx).is_some() {
            let later = self.memory.lock().later.take();
            if let Some(size) = later {
                self.force(&ctx, size).await?;
            }
        }
        let answer = self.fake.get_pool_status(request).await;
        if self.lies_away(Breakage::PoolCloudAway, &answer) {
            return Err(DriverError::not_found("there is no group"));
        }
        if self.lies_away(Breakage::PoolCloudAwayPart, &answer) {
            return Ok(PoolStatus { pool: Pool::new("fake:///some", 2, 2), instances: Vec::new() });
        }
        if let Some(seen) = self.group(&ctx)
            && self.breaks(Breakage::PoolTags)
        {
            let mut members = seen.members;
            for member in &mut members {
                member.vm.tags.clear();
            }
            self.fake.cloud().plant(members)?;
        }
        match answer {
            Ok(status) if self.breaks(Breakage::PoolLostInstance) => self.all_there(&ctx, status),
            Ok(status) if self.breaks(Breakage::PoolLostInstanceMute) => {
                Ok(self.with_lost(&ctx, status, PoolState::Failed))
            }
            Ok(status) if self.breaks(Breakage::PoolLostInstanceShown) => {
                Ok(self.with_lost(&ctx, status, PoolState::Succeeded))
            }
            Err(error)
                if self.breaks(Breakage::PoolPreviousByName)
                    && error.reason_word() == "NOT_OURS" =>
            {
                Err(DriverError::not_found("there is no group"))
            }
            Err(error) if self.breaks(Breakage::PoolBadSecret) && is_refused(&error) => {
                Err(DriverError::not_found("there is no group"))
            }
            Err(error)
                if self.breaks(Breakage::PoolStatusAbsent) && error.code() == Code::NotFound =>
            {
                Ok(PoolStatus { pool: Pool::new("fake:///none", 0, 0), instances: Vec::new() })
            }
            Ok(status) if self.breaks(Breakage::PoolStatus) => {
                let instances = self.group(&ctx).map(|it| it.members).unwrap_or_default();
                // Each told as the first of the group.
                let told = |vm: &ostler_driver_fake::cloud::Instance| {
                    let instance = Instance::new(vm.provider_id.clone());
                    PoolInstance::new(instance, "0", PoolState::Succeeded).model_hash("one")
                };
                Ok(PoolStatus { instances: instances.iter().map(told).collect(), ..status })
            }
            answer => answer,
        }
    }

    /// The status of a group that never lost an instance; otherwise an error.
    fn all_there(&self, ctx: &Context, status: PoolStatus) -> Result<PoolStatus, DriverError> {
        let lost = self.group(ctx).is_some_and(|it| it.group.next > it.members.len() as u64);
        if lost { Err(DriverError::internal("an instance is not there")) } else { Ok(status) }
    }

    /// The status of a group, with instances that are gone.
    fn with_lost(&self, ctx: &Context, mut status: PoolStatus, state: PoolState) -> PoolStatus {
        let seen = self.group(ctx).map(|it| it.members).unwrap_or_default();
        let there: BTreeSet<_> = seen.into_iter().map(|vm| vm.provider_id).collect();
        let mut memory = self.memory.lock();
        memory.made.extend(there.iter().cloned());
        for lost in memory.made.difference(&there) {
            let instance = Instance::new(lost.clone());
            status.instances.push(PoolInstance::new(instance, "lost", state));
        }
        status
    }

    /// The answer to a deletion of instances of which some cannot be deleted.
    fn partly(&self, mut answer: PoolMachinesDeleted) -> Result<PoolMachinesDeleted, DriverError> {
        for (_, error) in &mut answer.not_deleted {
            if self.breaks(Breakage::PoolDeletePartialAll) {
                return Err(error.clone());
            }
            if self.breaks(Breakage::PoolDeletePartialWhy) {
                *error = DriverError::internal("it cannot be deleted").not_applied();
            }
        }
        Ok(answer)
    }

    pub(super) async fn remove_pool_machines(
        &self,
        mut request: DeletePoolMachines,
    ) -> Result<PoolMachinesDeleted, DriverError> {
        let ctx = request.ctx.clone();
        let (asked, size) = (request.instances.clone(), request.size);
        let provider_id = request.provider_id.clone();
        let seen = self.group(&ctx);
        if self.breaks(Breakage::PoolDeleteStale)
            && let Some(Seen { group, .. }) = &seen
        {
            let lowers = request.size.expected - request.size.wanted;
            request.size = PoolSize { expected: group.desired, wanted: group.desired - lowers };
        }
        if self.breaks(Breakage::PoolDeleteNamed)
            && let Some(Seen { members, .. }) = &seen
        {
            let live = members.iter().filter(|it| !it.deleting);
            request.instances =
                live.take(request.instances.len()).map(|it| it.provider_id.clone()).collect();
        }
        let is_theirs = |it: &Seen| it.group.provider_id != request.provider_id;
        if self.breaks(Breakage::PoolDeleteStrange)
            || self.breaks(Breakage::PoolNotOursDeletes) && seen.as_ref().is_none_or(is_theirs)
        {
            self.fake.cloud().remove(&request.instances)?;
        }
        let mut answer = self.fake.delete_pool_machines(request).await;
        let gone = |it: &Seen| !it.members.iter().any(|vm| asked.contains(&vm.provider_id));
        // As a driver that counts down in place of setting a size.
        if self.breaks(Breakage::PoolDeleteTwice)
            && size.wanted < size.expected
            && let Some(seen) = seen.filter(gone)
        {
            self.force(&ctx, seen.group.desired - 1).await?;
            if let (Ok(answer), Some(seen)) = (&mut answer, self.group(&ctx)) {
                let Seen { group, members } = seen;
                let current = i32::try_from(members.len()).unwrap_or(i32::MAX);
                answer.pool = Pool::new(group.provider_id, group.desired, current);
            }
        }
        if self.breaks(Breakage::PoolDeleteReplaced) && size.wanted == size.expected {
            self.force(&ctx, size.wanted - 1).await?;
        }
        if self.breaks(Breakage::PoolDeletePartial)
            && answer.as_ref().is_ok_and(|it| !it.not_deleted.is_empty())
        {
            self.force(&ctx, size.wanted).await?;
        }
        if self.lies_away(Breakage::PoolCloudAwayDeletes, &answer) {
            let pool = Pool::new(provider_id, size.wanted, size.wanted);
            return Ok(PoolMachinesDeleted { pool, not_deleted: Vec::new() });
        }
        self.partly(answer?)
    }

    pub(super) async fn bring_pool_machine(
        &self,
        mut request: UpdatePoolMachine,
    ) -> Result<PoolInstance, DriverError> {
        request.drained |= self.breaks(Breakage::PoolUpdateUndrained);
        if self.breaks(Breakage::PoolNotOursUpdates) {
            return Ok(updated(request.instance, request.model_hash));
        }
        if self.breaks(Breakage::PoolUpdateInstance)
            && let Some(seen) = self.group(&request.ctx)
            && let Some(vm) = seen.members.iter().find(|it| it.provider_id == request.instance)
        {
            return Ok(updated(vm.provider_id.clone(), request.model_hash));
        }
        let (instance, model) = (request.instance.clone(), request.model_hash.clone());
        let member = |seen: Option<Seen>| {
            seen.and_then(|it| it.members.into_iter().find(|vm| vm.provider_id == instance))
        };
        let before = member(self.group(&request.ctx));
        let ctx = request.ctx.clone();
        let answer = self.fake.update_pool_machine(request).await;
        if let (Some(before), Some(mut vm)) = (before, member(self.group(&ctx))) {
            if self.breaks(Breakage::PoolUpdateTags) {
                vm.vm.tags = before.vm.tags;
                self.plant(&vm)?;
            } else if self.breaks(Breakage::PoolUpdateTagsWiped) {
                vm.vm.tags.remove("conformance-stranger");
                self.plant(&vm)?;
            }
        }
        if self.lies_away(Breakage::PoolCloudAwayUpdates, &answer) {
            return Ok(updated(instance, model));
        }
        answer
    }
}
