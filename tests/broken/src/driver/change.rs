//! Changes whose answers are false.

use ostler_driver_sdk::{
    Code, Context, DeleteMachine, Deletion, Driver, DriverError, InitializeMachine, Instance,
    UpdateMachine, Updated,
};

use super::{Broken, is_away, is_refused, remember};
use crate::Breakage;
use ostler_driver_fake::cloud::{Instance as Vm, Leftover, TagSet};
use ostler_driver_fake::spec::{ProviderSpec, RESERVED_TAG_PREFIX, Resource};

impl Broken {
    pub(super) async fn initialize(
        &self,
        request: InitializeMachine,
    ) -> Result<Instance, DriverError> {
        let vms = self.vms(&request.ctx);
        let done = vms.iter().any(|vm| vm.initialized);
        if self.breaks(Breakage::InitializeTwice) && done {
            return Err(DriverError::failed_precondition("it is initialized already"));
        }
        if self.breaks(Breakage::InitializeAbsent) && vms.is_empty() {
            return Ok(Instance::new(request.provider_id).initialized(true));
        }
        if self.breaks(Breakage::InitializeFlow)
            && let Some(vm) = vms.first()
        {
            return Ok(self.answer(vm).initialized(true));
        }
        if self.breaks(Breakage::InitializeOnce)
            && let Some(vm) = vms.iter().find(|vm| vm.initialized)
        {
            let now = self.fake.cloud().clock().now().to_string();
            self.fake.cloud().tag_as_stranger(
                &vm.provider_id,
                Resource::Vm,
                ("initialized", &now),
            )?;
        }
        let answer = self.fake.initialize_machine(request).await;
        if let (Err(error), Some(vm)) = (&answer, vms.first())
            && ((self.breaks(Breakage::InitializeCloudAway) && is_away(error))
                || (self.breaks(Breakage::InitializeBadSecret) && is_refused(error)))
        {
            return Ok(self.answer(vm).initialized(true));
        }
        if self.breaks(Breakage::InitializeNotOurs) { answer.map_err(as_absent) } else { answer }
    }

    pub(super) async fn delete(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        let uid = request.ctx.target().uid.clone();
        let vms = self.vms(&request.ctx);
        let again = self.memory.lock().deleted.contains(&uid);
        if (self.breaks(Breakage::DeleteTwice) && again)
            || (self.breaks(Breakage::DeleteUnknown) && vms.is_empty() && !again)
        {
            return Err(DriverError::failed_precondition("there is nothing to delete"));
        }
        if self.breaks(Breakage::DeleteBasicKept) {
            self.memory.lock().deleted.extend(vms.into_iter().map(|vm| vm.provider_id));
            return Ok(Deletion::Deleted);
        }
        if self.breaks(Breakage::DeleteBasic)
            || (self.breaks(Breakage::DeleteByUid) && request.provider_id.is_none())
        {
            return Ok(Deletion::Deleted);
        }
        if self.breaks(Breakage::DeleteForeignCluster)
            && let Some(id) = &request.provider_id
        {
            self.fake.cloud().remove(std::slice::from_ref(id))?;
        }
        if self.breaks(Breakage::DeletePrevious) && !self.of_before(&request.ctx).is_empty() {
            return Ok(Deletion::WasAbsent);
        }
        if self.breaks(Breakage::DeletePreviousByName) {
            let doomed = self.namesakes_of_before(&request.ctx);
            let doomed: Vec<String> = doomed.into_iter().map(|vm| vm.provider_id).collect();
            self.fake.cloud().remove(&doomed)?;
        }
        let ended = match self.fake.delete_machine(request).await {
            Err(_) if self.breaks(Breakage::DeleteErrorNotGone) => Deletion::WasAbsent,
            Err(error) if self.breaks(Breakage::DeleteCloudAway) && is_away(&error) => {
                Deletion::WasAbsent
            }
            ended => ended?,
        };
        if self.breaks(Breakage::DeleteDependents) {
            let disks = vms.iter().map(disk_of).collect();
            self.fake.cloud().leave_behind(disks)?;
        }
        remember(&mut self.memory.lock().deleted, uid);
        Ok(match &ended {
            Deletion::NotOurs { .. } if self.breaks(Breakage::DeleteNotOurs) => Deletion::WasAbsent,
            Deletion::WasAbsent if self.breaks(Breakage::DeleteSaysWhich) => Deletion::Deleted,
            Deletion::Deleted | Deletion::WasAbsent | Deletion::NotOurs { .. } => ended,
        })
    }

