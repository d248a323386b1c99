//! The mark by which orphans are only reported.
//!
//! An API that was restored from a backup knows nothing of the instances made since: to it they are
//! orphans, and they are the machines of users. So whenever the API may not be the API that made
//! the instances, they are kept until an operator has seen them. The mark stands in the ConfigMap
//! with the cluster id, where every core finds it and an operator can set it.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// The data of the ConfigMap, by key.
pub type Data = BTreeMap<String, String>;

/// Key of the mark. Whatever its value is, nothing is deleted.
const MARK: &str = "orphans";
/// The value that is written.
const REPORT_ONLY: &str = "report-only";
/// Key of the time of the mark.
const SINCE: &str = "orphansSince";
/// Key of the reason of the mark.
const REASON: &str = "orphansReason";
/// Key of the UID of the Lease that the last leader held.
const LEASE: &str = "lease";

/// Orphans are only reported, until an operator accepts that they are deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportOnly {
    /// When the mark was set, as written in the data; identifies the mark. Empty if a person set
    /// the mark.
    pub since: String,
    /// Why, for people.
    pub reason: String,
}

impl ReportOnly {
    /// A mark that is set now.
    pub fn new(now: Timestamp, reason: impl Into<String>) -> Self {
        Self { since: now.to_string(), reason: reason.into() }
    }

    /// The mark that stands there.
    pub fn of(data: &Data) -> Option<Self> {
        data.get(MARK)?;
        let text = |key| data.get(key).cloned().unwrap_or_default();
        let reason = Some(text(REASON)).filter(|reason| !reason.is_empty());
        let by_hand = || format!("key {MARK:?} was set by hand");
        Some(Self { since: text(SINCE), reason: reason.unwrap_or_else(by_hand) })
    }

    /// Sets the mark. An existing mark stays, since it is older.
    pub fn set(self, data: &mut Data) {
        if data.contains_key(MARK) {
            return;
        }
        data.insert(MARK.to_owned(), REPORT_ONLY.to_owned());
        data.insert(SINCE.to_owned(), self.since);
        data.insert(REASON.to_owned(), self.reason);
    }

    /// Takes the mark away.
    pub fn lift(data: &mut Data) {
        for key in [MARK, SINCE, REASON] {
            data.remove(key);
        }
    }
}

/// A leader holds the Lease with this UID: whether what stands there has to be changed.
///
/// Another Lease than the former leader's was deleted and made again: by hand, or since the API was
/// restored object by object. The core cannot tell the cause, so it sets the mark.
pub fn led_by(lease: &str, data: &mut Data, now: Timestamp) -> bool {
    let before = data.insert(LEASE.to_owned(), lease.to_owned());
    match before {
        Some(before) if before == lease => false,
        Some(before) => {
            let reason = format!(
                "the Lease of the leader was made again ({lease} after {before}), as it is when the API was restored"
            );
            ReportOnly::new(now, reason).set(data);
            true
        }
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_mark_reads_as_it_was_set_and_is_gone_once_it_is_lifted() {
        let mut data = Data::from([("clusterID".to_owned(), "c".to_owned())]);
        assert_eq!(ReportOnly::of(&data), None);
        let hold = ReportOnly::new(at(7), "restored");
        hold.clone().set(&mut data);
        assert_eq!(ReportOnly::of(&data), Some(hold));
        ReportOnly::lift(&mut data);
        assert_eq!(data, Data::from([("clusterID".to_owned(), "c".to_owned())]));
    }

    #[test]
    fn the_first_reason_stays_until_it_is_lifted() {
        let mut data = Data::new();
        ReportOnly::new(at(1), "first").set(&mut data);
        ReportOnly::new(at(2), "second").set(&mut data);
        assert_eq!(ReportOnly::of(&data), Some(ReportOnly::new(at(1), "first")));
    }

    #[test]
    fn a_mark_set_by_hand_holds_whatever_its_value_is() {
        for value in ["report-only", "report", "delete", ""] {
            let data = Data::from([("orphans".to_owned(), value.to_owned())]);
            assert!(ReportOnly::of(&data).unwrap().reason.contains("by hand"), "{value:?}");
        }
    }

    #[test]
    fn another_lease_than_the_last_leaders_sets_the_mark_and_the_same_one_does_not() {
        let mut data = Data::new();
        assert!(led_by("one", &mut data, at(1)), "it is written down");
        assert_eq!(ReportOnly::of(&data), None, "the first leader of all");
        assert!(!led_by("one", &mut data, at(2)));
        assert_eq!(ReportOnly::of(&data), None);
        assert!(led_by("two", &mut data, at(3)));
        let hold = ReportOnly::of(&data).unwrap();
        assert!(hold.reason.contains("two after one"), "{hold:?}");
        assert!(!led_by("two", &mut data, at(4)));
        assert_eq!(ReportOnly::of(&data), Some(hold), "until an operator accepts it");
    }
}
