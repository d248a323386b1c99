//! The bootstrap token of a pool. Its group makes instances at any time, all from the same text, so the token is the
//! pool's, and is renewed. Two Secrets take turns: an instance that boots now keeps its token for as long as it may
//! take to join.

use std::iter::successors;

use jiff::Timestamp;
use ostler_api::{MachinePool, machine::WaitReason};

use super::{ConfigsView, Snapshot, bootstrap, template::of_template};
use crate::{
    bootstrap::RefFault,
    operation::{SecretText, UserData},
    plan::TokenRequest,
    snapshot::BootstrapToken,
    time::after,
    user_data::{token_id, token_id_after, wants_token, with_token},
};

/// How many Secrets take turns.
pub const SLOTS: usize = 2;
/// So many ids are tried. Of 36^6, each is another's with next to no probability.
const TRIED: usize = 8;

/// The tokens of a pool, as far as they were looked up.
#[derive(Debug, Clone, Default)]
pub enum TokenView {
    /// No token is needed.
    #[default]
    NotNeeded,
    /// There is no cluster to join.
    NoCluster,
    /// The tokens could not be read, for this reason.
    Unknown(String),
    /// The first ids without another owner, [`SLOTS`] of them.
    Known(Vec<Slot>),
}

/// A Secret that a token is in, or may be put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The id of the token.
    pub id: String,
    /// The token, if there is one.
    pub token: Option<BootstrapToken>,
}

impl Slot {
    /// When the token ends, if usable.
    fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let token = self.token.as_ref().filter(|token| !token.secret.expose().is_empty())?;
        token.expires.filter(|end| *end > now)
    }
}

/// The ids that a pool may take, in this order. Ids taken by other objects are skipped.
pub fn token_ids(pool: &MachinePool) -> impl Iterator<Item = String> {
    let uid = pool.uid();
    successors(Some(token_id(uid)), move |taken| Some(token_id_after(uid, taken))).take(TRIED)
}

/// Whether its tokens are to be looked up. Tokens of a pool in deletion are deleted, whatever its user data ask for
/// now.
pub fn needs_tokens(
    pool: &MachinePool,
    class: &crate::snapshot::SecretView,
    own: (&ConfigsView, &bootstrap::DataSecret),
) -> bool {
    let asked_for = || bootstrap::template(pool, class, own).is_ok_and(|data| wants(data.as_ref()));
    pool.is_deleting() || asked_for()
}

fn wants(data: Option<&UserData>) -> bool {
    data.is_some_and(wants_token)
}

/// The token that lasts longest.
fn newest(slots: &[Slot], now: Timestamp) -> Option<(&Slot, Timestamp)> {
    let alive = slots.iter().filter_map(|slot| Some((slot, slot.end(now)?)));
    alive.max_by_key(|(_, end)| *end)
}

/// The user data with the token in its place. `Err`: what is missing.
pub(super) fn fill(snap: &Snapshot, data: Option<UserData>) -> Result<Option<UserData>, RefFault> {
    let lacks = |message| RefFault { reason: WaitReason::BootstrapDataMissing, message };
    let Some(template) = data.as_ref().filter(|data| wants_token(data)) else { return Ok(data) };
    let slots = match &snap.tokens {
        TokenView::NoCluster => return Ok(data),
        TokenView::NotNeeded => {
            return Err(lacks("its bootstrap token has not been read yet".to_owned()));
        }
        TokenView::Unknown(why) => {
            return Err(lacks(format!("its bootstrap token cannot be read: {why}")));
        }
        TokenView::Known(slots) => slots,
    };
    let token = newest(slots, snap.now).and_then(|(slot, _)| Some((slot, slot.token.as_ref()?)));
    let Some((slot, token)) = token else {
        return Err(lacks("its bootstrap token has not been made yet".to_owned()));
    };
    let token = SecretText::new(format!("{}.{}", slot.id, token.secret.expose()));
    Ok(Some(with_token(template, &token)))
}

/// The token to make now: no existing token lasts long enough for an instance that boots from now on. The new token
/// replaces an ended one.
pub(super) fn due(snap: &Snapshot) -> Option<TokenRequest> {
    let TokenView::Known(slots) = &snap.tokens else { return None };
    let pool = &snap.pool;
    let data = bootstrap::template(pool, &snap.secret, (&snap.configs, &snap.data)).ok()?;
    if pool.is_deleting() || !wants(data.as_ref()) {
        return None;
    }
    let takes = of_template(pool).creation_timeout(snap.settings.creation_timeout);
    if newest(slots, snap.now).is_some_and(|(_, end)| end > after(snap.now, takes)) {
        return None;
    }
    let free = slots.iter().find(|slot| slot.end(snap.now).is_none())?;
    Some(TokenRequest {
        id: free.id.clone(),
        owner: pool.uid().into(),
        secret: snap.token_secret.clone(),
        expires: after(snap.now, takes.saturating_mul(2)),
        node: None,
        groups: snap.settings.bootstrap_token_groups.clone(),
        description: format!("Bootstrap token of machine pool {}", pool.name()),
    })
}

/// The ids of the remaining tokens of a pool in deletion. An unreachable token expires by itself.
pub(super) fn left(snap: &Snapshot) -> Vec<String> {
    let TokenView::Known(slots) = &snap.tokens else { return Vec::new() };
    slots.iter().filter(|slot| slot.token.is_some()).map(|slot| slot.id.clone()).collect()
}
