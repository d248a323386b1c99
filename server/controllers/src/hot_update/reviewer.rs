//! Asks drivers to review classes: whether a class is valid, and whether its change can be applied to running
//! instances. One review serves all machines of a class with the same last applied spec.

use ostler_api::{OperationId, ProviderName};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use ostler_api::MachineClass;
use ostler_api::driver::OperationKind;
use ostler_lifecycle::digest;
use ostler_lifecycle::hot_update::{Question, ReviewView};
use ostler_lifecycle::operation::{self, Dispatch, Request, Success, Target};
use ostler_lifecycle::retry::review_failed;
use ostler_lifecycle::snapshot::{self, ClassFacts, DriverFacts, DriverView};
use ostler_sessions::Sessions;
use tracing::{info, warn};

use super::answers::{Answers, Asked, ReviewKey};
use super::turns::Turns;
use crate::EVENT_LOG;
use crate::events::Recorder;
use crate::queue::{Outcome, Priority, Queue};
use crate::settings::Settings;
use crate::stores::Stores;
use crate::telling::tell;
use crate::watch::ObjectName;
use ostler_lifecycle::plan::{Event, EventAction, EventReason};

/// The driver's time for a review, from receipt.
const TIME: Duration = Duration::from_secs(15);

/// Requests reviews and keeps the answers.
pub(crate) struct Reviewer {
    stores: Stores,
    sessions: Sessions,
    settings: Arc<Settings>,
    recorder: Recorder,
    reviews: Arc<Queue<ReviewKey>>,
    machines: Arc<Queue<ObjectName>>,
    classes: Arc<Queue<ObjectName>>,
    answers: Mutex<Answers>,
    turns: Turns,
}

/// While a driver is asked for a review, also if that is broken off.
struct Asking<'a> {
    reviewer: &'a Reviewer,
    provider: ProviderName,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(next) = self.reviewer.turns.leave(&self.provider) {
            self.reviewer.reviews.add(next, Priority::Change);
        }
    }
}

/// The driver that serves a class.
pub(crate) fn driver_of(sessions: &Sessions, settings: &Settings, provider: &str) -> DriverView {
    match sessions.provider(&settings.driver_name(provider)) {
        Some(state) if state.ready => DriverView::Ready(DriverFacts {
            identity: state.driver,
            process: state.instance_id,
            kinds: state.kinds,
            by_name: state.by_name,
            list_lag: state.list_lag,
            pool_surge: state.pools.surge,
            pool_scales_in: state.pools.scales_in,
        }),
        Some(state) if !state.reason.is_empty() => DriverView::NotReady(state.reason),
        Some(_) | None => DriverView::Unavailable,
    }
}

impl Reviewer {
    pub(crate) fn new(
        stores: Stores,
        sessions: Sessions,
        settings: Arc<Settings>,
        recorder: Recorder,
        reviews: Arc<Queue<ReviewKey>>,
        [machines, classes]: [Arc<Queue<ObjectName>>; 2],
    ) -> Self {
        let (answers, turns) = (Mutex::default(), Turns::default());
        Self { stores, sessions, settings, recorder, reviews, machines, classes, answers, turns }
    }

    /// What an operator sets.
    pub(crate) fn settings(&self) -> &snapshot::Settings {
        &self.settings.lifecycle
    }

    /// The providers whose drivers are connected and ready.
    pub(crate) fn connected(&self) -> Vec<String> {
        let ready = self.sessions.providers().into_iter().filter(|it| it.ready);
        ready.map(|it| it.provider.to_string()).collect()
    }

    /// The driver of a class, the question about the class itself if the driver answers such questions, and the answer.
    pub(crate) fn review_of(
        &self,
        class: &MachineClass,
    ) -> (DriverView, Option<Question>, ReviewView) {
        let driver = driver_of(&self.sessions, &self.settings, class.provider());
        let DriverView::Ready(facts) = &driver else { return (driver, None, ReviewView::NotAsked) };
        let question = question(class, facts);
        let review = match &question {
            Some(question) => self.answer(&ObjectName::of(class), question),
            None => ReviewView::NoAnswer,
        };
        (driver, question, review)
    }

    /// The driver's answer.
    pub(crate) fn answer(&self, class: &ObjectName, question: &Question) -> ReviewView {
        self.answers.lock().of(&key(class, question), question)
    }

