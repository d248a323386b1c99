//! Reads a Lease and decides what to write. No I/O.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use ostler_api::names::annotation::{ENDED_TERM, SERVED_NAMESPACES};
use ostler_api::operation::Term;
use ostler_lifecycle::home::{self, Need};
use tokio::time::Instant;

use super::ElectionSettings;
use crate::client::PATIENCE;
use crate::watch::ResourceVersion;

/// Where the time of terms begins: 2020-01-01T00:00:00Z. Its seconds fit the field of the Lease until 2088.
const TERMS_BEGIN: i64 = 1_577_836_800;

/// The term that `lease` stands for.
pub(super) fn term_of(lease: &Lease) -> Term {
    Term(u32::try_from(transitions(lease)).unwrap_or(0))
}

fn transitions(lease: &Lease) -> i32 {
    lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0)
}

/// The next term after so many transitions. It is at least the time, so that terms go on growing when the Lease was
/// deleted, or came back from a backup; drivers compare numbers and know nothing of Leases.
fn next_term(transitions: i32, wall: Timestamp) -> i32 {
    let time = wall.as_second().saturating_sub(TERMS_BEGIN).clamp(0, i32::MAX.into());
    transitions.saturating_add(1).max(i32::try_from(time).unwrap_or(i32::MAX))
}

/// The last observed Lease, and since when it has not changed.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    last: Option<(LeaseSpec, Instant)>,
    version: ResourceVersion,
}

/// The version that the API server has of `lease`.
pub(super) fn version_of(lease: &Lease) -> ResourceVersion {
    ResourceVersion::of(lease.metadata.resource_version.as_deref())
}

/// Whether the API server has `now` from a time before it had `before`.
pub(super) fn is_older(now: &Lease, before: &Lease) -> bool {
    version_of(now).is_older_than(version_of(before))
}

/// The abilities left to the process that led before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Predecessor {
    /// None led before.
    None,
    /// It gave the Lease up when all its requests had been answered: nothing.
    Ended,
    /// The last requests may still be on their way: the process died, lost the Lease, gave it up before the answers, or
    /// does not say.
    MayAct,
}

impl Predecessor {
    /// How long its last requests may take.
    pub(crate) const fn arrives(self) -> Duration {
        match self {
            Self::None | Self::Ended => Duration::ZERO,
            Self::MayAct => PATIENCE,
        }
    }

    /// The predecessor of a process that takes `lease`. Only the term that ended counts: another client may have led
    /// since, and a person may have taken the holder out.
    pub(super) fn of(lease: &Lease) -> Self {
        let ended = lease.metadata.annotations.as_ref().and_then(|all| all.get(ENDED_TERM));
        let ended = ended.is_some_and(|term| *term == transitions(lease).to_string());
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        if ended && holder.unwrap_or_default().is_empty() { Self::Ended } else { Self::MayAct }
    }
}

/// The decision about the Lease.
#[derive(Debug, PartialEq)]
pub(super) enum Move {
    /// Write this: the lease is free, ours or expired.
    Take(Box<Lease>),
    /// Another process holds the Lease.
    Wait,
}

impl Observed {
    /// The holder of a missing Lease: there was no Lease, or a client deleted it under its holder.
    pub(super) fn of_none(&self) -> Predecessor {
        if self.last.is_some() { Predecessor::MayAct } else { Predecessor::None }
    }

    /// The API server has this Lease now. Returns whether the Lease is older than the last one.
    pub(super) fn went_back(&mut self, lease: &Lease) -> bool {
        let version = version_of(lease);
        version.is_older_than(std::mem::replace(&mut self.version, version))
    }

    /// The Lease has this content now. Returns since when it has had it, as far as is known.
    pub(super) fn note(&mut self, spec: LeaseSpec, now: Instant) -> Instant {
        let since = match &self.last {
            Some((seen, since)) if *seen == spec => *since,
            Some(_) | None => now,
        };
        self.last = Some((spec, since));
        since
    }

    /// Decides by the Lease as it is now.
    pub(super) fn decide(
        &mut self,
        lease: Lease,
        settings: &ElectionSettings,
        now: Instant,
        wall: Timestamp,
    ) -> Move {
        let spec = lease.spec.clone().unwrap_or_default();
        let since = self.note(spec.clone(), now);
        let duration = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(settings.lease_duration, Duration::from_secs);
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let free = holder.is_empty()
            || settings.take_immediately
            || holder == settings.identity
            || Some(holder) == settings.predecessor.as_deref()
            || now.saturating_duration_since(since) >= duration;
        if free { Move::Take(Box::new(taken(lease, settings, wall))) } else { Move::Wait }
    }
}

