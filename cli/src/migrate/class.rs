//! Findings about a class.

use ostler_api::ProviderName;
use std::collections::BTreeSet;

use ostler_api::MachineClass;
use ostler_api::names::annotation;
use ostler_lifecycle::class_rules;
use ostler_lifecycle::snapshot::AdoptByName;
use serde::Serialize;

use super::ask::Review;

/// Something about a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// The subject of the finding, in one word.
    pub(super) about: &'static str,
    /// The finding, and what to do.
    pub(super) text: String,
    /// Whether machines of the class would wait for it.
    pub(super) stands_in_the_way: bool,
}

fn lack(about: &'static str, text: impl Into<String>) -> Finding {
    Finding { about, text: text.into(), stands_in_the_way: true }
}

/// The facts about a class.
#[derive(Debug, Clone)]
pub(super) struct Facts<'a> {
    pub(super) class: &'a MachineClass,
    /// The provider whose driver would serve the class.
    pub(super) provider: &'a str,
    /// The providers whose drivers are connected.
    pub(super) connected: &'a BTreeSet<ProviderName>,
    /// The secrets that are there, as namespace and name.
    pub(super) secrets: &'a BTreeSet<(String, String)>,
    /// The class's decision on adoption by name.
    pub(super) allowed: AdoptByName,
    /// Machines that would be adopted if the class allowed adoption by name.
    pub(super) waiting: usize,
    /// The driver's review; empty without a driver.
    pub(super) review: Review,
    /// Whether the driver changes running instances.
    pub(super) updates: bool,
    /// Why the driver lists no instances, if it does not.
    pub(super) unlisted: Option<&'a str>,
}

/// Everything about a class that is worth a line.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let rules = class_rules::broken(facts.class).into_iter().map(|text| lack("rules", text));
    let review = facts.review.clone();
    let wrong = review.wrong.into_iter().map(|text| lack("spec", text));
    let remarks = review.remarks.into_iter();
    let remarks = remarks.map(|text| Finding { stands_in_the_way: false, ..lack("spec", text) });
    let unlisted = facts.unlisted.map(|why| lack("list", why));
    provider(facts)
        .into_iter()
        .chain(secrets(facts))
        .chain(adoption(facts))
        .chain(rules)
        .chain(wrong)
        .chain(remarks)
        .chain(unlisted)
        .chain(no_updates(facts))
        .collect()
}

/// What machines of the class will say once it is edited, and not before.
fn no_updates(facts: &Facts<'_>) -> Option<Finding> {
    let text = "the driver changes no running instance: an edit of the class reaches new machines only, and those that run say \
                HotUpdateRefused from then on; nothing is said before";
    let applies = !facts.updates && facts.connected.contains(facts.provider);
    applies.then(|| Finding { stands_in_the_way: false, ..lack("updates", text) })
}

fn provider(facts: &Facts<'_>) -> Option<Finding> {
    let (written, wanted) = (facts.class.provider(), facts.provider);
    if facts.connected.contains(wanted) {
        return None;
    }
    if written.is_empty() {
        return Some(lack("provider", "the class names no provider; set its field `provider`"));
    }
    let text = match facts.connected.iter().next() {
        _ if wanted != written => format!(
            "--provider-alias {written}={wanted}: no driver of {wanted} is connected; connected: {}",
            all(facts.connected)
        ),
        Some(one) => format!(
            "no driver of {written} is connected; if one of these serves it, say so: --provider-alias {written}={one} (connected: {})",
            all(facts.connected)
        ),
        None => format!("no driver of {written} is connected"),
    };
    Some(lack("provider", text))
}

fn all(names: &BTreeSet<ProviderName>) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(ProviderName::as_str).collect::<Vec<_>>().join(", ")
}

fn secrets(facts: &Facts<'_>) -> Vec<Finding> {
    let own = facts.class.metadata.namespace.clone().unwrap_or_default();
    let refs = facts.class.secret_refs().into_iter();
    refs.filter_map(|(namespace, name)| {
        if namespace != own {
            let text = format!(
                "secret {namespace}/{name} is of another namespace than the class, and would be refused; copy it to {own}"
            );
            return Some(lack("secret", text));
        }
        let there = facts.secrets.contains(&(namespace.clone(), name.clone()));
        (!there).then(|| lack("secret", format!("secret {namespace}/{name} is not there, or may not be read")))
    })
    .collect()
}

