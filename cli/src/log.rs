//! What a person sees: the story on stdout, problems and diagnostics on stderr.

use std::io::{IsTerminal as _, Write as _};

use tracing_subscriber::EnvFilter;

/// Sends diagnostics to stderr; `RUST_LOG` overrides the level.
pub(crate) fn init(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // A second subscriber in one process (tests) keeps the first.
    let _already_set = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
}

/// Prints one line of the story. A closed stdout is no reason to stop.
pub(crate) fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints a line for people beside the answer, on stderr.
pub(crate) fn note(line: impl std::fmt::Display) {
    let _closed = writeln!(std::io::stderr().lock(), "{line}");
}

/// Prints an error and its causes, one to a line.
pub(crate) fn error(error: &anyhow::Error) {
    let mut err = std::io::stderr().lock();
    let _closed = writeln!(err, "error: {error}");
    for cause in error.chain().skip(1) {
        let _closed = writeln!(err, "  because: {cause}");
    }
}
