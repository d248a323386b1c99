//! Whether a Machine claims an instance.

use super::{Listed, Owner};
use ostler_api::ProviderId;
use ostler_api::Uid;

/// Possible claims on an instance. Gathered from caches first, and for a seeming orphan once more from the API itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts of an instance, independent of each other"
)]
pub struct Claims {
    /// A Machine with its UID exists; for a group, the pool, or a Machine of the group whose Node is not drained yet.
    pub same_uid: bool,
    /// A Machine has its provider id.
    pub same_provider_id: bool,
    /// The Machine with its name.
    pub namesake: Option<Namesake>,
    /// An operation of its UID is queued, in flight, or not recorded.
    pub busy: bool,
    /// A class of the instance's listing is paused.
    pub paused: bool,
}

/// A Machine with the name that an instance has in its tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesake {
    /// Its UID.
    pub uid: Uid,
    /// The provider id, if any.
    pub provider_id: Option<ProviderId>,
    /// The Machine is Failed: it gets no instance any more.
    pub failed: bool,
}

ostler_api::closed_enum! {
    /// Why an instance is kept.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum KeepReason {
        /// Its tags name no Machine (INV-5): it may belong to another system.
        NoIdentity,
        /// The instance's Machine exists.
        MachineExists,
        /// Another Machine has this provider id: a restored Machine, which will take the instance over.
        ProviderIdInUse,
        /// A Machine with its name has no instance yet, and may take it over; or its tags name nothing but a
        /// name, and any Machine has that.
        MayBeAdopted,
        /// Something is being done for it.
        OperationInFlight,
        /// A user paused its class.
        Paused,
    }
}

