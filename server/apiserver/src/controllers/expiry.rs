//! Events are kept for an hour after they last happened, then they go: nobody deletes them, and
//! without an end they would fill the store.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    kinds::access::text,
    store::{Change, Key},
};

use super::{Controller, Outcome, Plane, Queue, Update, settled};

/// How long an event is kept, as long as kube-apiserver keeps it.
const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// Deletes old events.
#[derive(Debug)]
pub(super) struct Expiry {
    plane: Plane,
}

impl Expiry {
    pub(super) fn new(plane: Plane) -> Self {
        Self { plane }
    }
}

fn is_event(key: &Key) -> bool {
    key.resource() == "events" && matches!(key.group(), "" | "events.k8s.io")
}

/// When an event last happened.
fn happened(event: &Value) -> Option<Timestamp> {
    let times = [
        "/metadata/creationTimestamp",
        "/eventTime",
        "/firstTimestamp",
        "/lastTimestamp",
        "/series/lastObservedTime",
    ];
    times.iter().filter_map(|time| text(event, time).parse().ok()).max()
}

impl Controller for Expiry {
    type Key = Key;

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn observe(&mut self, update: Update, queue: &mut Queue<Key>) {
        match update {
            Update::All(records) => {
                for record in records.into_iter().filter(|record| is_event(&record.key)) {
                    queue.push(record.key);
                }
            }
            Update::Change(event) => {
                let created = matches!(event.change, Change::Put(_)) && event.previous.is_none();
                if created && is_event(&event.key) {
                    queue.push(event.key.clone());
                }
            }
        }
    }

    async fn act(&mut self, key: Key) -> Outcome {
        let Some(record) = self.plane.context.store.get(&key) else { return Outcome::Done };
        let event = record.object();
        let now = (self.plane.context.clock)();
        let age = happened(&event).map_or(KEPT, |last| now.duration_since(last));
        if age < KEPT {
            return Outcome::After((KEPT - age).unsigned_abs());
        }
        let Some(path) = self.plane.path(&key) else { return Outcome::Done };
        let options = json!({"preconditions": {"uid": text(&event, "/metadata/uid")}});
        settled(self.plane.loopback.delete(&path, &options).await.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_as_old_as_its_last_occurrence() {
        let event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "lastTimestamp": null, "eventTime": "2026-01-01T00:00:00.5Z",
            "series": {"lastObservedTime": "2026-01-01T00:10:00.000000Z"}});
        assert_eq!(happened(&event), "2026-01-01T00:10:00Z".parse().ok());
        assert_eq!(happened(&json!({})), None);
    }
}
