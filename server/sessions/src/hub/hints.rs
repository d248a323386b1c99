//! Drivers' unasked reports on instances. A report only makes the core look, so one more or less does no harm; a driver
//! with too many reports is ignored.

use std::time::Duration;

use ostler_api::hint::{Hint, HintKind};
use ostler_proto::v1alpha1::{DriverCapability, DriverEvent, InstanceEvent, RoleKind};
use tokio::time::Instant;

use super::{Count, Hub, SessionKey};
use crate::SessionEvent;
use crate::convert::{MESSAGE_BYTES, WORD_BYTES, cut};

/// The average time between events of a provider.
pub(super) const HINT_EVERY: Duration = Duration::from_millis(10);
/// So many in a row after a rest.
pub(super) const HINT_BURST: u32 = 500;

impl Hub {
    /// The driver says that something happened to an instance.
    pub(super) fn hinted(&mut self, now: Instant, key: SessionKey, event: DriverEvent) {
        let Some(session) = self.sessions.get(&key) else { return };
        let provider = session.driver.provider.clone();
        let declared = session.driver.has(DriverCapability::Events);
        let checked = if !declared {
            Err("NOT_DECLARED")
        } else if session.role != RoleKind::Active {
            Err("STANDBY")
        } else {
            hint_of(event)
        };
        let listened = checked.and_then(|hint| {
            let record = self.providers.get_mut(&provider).ok_or("STANDBY")?;
            record.hints.take(now).map(|()| hint).map_err(|_| "PROVIDER_RATE")
        });
        match listened {
            Ok(hint) => {
                self.count(Count::Hinted { provider: provider.clone(), kind: hint.kind });
                self.publish(SessionEvent::Hint { provider, hint: Box::new(hint) });
            }
            Err(reason) => self.count(Count::HintDropped { provider, reason }),
        }
    }
}

/// The hint of an event, or the reason against it.
fn hint_of(event: DriverEvent) -> Result<Hint, &'static str> {
    let kind = match event.kind() {
        InstanceEvent::Unspecified => return Err("UNKNOWN_KIND"),
        InstanceEvent::Gone => HintKind::Gone,
        InstanceEvent::Changed => HintKind::Changed,
        InstanceEvent::TerminationNotice => HintKind::Termination,
        InstanceEvent::MaintenanceNotice => HintKind::Maintenance,
        InstanceEvent::NoticeOver => HintKind::NoticeOver,
    };
    let ids = [&event.provider_id, &event.cluster_id, &event.machine_uid];
    let named = !event.provider_id.is_empty()
        || (!event.cluster_id.is_empty() && !event.machine_uid.is_empty());
    // A shortened id is another id.
    if !named || ids.iter().any(|id| id.len() > WORD_BYTES) {
        return Err("NO_INSTANCE");
    }
    Ok(Hint {
        kind,
        provider_id: event.provider_id.into(),
        cluster_id: event.cluster_id,
        machine_uid: event.machine_uid.into(),
        effective_in: event.effective_in.and_then(|time| time.try_into().ok()),
        message: cut(event.message, MESSAGE_BYTES),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_if_it_says_what_happened_and_to_which_instance() {
        let event =
            |kind: i32, provider_id: &str, cluster_id: &str, machine_uid: &str| DriverEvent {
                kind,
                provider_id: provider_id.to_owned(),
                cluster_id: cluster_id.to_owned(),
                machine_uid: machine_uid.to_owned(),
                ..DriverEvent::default()
            };
        let long = "x".repeat(WORD_BYTES + 1);
        let cases = [
            (event(1, "a:///1", "", ""), Ok(HintKind::Gone)),
            (event(2, "", "c", "u"), Ok(HintKind::Changed)),
            (event(3, "a:///1", "c", "u"), Ok(HintKind::Termination)),
            (event(4, "a:///1", "", "u"), Ok(HintKind::Maintenance)),
            (event(5, "a:///1", "", ""), Ok(HintKind::NoticeOver)),
            (event(0, "a:///1", "", ""), Err("UNKNOWN_KIND")),
            (event(99, "a:///1", "", ""), Err("UNKNOWN_KIND")),
            (event(1, "", "", ""), Err("NO_INSTANCE")),
            (event(1, "", "c", ""), Err("NO_INSTANCE")),
            (event(1, "", "", "u"), Err("NO_INSTANCE")),
            (event(1, &long, "", ""), Err("NO_INSTANCE")),
        ];
        for (event, wanted) in cases {
            assert_eq!(hint_of(event.clone()).map(|hint| hint.kind), wanted, "{event:?}");
        }
    }

    #[test]
    fn a_message_is_cut_and_a_time_that_makes_no_sense_is_left_out() {
        let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let event = |effective_in| DriverEvent {
            kind: InstanceEvent::TerminationNotice.into(),
            provider_id: "a:///1".to_owned(),
            effective_in,
            message: "m".repeat(MESSAGE_BYTES + 1),
            ..DriverEvent::default()
        };
        let hint = hint_of(event(seconds(120))).unwrap();
        assert_eq!(hint.effective_in, Some(Duration::from_mins(2)));
        assert!(hint.message.len() <= MESSAGE_BYTES);
        assert_eq!(hint_of(event(seconds(-1))).unwrap().effective_in, None);
    }
}
