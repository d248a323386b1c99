//! Requests that the former leader may still have sent. A new leader creates and chooses nothing before the last
//! request of the former leader has been answered or has run out, and before a list of the objects after that.

use std::time::Duration;

use kube::Resource;
use kube::core::NamespaceResourceScope;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::client::{Typed, WriteError, Writer};
use crate::watch::Found;

/// The beginning of a leadership.
#[derive(Debug)]
pub struct Handover {
    /// When the last request of the process that led before is over.
    over_at: Instant,
    listed: Mutex<bool>,
}

/// The stage of a handover.
#[derive(Debug)]
pub enum Stage<'a> {
    /// Requests may still arrive for so long.
    Wait(Duration),
    /// No requests any more: the former leader's writes have to be listed, and the flag set to true.
    List(MutexGuard<'a, bool>),
    /// The list was made.
    Over,
}

impl Handover {
    /// Now, with requests that may arrive for so long.
    pub fn new(arrive: Duration) -> Self {
        Self { over_at: Instant::now() + arrive, listed: Mutex::new(false) }
    }

    /// A finished handover.
    pub fn over() -> Self {
        Self { over_at: Instant::now(), listed: Mutex::new(true) }
    }

    /// Whether the former process may still have requests on their way, or its writes have to be listed first.
    pub async fn stage(&self) -> Stage<'_> {
        let listed = self.listed.lock().await;
        let left = self.over_at.saturating_duration_since(Instant::now());
        if *listed {
            Stage::Over
        } else if left.is_zero() {
            Stage::List(listed)
        } else {
            Stage::Wait(left)
        }
    }

    /// How much longer the process that led before may have requests on their way; `None`: none any more, and `seen` was
    /// called for the objects that there were then.
    ///
    /// # Errors
    /// Fails if the objects cannot be listed.
    pub async fn wait<K>(
        &self,
        writer: &Writer,
        namespaces: &[Option<String>],
        seen: impl Fn(&Found<K>),
    ) -> Result<Option<Duration>, WriteError>
    where
        K: Typed + Resource<Scope = NamespaceResourceScope>,
    {
        let mut listed = match self.stage().await {
            Stage::Over => return Ok(None),
            Stage::Wait(left) => return Ok(Some(left)),
            Stage::List(listed) => listed,
        };
        for namespace in namespaces {
            // By the cache, an unreadable object holds up the owners in its namespace.
            seen(&writer.all(namespace.as_deref()).await?);
        }
        *listed = true;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::bench::Bench;
    use crate::client::{PATIENCE, WriteMetrics};

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_waits_until_the_last_requests_of_the_one_before_have_ended() {
        let metrics = WriteMetrics::register(&mut Registry::default());
        let writer = Writer::new(Bench::default().client(), metrics);
        let wait = async |handover: &Handover| handover.wait::<Pod>(&writer, &[None], |_| {}).await;
        let one = Handover::new(PATIENCE);
        assert!(matches!(wait(&one).await, Ok(Some(PATIENCE))));
        tokio::time::advance(PATIENCE / 2).await;
        assert!(matches!(wait(&one).await, Ok(Some(left)) if left == PATIENCE / 2));
        tokio::time::advance(PATIENCE / 2).await;
        // The process lists now, and waits until a list succeeds.
        assert!(wait(&one).await.is_err());
        assert!(wait(&Handover::new(Duration::ZERO)).await.is_err(), "there was none to wait for");
    }
}
