//! What no client deletes, and what would fill the store without an end: old events, certificate
//! requests that are done or that no administrator decides over, and bootstrap tokens that have expired.

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use super::{Controller, Outcome, Plane, Queue, Update, settled};
use crate::{
    auth::{BOOTSTRAP_SECRET_TYPE, bootstrap_expiration, certificates::ClientCertificate},
    kinds::{
        access::{set, text},
        certificate::{APPROVED, DENIED, FAILED, bytes, conditions},
    },
    store::{Change, Key},
};

/// How long an event is kept after it last happened, as long as kube-apiserver keeps it.
const EVENT_KEPT: SignedDuration = SignedDuration::from_hours(1);
/// How long a certificate request is kept after it was decided over, and without a decision, as
/// long as kube-controller-manager keeps it.
const DECIDED_KEPT: SignedDuration = SignedDuration::from_hours(1);
const UNDECIDED_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Deletes what is old.
#[derive(Debug)]
pub(super) struct Expiry {
    plane: Plane,
}

impl Expiry {
    pub(super) fn new(plane: Plane) -> Self {
        Self { plane }
    }
}

/// The kinds of objects that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mortal {
    Event,
    CertificateRequest,
    /// Among which are bootstrap tokens.
    Secret,
}

fn mortal(key: &Key) -> Option<Mortal> {
    match (key.group(), key.resource()) {
        ("" | "events.k8s.io", "events") => Some(Mortal::Event),
        ("certificates.k8s.io", "certificatesigningrequests") => Some(Mortal::CertificateRequest),
        ("", "secrets") if key.namespace() == "kube-system" => Some(Mortal::Secret),
        _ => None,
    }
}

/// When an object ends, if it does.
fn end(mortal: Mortal, object: &Value, now: Timestamp) -> Option<Timestamp> {
    match mortal {
        Mortal::Event => {
            let last = happened(object, now).unwrap_or(Timestamp::MIN);
            Some(last.checked_add(EVENT_KEPT).unwrap_or(Timestamp::MAX))
        }
        Mortal::CertificateRequest => Some(request_end(object)),
        Mortal::Secret if text(object, "/type") == BOOTSTRAP_SECRET_TYPE => {
            bootstrap_expiration(object)
        }
        Mortal::Secret => None,
    }
}

/// The time of an event's last occurrence. Clients may send any time; times in the future are ignored.
fn happened(event: &Value, now: Timestamp) -> Option<Timestamp> {
    let time = |pointer| text(event, pointer).parse::<Timestamp>().ok();
    let told = ["/eventTime", "/firstTimestamp", "/lastTimestamp", "/series/lastObservedTime"];
    let told = told.into_iter().filter_map(time).filter(|told| *told <= now);
    time("/metadata/creationTimestamp").into_iter().chain(told).max()
}

fn request_end(request: &Value) -> Timestamp {
    let time = |object: &Value, pointer: &str| text(object, pointer).parse::<Timestamp>().ok();
    let created = time(request, "/metadata/creationTimestamp").unwrap_or(Timestamp::MIN);
    let decided = [APPROVED, DENIED, FAILED].into_iter().flat_map(|kind| conditions(request, kind));
    let decided = decided.map(|one| time(one, "/lastUpdateTime").unwrap_or(created)).min();
    let deadline = decided
        .map_or_else(|| created.checked_add(UNDECIDED_KEPT), |at| at.checked_add(DECIDED_KEPT))
        .unwrap_or(Timestamp::MIN);
    let pem = bytes(request, "/status/certificate").unwrap_or_default();
    let certificate = CertificateDer::from_pem_slice(&pem).ok();
    let expires =
        certificate.and_then(|der| ClientCertificate::read(&der)).map(|one| one.expires());
    expires.map_or(deadline, |expires| expires.min(deadline))
}

impl Controller for Expiry {
    type Key = Key;

    fn plane(&self) -> &Plane {
        &self.plane
    }

