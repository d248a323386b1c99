//! Whether Machines can be made with a class as it is now: its condition `Valid`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use ostler_api::{MachineClass, machine::WaitReason};
use serde_json::{Value, json};

use crate::{
    class_facts::ClassFacts,
    class_snapshot::Snapshot,
    driver::DriverView,
    hot_update::ReviewView,
    machine::preconditions::{of_class, permitted},
};

/// What can be said.
struct Verdict {
    /// `None`: it is not known yet.
    valid: Option<bool>,
    /// For programs.
    reason: String,
    /// For people.
    message: String,
}

impl Verdict {
    fn new(valid: Option<bool>, reason: &str, message: impl Into<String>) -> Self {
        Self { valid, reason: reason.to_owned(), message: message.into() }
    }

    const fn status(&self) -> &'static str {
        match self.valid {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

/// The patch of the status of a class that does not say yet what it has to; one that goes says nothing more.
pub(crate) fn patch(snap: &Snapshot) -> Option<Value> {
    let class = snap.class.as_deref().filter(|class| !class.is_deleting())?;
    let verdict = verdict(&ClassFacts::of(class), snap);
    let before = class.valid();
    if verdict.valid.is_none() && before.is_some_and(|it| is_of_the_driver(it, class)) {
        return None;
    }
    let since = before.filter(|it| it.status == verdict.status());
    let condition = Condition {
        type_: MachineClass::VALID.to_owned(),
        status: verdict.status().to_owned(),
        reason: verdict.reason,
        message: verdict.message,
        observed_generation: class.metadata.generation,
        last_transition_time: since.map_or(Time(snap.now), |it| it.last_transition_time.clone()),
    };
    (before != Some(&condition)).then(|| json!({ "status": { "conditions": [condition] } }))
}

/// What a driver said of this very class holds until it says something else, also while it is away.
fn is_of_the_driver(said: &Condition, class: &MachineClass) -> bool {
    let is_said = said.status == "True" || said.reason == WaitReason::InvalidSpec.as_str();
    is_said && said.observed_generation == class.metadata.generation
}

fn verdict(class: &ClassFacts, snap: &Snapshot) -> Verdict {
    let lack = of_class(class, &snap.secret).err();
    let lack = lack.or_else(|| match &snap.driver {
        DriverView::Ready(driver) => permitted(&snap.settings, class, driver).err(),
        DriverView::Unavailable | DriverView::NotReady(_) => None,
    });
    if let Some(lack) = lack {
        return Verdict::new(Some(false), lack.reason.as_str(), lack.message);
    }
    if let Some(lack) = snap.driver.lack(&class.provider) {
        let lack = format!("{lack}; {}", connected(&snap.connected));
        return Verdict::new(None, WaitReason::DriverUnavailable.as_str(), lack);
    }
    match &snap.review {
        ReviewView::Known(review) if !review.violations.is_empty() => {
            Verdict::new(Some(false), WaitReason::InvalidSpec.as_str(), review.complaint())
        }
        ReviewView::Known(review) if review.warnings.is_empty() => {
            Verdict::new(Some(true), "Accepted", "the driver accepts it")
        }
        ReviewView::Known(review) => {
            Verdict::new(Some(true), "Accepted", review.warnings.join("; "))
        }
        ReviewView::NoAnswer => {
            let text = "the core finds no fault; the driver checks no classes";
            Verdict::new(Some(true), "NotChecked", text)
        }
        ReviewView::NotAsked | ReviewView::Asked => {
            Verdict::new(None, "Asked", "the driver is asked about it")
        }
        ReviewView::Failed { reason, message } => {
            Verdict::new(None, reason.as_str(), message.as_str())
        }
    }
}

/// The connected providers, for a user who mistyped the provider.
fn connected(providers: &[String]) -> String {
    if providers.is_empty() {
        return "no other driver is connected".to_owned();
    }
    format!("drivers are connected for {}", providers.join(", "))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use jiff::Timestamp;
    use ostler_api::{driver::OperationKind, names, operation::ClassReview};

    use super::*;
    use crate::{class_facts::SecretView, driver::DriverFacts, settings::Settings};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn snapshot(driver: DriverView, review: ReviewView) -> Snapshot {
        let class = json!({
            "apiVersion": names::API_VERSION, "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": "default", "generation": 3 },
            "provider": "fake.example.com", "providerSpec": {}
        });
        Snapshot {
            class: Some(Arc::new(serde_json::from_value(class).unwrap())),
            used: false,
            known: None,
            kept: None,
            open: BTreeSet::new(),
            secret: SecretView::NotReferenced,
            driver,
            connected: vec!["a.example.com".to_owned(), "b.example.com".to_owned()],
            review,
            settings: Settings::default(),
            now: at(100),
        }
    }

    fn ready() -> DriverView {
        let kinds = BTreeSet::from([OperationKind::ValidateClass]);
        DriverView::Ready(DriverFacts { kinds, ..DriverFacts::default() })
    }

    fn reviewed(violations: &[(&str, &str)]) -> ReviewView {
        let pair = |(path, why): &(&str, &str)| ((*path).to_owned(), (*why).to_owned());
        let violations = violations.iter().map(pair).collect();
        ReviewView::Known(ClassReview { violations, ..ClassReview::default() })
    }

    fn said(snap: &Snapshot) -> (String, String, String) {
        let patch = patch(snap).unwrap();
        let text = |key: &str| patch["status"]["conditions"][0][key].as_str().unwrap().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    #[test]
    fn a_class_says_what_is_known_of_it() {
        let failed = ReviewView::Failed {
            reason: WaitReason::DriverRetry,
            message: "UNAVAILABLE: it is busy".to_owned(),
        };
        for (driver, review, status, reason, message) in [
            (ready(), reviewed(&[]), "True", "Accepted", "the driver accepts it"),
            (
                ready(),
                reviewed(&[("size", "is no size")]),
                "False",
                "InvalidSpec",
                "size: is no size",
            ),
            (ready(), ReviewView::NoAnswer, "True", "NotChecked", "checks no classes"),
            (ready(), ReviewView::Asked, "Unknown", "Asked", "is asked about it"),
            (ready(), failed, "Unknown", "DriverRetry", "it is busy"),
            (
                DriverView::Unavailable,
                ReviewView::NotAsked,
                "Unknown",
                "DriverUnavailable",
                "connected and ready; drivers are connected for a.example.com, b.example.com",
            ),
        ] {
            let (is, why, text) = said(&snapshot(driver, review));
            assert_eq!((is.as_str(), why.as_str()), (status, reason), "{text}");
            assert!(text.ends_with(message), "{text}");
        }
    }

    #[test]
    fn what_a_user_has_to_correct_comes_before_what_a_driver_says() {
        let missing = SecretView::Missing(vec!["default/s".to_owned()]);
        let snap = Snapshot { secret: missing, ..snapshot(ready(), reviewed(&[])) };
        let (is, why, _) = said(&snap);
        assert_eq!((is.as_str(), why.as_str()), ("False", "SecretMissing"));
    }

    /// With what was said before.
    fn after(snap: Snapshot, patch: &Value, generation: i64) -> Snapshot {
        let mut class = snap.class.as_deref().unwrap().clone();
        class.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
        class.metadata.generation = Some(generation);
        Snapshot { class: Some(Arc::new(class)), now: at(200), ..snap }
    }

    #[test]
    fn what_the_driver_said_of_this_class_holds_while_it_is_away_or_asked_again() {
        for review in [reviewed(&[]), reviewed(&[("size", "is no size")])] {
            let first = patch(&snapshot(ready(), review)).unwrap();
            for other in [
                snapshot(DriverView::Unavailable, ReviewView::NotAsked),
                snapshot(ready(), ReviewView::Asked),
            ] {
                assert_eq!(patch(&after(other.clone(), &first, 3)), None, "the same class");
                assert!(patch(&after(other, &first, 4)).is_some(), "another one");
            }
        }
        let missing = SecretView::Missing(vec!["default/s".to_owned()]);
        let away = snapshot(DriverView::Unavailable, ReviewView::NotAsked);
        let first = patch(&Snapshot { secret: missing, ..away.clone() }).unwrap();
        assert!(patch(&after(away, &first, 3)).is_some(), "the secret is there now");
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let first = patch(&snapshot(ready(), ReviewView::NoAnswer)).unwrap();
        assert_eq!(patch(&after(snapshot(ready(), ReviewView::NoAnswer), &first, 3)), None);
        let same = patch(&after(snapshot(ready(), reviewed(&[])), &first, 3)).unwrap();
        let other = after(snapshot(ready(), reviewed(&[("a", "b")])), &first, 3);
        let time = |patch: &Value| {
            let text = patch["status"]["conditions"][0]["lastTransitionTime"].as_str();
            text.unwrap().parse::<Timestamp>().unwrap()
        };
        assert_eq!((time(&same), time(&patch(&other).unwrap())), (at(100), at(200)));
    }
}
