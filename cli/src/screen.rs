//! A terminal with lines that go up and a table that stays at the bottom. In a window that becomes narrower, terminals wrap the
//! rows that are there: the inline viewports of indicatif 0.18 and ratatui 0.29 then leave rows of the table among the lines
//! and remove lines (tried in tmux, 100 to 60 to 100 columns), so rows are counted here.

use std::io::{self, Write};
use std::sync::OnceLock;

use console::{Term, measure_text_width};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use parking_lot::Mutex;

/// Between BEGIN and END, a terminal that can do so shows all changes in one step.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

/// Set once there is something to keep at the bottom.
static SCREEN: OnceLock<Mutex<Screen>> = OnceLock::new();

/// The lines at the bottom of the screen.
#[derive(Debug, Default)]
struct Screen {
    bottom: Vec<String>,
    /// The width of each line of it that stands on the terminal.
    drawn: Vec<usize>,
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
    let _closed = screen.draw(&mut io::stdout().lock(), size().1, |_| Ok(()));
}

/// Puts a page at the bottom, as much of it as the terminal has room for: long lines wrap, and are not cut. Foreign text in it has been
/// escaped.
pub(crate) fn keep_page(page: &str) {
    let (rows, columns) = size();
    keep_at_bottom(fitting(page, rows.saturating_sub(2), columns));
}

/// The first lines of a page that fit, and how many more there are.
fn fitting(page: &str, room: usize, columns: usize) -> Vec<String> {
    let mut used = 0;
    let fits = |line: &&str| {
        used += rows_of(measure_text_width(line), columns);
        used <= room
    };
    let mut lines: Vec<_> = page.lines().take_while(fits).map(str::to_owned).collect();
    let left = page.lines().count() - lines.len();
    if left > 0 {
        lines.push(format!("… and {left} more lines"));
    }
    lines
}

/// How many rows a line of this width takes.
fn rows_of(width: usize, columns: usize) -> usize {
    width.div_ceil(columns.max(1)).max(1)
}

/// Writes to stdout or stderr, above what stands at the bottom.
pub(crate) fn above(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let Some(screen) = SCREEN.get() else { return write() };
    screen.lock().draw(&mut io::stdout(), size().1, |_| write())
}

/// Whether the terminal shows what is typed, which would cut into the table. Only the process in its foreground may say so.
pub(crate) fn echo(shown: bool) {
    let terminal = io::stdin();
    if tcgetpgrp(&terminal) != Ok(getpgrp()) {
        return;
    }
    let Ok(mut settings) = tcgetattr(&terminal) else { return };
    settings.local_flags.set(LocalFlags::ECHO, shown);
    let _refused = tcsetattr(&terminal, SetArg::TCSANOW, &settings);
}

impl Screen {
    /// Removes the bottom, calls `write`, and draws the bottom again. The terminal has so many columns now.
    fn draw<W: Write>(
        &mut self,
        out: &mut W,
        columns: usize,
        write: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        let rows: usize = self.drawn.iter().map(|&width| rows_of(width, columns)).sum();
        write!(out, "{BEGIN}")?;
        if rows > 0 {
            // Up to its first line, and nothing from there on.
            write!(out, "\r\x1b[{rows}A\x1b[J")?;
        }
        out.flush()?;
        self.drawn.clear();
        write(out)?;
        for line in &self.bottom {
            writeln!(out, "{line}")?;
            self.drawn.push(measure_text_width(line));
        }
        write!(out, "{END}")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(screen: &mut Screen, columns: usize, line: &str) -> String {
        let mut out = Vec::new();
        screen.draw(&mut out, columns, |out| out.write_all(line.as_bytes())).unwrap();
        String::from_utf8(out).unwrap().replace(BEGIN, "").replace(END, "")
    }

    #[test]
    fn lines_go_above_what_stays_at_the_bottom() {
        let mut screen = Screen { bottom: vec!["table".into(), "row".into()], drawn: Vec::new() };
        assert_eq!(drawn(&mut screen, 80, "first\n"), "first\ntable\nrow\n");
        assert_eq!(drawn(&mut screen, 80, "second\n"), "\r\x1b[2A\x1b[Jsecond\ntable\nrow\n");
        screen.bottom.clear();
        assert_eq!(drawn(&mut screen, 80, ""), "\r\x1b[2A\x1b[J");
        assert_eq!(drawn(&mut screen, 80, "last\n"), "last\n");
    }

    #[test]
    fn of_a_page_that_is_too_long_the_first_lines_are_shown_whole() {
        let page = "short\n0123456789\nlast";
        assert_eq!(fitting(page, 4, 5), ["short", "0123456789", "last"]);
        assert_eq!(fitting(page, 3, 5), ["short", "0123456789", "… and 1 more lines"]);
        assert_eq!(fitting(page, 2, 5), ["short", "… and 2 more lines"]);
    }

    #[test]
    fn the_rows_into_which_a_narrower_window_wraps_the_bottom_are_removed_too() {
        let wide = "x".repeat(100);
        let mut screen = Screen { bottom: vec![wide, String::new()], drawn: Vec::new() };
        drawn(&mut screen, 100, "");
        screen.bottom.clear();
        // Two rows of 60 columns, and the empty one.
        assert_eq!(drawn(&mut screen, 60, ""), "\r\x1b[3A\x1b[J");
    }
}
