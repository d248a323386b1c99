//! A driver's own report on a Machine's instance, until the core has looked.

use jiff::Timestamp;
use ostler_api::{
    Machine, ProviderId,
    hint::{Hint, HintKind},
    machine::NoticeReason,
};

use crate::time::after;

/// An announcement from the infrastructure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The kind of announcement.
    pub reason: NoticeReason,
    /// The time of the event, if known.
    pub at: Option<Timestamp>,
    /// For people.
    pub message: String,
}

/// Whether the owner of a Machine replaces it now: the infrastructure said that it ends the instance. No replacement budget
/// holds that, since the instance ends anyway. Once the time is over, the instance is gone, or the announcement was wrong.
pub(crate) fn is_to_be_replaced(machine: &Machine, now: Timestamp) -> bool {
    let notice = machine.status.as_ref().and_then(|status| status.instance_notice.as_ref());
    notice.is_some_and(|it| it.replaces && it.effective_at.as_ref().is_none_or(|at| at.0 > now))
}

/// What became known of announcements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// There is an announcement.
    Announced(Notice),
    /// The announced event is over, or was called off.
    Over,
}

/// All reports on an instance since the core last looked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HintView {
    /// The driver said that the instance is gone, or found none when asked for another reason.
    pub gone: bool,
    /// The instance that the driver called gone, if named.
    pub lost: Option<ProviderId>,
    /// The driver's announcements.
    pub news: Option<News>,
    /// A read was sent for it.
    pub asked: bool,
    /// How many reads failed since something was said.
    pub failed: u32,
    /// Not to be looked into before, since the last read failed or found none.
    pub not_before: Option<Timestamp>,
}

/// A pass's use of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintUse {
    /// The pass sends a read.
    Asks,
    /// The read failed; the next read is due then.
    AsksAgain(Timestamp),
    /// A read found no instance, also without a hint; another read is due then, and proves the
    /// absence.
    Missed(Timestamp),
    /// Nothing is left to do.
    Done,
}

impl HintView {
    /// Takes another hint in, which came at `now`. Only a later read answers the hint.
    pub fn add(&mut self, hint: &Hint, now: Timestamp) {
        let announced = |reason| {
            Some(News::Announced(Notice {
                reason,
                at: hint.effective_in.map(|time| after(now, time)),
                message: hint.message.clone(),
            }))
        };
        (self.asked, self.failed, self.not_before) = (false, 0, None);
        if hint.kind == HintKind::Gone {
            self.gone = true;
            self.lost = Some(hint.provider_id.clone()).filter(|id| !id.is_empty());
        }
        let news = match hint.kind {
            HintKind::Gone | HintKind::Changed => None,
            HintKind::Termination => announced(NoticeReason::TerminationNotice),
            HintKind::Maintenance => announced(NoticeReason::MaintenanceNotice),
            HintKind::NoticeOver => Some(News::Over),
        };
        let ends = matches!(&self.news, Some(News::Announced(notice))
            if notice.reason == NoticeReason::TerminationNotice);
        if news.is_some() && !(ends && hint.kind == HintKind::Maintenance) {
            self.news = news;
        }
    }
}

impl HintView {
    /// The open hint after a pass; `None`: nothing is left to do.
    pub fn used(open: Option<Self>, how: HintUse) -> Option<Self> {
        match how {
            HintUse::Done => None,
            HintUse::Asks => open.map(|open| Self { asked: true, ..open }),
            HintUse::AsksAgain(at) => open.map(|open| {
                let failed = open.failed + 1;
                Self { asked: false, not_before: Some(at), failed, ..open }
            }),
            HintUse::Missed(at) => {
                let open = open.unwrap_or_default();
                Some(Self { gone: true, asked: false, not_before: Some(at), ..open })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hint(kind: HintKind) -> Hint {
        Hint {
            kind,
            provider_id: "a:///1".into(),
            cluster_id: String::new(),
            machine_uid: "".into(),
            effective_in: Some(Duration::from_mins(2)),
            message: "so it says".to_owned(),
        }
    }

    fn after_hints(kinds: &[HintKind]) -> HintView {
        let mut view = HintView { asked: true, ..HintView::default() };
        for kind in kinds {
            view.add(&hint(*kind), Timestamp::UNIX_EPOCH);
        }
        view
    }

    fn reason(view: &HintView) -> Option<&NoticeReason> {
        match view.news.as_ref()? {
            News::Announced(notice) => Some(&notice.reason),
            News::Over => None,
        }
    }

    #[test]
    fn another_hint_needs_another_look() {
        assert!(!after_hints(&[HintKind::Changed]).asked);
    }

    #[test]
    fn that_an_instance_is_gone_is_not_forgotten_over_what_is_said_later() {
        assert!(after_hints(&[HintKind::Gone, HintKind::Changed]).gone);
        assert!(!after_hints(&[HintKind::Changed]).gone);
    }

    #[test]
    fn of_several_announcements_the_last_counts_unless_the_instance_will_end() {
        use HintKind::{Changed, Maintenance, NoticeOver, Termination};
        let cases: [(&[HintKind], Option<NoticeReason>); 5] = [
            (&[Maintenance, Termination], Some(NoticeReason::TerminationNotice)),
            (&[Termination, Maintenance], Some(NoticeReason::TerminationNotice)),
            (&[Termination, Changed], Some(NoticeReason::TerminationNotice)),
            (&[Termination, NoticeOver], None),
            (&[NoticeOver, Maintenance], Some(NoticeReason::MaintenanceNotice)),
        ];
        for (kinds, wanted) in cases {
            assert_eq!(reason(&after_hints(kinds)), wanted.as_ref(), "{kinds:?}");
        }
    }

    #[test]
    fn the_time_of_an_announcement_counts_from_when_it_came() {
        let view = after_hints(&[HintKind::Termination]);
        let Some(News::Announced(notice)) = view.news else { panic!("nothing announced") };
        assert_eq!(notice.at, Some(Timestamp::from_second(120).unwrap()));
    }
}
