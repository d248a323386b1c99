//! Creates that go wrong.

use std::pin::pin;
use std::time::Duration;

use ostler_driver_sdk::{Code, Context, CreateMachine, Driver, DriverError, Instance};

use super::{Broken, is_away, remember, twin};
use crate::Breakage;
use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{Cloud, Instance as Vm, UserData, ZONE_TAG};

/// Names are cut here by [`Breakage::MaxName`].
const CUT_NAME: usize = 40;

impl Broken {
    pub(super) async fn create(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let ctx = request.ctx.clone();
        let _alone = self.alone().await;
        if self.breaks(Breakage::SecretNotInOutput) {
            shout(&request).await;
        }
        if self.breaks(Breakage::AdoptOnlyUnclaimed) {
            self.claim(&ctx)?;
        }
        if self.breaks(Breakage::CreatePreviousByName) {
            let ours = ctx.identity();
            for vm in self.namesakes_of_before(&ctx) {
                self.plant(&Vm { identity: ours.clone(), ..vm })?;
            }
        }
        let (before, of_before) = (self.vms(&ctx), self.of_before(&ctx));
        match self.make(self.asked(request)).await {
            Ok(made) => {
                self.spoil_adopted(&ctx, &of_before)?;
                self.spoil_created(&ctx, made, &before)
            }
            Err(error) => self.spoil_refused(&ctx, error),
        }
    }

    async fn make(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        if self.breaks(Breakage::TagsAtomic) {
            return self.make_then_tag(request).await;
        }
        if !self.breaks(Breakage::KilledEarly) {
            return self.fake.create_machine(request).await;
        }
        let ctx = request.ctx.clone();
        let mut changes = self.fake.cloud().subscribe();
        let mut making = pin!(self.fake.create_machine(request));
        let mut tagged = None;
        loop {
            tokio::select! {
                answer = &mut making => {
                    if let Some(vm) = &tagged {
                        self.plant(vm)?;
                    }
                    return answer;
                }
                _ = changes.changed() => tagged = tagged.or(self.take_tags(&ctx)?),
            }
        }
    }

    /// An instance of a cloud of its own is put into the real one, in two calls without a pause between them.
    async fn make_then_tag(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let ctx = request.ctx.clone();
        if self.vms(&ctx).is_empty() {
            let aside = FakeDriver::new(Cloud::in_memory(self.fake.cloud().clock().clone()));
            let _made = aside.create_machine(request.clone()).await?;
            for vm in aside.cloud().instances().unwrap_or_default() {
                self.plant(&without_tags(vm.clone()))?;
                self.plant(&vm)?;
            }
        }
        self.fake.create_machine(request).await
    }

    /// Takes the identity off an instance; as it was.
    fn take_tags(&self, ctx: &Context) -> Result<Option<Vm>, DriverError> {
        let Some(tagged) = self.vms(ctx).into_iter().next() else { return Ok(None) };
        let bare = without_tags(tagged.clone());
        if bare == tagged {
            return Ok(None);
        }
        self.plant(&bare)?;
        Ok(Some(tagged))
    }

    fn asked(&self, mut request: CreateMachine) -> CreateMachine {
        if self.breaks(Breakage::RestoredProviderId) {
            request.provider_id = None;
        }
        if self.breaks(Breakage::RequestTags) {
            request.tags.clear();
        }
        if self.breaks(Breakage::RequestTagsAscii) {
            request.tags.values_mut().for_each(|value| value.retain(|it| it.is_ascii()));
        }
        if self.breaks(Breakage::SecretNotInTags) {
            let user_data = String::from_utf8_lossy(request.user_data()).into_owned();
            request.tags.insert("user-data".to_owned(), user_data);
        }
        request
    }

    /// Makes every instance of the machine's name its own, of whatever machine it is.
    fn claim(&self, ctx: &Context) -> Result<(), DriverError> {
        let ours = ctx.identity();
        let all = self.fake.cloud().instances().unwrap_or_default();
        let namesakes = all.into_iter().filter(|vm| vm.identity.machine_name == ours.machine_name);
        for vm in namesakes.filter(|vm| vm.identity != ours) {
            self.plant(&Vm { identity: ours.clone(), ..vm })?;
        }
        Ok(())
    }

    /// What becomes of an instance of a previous cluster id that was adopted.
    fn spoil_adopted(&self, ctx: &Context, of_before: &[Vm]) -> Result<(), DriverError> {
        for vm in self.vms(ctx) {
            let Some(old) = of_before.iter().find(|old| old.provider_id == vm.provider_id) else {
                continue;
            };
            if self.breaks(Breakage::CreatePreviousById) {
                self.plant(old)?;
            }
            if self.breaks(Breakage::CreatePreviousByUid) {
                self.plant(&twin(&vm, 1))?;
            }
        }
        Ok(())
    }

