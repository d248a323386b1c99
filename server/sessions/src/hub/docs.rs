//! Keeps the page about the protocol fresh: its diagram and its timers come from here.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::diagram::mermaid;
use crate::Timing;

/// A timer, the default, and the purpose.
type Row = (&'static str, Duration, &'static str);

/// Every timer; a new one does not compile until it is here.
#[expect(clippy::too_many_lines, reason = "a line for every timer")]
fn timers() -> Vec<Row> {
    let Timing {
        hello,
        accept,
        acknowledge,
        grace,
        connect_interval,
        adoption,
        heartbeat,
        heartbeats_missed,
        resume_window,
        not_reading,
        not_ready,
        unclaimed,
        adopted,
        progress,
        progress_missed,
        checkpoint,
        throttled,
        throttled_longest,
        slow,
        reconnect_spread,
        max_age,
        token_margin,
        aged_close,
        drain,
        drain_grace,
        finish,
        shutdown,
        secret_cache,
    } = Timing::default();
    vec![
        ("Hello", hello, "from the start of the stream; else HELLO_TIMEOUT"),
        (
            "acceptance",
            accept,
            "from sending an operation; else a read is cancelled, and a mutation waits until the session ends",
        ),
        ("acknowledgement", acknowledge, "of a result, waits for another frame to go with"),
        ("grace", grace, "added to the time of an operation before the core gives up on it"),
        (
            "connect interval",
            connect_interval,
            "streams of one principal in the long run, after a burst",
        ),
        ("adoption window", adoption, "after a core began to lead; see Adoption"),
        ("heartbeat", heartbeat, "from the core; the driver answers each"),
        (
            "heartbeats missed",
            heartbeat * heartbeats_missed,
            "so long without an answer, and the session is lost at the next one",
        ),
        (
            "resume window",
            resume_window,
            "operations of a lost session wait for the driver's return",
        ),
        (
            "not reading",
            not_reading,
            "a frame may wait for the driver to read it; else NOT_READING",
        ),
        ("not ready", not_ready, "an active session may be NOT_READY while a ready one stands by"),
        ("unclaimed result", unclaimed, "a result that no controller records is dropped"),
        ("adopted operation", adopted, "an operation of an earlier core may still run"),
        ("progress", progress, "a driver says how far a long operation is"),
        (
            "stall",
            progress * progress_missed,
            "without progress, and an operation counts as stalled",
        ),
        (
            "checkpoint",
            checkpoint,
            "new checkpoints of one operation are stored at most this often",
        ),
        ("pause", throttled, "of creates, when the infrastructure throttles and names no time"),
        ("longest pause", throttled_longest, "that one answer of a driver can bring about"),
        ("slow", slow, "an operation waits longer for its credit: the driver is slow"),
        ("reconnect spread", reconnect_spread, "over which drivers come back when a core goes"),
        ("session age", max_age, "give or take a tenth; then the driver is asked to dial again"),
        ("token margin", token_margin, "a session ends so long before its token"),
        ("close of an old session", aged_close, "what runs may go on; the next session resumes it"),
        ("drain by hand", drain, "what runs may go on; the next session resumes it"),
        ("drain grace", drain_grace, "added to the deadline that a driver gives itself"),
        ("last answers", finish, "drivers may go on with reads when the core goes"),
        ("shutdown", shutdown, "connections may take to end when the core goes"),
        ("secret", secret_cache, "a driver may keep a secret"),
    ]
}

fn table() -> String {
    let mut text = "| timer | default | what |\n|---|---|---|\n".to_owned();
    for (name, time, what) in timers() {
        let _infallible = writeln!(text, "| {name} | {time:?} | {what} |");
    }
    text
}

/// Puts `text` between the markers of this name.
fn replace(page: &str, name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{text}{end}{after}")
}

#[test]
fn the_page_about_the_protocol_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let stored = std::fs::read_to_string(&path).unwrap();
    let text = replace(&stored, "stages", &format!("```mermaid\n{}```\n", mermaid()));
    let text = replace(&text, "timers", &table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
        return;
    }
    assert!(stored == text, "stale: UPDATE_DOCS=1 cargo test -p ostler-sessions --lib");
}
