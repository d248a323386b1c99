//! Expectations: the writes of each owner that the cache does not show yet. Without them an owner would do the same
//! twice. Safe to lose: a new leader begins with a list.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::{PATIENCE, WriteError};

/// How long a request without an answer may still have an effect.
pub const ARRIVES: Duration = PATIENCE.saturating_mul(2);

/// The effect of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The object exists.
    Created,
    /// The object is another. The answer is the object, and goes into the cache.
    Changed,
    /// The object is being deleted, or gone.
    Deleted,
}

/// A write that is not seen.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Whether the API server confirmed the write.
    pub answered: bool,
    at: Instant,
}

impl Sent {
    /// How much longer the request may have an effect.
    pub fn left(&self) -> Duration {
        ARRIVES.saturating_sub(self.at.elapsed())
    }

    /// Whether the request may still have an effect that is unknown.
    pub fn may_arrive(&self) -> bool {
        !self.answered && !self.left().is_zero()
    }
}

/// The unseen writes of an owner, by effect and key of the object.
#[derive(Debug, Clone)]
pub struct Open {
    /// The writes.
    pub sent: BTreeMap<(Effect, String), Sent>,
    /// When the last one was sent or answered, or the API was asked last.
    pub since: Instant,
    /// The generation of the owner from which the last one followed.
    pub generation: Option<i64>,
}

impl Open {
    /// The keys of an effect.
    pub fn keys(&self, of: Effect) -> impl Iterator<Item = &String> {
        self.sent.keys().filter(move |(effect, _)| *effect == of).map(|(_, key)| key)
    }
}

/// By UID of the owner. Bounded by the existing owners, and by the writes of a few passes of each.
#[derive(Debug, Default)]
pub struct Unseen(Mutex<HashMap<String, Open>>);

impl Unseen {
    /// A write is about to be sent for a generation of its owner.
    pub fn sent(&self, owner: &str, generation: Option<i64>, (of, key): (Effect, &str)) {
        let since = Instant::now();
        let mut all = self.0.lock();
        let empty = || Open { sent: BTreeMap::new(), since, generation };
        let open = all.entry(owner.to_owned()).or_insert_with(empty);
        (open.since, open.generation) = (since, generation);
        open.sent.insert((of, key.to_owned()), Sent { answered: false, at: since });
    }

    /// The answer to a write. A write without an answer may have happened.
    pub fn answered(
        &self,
        owner: &str,
        (of, key): (Effect, &str),
        answer: Result<(), &WriteError>,
    ) {
        let mut all = self.0.lock();
        let Some(open) = all.get_mut(owner) else { return };
        open.since = Instant::now();
        let waits = match answer {
            Ok(()) => of != Effect::Changed,
            Err(WriteError::NotFound) => of == Effect::Deleted,
            Err(error) if error.may_have_happened() => return,
            Err(_) => false,
        };
        let write = (of, key.to_owned());
        if let Some(sent) = open.sent.get_mut(&write).filter(|_| waits) {
            sent.answered = true;
        } else {
            open.sent.remove(&write);
        }
        if open.sent.is_empty() {
            all.remove(owner);
        }
    }

    /// A list shows the effect of a write.
    pub fn listed(&self, owner: &str, write: (Effect, &str)) {
        self.sent(owner, None, write);
        self.answered(owner, write, Ok(()));
    }

    /// Keeps the writes for which `unseen` is true, and returns them; `None`: the cache shows all.
    pub fn compare(
        &self,
        owner: &str,
        mut unseen: impl FnMut(Effect, &str, &mut Sent) -> bool,
    ) -> Option<Open> {
        let mut all = self.0.lock();
        let open = all.get_mut(owner)?;
        open.sent.retain(|(of, key), sent| unseen(*of, key, sent));
        let left = Some(open.clone()).filter(|open| !open.sent.is_empty());
        if left.is_none() {
            all.remove(owner);
        }
        left
    }

    /// As [`Self::compare`], with a list that was made just now.
    pub fn settle(
        &self,
        owner: &str,
        unseen: impl FnMut(Effect, &str, &mut Sent) -> bool,
    ) -> Option<Open> {
        self.0.lock().get_mut(owner)?.since = Instant::now();
        self.compare(owner, unseen)
    }

    /// The writes that were unseen last.
    pub fn open(&self, owner: &str) -> Option<Open> {
        self.0.lock().get(owner).cloned()
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &str) {
        self.0.lock().remove(owner);
    }

    /// How many writes are not seen.
    pub fn count(&self) -> usize {
        self.0.lock().values().map(|open| open.sent.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Effect::{Changed, Created, Deleted};

    fn open(unseen: &Unseen) -> Vec<(Effect, bool)> {
        let open = unseen.open("o").into_iter().flat_map(|open| open.sent);
        open.map(|((effect, _), sent)| (effect, sent.answered)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_says_whether_the_effect_is_still_awaited() {
        for (effect, answer, left) in [
            (Created, Ok(()), Some(true)),
            (Created, Err(WriteError::NoAnswer), Some(false)),
            (Created, Err(WriteError::Conflict), None),
            (Created, Err(WriteError::NotFound), None),
            (Changed, Ok(()), None),
            (Changed, Err(WriteError::NoAnswer), Some(false)),
            (Changed, Err(WriteError::Invalid(String::new())), None),
            (Deleted, Ok(()), Some(true)),
            (Deleted, Err(WriteError::NotFound), Some(true)),
            (Deleted, Err(WriteError::Internal(String::new())), Some(false)),
            (Deleted, Err(WriteError::Conflict), None),
        ] {
            let unseen = Unseen::default();
            unseen.sent("o", None, (effect, "m"));
            assert_eq!(open(&unseen), [(effect, false)], "from before the request");
            unseen.answered("o", (effect, "m"), answer.as_ref().map(drop));
            let left = left.map(|answered| (effect, answered));
            assert_eq!(open(&unseen), Vec::from_iter(left), "{effect:?} {answer:?}");
            assert_eq!(unseen.count(), open(&unseen).len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_may_arrive_for_a_while_and_an_answer_is_awaited_longer() {
        let unseen = Unseen::default();
        unseen.sent("o", Some(1), (Created, "lost"));
        unseen.listed("o", (Created, "there"));
        unseen.sent("other", None, (Changed, "lost"));
        let arrive = || unseen.open("o").unwrap().sent.values().any(Sent::may_arrive);
        assert!(arrive());
        tokio::time::advance(ARRIVES).await;
        assert!(!arrive());
        let left = unseen.compare("o", |_, key, sent| key == "there" && sent.answered).unwrap();
        assert_eq!(left.keys(Created).collect::<Vec<_>>(), ["there"]);
        assert_eq!(left.since.elapsed(), ARRIVES);
        let left = unseen.settle("o", |_, _, _| true).unwrap();
        assert_eq!((left.since.elapsed(), left.generation), (Duration::ZERO, None));
        assert!(unseen.compare("o", |_, _, _| false).is_none());
        unseen.forget("other");
        assert_eq!(unseen.count(), 0, "nothing is kept of an owner whose writes are seen");
    }
}
