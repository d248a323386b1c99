//! A terminal with lines that go up and a table that stays at the bottom.

use std::io::{self, Write};
use std::sync::OnceLock;

use console::Term;
use parking_lot::Mutex;

/// Set once there is something to keep at the bottom.
static SCREEN: OnceLock<Mutex<Screen>> = OnceLock::new();

/// What stands at the bottom.
#[derive(Debug, Default)]
struct Screen {
    bottom: Vec<String>,
    drawn: usize,
}

/// Whether a table can stay at the bottom of stdout: it is a terminal that can move its cursor.
pub(crate) fn is_live() -> bool {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    Term::stdout().features().is_attended() && !dumb
}

/// Rows and columns of the terminal.
pub(crate) fn size() -> (usize, usize) {
    let (rows, columns) = Term::stdout().size();
    (rows.into(), columns.into())
}

/// Puts lines at the bottom, in the place of those that are there. A closed stdout is no reason to
/// stop.
pub(crate) fn keep_at_bottom(lines: Vec<String>) {
    let mut screen = SCREEN.get_or_init(Mutex::default).lock();
    screen.bottom = lines;
    let _closed = screen.draw(&mut io::stdout().lock(), |_| Ok(()));
}

/// Writes to stdout or stderr, above what stands at the bottom.
pub(crate) fn above(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let Some(screen) = SCREEN.get() else { return write() };
    screen.lock().draw(&mut io::stdout(), |_| write())
}

impl Screen {
    /// Removes the bottom, calls `write`, and draws the bottom again.
    fn draw<W: Write>(
        &mut self,
        out: &mut W,
        write: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.drawn > 0 {
            // Up to its first line, and nothing from there on.
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
            out.flush()?;
        }
        self.drawn = 0;
        write(out)?;
        for line in &self.bottom {
            writeln!(out, "{line}")?;
            self.drawn += 1;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_above_what_stays_at_the_bottom() {
        let mut out = Vec::new();
        let mut screen = Screen { bottom: vec!["table".into(), "row".into()], drawn: 0 };
        screen.draw(&mut out, |out| writeln!(out, "first")).unwrap();
        screen.draw(&mut out, |out| writeln!(out, "second")).unwrap();
        screen.bottom.clear();
        screen.draw(&mut out, |_| Ok(())).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "first\ntable\nrow\n\x1b[2A\x1b[Jsecond\ntable\nrow\n\x1b[2A\x1b[J");
    }
}
