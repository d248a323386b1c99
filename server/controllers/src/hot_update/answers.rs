//! The answers of drivers to reviews of classes.

use std::num::NonZeroUsize;

use lru::LruCache;
use ostler_api::SpecDigest;
use ostler_lifecycle::hot_update::{Question, ReviewView};

use crate::watch::ObjectName;

/// Most answers kept; a dropped answer is requested again. Each class has an answer for each spec of its Machines, so a
/// thousand covers many edits of many classes.
const MOST_ANSWERS: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

/// Key of one question at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ReviewKey {
    pub(crate) class: ObjectName,
    /// Digest of the last applied spec; empty: review the class itself only.
    pub(crate) old_digest: SpecDigest,
}

/// A question and its answer.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) question: Question,
    pub(super) view: ReviewView,
    /// Consecutive failures of the driver to answer.
    pub(super) failures: i32,
}

#[derive(Debug)]
pub(super) struct Answers(LruCache<ReviewKey, Asked>);

impl Default for Answers {
    fn default() -> Self {
        Self(LruCache::new(MOST_ANSWERS))
    }
}

impl Answers {
    /// The state of the answer to exactly this question.
    pub(super) fn of(&mut self, key: &ReviewKey, question: &Question) -> ReviewView {
        let asked = self.0.get(key).filter(|asked| asked.question == *question);
        asked.map_or(ReviewView::NotAsked, |asked| asked.view.clone())
    }

    /// Notes that the driver is asked. False: the same question was asked already.
    pub(super) fn ask(&mut self, key: &ReviewKey, question: &Question) -> bool {
        if self.0.get(key).is_some_and(|asked| asked.question == *question) {
            return false;
        }
        let question = question.clone();
        self.0.put(key.clone(), Asked { question, view: ReviewView::Asked, failures: 0 });
        true
    }

    pub(super) fn get(&mut self, key: &ReviewKey) -> Option<Asked> {
        self.0.get(key).cloned()
    }

    /// Stores an answer, unless another question replaced its question.
    pub(super) fn keep(&mut self, key: &ReviewKey, asked: Asked) -> bool {
        match self.0.get_mut(key) {
            Some(slot) if slot.question == asked.question => {
                *slot = asked;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn forget(&mut self, key: &ReviewKey) {
        self.0.pop(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::ObjectName;

    fn key(class: &str) -> ReviewKey {
        ReviewKey { class: ObjectName::new("default", class), old_digest: "".into() }
    }

    fn question(revision: &str) -> Question {
        Question {
            class_revision: revision.into(),
            old_spec: "{}".to_owned(),
            driver: "fake 1".to_owned(),
        }
    }

    #[test]
    fn a_question_is_new_once_and_again_when_class_or_driver_change() {
        let mut answers = Answers::default();
        assert_eq!(answers.of(&key("c"), &question("1")), ReviewView::NotAsked);
        assert!(answers.ask(&key("c"), &question("1")));
        assert!(!answers.ask(&key("c"), &question("1")));
        assert_eq!(answers.of(&key("c"), &question("1")), ReviewView::Asked);
        let other = Question { driver: "fake 2".to_owned(), ..question("1") };
        assert!(answers.ask(&key("c"), &other));
        assert!(answers.ask(&key("c"), &question("2")));
        let late = Asked { question: question("1"), view: ReviewView::NoAnswer, failures: 0 };
        assert!(!answers.keep(&key("c"), late), "an answer to an old question does not count");
    }

    #[test]
    fn no_more_answers_are_kept_than_there_is_room_for() {
        let mut answers = Answers::default();
        for index in 0..MOST_ANSWERS.get() + 10 {
            answers.ask(&key(&index.to_string()), &question("1"));
        }
        assert_eq!(answers.0.len(), MOST_ANSWERS.get());
        assert!(answers.ask(&key("0"), &question("1")));
        answers.forget(&key("0"));
        assert_eq!(answers.of(&key("0"), &question("1")), ReviewView::NotAsked);
    }
}
