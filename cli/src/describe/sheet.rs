//! The lines of any page. Pure.

use std::fmt::Write as _;

use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::terminal;

/// A page that grows line by line. Text of other parties never starts a line.
pub(super) struct Page {
    text: String,
    width: usize,
}

impl Page {
    /// With room for short names.
    pub(super) const fn narrow() -> Self {
        Self { text: String::new(), width: 10 }
    }

    /// With room for long names.
    pub(super) const fn wide() -> Self {
        Self { text: String::new(), width: 19 }
    }

    pub(super) fn text(self) -> String {
        self.text
    }

    pub(super) fn line(&mut self, name: &str, value: &str) {
        let (name, value) = (terminal::line(name), terminal::line(value));
        let width = self.width.max(name.chars().count() + 1);
        let _infallible = writeln!(self.text, "{}", format!("{name:<width$}{value}").trim_end());
    }

    /// The reason of a wait, and hints.
    pub(super) fn waits(&mut self, lines: &[String]) {
        for (at, line) in lines.iter().enumerate() {
            self.line(if at == 0 { "Waits for" } else { "" }, line);
        }
    }

    pub(super) fn chapter(&mut self, name: &str) {
        let _infallible = writeln!(self.text, "\n{name}");
    }

    pub(super) fn entry(&mut self, text: &str) {
        let _infallible = writeln!(self.text, "  {}", terminal::line(text.trim_end()));
    }
}

/// One line for each condition of an object.
pub(super) fn condition_lines(page: &mut Page, conditions: &[Condition]) {
    for condition in conditions {
        let about = if condition.message.is_empty() {
            condition.reason.clone()
        } else {
            format!("{}: {}", condition.reason, condition.message)
        };
        page.line(&condition.type_, &format!("{} ({about})", condition.status));
    }
}

pub(super) fn event_lines(page: &mut Page, events: &[Event], now: Timestamp) {
    if events.is_empty() {
        return;
    }
    page.chapter("Events");
    for event in events {
        let at = time_of(event).map(|at| clock(&Time(at), now)).unwrap_or_default();
        let mark = if event.type_.as_deref() == Some("Warning") { "!" } else { " " };
        let reason = event.reason.as_deref().unwrap_or_default();
        let note = event.note.as_deref().unwrap_or_default();
        let times = event.series.as_ref().map(|series| format!(" (x{})", series.count));
        let times = times.unwrap_or_default();
        page.entry(&format!("{at:<8} {mark}{reason}: {note}{times}"));
    }
}

/// When an Event happened last.
pub(crate) fn time_of(event: &Event) -> Option<Timestamp> {
    let last = event.series.as_ref().map(|series| series.last_observed_time.0);
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

/// The time, with the date unless the date is today.
pub(super) fn clock(time: &Time, now: Timestamp) -> String {
    let [time, now] = [time.0, now].map(|it| it.to_zoned(TimeZone::system()));
    let format = if time.date() == now.date() { "%H:%M:%S" } else { "%F %H:%M:%S" };
    time.strftime(format).to_string()
}
