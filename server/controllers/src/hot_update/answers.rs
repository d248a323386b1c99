//! The answers of drivers to reviews of classes.

use std::collections::{HashMap, VecDeque};

use ostler_lifecycle::hot_update::{Question, ReviewView};

use super::ReviewKey;

/// Answers that are kept; beyond that the oldest is dropped and requested again. There is one for each class and spec
/// that a Machine of it still has, so a thousand covers many edits of many classes.
const MOST_ANSWERS: usize = 1_000;

/// A question and its answer.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) question: Question,
    pub(super) view: ReviewView,
    /// Consecutive failures of the driver to answer.
    pub(super) failures: i32,
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    all: HashMap<ReviewKey, Asked>,
    /// The same keys, oldest first.
    order: VecDeque<ReviewKey>,
}

impl Answers {
    /// The state of the answer to exactly this question.
    pub(super) fn of(&self, key: &ReviewKey, question: &Question) -> ReviewView {
        let asked = self.all.get(key).filter(|asked| asked.question == *question);
        asked.map_or(ReviewView::NotAsked, |asked| asked.view.clone())
    }

    /// Notes that the driver is asked. False: it was asked exactly this question already.
    pub(super) fn ask(&mut self, key: &ReviewKey, question: &Question) -> bool {
        match self.all.get(key) {
            Some(asked) if asked.question == *question => return false,
            Some(_) => {}
            None => self.make_room(key),
        }
        let question = question.clone();
        let asked = Asked { question, view: ReviewView::Asked, failures: 0 };
        self.all.insert(key.clone(), asked);
        true
    }

    pub(super) fn get(&self, key: &ReviewKey) -> Option<Asked> {
        self.all.get(key).cloned()
    }

    /// Stores an answer, unless another question replaced its question.
    pub(super) fn keep(&mut self, key: &ReviewKey, asked: Asked) -> bool {
        match self.all.get_mut(key) {
            Some(slot) if slot.question == asked.question => {
                *slot = asked;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn forget(&mut self, key: &ReviewKey) {
        self.all.remove(key);
        self.order.retain(|other| other != key);
    }

    fn make_room(&mut self, key: &ReviewKey) {
        if self.order.len() >= MOST_ANSWERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        self.order.push_back(key.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::ObjectName;

    fn key(class: &str) -> ReviewKey {
        ReviewKey { class: ObjectName::new("default", class), old_digest: String::new() }
    }

    fn question(revision: &str) -> Question {
        Question {
            class_revision: revision.to_owned(),
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
        for index in 0..MOST_ANSWERS + 10 {
            answers.ask(&key(&index.to_string()), &question("1"));
        }
        assert_eq!((answers.all.len(), answers.order.len()), (MOST_ANSWERS, MOST_ANSWERS));
        assert!(answers.ask(&key("0"), &question("1")));
        answers.forget(&key("0"));
        assert_eq!(answers.all.len(), answers.order.len());
    }
}
