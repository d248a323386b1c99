//! What a person sees: the story on stdout, problems and diagnostics on stderr.

use std::io::{self, IsTerminal as _, Write};

use tracing_subscriber::EnvFilter;

use crate::screen;

/// Sends diagnostics to stderr; `RUST_LOG` overrides the level.
pub(crate) fn init(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // A second subscriber in one process (tests) keeps the first.
    let _already_set = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Diagnostics)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
}

/// Where diagnostics go: to stderr, above what stands at the bottom of the terminal.
struct Diagnostics;

impl Write for Diagnostics {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        screen::above(|| io::stderr().write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Prints one line of the story. A closed stdout is no reason to stop.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _closed = screen::above(|| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    });
}

/// Prints a line for people beside the answer, on stderr.
pub(crate) fn note(line: impl std::fmt::Display) {
    let _closed = screen::above(|| writeln!(std::io::stderr().lock(), "{line}"));
}

/// Prints an error and its causes, one to a line.
pub(crate) fn error(error: &anyhow::Error) {
    let mut err = std::io::stderr().lock();
    let _closed = writeln!(err, "error: {error}");
    for cause in error.chain().skip(1) {
        let _closed = writeln!(err, "  because: {cause}");
    }
}
