//! Limits reviews by driver: a silent driver occupies a few workers, and not the workers of others.

use std::collections::{HashMap, HashSet};

use ostler_api::ProviderName;
use parking_lot::Mutex;

use super::answers::ReviewKey;

/// Most reviews by a driver at the same time.
const AT_ONCE: usize = 4;
/// Reviews of a driver that are woken when a turn ends; further reviews only look again later.
const WAITING: usize = 1_000;

/// By provider.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<ProviderName, Turn>>);

#[derive(Debug, Default)]
struct Turn {
    asking: usize,
    waiting: HashSet<ReviewKey>,
}

impl Turns {
    /// False: the driver is being asked for enough. [`Self::leave`] names this review later.
    pub(super) fn enter(&self, provider: &ProviderName, key: &ReviewKey) -> bool {
        let mut turns = self.0.lock();
        let turn = turns.entry(provider.clone()).or_default();
        if turn.asking >= AT_ONCE {
            if turn.waiting.len() < WAITING {
                turn.waiting.insert(key.clone());
            }
            return false;
        }
        turn.asking += 1;
        turn.waiting.remove(key);
        true
    }

    /// A review that entered is over. Returns a waiting review.
    pub(super) fn leave(&self, provider: &ProviderName) -> Option<ReviewKey> {
        let mut turns = self.0.lock();
        let turn = turns.get_mut(provider)?;
        turn.asking = turn.asking.saturating_sub(1);
        let next = turn.waiting.iter().next().cloned();
        if let Some(next) = &next {
            turn.waiting.remove(next);
        } else if turn.asking == 0 {
            turns.remove(provider);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::ObjectName;

    fn key(class: usize) -> ReviewKey {
        let class = ObjectName::new("default", class.to_string());
        ReviewKey { class, old_digest: String::new().into() }
    }

    #[test]
    fn a_driver_is_asked_for_a_few_reviews_and_each_that_waits_gets_its_turn() {
        let turns = Turns::default();
        let (mute, other) = (ProviderName::from("mute"), ProviderName::from("other"));
        assert!((0..AT_ONCE).all(|class| turns.enter(&mute, &key(class))));
        assert!(!turns.enter(&mute, &key(8)) && !turns.enter(&mute, &key(8)));
        assert!(turns.enter(&other, &key(9)), "another driver is not held up");
        assert_eq!(turns.leave(&mute), Some(key(8)), "once, although it came twice");
        assert!(turns.enter(&mute, &key(8)));
        assert!((0..AT_ONCE).all(|_| turns.leave(&mute).is_none()));
        assert_eq!(turns.leave(&other), None);
        assert!(turns.0.lock().is_empty());
    }
}
