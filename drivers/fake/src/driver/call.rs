//! What every verb has in common: the call log, the faults, the time it takes.

use std::future::pending;
use std::time::Duration;

use ostler_driver_sdk::{Class, Context, DriverError};

use super::FakeDriver;
use super::answer::{away, bad_spec, control_error};
use crate::calls::Entry;
use crate::fault::{Action, Fault, Injection, Subject, Verb, When, inject};
use crate::spec::ProviderSpec;

/// One call of a verb.
pub(super) struct Call {
    pub(super) ctx: Context,
    pub(super) spec: ProviderSpec,
    pub(super) injection: Injection,
}

/// How much a verb needs of the class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A good spec.
    GoodSpec,
    /// Only that there is one: a spec that was spoiled must not keep machines from being read and
    /// deleted.
    Class,
    /// Nothing: all that matters is in the request.
    Nothing,
}

impl Call {
    /// Where instances are looked for; `None`: the spec cannot be read, and whatever is there has to be deletable.
    pub(super) fn region(&self) -> Option<&str> {
        Some(self.spec.region.as_str()).filter(|region| !region.is_empty())
    }

    /// Waits; stops and says so when the core cancels the call.
    pub(super) async fn wait(&self, time: Duration) -> Result<(), DriverError> {
        if time.is_zero() {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = self.ctx.cancelled() => Err(DriverError::canceled("the core cancelled the call")),
        }
    }
}

impl FakeDriver {
    /// Runs `work`, with the faults that the class and the control file have for this call.
    pub(super) async fn call<T>(
        &self,
        (verb, need): (Verb, Need),
        ctx: Context,
        work: impl AsyncFnOnce(&Call) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let mut entry = self.calls.begin(verb, &ctx);
        let call = match self.prepare(verb, need, ctx).await {
            Ok(call) => call,
            Err(error) => {
                let answer = Err(error);
                entry.answered(&answer);
                return answer;
            }
        };
        entry.faults.clone_from(&call.injection.rules);
        match &call.injection.action {
            Some(Action::Crash(When::Before)) => return self.crash(entry).await,
            Some(Action::Fail(When::Before, failure)) => {
                let waited = call.wait(call.injection.latency).await;
                let answer = Err(waited.err().unwrap_or_else(|| failure.clone().into()));
                entry.answered(&answer);
                return answer;
            }
            Some(_) | None => {}
        }
        let answer = match call.wait(call.injection.latency).await {
            Ok(()) => work(&call).await,
            Err(cancelled) => Err(cancelled.not_applied()),
        };
        self.spoil(entry, call.injection.action, answer).await
    }

    /// Applies the action of a fault to the answer, after the work. A failure of the work itself is reported.
    async fn spoil<T>(
        &self,
        entry: Entry,
        action: Option<Action>,
        answer: Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let answer = match (action, answer) {
            (Some(Action::Crash(When::After)), Ok(_)) => return self.crash(entry).await,
            (Some(Action::LoseReply), answer @ Ok(_)) => {
                entry.silent("LostReply");
                match &self.cutter {
                    Some(cutter) => cutter.cut().await,
                    None => return pending().await,
                }
                return answer;
            }
            (Some(Action::Fail(When::After, failure)), Ok(_)) => Err(failure.into()),
            (_, answer) => answer,
        };
        entry.answered(&answer);
        answer
    }

    async fn crash<T>(&self, entry: Entry) -> T {
        entry.silent("Crashed");
        tracing::warn!("crashing, as a fault says");
        (self.crash)();
        pending().await
    }

    async fn prepare(&self, verb: Verb, need: Need, ctx: Context) -> Result<Call, DriverError> {
        let class = match ctx.class().await {
            Err(error) if need != Need::Nothing => return Err(error),
            class => class.ok(),
        };
        let spec = match class.as_deref().map(read_spec) {
            Some(Ok(spec)) => spec,
            Some(Err(error)) if need == Need::GoodSpec => return Err(error),
            // Without faults and latencies.
            Some(Err(_)) | None => ProviderSpec::default(),
        };
        if need != Need::Nothing && self.cloud.is_away() {
            return Err(away().not_applied());
        }
        self.throttled(&spec)?;
        let name = ctx.class_name().unwrap_or_default();
        let source = format!("class/{}/{name}", ctx.target().namespace);
        let mut injection = self.inject((verb, &source), &spec.faults, &ctx)?;
        if let Some(file) = &self.control {
            let control = file.read().map_err(|error| control_error(&error))?;
            injection = injection.then(self.inject((verb, "control"), &control.faults, &ctx)?);
        }
        Ok(Call { ctx, spec, injection })
    }

    fn throttled(&self, spec: &ProviderSpec) -> Result<(), DriverError> {
        let Some(limit) = spec.throttle else { return Ok(()) };
        match self.throttle.admit(limit, self.cloud.clock().now()) {
            None => Ok(()),
            Some(retry_after) => Err(DriverError::resource_exhausted("too many calls")
                .reason("THROTTLED")
                .retry_after(retry_after)
                .not_applied()),
        }
    }

    fn inject(
        &self,
        verb_and_source: (Verb, &str),
        rules: &[Fault],
        ctx: &Context,
    ) -> Result<Injection, DriverError> {
        let mut failed = None;
        let class = ctx.class_name().unwrap_or_default();
        let subject = Subject { target: ctx.target(), class };
        let injection = inject(rules, verb_and_source, subject, |counter| {
            self.cloud.count(counter).unwrap_or_else(|error| {
                failed = Some(error);
                0
            })
        });
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(injection),
        }
    }
}

/// The spec of a class, read and checked.
pub(super) fn read_spec(class: &Class) -> Result<ProviderSpec, DriverError> {
    let spec: ProviderSpec = class.spec()?;
    match spec.violations() {
        found if found.is_empty() => Ok(spec),
        found => Err(bad_spec(&found)),
    }
}
