//! What differs from the usual world of the whole-stack tests.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use ostler_server::CoreOptions;

use crate::rights::Request;

/// What differs from the usual world.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a client cannot be shown")]
pub struct Setup {
    /// The cluster that instances join: the one with the machines, if none.
    pub joins: Option<Client>,
    /// Changes the options of every core.
    pub tune: Arc<dyn Fn(&mut CoreOptions) + Send + Sync>,
    /// How long the API server takes for each request of a core.
    pub api_takes: Duration,
    /// Requests of a core that the API server forbids.
    pub forbids: fn(&Request) -> bool,
    /// The API server answers 409 to one in so many changes of machines by cores, and does nothing; 0: to none.
    pub conflict_one_in: u64,
    /// How late the events of a core's watches come.
    pub watches_lag: Duration,
    /// The answers to the first so many creations of machines by cores are lost: the machines exist all the same.
    pub loses_creations: u64,
    /// What a mutating webhook makes of a machine that a core creates.
    pub webhook: Option<fn(&mut serde_json::Value)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            joins: None,
            tune: Arc::new(|_: &mut CoreOptions| {}),
            api_takes: Duration::ZERO,
            forbids: |_| false,
            conflict_one_in: 0,
            watches_lag: Duration::ZERO,
            loses_creations: 0,
            webhook: None,
        }
    }
}

impl Setup {
    /// Cores whose options were changed.
    pub fn tuned(tune: impl Fn(&mut CoreOptions) + Send + Sync + 'static) -> Self {
        Self { tune: Arc::new(tune), ..Self::default() }
    }
}
