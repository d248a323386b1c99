//! Reads that lie.

use std::time::{Duration, Instant};

use ostler_driver_sdk::{
    ClassReview, Code, Context, Driver, DriverError, GetMachineStatus, GetVolumeIds, Instance,
    ListMachines, ValidateClass, Violation,
};

use super::change::as_absent;
use super::{Broken, is_away, twin};
use crate::Breakage;
use ostler_driver_fake::cloud::{Bootstrap, Instance as Vm, Lookup, NewInstance};
use ostler_driver_fake::spec::Resource;
use sha2::{Digest as _, Sha256};

/// The delay of [`Breakage::ListAtOnce`].
const LATE: Duration = Duration::from_secs(1);

/// Whether the class has the credentials that the fake cloud refuses.
async fn is_denied(ctx: &Context) -> bool {
    let secret = ctx.secret().await;
    secret.is_ok_and(|it| it.get("accessToken").is_some_and(|token| token.starts_with(b"invalid")))
}

impl Broken {
    pub(super) async fn status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        let ctx = request.ctx.clone();
        let cloud = self.fake.cloud();
        let named = request.provider_id.clone();
        if self.breaks(Breakage::StatusByUid) && named.is_none() {
            return Err(DriverError::not_found("no provider id was given"));
        }
        if self.breaks(Breakage::StatusWrongProviderId)
            && let Some(id) = &named
        {
            let found = cloud.instance(id).ok().flatten();
            let absent = || DriverError::not_found(format!("there is no instance {id}"));
            return found.map(|vm| self.answer(&vm)).ok_or_else(absent);
        }
        if self.breaks(Breakage::PrefixName)
            && let Some(vm) = self.begins_alike(&ctx)
        {
            return Ok(self.answer(&vm));
        }
        if self.breaks(Breakage::StatusRemoved) {
            let known = self.memory.lock().told.get(&ctx.target().uid).cloned();
            if let Some(known) = known {
                return Ok(known);
            }
        }
        let answer = self.fake.get_machine_status(request).await;
        let answer = answer.map_err(|error| self.misreported(error, named.is_none()));
        if self.breaks(Breakage::StatusAbsent)
            && named.is_none()
            && answer.as_ref().is_err_and(|error| error.code() == Code::NotFound)
        {
            return Ok(Instance::new(""));
        }
        let found = answer?;
        if self.breaks(Breakage::StatusRemoved) {
            self.memory.lock().told.insert(ctx.target().uid.clone(), found.clone());
        }
        if self.memory.lock().deleted.contains(found.provider_id()) {
            return Err(DriverError::not_found("hidden"));
        }
        if self.breaks(Breakage::StatusPure) {
            let id = found.provider_id();
            let time = cloud.clock().now().to_string();
            let identity = ctx.identity();
            let lookup = Lookup::of(&identity).known(Some(id));
            cloud.initialize(lookup)?;
            cloud.tag_as_stranger(id, Resource::Vm, ("read-at", &time))?;
        }
        if self.breaks(Breakage::StatusAfterCreate)
            && let Some(vm) = self.vms(&ctx).first()
        {
            return Ok(self.answer(&twin(vm, 0)));
        }
        if self.breaks(Breakage::StatusTellsTags) {
            let target = ctx.target();
            return Ok(found.machine(&target.name, &target.uid));
        }
        Ok(found)
    }

    /// The error of GetMachineStatus. `by_name`: the core knows no provider id.
    fn misreported(&self, error: DriverError, by_name: bool) -> DriverError {
        if self.breaks(Breakage::SameMessage) {
            let now = self.fake.cloud().clock().now();
            return DriverError::not_found(format!("{error} at {now}"));
        }
        if self.breaks(Breakage::StatusNotOurs)
            || (self.breaks(Breakage::StatusPreviousByName) && by_name)
        {
            return as_absent(error);
        }
        if self.breaks(Breakage::StatusNotOursCluster) {
            return error.of_cluster("");
        }
        if self.breaks(Breakage::StatusErrorNotAbsent)
            || (self.breaks(Breakage::StatusCloudAway) && is_away(&error))
        {
            return DriverError::not_found(error.to_string());
        }
        error
    }

    /// An instance whose name begins with the name of the target, if no instance has that name.
    fn begins_alike(&self, ctx: &Context) -> Option<Vm> {
        let ours = ctx.identity();
        let all = self.fake.cloud().of_clusters(|id| ctx.is_own_cluster(id), None);
        let mut all =
            all.unwrap_or_default().into_iter().map(|vm| (vm.identity.machine_name.clone(), vm));
        let is_there = all.clone().any(|(name, _)| name == ours.machine_name);
        all.find(|(name, _)| !is_there && name.starts_with(&ours.machine_name)).map(|(_, vm)| vm)
    }

    pub(super) async fn list(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        let ctx = request.ctx.clone();
        // Waits for the create that runs.
        let _alone = self.alone().await;
        let answer = self.fake.list_machines(request).await;
        if self.breaks(Breakage::ListErrorNotEmpty) {
            return Ok(answer.unwrap_or_default());
        }
        if self.breaks(Breakage::ListCloudAway) && answer.as_ref().is_err_and(is_away) {
            return Ok(Vec::new());
        }
        let mut found = answer?;
        found.retain(|it| !self.memory.lock().deleted.contains(it.provider_id()));
        if self.breaks(Breakage::ListExact) {
            found.pop();
        }
        if self.breaks(Breakage::ListAtOnce) {
            let mut memory = self.memory.lock();
            found.retain(|it| {
                let first = memory.seen.entry(it.provider_id().to_owned());
                first.or_insert_with(Instant::now).elapsed() > LATE
            });
        }
        if self.breaks(Breakage::ListExactByZone) {
            let own = self.fake.cloud().of_clusters(|id| ctx.is_own_cluster(id), None);
            let own = own.unwrap_or_default().into_iter().zip(0..);
            let zoned = own.map(|(vm, zone)| Vm { provider_id: format!("fake:///{zone}/i"), ..vm });
            found = zoned.map(|vm| self.answer(&vm)).collect();
        }
        if self.breaks(Breakage::ListOtherCluster) {
            let all = self.fake.cloud().instances().unwrap_or_default();
            found = all.iter().map(|vm| self.answer(vm)).collect();
        }
        if self.breaks(Breakage::ListUntagged) {
            let tagged = self.fake.cloud().of_clusters(|id| ctx.is_own_cluster(id), None);
            found = tagged.unwrap_or_default().iter().map(|vm| self.answer(vm)).collect();
        }
        if self.breaks(Breakage::PoolOfNoMachine) {
            let groups = self.fake.cloud().groups(|id| ctx.is_own_cluster(id)).unwrap_or_default();
            found.extend(groups.iter().flat_map(|it| &it.members).map(|vm| self.answer(vm)));
        }
        if self.breaks(Breakage::ListPreviousCluster) {
            found = found.into_iter().map(|instance| instance.cluster_id("")).collect();
        }
        Ok(found)
    }

    pub(super) async fn volumes(&self, request: GetVolumeIds) -> Result<Vec<String>, DriverError> {
        if self.breaks(Breakage::KindsHonest) {
            return Err(DriverError::unimplemented("not written yet"));
        }
        let denied = self.breaks(Breakage::VolumesBadSecret) && is_denied(&request.ctx).await;
        let away = self.breaks(Breakage::VolumesCloudAway) && self.fake.cloud().is_away();
        let mut ids = self.fake.get_volume_ids(request).await?;
        if denied || away {
            return Ok(vec![String::new(); ids.len()]);
        }
        if self.breaks(Breakage::VolumeIds) {
            ids.retain(|id| !id.is_empty());
            ids.reverse();
        }
        Ok(ids)
    }

    pub(super) async fn validate(
        &self,
        request: ValidateClass,
    ) -> Result<ClassReview, DriverError> {
        if self.breaks(Breakage::ValidatePure) {
            self.try_out(&request)?;
        }
        let denied = self.breaks(Breakage::ValidateBadSecret) && is_denied(&request.ctx).await;
        let away = self.breaks(Breakage::ValidateCloudAway) && self.fake.cloud().is_away();
        if denied || away {
            let violation = Violation::new("region", "is not known");
            return Ok(ClassReview { violations: vec![violation], ..ClassReview::default() });
        }
        let whole = hex::encode(Sha256::digest(&request.provider_spec_json));
        let mut review = self.fake.validate_class(request).await?;
        if self.breaks(Breakage::ValidateFixedDigest) {
            review.fixed_spec_sha256 = whole;
        }
        if self.breaks(Breakage::ValidateClassifies) {
            return Ok(ClassReview { change_is_hot_updatable: true, ..ClassReview::default() });
        }
        Ok(review)
    }

    /// Makes an instance and forgets it.
    fn try_out(&self, request: &ValidateClass) -> Result<Vm, DriverError> {
        let new = NewInstance {
            identity: request.ctx.identity(),
            class: request.ctx.target().name.clone(),
            spec: request.spec()?,
            identity_tags: [].into(),
            bootstrap: Bootstrap::default(),
            previous: None,
            by_name: None,
            previous_clusters: Vec::new(),
        };
        Ok(self.fake.cloud().create(&new)?)
    }
}