fn adoption(facts: &Facts<'_>) -> Option<Finding> {
    if facts.waiting == 0 {
        return None;
    }
    let name = facts.class.metadata.name.as_deref().unwrap_or_default();
    let key = annotation::ADOPT_BY_NAME;
    let refused = facts.allowed == AdoptByName::Refused;
    let so_far = if refused { ", which is refused so far" } else { "" };
    let text = format!(
        "instances of {} of its machines carry no UID and would be adopted by name{so_far}: kubectl annotate machineclass {name} {key}=true --overwrite",
        facts.waiting
    );
    Some(lack("annotation", text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn class(more: &Value) -> MachineClass {
        let mut class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": "shoot" },
            "provider": "AWS", "providerSpec": {}, "secretRef": { "name": "s" }
        });
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(class).unwrap()
    }

    /// What is found in a class for which all is well but for what `edit` does.
    fn found(more: &Value, edit: impl FnOnce(&mut Facts<'_>)) -> Vec<(&'static str, String, bool)> {
        let class = class(more);
        let connected = BTreeSet::from([ProviderName::from("aws.example.com")]);
        let secrets = BTreeSet::from([("shoot".to_owned(), "s".to_owned())]);
        let mut facts = Facts {
            class: &class,
            provider: "aws.example.com",
            connected: &connected,
            secrets: &secrets,
            allowed: AdoptByName::Undecided,
            waiting: 0,
            review: Review::default(),
            updates: true,
            unlisted: None,
        };
        edit(&mut facts);
        let all = findings(&facts).into_iter();
        all.map(|it| (it.about, it.text, it.stands_in_the_way)).collect()
    }

    #[test]
    fn a_class_that_lacks_nothing_has_no_findings() {
        assert_eq!(found(&json!({}), |_| {}), []);
    }

    #[test]
    fn a_provider_that_nobody_serves_names_the_alias_that_is_missing() {
        let without = found(&json!({}), |facts| facts.provider = "AWS");
        let [("provider", text, true)] = without.as_slice() else { panic!("{without:?}") };
        assert!(text.contains("--provider-alias AWS=aws.example.com"), "{text}");
        let wrong = found(&json!({}), |facts| facts.provider = "gone.example.com");
        assert!(wrong[0].1.contains("no driver of gone.example.com"), "{wrong:?}");
        let none = found(&json!({ "provider": "" }), |facts| facts.provider = "");
        assert!(none[0].1.contains("`provider`"), "{none:?}");
    }

    #[test]
    fn secrets_that_are_missing_or_of_another_namespace_are_named() {
        let more = json!({ "credentialsSecretRef": { "name": "t", "namespace": "garden" } });
        let denied = found(&more, |_| {});
        let [("secret", text, true)] = denied.as_slice() else { panic!("{denied:?}") };
        assert!(text.contains("garden/t") && text.contains("another namespace"), "{text}");
        let missing = found(&json!({ "secretRef": { "name": "gone" } }), |_| {});
        assert!(missing[0].1.contains("shoot/gone"), "{missing:?}");
    }

    #[test]
    fn the_annotation_is_missing_where_instances_could_be_adopted_and_are_not_allowed_to() {
        let missing = found(&json!({}), |facts| facts.waiting = 2);
        let [("annotation", text, true)] = missing.as_slice() else { panic!("{missing:?}") };
        assert!(text.contains("of 2 of its") && text.contains("adopt-by-name=true"), "{text}");
        let refused = found(&json!({}), |facts| {
            facts.waiting = 1;
            facts.allowed = AdoptByName::Refused;
        });
        assert!(refused[0].1.contains("refused"), "{refused:?}");
    }

    #[test]
    fn what_the_driver_says_against_a_spec_stands_in_the_way_and_what_it_remarks_does_not() {
        let review = Review { wrong: vec!["size: too large".into()], remarks: vec!["old".into()] };
        let said = found(&json!({}), |facts| {
            facts.review = review;
            facts.unlisted = Some("UNAVAILABLE: down");
        });
        let said: Vec<_> = said.iter().map(|(about, _, blocks)| (*about, *blocks)).collect();
        assert_eq!(said, [("spec", true), ("spec", false), ("list", true)]);
    }

    #[test]
    fn a_rule_of_upstream_that_is_broken_is_named() {
        let broken = found(&json!({ "nodeTemplate": { "instanceType": "m" } }), |_| {});
        assert!(broken.iter().all(|(about, ..)| *about == "rules"), "{broken:?}");
        assert!(broken.iter().any(|(_, text, _)| text.contains("region")), "{broken:?}");
    }

    #[test]
    fn of_a_driver_that_changes_no_running_instance_it_is_said_what_an_edit_will_do() {
        let [(about, text, stands_in_the_way)] =
            found(&json!({}), |facts| facts.updates = false).try_into().unwrap();
        assert_eq!((about, stands_in_the_way), ("updates", false));
        assert!(text.contains("HotUpdateRefused") && text.contains("nothing is said before"));
    }
}