/// A new Lease, held by us.
pub(super) fn new_lease(
    observed: &Observed,
    settings: &ElectionSettings,
    wall: Timestamp,
) -> Lease {
    let metadata = ObjectMeta {
        name: Some(settings.lease.to_owned()),
        namespace: Some(settings.namespace.clone()),
        ..ObjectMeta::default()
    };
    let spec = observed.last.as_ref().map(|(spec, _)| spec.clone());
    taken(Lease { metadata, spec }, settings, wall)
}

/// Every acquisition is a transition, also that of a lease which was ours: it starts a new term.
fn taken(mut lease: Lease, settings: &ElectionSettings, wall: Timestamp) -> Lease {
    let term = next_term(transitions(&lease), wall);
    let notes = lease.metadata.annotations.get_or_insert_default();
    notes.insert(SERVED_NAMESPACES.to_owned(), settings.serves.clone());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(settings.identity.clone()),
        lease_duration_seconds: Some(seconds(settings.lease_duration)),
        lease_transitions: Some(term),
        acquire_time: Some(MicroTime(wall)),
        renew_time: Some(MicroTime(wall)),
        ..lease.spec.unwrap_or_default()
    });
    lease
}

/// When the holder last renewed, by its own clock.
pub(super) fn renewed_at(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// When the holder acquired the Lease, by the holder's clock.
pub(super) fn acquired_at(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.acquire_time.as_ref().map(|time| time.0)
}

/// The same term, renewed, and held as it is needed.
pub(super) fn renewed(mut lease: Lease, need: Need, wall: Timestamp) -> Lease {
    home::apply(&mut lease.metadata, need);
    lease.spec.get_or_insert_default().renew_time = Some(MicroTime(wall));
    lease
}

/// The same, with us as its holder again.
pub(super) fn held(mut lease: Lease, settings: &ElectionSettings) -> Lease {
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(settings.identity.clone());
    spec.lease_duration_seconds = Some(seconds(settings.lease_duration));
    lease
}

/// The same, to be created.
pub(super) fn anew(lease: Lease) -> Lease {
    let ObjectMeta { name, namespace, annotations, labels, finalizers, .. } = lease.metadata;
    let metadata =
        ObjectMeta { name, namespace, annotations, labels, finalizers, ..ObjectMeta::default() };
    Lease { metadata, ..lease }
}

/// A Lease for the new namespace: the same term of the same holder.
pub(super) fn moved(lease: &Lease, namespace: &str) -> Lease {
    let mut lease = anew(lease.clone());
    lease.metadata.namespace = Some(namespace.to_owned());
    lease
}

/// The existing Lease in the new namespace, with the content of `lease`.
pub(super) fn replaced(mut there: Lease, lease: &Lease) -> Lease {
    let notes = lease.metadata.annotations.clone().unwrap_or_default();
    there.metadata.annotations.get_or_insert_default().extend(notes);
    Lease { spec: lease.spec.clone(), ..there }
}

/// A Lease that the next leader may take immediately: no holder, and a duration of one second for clients that read
/// only the times. The Lease tells whether all requests of this term were `answered`.
pub(super) fn released(mut lease: Lease, answered: bool, wall: Timestamp) -> Lease {
    if answered {
        let term = transitions(&lease).to_string();
        lease.metadata.annotations.get_or_insert_default().insert(ENDED_TERM.to_owned(), term);
    }
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(wall));
    spec.acquire_time = Some(MicroTime(wall));
    lease
}

