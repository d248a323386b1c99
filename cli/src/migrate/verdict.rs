//! The verdict on a Machine, from a driver's answers.

use ostler_api::Machine;
use ostler_api::ProviderId;
use ostler_api::Uid;
use ostler_lifecycle::cluster::ClusterIds;
use ostler_lifecycle::machine::absence_is_proof;
use ostler_lifecycle::snapshot::AdoptByName;

/// A driver's answer about the instance of a Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// An instance with this UID in its tags; empty if the instance has no UID. `moved`: the instance carries a
    /// previous cluster id.
    Instance { provider_id: ProviderId, machine_uid: Uid, moved: bool },
    /// An instance of another owner, with the cluster id of the instance's tags, if there is one.
    NotOurs { provider_id: ProviderId, cluster_id: String },
    /// It looked, and there is none.
    Absent,
    /// It did not say.
    Silent(String),
}

/// The answers for one Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answers {
    /// To the question that the core would ask.
    pub(super) as_it_is: Answer,
    /// To the same question, had its class allowed adoption by name. `None`: not asked.
    pub(super) by_name: Option<Answer>,
}

/// The fate of a Machine under the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The instance is there and carries the UID of the Machine.
    Found,
    /// Its instance is there, and the core takes it over.
    Adoptable,
    /// Its instance is there, and the core would take it over if the class allowed it.
    AdoptableIfAllowed,
    /// There is an instance, and it belongs to something else.
    NotOurs,
    /// The instance of the Machine's provider id carries the cluster id of another cluster, as the text says.
    OtherClusterId(String),
    /// There is none, and the core knows that.
    Absent,
    /// The driver finds none, which proves nothing: another controller made one.
    AbsentUnproven,
    /// The driver finds none; another controller began to make one, and the class does not say whether it may
    /// be found by name.
    AbsentUndecided,
    /// It cannot be known.
    Unknown(String),
}

impl Verdict {
    /// Whether the core would leave this Machine waiting.
    pub(super) const fn stands_in_the_way(&self) -> bool {
        !matches!(self, Self::Found | Self::Adoptable | Self::Absent)
    }

    /// In one word; `note` tells more.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Adoptable | Self::AdoptableIfAllowed => "adoptable",
            Self::NotOurs | Self::OtherClusterId(_) => "not ours",
            Self::Absent | Self::AbsentUnproven | Self::AbsentUndecided => "absent",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Explains the verdict.
    pub(super) fn note(&self) -> &str {
        match self {
            Self::Found | Self::Adoptable => "",
            Self::AdoptableIfAllowed => "once its class allows adoption by name",
            Self::NotOurs => {
                "it has the tags of another cluster or machine, or none: nothing would be done to it"
            }
            Self::Absent => "and the core knows that there is none",
            Self::AbsentUnproven => {
                "the driver finds none, by id or by name: wrong account, region or credentials? Nothing would be made in its place"
            }
            Self::AbsentUndecided => {
                "another controller began to make one: nothing would be made before its class says \"true\" or \"false\" in ostler.dev/adopt-by-name"
            }
            Self::OtherClusterId(why) | Self::Unknown(why) => why,
        }
    }
}

/// The verdict of the core if the driver finds no instance for this Machine.
pub(super) fn absence(machine: &Machine, cluster: &ClusterIds, allowed: AdoptByName) -> Verdict {
    if absence_is_proof(machine, &machine.recorded_status(), cluster, false) {
        return Verdict::Absent;
    }
    match (machine.provider_id(), allowed) {
        (Some(_), _) => Verdict::AbsentUnproven,
        (None, AdoptByName::Undecided) => Verdict::AbsentUndecided,
        (None, AdoptByName::Allowed | AdoptByName::Refused) => Verdict::Absent,
    }
}