    /// Requests a review, unless it was requested already. The answer reconciles the machines of the class.
    pub(crate) fn ask(&self, class: &ObjectName, question: &Question) {
        let key = key(class, question);
        if self.answers.lock().ask(&key, question) {
            self.reviews.add(key, Priority::Change);
        }
    }

    /// Sends the question of this key to the driver.
    pub(crate) async fn reconcile(&self, key: ReviewKey) -> Outcome {
        let Some(asked) = self.answers.lock().get(&key) else { return Outcome::Done };
        if !matches!(asked.view, ReviewView::Asked | ReviewView::Failed { .. }) {
            return Outcome::Done;
        }
        let class = self.stores.classes.get(&key.class);
        let current =
            class.filter(|it| ClassFacts::of(it).revision == asked.question.class_revision);
        let Some(class) = current else {
            // A machine that needs an answer asks about the class as it is now.
            self.answers.lock().forget(&key);
            self.wake(&key.class);
            return Outcome::Done;
        };
        let provider = self.settings.driver_name(class.provider());
        if !self.turns.enter(&provider, &key) {
            // A turn that ends comes sooner.
            return Outcome::Again(TIME);
        }
        let asking = Asking { reviewer: self, provider };
        let answer = self.sessions.call(dispatch(&class, &asked.question)).await;
        drop(asking);
        let (view, again) = review_view(answer, asked.failures);
        let failures = if again.is_some() { asked.failures.saturating_add(1) } else { 0 };
        let changed = asked.view != view && key.old_digest.is_empty();
        let kept = Asked { question: asked.question, view: view.clone(), failures };
        if !self.answers.lock().keep(&key, kept) {
            return Outcome::Again(Duration::ZERO);
        }
        if changed {
            self.record_event(&class, &view);
        }
        self.wake(&key.class);
        again.map_or(Outcome::Done, Outcome::Again)
    }

    fn wake(&self, class: &ObjectName) {
        self.classes.add(class.clone(), Priority::Change);
        for machine in self.stores.users(class) {
            self.machines.add(machine, Priority::Change);
        }
    }

    /// Reports violations on the class itself, before a machine is created with it.
    fn record_event(&self, class: &MachineClass, view: &ReviewView) {
        let ReviewView::Known(review) = view else { return };
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let complaint = review.complaint();
        let warnings = review.warnings.join("; ");
        let event = if !complaint.is_empty() {
            warn!(target: EVENT_LOG, class = name, violations = complaint, "the driver rejects the class");
            Event::warning(EventReason::ClassInvalid, complaint)
        } else if !warnings.is_empty() {
            info!(class = name, warnings, "the driver warns about the class");
            Event::normal(EventReason::ClassWarning, warnings)
        } else {
            return;
        };
        tell(&self.recorder, class.object_ref(&()), event.doing(EventAction::ValidateClass));
    }
}

/// What a driver is asked about a class itself; `None`: it checks none.
fn question(class: &MachineClass, driver: &DriverFacts) -> Option<Question> {
    driver.has(OperationKind::ValidateClass).then(|| Question {
        class_revision: ClassFacts::of(class).revision,
        old_spec: String::new(),
        driver: driver.identity.clone(),
    })
}

fn key(class: &ObjectName, question: &Question) -> ReviewKey {
    let old = question.old_spec.as_str();
    let old_digest = if old.is_empty() { String::new() } else { digest::of_text(old) };
    ReviewKey { class: class.clone(), old_digest: old_digest.into() }
}

fn dispatch(class: &MachineClass, question: &Question) -> Dispatch {
    let facts = ClassFacts::of(class);
    let id = OperationId::from(uuid::Uuid::new_v4().to_string());
    let request = Request::Validate {
        spec_json: facts.provider_spec.clone(),
        old_spec_json: question.old_spec.clone(),
    };
    Dispatch {
        idempotency_key: id.clone().into(),
        lane: operation::Lane::User,
        ..facts.dispatch(id, Target::of_class(class), request, TIME)
    }
}

/// The view of an answer, and when to ask again if it is a failure.
fn review_view(answer: operation::Outcome, failures: i32) -> (ReviewView, Option<Duration>) {
    match answer {
        Ok(Success::Reviewed(review)) => (ReviewView::Known(review), None),
        Ok(_) => (ReviewView::NoAnswer, None),
        Err(failure) => review_failed(&failure, failures),
    }
}