/// Whether we hold `lease`.
pub(super) fn is_ours(lease: &Lease, settings: &ElectionSettings) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder == Some(settings.identity.as_str())
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ElectionSettings {
        ElectionSettings::new("default", "me")
    }

    fn held_by(holder: &str, transitions: i32) -> Lease {
        let settings = ElectionSettings::new("default", holder);
        let mut lease = new_lease(&Observed::default(), &settings, Timestamp::UNIX_EPOCH);
        lease.spec.as_mut().unwrap().lease_transitions = Some(transitions);
        lease
    }

    fn decide(observed: &mut Observed, lease: Lease, now: Instant) -> Move {
        observed.decide(lease, &settings(), now, Timestamp::UNIX_EPOCH)
    }

    fn taken_transitions(decision: Move) -> i32 {
        match decision {
            Move::Take(lease) => lease.spec.unwrap().lease_transitions.unwrap(),
            Move::Wait => panic!("waits"),
        }
    }

    #[test]
    fn a_candidate_waits_for_a_live_lease_and_takes_an_expired_one() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        for seconds in [0, 5, 14] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(decide(&mut observed, held_by("you", 3), now), Move::Wait);
        }
        let now = start + Duration::from_secs(15);
        assert_eq!(taken_transitions(decide(&mut observed, held_by("you", 3), now)), 4);
    }

    #[test]
    fn a_renewal_restarts_the_wait_whatever_its_timestamp_is() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        decide(&mut observed, held_by("you", 3), start);
        let renewed = renewed(
            held_by("you", 3),
            Need::Unknown,
            Timestamp::UNIX_EPOCH + Duration::from_secs(1),
        );
        let late = start + Duration::from_secs(14);
        assert_eq!(decide(&mut observed, renewed.clone(), late), Move::Wait);
        let later = start + Duration::from_secs(28);
        assert_eq!(decide(&mut observed, renewed, later), Move::Wait);
    }

    #[test]
    fn a_released_lease_and_one_of_our_own_are_taken_immediately_as_a_new_term() {
        let now = Instant::now();
        let free = released(held_by("you", 3), true, Timestamp::UNIX_EPOCH);
        assert_eq!(taken_transitions(decide(&mut Observed::default(), free, now)), 4);
        let ours = held_by("me", 7);
        assert_eq!(taken_transitions(decide(&mut Observed::default(), ours, now)), 8);
    }

    #[test]
    fn only_who_says_for_this_very_term_that_its_requests_were_answered_has_ended() {
        let release = |answered| released(held_by("you", 3), answered, Timestamp::UNIX_EPOCH);
        assert_eq!(Predecessor::of(&release(true)), Predecessor::Ended);
        assert_eq!(Predecessor::of(&release(false)), Predecessor::MayAct, "it was in a hurry");
        assert_eq!(Predecessor::of(&held_by("you", 3)), Predecessor::MayAct, "it died");
        let wall = Timestamp::UNIX_EPOCH;
        let mut emptied = taken(release(true), &settings(), wall);
        assert_eq!(Predecessor::of(&emptied), Predecessor::MayAct, "another term");
        emptied.spec.as_mut().unwrap().holder_identity = None;
        assert_eq!(Predecessor::of(&emptied), Predecessor::MayAct, "a person took it out");
        let mut again = release(true);
        again.spec.as_mut().unwrap().holder_identity = Some("mcm".to_owned());
        assert_eq!(Predecessor::of(&again), Predecessor::MayAct, "it is held");

        let mut observed = Observed::default();
        assert_eq!(observed.of_none(), Predecessor::None);
        decide(&mut observed, held_by("you", 3), Instant::now());
        assert_eq!(observed.of_none(), Predecessor::MayAct, "deleted under its holder");
    }

    #[test]
    fn the_lease_of_a_predecessor_known_to_be_dead_is_taken_immediately() {
        let settings = ElectionSettings { predecessor: Some("me-before".into()), ..settings() };
        let decide = |holder| {
            Observed::default().decide(
                held_by(holder, 1),
                &settings,
                Instant::now(),
                Timestamp::UNIX_EPOCH,
            )
        };
        assert_eq!(taken_transitions(decide("me-before")), 2);
        assert_eq!(decide("you"), Move::Wait);
    }

    #[test]
    fn a_term_is_later_than_the_one_before_and_never_before_its_time() {
        let wall = Timestamp::from_second(TERMS_BEGIN + 100).unwrap();
        for (before, next) in [(0, 100), (7, 100), (99, 100), (100, 101), (500, 501)] {
            let lease = taken(held_by("you", before), &settings(), wall);
            assert_eq!(term_of(&lease), Term(next));
        }
        let mut observed = Observed::default();
        observed.decide(held_by("you", 500), &settings(), Instant::now(), wall);
        let lease = new_lease(&observed, &settings(), wall);
        assert_eq!(term_of(&lease), Term(501), "also of a Lease that was deleted and is made anew");
    }
}