/// The verdict on the Machine with this UID, and its instance. `allowed`: whether the instance may be found by name.
/// `absence`: the verdict if no instance is found.
pub(super) fn judge(
    uid: &str,
    absence: Verdict,
    allowed: AdoptByName,
    answers: &Answers,
) -> (Verdict, String) {
    let instance = |answer: &Answer, may: bool| match answer {
        Answer::Instance { provider_id, machine_uid, moved: false } if *machine_uid == *uid => {
            Some((Verdict::Found, provider_id.to_string()))
        }
        // With the UID of an earlier life it is found by its id, whatever the class says.
        Answer::Instance { provider_id, machine_uid, .. } => {
            let taken = may && (allowed == AdoptByName::Allowed || !machine_uid.is_empty());
            let verdict = if taken { Verdict::Adoptable } else { Verdict::AdoptableIfAllowed };
            Some((verdict, provider_id.to_string()))
        }
        Answer::Silent(why) => Some((Verdict::Unknown(why.clone()), String::new())),
        Answer::NotOurs { .. } | Answer::Absent => None,
    };
    let by_name = answers.by_name.as_ref();
    let found = instance(&answers.as_it_is, true);
    if let Some(found) = found.or_else(|| by_name.and_then(|answer| instance(answer, false))) {
        return found;
    }
    let strange = [Some(&answers.as_it_is), by_name].into_iter().flatten().find_map(|answer| {
        if let Answer::NotOurs { provider_id, .. } = answer {
            Some(provider_id.to_string())
        } else {
            None
        }
    });
    match strange {
        Some(provider_id) => (Verdict::NotOurs, provider_id),
        None => (absence, String::new()),
    }
}

