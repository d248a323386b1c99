//! How a Lease follows the namespace of its core: the Lease is made in the new namespace before its release in the old
//! one.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use ostler_api::names::LEADER_LEASE;
use ostler_lifecycle::home::Need;
use tokio::time::Instant;
use tracing::warn;

use super::elector::{ElectionError, Leadership, Written, let_go, taken};
use super::record::{self, Move};
use crate::watch::causes;

impl Leadership {
    /// Moves the Lease to its proper namespace, if elsewhere, and releases the old Lease. A failed step is tried again
    /// with the next renewal.
    ///
    /// # Errors
    /// Another process took the old Lease meanwhile.
    pub(super) async fn follow_home(&mut self) -> Result<(), ElectionError> {
        let failed = |error: kube::Error| {
            warn!(error = causes(&error), "cannot take the lease to another namespace yet");
        };
        if self.left.is_none()
            && let Err(error) = self.relocate(false).await
        {
            failed(error);
        }
        if self.left.is_some() {
            match self.leave().await {
                Ok(Written::Over(why)) => return Err(why),
                Ok(Written::Done | Written::Forestalled | Written::Homeless(_)) => {}
                Err(error) => failed(error),
            }
        }
        Ok(())
    }

    /// Makes the Lease in its proper namespace, in the same term, if it is missing there. `is_lost`: the current
    /// namespace takes no Lease any more. Returns whether the Lease moved.
    pub(super) async fn relocate(&mut self, is_lost: bool) -> kube::Result<bool> {
        let (home, old) = (&self.elector.home, self.elector.settings.namespace.clone());
        let next = if home.current() != old {
            Some(home.current())
        } else if self.elector.settings.lease == LEADER_LEASE && (is_lost || self.must_move().await)
        {
            home.prepare(&old).await?
        } else {
            None
        };
        let Some(next) = next else { return Ok(false) };
        let need = *self.elector.need.borrow();
        let wanted =
            record::renewed(record::moved(&self.lease, &next), need, (self.elector.clock.0)());
        let api = self.elector.home.leases(&next);
        let made = match api.create(&PostParams::default(), &wanted).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let name = self.elector.settings.lease;
                let Some(there) = api.get_opt(name).await? else { return Ok(false) };
                if !self.may_replace(&there) {
                    return Ok(false);
                }
                api.replace(name, &PostParams::default(), &record::replaced(there, &wanted)).await?
            }
            made => made?,
        };
        let left = std::mem::replace(&mut self.lease, made);
        let old_api = std::mem::replace(&mut self.elector.api, api);
        self.elector.settings.namespace.clone_from(&next);
        self.left = Some((old_api, left));
        if self.elector.home.current() != next {
            self.elector.home.moved_to(&next);
        }
        Ok(true)
    }

    /// Whether the namespace of the Lease ends: the Lease is going, and not since a user deleted it alone.
    async fn must_move(&self) -> bool {
        let going = self.lease.metadata.deletion_timestamp.is_some();
        going && !self.elector.home.stays(&self.elector.settings.namespace).await
    }

    /// Whether a Lease that is in the way has no holder any more: it has not changed for its whole duration, and is of an earlier term.
    fn may_replace(&mut self, there: &Lease) -> bool {
        let (settings, wall) = (&self.elector.settings, (self.elector.clock.0)());
        let decided = self.in_the_way.decide(there.clone(), settings, Instant::now(), wall);
        let earlier = record::term_of(there) < record::term_of(&self.lease);
        let ours = record::is_ours(there, settings);
        matches!(decided, Move::Take(_)) && (earlier || ours)
    }

    /// Releases the remains in the old namespace: first the ConfigMap, by which others look for the Lease there, then
    /// the Lease. Until then the Lease is renewed, so that no other process takes it.
    async fn leave(&mut self) -> kube::Result<Written> {
        let Some((api, lease)) = self.left.clone() else { return Ok(Written::Done) };
        let (name, old) = (self.elector.settings.lease, lease.metadata.namespace.clone());
        if name == LEADER_LEASE && !self.elector.home.leave(&old.unwrap_or_default()).await? {
            let renewed = record::renewed(lease, Need::Unknown, (self.elector.clock.0)());
            let renewed = api.replace(name, &PostParams::default(), &renewed).await?;
            self.left = Some((api, renewed));
            return Ok(Written::Forestalled);
        }
        if let_go(&api, lease).await?.is_some() {
            self.left = None;
            return Ok(Written::Done);
        }
        match api.get_opt(name).await? {
            Some(now) if !record::is_ours(&now, &self.elector.settings) => {
                Ok(Written::Over(taken(&now, name)))
            }
            Some(now) => {
                self.left = Some((api, now));
                Ok(Written::Forestalled)
            }
            None => {
                self.left = None;
                Ok(Written::Done)
            }
        }
    }
}