/// Why an instance is kept; `None`: no Machine claims it. An instance without a UID is claimed by the Machine of the
/// same name: for which Machine the instance was made is unknown. No group is a pool's by its name alone.
pub fn judge(listed: &Listed, claims: &Claims) -> Option<KeepReason> {
    let namesake = claims.namesake.as_ref();
    let own = namesake.is_some_and(|one| one.uid == listed.machine_uid);
    let same_id = namesake.is_some_and(|one| {
        one.provider_id.as_ref().is_some_and(|it| it == listed.provider_id.as_str())
    });
    let untagged = listed.machine_uid.is_empty();
    let untagged_group = listed.owner == Owner::Pool && untagged;
    let may_adopt =
        namesake.is_some_and(|one| untagged || one.provider_id.is_none() && !one.failed);
    let reasons = [
        (listed.machine_name.is_empty() || untagged_group, KeepReason::NoIdentity),
        (claims.same_uid || own, KeepReason::MachineExists),
        (claims.same_provider_id || same_id, KeepReason::ProviderIdInUse),
        (may_adopt, KeepReason::MayBeAdopted),
        (claims.busy, KeepReason::OperationInFlight),
        (claims.paused, KeepReason::Paused),
    ];
    reasons.into_iter().find_map(|(holds, keep)| holds.then_some(keep))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orphans::{OrphanKind, ReportReason, Rules, kept};

    #[test]
    fn a_part_is_claimed_as_its_instance_would_be() {
        let part = Listed { part: "disk".to_owned(), provider_id: "d-1".into(), ..instance() };
        assert_eq!(judge(&part, &Claims::default()), None, "no machine has it");
        let own = Claims { same_uid: true, ..Claims::default() };
        assert_eq!(judge(&part, &own), Some(KeepReason::MachineExists));
        let busy = Claims { busy: true, ..Claims::default() };
        assert_eq!(judge(&part, &busy), Some(KeepReason::OperationInFlight));
    }

    fn instance() -> Listed {
        Listed {
            provider_id: "fake:///i-1".into(),
            machine_name: "m".to_owned(),
            machine_uid: "uid-1".into(),
            ..Listed::default()
        }
    }

    fn namesake(uid: &str, provider_id: Option<&str>) -> Claims {
        let provider_id = provider_id.map(Into::into);
        let namesake = Some(Namesake { uid: uid.into(), provider_id, failed: false });
        Claims { namesake, ..Claims::default() }
    }

    #[test]
    fn an_instance_without_a_uid_is_claimed_by_every_machine_of_its_name() {
        let stranger = Listed { machine_uid: Uid::default(), ..instance() };
        for claims in [
            namesake("uid-2", None),
            namesake("uid-2", Some("fake:///i-2")),
            failed(namesake("uid-2", None)),
        ] {
            assert_eq!(judge(&stranger, &claims), Some(KeepReason::MayBeAdopted), "{claims:?}");
        }
        let same = namesake("uid-2", Some("fake:///i-1"));
        assert_eq!(judge(&stranger, &same), Some(KeepReason::ProviderIdInUse));
        let elsewhere = Claims { same_provider_id: true, ..Claims::default() };
        assert_eq!(judge(&stranger, &elsewhere), Some(KeepReason::ProviderIdInUse));
    }

    #[test]
    fn an_instance_of_a_previous_cluster_id_is_claimed_as_one_of_today_is() {
        let previous = Listed { cluster_id: "before".to_owned(), ..instance() };
        assert_eq!(previous.kind(), OrphanKind::Previous);
        for claims in [Claims::default(), namesake("uid-1", None), namesake("uid-2", None)] {
            assert_eq!(judge(&previous, &claims), judge(&instance(), &claims), "{claims:?}");
        }
    }

    fn failed(mut claims: Claims) -> Claims {
        claims.namesake.as_mut().unwrap().failed = true;
        claims
    }

    #[test]
    fn inv_2_an_instance_is_an_orphan_only_if_nobody_claims_it() {
        let none = Claims::default;
        let table = [
            (none(), None),
            (Claims { same_uid: true, ..none() }, Some(KeepReason::MachineExists)),
            (Claims { same_provider_id: true, ..none() }, Some(KeepReason::ProviderIdInUse)),
            (Claims { busy: true, ..none() }, Some(KeepReason::OperationInFlight)),
            (Claims { paused: true, ..none() }, Some(KeepReason::Paused)),
            (namesake("uid-1", Some("other")), Some(KeepReason::MachineExists)),
            (namesake("uid-2", Some("fake:///i-1")), Some(KeepReason::ProviderIdInUse)),
            (namesake("uid-2", None), Some(KeepReason::MayBeAdopted)),
            (namesake("uid-2", Some("fake:///i-2")), None),
            (failed(namesake("uid-1", None)), Some(KeepReason::MachineExists)),
            (failed(namesake("uid-2", Some("fake:///i-1"))), Some(KeepReason::ProviderIdInUse)),
            (failed(namesake("uid-2", None)), None),
        ];
        for (claims, expected) in table {
            assert_eq!(judge(&instance(), &claims), expected, "{claims:?}");
        }
    }

    #[test]
    fn a_group_is_an_orphan_only_if_no_pool_claims_it_and_its_tags_name_one() {
        let group = Listed { owner: Owner::Pool, ..instance() };
        let none = Claims::default;
        for (claims, expected) in [
            (none(), None),
            (Claims { same_uid: true, ..none() }, Some(KeepReason::MachineExists)),
            (Claims { same_provider_id: true, ..none() }, Some(KeepReason::ProviderIdInUse)),
            (Claims { busy: true, ..none() }, Some(KeepReason::OperationInFlight)),
            (namesake("uid-2", None), Some(KeepReason::MayBeAdopted)),
            (namesake("uid-2", Some("fake:///other")), None),
        ] {
            assert_eq!(judge(&group, &claims), expected, "{claims:?}");
        }
        let untagged = Listed { machine_uid: Uid::default(), ..group };
        assert_eq!(judge(&untagged, &none()), Some(KeepReason::NoIdentity), "with the flag, too");
    }

    #[test]
    fn inv_5_an_instance_whose_tags_name_no_uid_is_never_touched_without_the_flag() {
        let stranger = Listed { machine_uid: Uid::default(), ..instance() };
        assert_eq!(
            (judge(&stranger, &Claims::default()), stranger.kind()),
            (None, OrphanKind::Untagged)
        );
        let only = kept(OrphanKind::Untagged, &Rules::default(), None, false);
        assert_eq!(only, Some(ReportReason::Untagged));
        let nameless = Listed { machine_name: String::new(), ..instance() };
        assert_eq!(judge(&nameless, &Claims::default()), Some(KeepReason::NoIdentity));
    }
}