    fn spoil_created(
        &self,
        ctx: &Context,
        made: Instance,
        before: &[Vm],
    ) -> Result<Instance, DriverError> {
        let uid = ctx.target().uid.clone();
        let known = !remember(&mut self.memory.lock().made, uid.clone());
        let twice = (self.breaks(Breakage::SameIdTwice) && ctx.delivery() > 1)
            || (self.breaks(Breakage::SameKeyNewId) && !before.is_empty())
            || (self.breaks(Breakage::CrashMidCreate) && !before.is_empty() && !known);
        let vms = self.vms(ctx);
        let Some(vm) = vms.first() else { return Ok(made) };
        if twice {
            let second = twin(vm, vms.len());
            return self.plant(&second).map(|()| self.answer(&second));
        }
        if self.breaks(Breakage::Cancel) && ctx.is_cancelled() {
            return Err(DriverError::canceled("the core cancelled the call").not_applied());
        }
        if self.breaks(Breakage::MaxName) && ctx.target().name.len() > CUT_NAME {
            return self.cut_name(vm);
        }
        if self.breaks(Breakage::Basic) {
            return Ok(made.machine(format!("{}-x", ctx.target().name), format!("{uid}-x")));
        }
        let mut tampered = vm.clone();
        if self.breaks(Breakage::AdoptByName) && ctx.adopts_by_name() {
            tampered.disown();
        }
        if self.breaks(Breakage::UserDataIntact) {
            tampered.bootstrap.user_data = Some(UserData::new(b"something else"));
        }
        if self.breaks(Breakage::Zone) {
            tampered.vm.tags.remove(ZONE_TAG);
        }
        if tampered != *vm {
            self.plant(&tampered)?;
        }
        Ok(made)
    }

    fn spoil_refused(&self, ctx: &Context, error: DriverError) -> Result<Instance, DriverError> {
        let code = error.code();
        let refused = matches!(code, Code::Unauthenticated | Code::PermissionDenied);
        if (self.breaks(Breakage::BadClass) && code == Code::InvalidArgument)
            || (self.breaks(Breakage::BadSecret) && refused)
        {
            return Err(DriverError::internal("something went wrong"));
        }
        if self.breaks(Breakage::CreateCloudAway) && is_away(&error) {
            return Err(DriverError::invalid_argument("the region is not known").not_applied());
        }
        if self.breaks(Breakage::CreateCloudAwayInternal) && is_away(&error) {
            return Err(DriverError::internal("something went wrong").not_applied());
        }
        if self.breaks(Breakage::CreateCloudAwayQuota) && is_away(&error) {
            return Err(DriverError::resource_exhausted("all is taken").not_applied());
        }
        if self.breaks(Breakage::CreateCloudAwayDay) && is_away(&error) {
            return Err(error.retry_after(Duration::from_hours(24)));
        }
        if self.breaks(Breakage::Incompatible) && code == Code::AlreadyExists {
            let found = self.fake.cloud().find(&ctx.identity(), None);
            return Ok(self.answer(&found?));
        }
        Err(error)
    }

    /// Two machines whose long names differ only at the end share one instance.
    fn cut_name(&self, vm: &Vm) -> Result<Instance, DriverError> {
        let cut = |name: &str| name.chars().take(CUT_NAME).collect::<String>();
        let name = cut(&vm.identity.machine_name);
        let found = self.fake.cloud().instances().unwrap_or_default();
        let taken = found.iter().find(|other| {
            other.identity.machine_uid != vm.identity.machine_uid
                && cut(&other.identity.machine_name) == name
        });
        match taken {
            Some(other) => {
                let cloud = self.fake.cloud();
                let gone = cloud.remove(std::slice::from_ref(&vm.provider_id));
                gone?;
                Ok(self.answer(other))
            }
            None => Ok(self.answer(vm)),
        }
    }
}

/// Only with the tags of the class.
fn without_tags(mut vm: Vm) -> Vm {
    for tags in [&mut vm.vm, &mut vm.network, &mut vm.disk] {
        tags.tags.retain(|key, _| tags.managed.contains(key));
    }
    vm
}

/// Says what must never be said.
async fn shout(request: &CreateMachine) {
    let user_data = String::from_utf8_lossy(request.user_data());
    tracing::info!(%user_data, "creating");
    if let Ok(secret) = request.ctx.secret().await {
        for key in secret.keys() {
            let value = String::from_utf8_lossy(secret.get(key).unwrap_or_default());
            tracing::info!(key, %value, "logging in");
        }
    }
}