    pub(super) async fn update(&self, request: UpdateMachine) -> Result<Updated, DriverError> {
        let ctx = request.ctx.clone();
        if self.breaks(Breakage::UpdateHot)
            || (self.breaks(Breakage::UpdatePartialHeals) && is_said_to_be_done(&request).await)
        {
            return Ok(Updated::default());
        }
        let before = self.vms(&ctx);
        let request = if self.breaks(Breakage::UpdateInPlace) {
            UpdateMachine { last_applied_spec_json: None, ..request }
        } else {
            request
        };
        let answer = self.fake.update_machine(request).await;
        if answer.as_ref().is_err_and(|error| {
            (self.breaks(Breakage::UpdateCloudAway) && is_away(error))
                || (self.breaks(Breakage::UpdateBadSecret) && is_refused(error))
        }) {
            return Ok(Updated { applied_paths: vec!["tags".to_owned()] });
        }
        let refused = answer.as_ref().is_err_and(|error| error.code() == Code::FailedPrecondition);
        if self.breaks(Breakage::UpdateRefusedWhole) && refused {
            self.apply_tags(&ctx).await?;
        }
        let answer =
            if self.breaks(Breakage::UpdateNotOurs) { answer.map_err(as_absent) } else { answer };
        let updated = answer?;
        if self.breaks(Breakage::UpdateIdempotent) && updated.applied_paths.is_empty() {
            return Err(DriverError::failed_precondition("there is nothing to change"));
        }
        if self.breaks(Breakage::UpdateForeignTagsKept) {
            let bare = self.vms(&ctx).into_iter().map(without_foreign_tags).collect();
            self.fake.cloud().plant(bare)?;
        }
        if self.breaks(Breakage::UpdateForeignTagsOfParts) {
            let bare = |mut vm: Vm| {
                drop_foreign_tags([&mut vm.network, &mut vm.disk]);
                vm
            };
            let bare = self.vms(&ctx).into_iter().map(bare).collect();
            self.fake.cloud().plant(bare)?;
        }
        if self.breaks(Breakage::UpdateParts) {
            let old = |(vm, old): (Vm, Vm)| Vm { network: old.network, disk: old.disk, ..vm };
            let half = self.vms(&ctx).into_iter().zip(before).map(old).collect();
            self.fake.cloud().plant(half)?;
        }
        Ok(updated)
    }

    async fn apply_tags(&self, ctx: &Context) -> Result<(), DriverError> {
        let spec: ProviderSpec = ctx.class().await?.spec()?;
        let cloud = self.fake.cloud();
        for vm in self.vms(ctx) {
            let desired = spec.tags.of(Resource::Vm);
            cloud.bring_tags(&vm.provider_id, Resource::Vm, desired)?;
        }
        Ok(())
    }
}

/// An instance that is not ours, taken for none.
pub(super) fn as_absent(error: DriverError) -> DriverError {
    if error.reason_word() == "NOT_OURS" {
        DriverError::not_found("no such instance")
    } else {
        error
    }
}

/// Whether the spec that is said to be applied is the one to apply.
async fn is_said_to_be_done(request: &UpdateMachine) -> bool {
    let said: Option<ProviderSpec> =
        request.last_applied_spec_json.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let wanted = request.ctx.class().await.and_then(|class| class.spec::<ProviderSpec>());
    said.is_some() && said == wanted.ok()
}

fn disk_of(vm: &Vm) -> Leftover {
    Leftover {
        id: format!("{}/disk", vm.provider_id),
        kind: "disk".to_owned(),
        uid: vm.identity.machine_uid.clone(),
        cluster_id: vm.identity.cluster_id.clone(),
    }
}

fn without_foreign_tags(mut vm: Vm) -> Vm {
    drop_foreign_tags([&mut vm.vm, &mut vm.network, &mut vm.disk]);
    vm
}

/// Keeps identity and what the class says.
fn drop_foreign_tags<'a>(parts: impl IntoIterator<Item = &'a mut TagSet>) {
    for tags in parts {
        let managed = tags.managed.clone();
        tags.tags.retain(|key, _| managed.contains(key) || key.starts_with(RESERVED_TAG_PREFIX));
    }
}
