//! The handle that everything else uses.

use std::fmt;
use std::sync::Arc;

use tokio::sync::broadcast;

use crate::{
    Authenticator, ClassSource, Dispatch, Outcome, ProviderState, SessionEvent, SessionsOptions,
    SubmitError, TargetView,
};

/// All driver sessions. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    options: SessionsOptions,
    events: broadcast::Sender<SessionEvent>,
}

impl Sessions {
    /// No sessions yet. Must be called on a tokio runtime.
    pub fn new(
        options: SessionsOptions,
        _classes: Arc<dyn ClassSource>,
        _tokens: Arc<dyn Authenticator>,
    ) -> Self {
        let (events, _) = broadcast::channel(4096);
        Self { inner: Arc::new(Inner { options, events }) }
    }

    /// The providers that ever had a session here, in order of name.
    pub fn providers(&self) -> Vec<ProviderState> {
        Vec::new()
    }

    /// What happens from now on. A subscriber that lags loses events, see [`SessionEvent`].
    pub fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        self.inner.events.subscribe()
    }

    /// Accepts an operation for dispatch; never waits for the driver. Its outcome is shown by
    /// [`Self::view`] and stays until [`Self::acknowledge`].
    pub fn submit(&self, request: Dispatch) -> Result<(), SubmitError> {
        let provider = self.inner.options.aliases.get(&request.provider);
        Err(SubmitError::NoDriver { provider: provider.unwrap_or(&request.provider).clone() })
    }

    /// What is known of the operation of the target with this UID.
    pub fn view(&self, _target_uid: &str) -> TargetView {
        TargetView::Idle
    }

    /// UIDs of all targets that are not idle.
    pub fn targets(&self) -> Vec<String> {
        Vec::new()
    }

    /// The outcome of this operation is durably recorded: the driver may forget it, and the
    /// target is free. Nothing happens if there is no such outcome.
    pub fn acknowledge(&self, _operation_id: &str) {}

    /// Asks the driver to stop. The outcome still comes, and says what became of it.
    pub fn cancel(&self, _operation_id: &str, _reason: &str) {}

    /// Sends an operation and waits for its outcome, which needs no acknowledgement. Reads do not
    /// wait for the operation of their target; mutations fail if there is one. Dropping the
    /// future cancels the operation.
    #[expect(clippy::unused_async, reason = "the shape that callers build on")]
    pub async fn call(&self, request: Dispatch) -> Outcome {
        match self.submit(request) {
            Ok(()) => unreachable!("nothing is accepted yet"),
            Err(refused) => Outcome::Error(refused.failure()),
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}