    /// An event is looked at when its time may have come; a request or a token whenever it
    /// changes, for its time may come sooner then.
    fn observe(&mut self, update: Update, queue: &mut Queue<Key>) {
        match update {
            Update::All(records) => {
                for record in records.into_iter().filter(|record| mortal(&record.key).is_some()) {
                    queue.push(record.key);
                }
            }
            Update::Change(event) => {
                let put = matches!(event.change, Change::Put(_));
                let created = put && event.previous.is_none();
                let look = match mortal(&event.key) {
                    // A deleted event is looked at as well, so that its key does not wait until expiry.
                    Some(Mortal::Event) => created || !put,
                    Some(Mortal::CertificateRequest | Mortal::Secret) => true,
                    None => false,
                };
                if look {
                    queue.push(event.key.clone());
                }
            }
        }
    }

    async fn act(&mut self, key: Key) -> Outcome {
        let Some(mortal) = mortal(&key) else { return Outcome::Done };
        let Some(record) = self.plane.context.store.get(&key) else { return Outcome::Done };
        let Some(object) = record.readable() else { return Outcome::Done };
        let now = (self.plane.context.clock)();
        let Some(end) = end(mortal, &object, now) else { return Outcome::Done };
        if now < end {
            return Outcome::After(end.duration_since(now).unsigned_abs());
        }
        let Some(path) = self.plane.path(&key) else { return Outcome::Done };
        // what has been changed meanwhile may live longer now
        let mut conditions = json!({"uid": text(&object, "/metadata/uid")});
        if mortal != Mortal::Event {
            set(&mut conditions, "resourceVersion", record.revision.to_string());
        }
        let options = json!({ "preconditions": conditions });
        settled(self.plane.loopback.delete(&path, &options).await.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn an_event_is_as_old_as_its_last_occurrence() {
        let now = "2026-01-01T00:30:00Z".parse().unwrap();
        let event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "lastTimestamp": "9999-12-30T22:00:00Z", "eventTime": "2026-01-01T00:00:00.5Z",
            "series": {"lastObservedTime": "2026-01-01T00:10:00.000000Z"}});
        assert_eq!(end(Mortal::Event, &event, now), "2026-01-01T01:10:00Z".parse().ok());
        assert_eq!(
            end(Mortal::Event, &json!({}), now),
            Timestamp::MIN.checked_add(EVENT_KEPT).ok()
        );
    }

    #[test]
    fn a_certificate_request_ends_soon_after_its_decision_and_a_day_after_none() {
        let request = |conditions: Value| {
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"conditions": conditions}})
        };
        let decided =
            |kind: &str| json!([{"type": kind, "lastUpdateTime": "2026-01-01T05:00:00Z"}]);
        for (conditions, expected) in [
            (json!([]), "2026-01-02T00:00:00Z"),
            (decided("Approved"), "2026-01-01T06:00:00Z"),
            (decided("Denied"), "2026-01-01T06:00:00Z"),
            (decided("Failed"), "2026-01-01T06:00:00Z"),
            (decided("Other"), "2026-01-02T00:00:00Z"),
            (json!([{"type": "Denied"}]), "2026-01-01T01:00:00Z"),
        ] {
            let found = end(Mortal::CertificateRequest, &request(conditions.clone()), NOW);
            assert_eq!(found, expected.parse().ok(), "{conditions}");
        }
    }

    #[test]
    fn other_secrets_than_bootstrap_tokens_have_no_end() {
        // "2026-01-01T00:00:00Z"
        let data = json!({"expiration": "MjAyNi0wMS0wMVQwMDowMDowMFo="});
        let token = json!({"type": BOOTSTRAP_SECRET_TYPE, "data": data});
        assert_eq!(end(Mortal::Secret, &token, NOW), "2026-01-01T00:00:00Z".parse().ok());
        assert_eq!(end(Mortal::Secret, &json!({"type": "Opaque", "data": data}), NOW), None);
        assert_eq!(end(Mortal::Secret, &json!({"type": BOOTSTRAP_SECRET_TYPE}), NOW), None);
    }
}
