//! What a person sees: the story on stdout, problems and diagnostics on stderr. Together with [`crate::screen`] the only way
//! to the terminal, so that nothing gets there unescaped; a test of the repository looks for others.

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use kube::core::Status;
use ostler_controllers::message_of;
use ostler_server::{AuditArgs, Log, LogStyle};
use tracing_subscriber::EnvFilter;

use crate::{screen, terminal};

/// Sends diagnostics to stderr; `RUST_LOG` overrides the level.
pub(crate) fn init(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // A second subscriber in one process (tests) keeps the first.
    let _already_set = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Diagnostics)
        // Colours are control characters; what is not ours could hide behind them.
        .with_ansi(false)
        .try_init();
}

/// As [`init`], for a process that lives long: what one place says is bounded, and there may be an
/// audit log.
pub(crate) fn start(default: &str, audit: &AuditArgs) -> anyhow::Result<Log> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // As above.
    Log::start(filter, || Diagnostics, LogStyle::lines(false), audit)
}

/// Whether a person ended the process immediately.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Drops diagnostics from now on: writes that break off are expected.
pub(crate) fn end_diagnostics() {
    ENDED.store(true, Ordering::Relaxed);
}

/// Where diagnostics go: to stderr, above what stands at the bottom of the terminal.
struct Diagnostics;

impl Write for Diagnostics {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !ENDED.load(Ordering::Relaxed) {
            screen::above(|| record(&mut io::stderr(), bytes))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes a whole record, whose only line break is at its end.
fn record(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let text = String::from_utf8_lossy(bytes);
    writeln!(out, "{}", terminal::line(text.trim_end_matches('\n')))
}

/// Whether problems are shown on a terminal.
pub(crate) fn is_on_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Prints one line of the story, whatever is in it. A closed stdout is no reason to stop.
pub(crate) fn say(line: impl std::fmt::Display) {
    out(&terminal::line(&line.to_string()));
}

/// Prints several lines. The caller has escaped foreign text in them (`terminal::line`), so that it starts no line.
pub(crate) fn page(lines: impl std::fmt::Display) {
    out(&terminal::lines(&lines.to_string()));
}

/// Writes what another program reads, and has no foreign text in it: a script for a shell.
pub(crate) fn raw(bytes: &[u8]) {
    let _closed = screen::above(|| io::stdout().lock().write_all(bytes));
}

fn out(text: &str) {
    let _closed = screen::above(|| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush())
    });
}

/// Prints a line for people beside the answer, on stderr.
pub(crate) fn note(line: impl std::fmt::Display) {
    let text = terminal::line(&line.to_string());
    let _closed = screen::above(|| writeln!(std::io::stderr().lock(), "{text}"));
}

/// Prints an error and its causes, one to a line.
pub(crate) fn error(error: &anyhow::Error) {
    let text = causes(error);
    let _closed = screen::above(|| writeln!(std::io::stderr().lock(), "{text}"));
}

/// Parsers point at a place in several lines: all but the first are indented, so that they look like nothing else.
fn causes(error: &anyhow::Error) -> String {
    let shown = |text: String| terminal::lines(&text).replace('\n', "\n    ");
    // kube shows all fields of a refusal, and the refusal once more as its cause.
    let refusals = error.chain().filter(|it| !it.is::<Box<Status>>());
    let mut told: Vec<_> = refusals
        .map(|cause| shown(message_of(cause).unwrap_or_else(|| cause.to_string())))
        .collect();
    // Libraries pass an error on under its own words.
    told.dedup();
    format!("error: {}", told.join("\n  because: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::tests::{HOSTILE, assert_harmless};

    #[test]
    fn an_error_begins_no_line_with_the_words_of_others() {
        let error = anyhow::anyhow!("a driver said {HOSTILE}").context(HOSTILE);
        let text = causes(&error);
        assert_harmless(&text);
        let begins = |line: &str| ["error: ", "  because: ", "    "].map(|it| line.starts_with(it));
        assert!(text.lines().all(|line| begins(line).contains(&true)), "{text}");
    }

    #[test]
    fn a_cause_that_libraries_pass_on_is_told_once() {
        let error = anyhow::anyhow!("no such file").context("no such file").context("not read");
        assert_eq!(causes(&error), "error: not read\n  because: no such file");
    }

    #[test]
    fn a_refusal_of_the_api_server_is_told_once_and_in_its_words() {
        let refusal = Status::failure("spec.replicas must not be negative", "Invalid").boxed();
        let error =
            anyhow::Error::new(kube::Error::Api(refusal)).context("a.yaml was not accepted");
        let told = "error: a.yaml was not accepted\n  because: spec.replicas must not be negative";
        assert_eq!(causes(&error), told);
    }

    #[test]
    fn a_record_of_the_log_is_one_line() {
        let mut shown = Vec::new();
        record(&mut shown, format!("WARN a driver said {HOSTILE}\n").as_bytes()).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert_harmless(&shown);
        assert_eq!(shown.matches('\n').count(), 1);
    }
}