/// What it amounts to if the instance of the Machine's own provider id has the tag of another cluster.
pub(super) fn under_another_id(
    provider_id: Option<&ProviderId>,
    cluster: &ClusterIds,
    answer: &Answer,
) -> Option<Verdict> {
    let Answer::NotOurs { provider_id: found, cluster_id } = answer else { return None };
    if cluster_id.is_empty() || cluster.has(cluster_id) || provider_id != Some(found) {
        return None;
    }
    Some(Verdict::OtherClusterId(format!(
        "it carries cluster id {cluster_id}: was that the id of this cluster, give --previous-cluster-ids {cluster_id}"
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "fake:///i-1";

    fn instance(uid: &str) -> Answer {
        Answer::Instance { provider_id: ID.into(), machine_uid: uid.into(), moved: false }
    }

    fn not_ours() -> Answer {
        Answer::NotOurs { provider_id: ID.into(), cluster_id: String::new() }
    }

    fn silent() -> Answer {
        Answer::Silent("why".to_owned())
    }

    #[track_caller]
    fn judged(allowed: AdoptByName, as_it_is: Answer, by_name: Option<Answer>) -> Verdict {
        let answers = Answers { as_it_is, by_name };
        let (verdict, id) = judge("own", Verdict::AbsentUnproven, allowed, &answers);
        let none = matches!(verdict, Verdict::AbsentUnproven | Verdict::Unknown(_));
        assert_eq!(id, if none { "" } else { ID }, "{verdict:?}");
        verdict
    }

    #[test]
    fn an_instance_with_the_uid_of_the_machine_is_found_whatever_the_class_says() {
        for allowed in [AdoptByName::Allowed, AdoptByName::Refused, AdoptByName::Undecided] {
            assert_eq!(judged(allowed, instance("own"), None), Verdict::Found);
        }
    }

    #[test]
    fn an_instance_of_an_earlier_life_is_adopted_by_its_id_whatever_the_class_says() {
        for allowed in [AdoptByName::Allowed, AdoptByName::Refused, AdoptByName::Undecided] {
            assert_eq!(judged(allowed, instance("earlier"), None), Verdict::Adoptable);
        }
    }

    #[test]
    fn an_instance_under_a_previous_cluster_id_is_adopted_and_one_under_another_is_told_with_it() {
        let machine_uid = "own".to_owned();
        let moved = Answer::Instance {
            provider_id: ID.into(),
            machine_uid: machine_uid.into(),
            moved: true,
        };
        assert_eq!(judged(AdoptByName::Undecided, moved, None), Verdict::Adoptable);
        let answer = Answer::NotOurs { provider_id: ID.into(), cluster_id: "b".to_owned() };
        let cluster = ClusterIds::only("a");
        let verdict = under_another_id(Some(&ID.into()), &cluster, &answer).unwrap();
        assert!(verdict.stands_in_the_way() && verdict.note().contains("-ids b"), "{verdict:?}");
        for (id, cluster) in [(None, "a"), (Some("other"), "a"), (Some(ID), "b")] {
            let id = id.map(ProviderId::from);
            let verdict = under_another_id(id.as_ref(), &ClusterIds::only(cluster), &answer);
            assert_eq!(verdict, None, "{id:?}");
        }
        assert_eq!(under_another_id(Some(&ID.into()), &cluster, &not_ours()), None);
    }

    #[test]
    fn an_instance_without_a_uid_is_adopted_where_the_class_allows_it_and_not_elsewhere() {
        assert_eq!(judged(AdoptByName::Allowed, instance(""), None), Verdict::Adoptable);
        for allowed in [AdoptByName::Refused, AdoptByName::Undecided] {
            let only_by_name = judged(allowed, not_ours(), Some(instance("")));
            assert_eq!(only_by_name, Verdict::AdoptableIfAllowed);
            assert_eq!(judged(allowed, Answer::Absent, Some(instance(""))), only_by_name);
            assert!(only_by_name.stands_in_the_way());
        }
    }

    #[test]
    fn what_is_not_ours_by_name_either_is_not_ours() {
        for (as_it_is, by_name) in [
            (not_ours(), None),
            (not_ours(), Some(not_ours())),
            (not_ours(), Some(Answer::Absent)),
            (Answer::Absent, Some(not_ours())),
        ] {
            let verdict = judged(AdoptByName::Undecided, as_it_is, by_name);
            assert_eq!(verdict, Verdict::NotOurs);
            assert!(verdict.stands_in_the_way());
        }
    }

    #[test]
    fn none_is_absence_only_where_the_core_would_take_it_for_one() {
        use AdoptByName::{Allowed, Refused, Undecided};
        let machine = |id: &str, phase: &str| -> Machine {
            let status = json!({ "currentStatus": { "phase": phase } });
            serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": "m", "uid": "own" },
                "spec": { "class": { "kind": "MachineClass", "name": "c" }, "providerID": id },
                "status": status
            }))
            .unwrap()
        };
        for (id, phase, allowed, expected) in [
            ("", "", Undecided, Verdict::Absent),
            ("", "Pending", Undecided, Verdict::AbsentUndecided),
            ("", "Pending", Allowed, Verdict::Absent),
            ("", "Pending", Refused, Verdict::Absent),
            (ID, "Running", Undecided, Verdict::AbsentUnproven),
            (ID, "Running", Allowed, Verdict::AbsentUnproven),
        ] {
            let answers = Answers { as_it_is: Answer::Absent, by_name: Some(Answer::Absent) };
            let absence = absence(&machine(id, phase), &ClusterIds::only("a"), allowed);
            let (verdict, _) = judge("own", absence, allowed, &answers);
            assert_eq!(verdict, expected, "{id} {phase} {allowed:?}");
            assert_eq!(verdict.stands_in_the_way(), expected != Verdict::Absent);
        }
    }

    #[test]
    fn no_answer_is_never_absence() {
        let unknown = Verdict::Unknown("why".to_owned());
        assert!(unknown.stands_in_the_way());
        assert_eq!(judged(AdoptByName::Allowed, silent(), None), unknown);
        assert_eq!(judged(AdoptByName::Undecided, Answer::Absent, Some(silent())), unknown);
        assert_eq!(judged(AdoptByName::Undecided, not_ours(), Some(silent())), unknown);
    }
}
