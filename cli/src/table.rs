//! Columns that line up.

use jiff::SignedDuration;
use serde::Serialize;

use crate::terminal;

/// Between two columns.
const GAP: &str = "   ";

/// A heading and rows of as many cells.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Table {
    pub(crate) heading: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The table as text, without white space at the ends of lines. An empty cell is `-`, and each cell is in its line.
pub(crate) fn render(table: &Table) -> String {
    let heading: Vec<String> = table.heading.iter().map(|&cell| cell.to_owned()).collect();
    let rows = table.rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(heading.clone()).chain(rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        padded.join(GAP).trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// So much of a name stays.
const LEAST_NAME: usize = 16;

/// As [`render`], for a terminal with so many columns. Columns with nothing in them go; then, while it is too wide, those of `less`, the
/// first one first; then the names of the first column are shortened.
pub(crate) fn fit(mut table: Table, columns: usize, less: &[&str]) -> String {
    let used = |table: &Table, column: usize| {
        table.rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()))
    };
    for column in (1..table.heading.len()).rev() {
        if !used(&table, column) {
            table.remove(column);
        }
    }
    for heading in less {
        if width(&table) <= columns {
            break;
        }
        if let Some(column) = table.heading.iter().position(|it| it == heading) {
            table.remove(column);
        }
    }
    let over = width(&table).saturating_sub(columns);
    if over > 0 {
        let names = || table.rows.iter().filter_map(|row| row.first());
        let widest = names().map(|name| name.chars().count()).max().unwrap_or(0);
        let room = widest.saturating_sub(over).max(LEAST_NAME);
        for name in table.rows.iter_mut().filter_map(|row| row.first_mut()) {
            *name = shortened(name, room);
        }
    }
    render(&table)
}

impl Table {
    fn remove(&mut self, column: usize) {
        self.heading.remove(column);
        for row in self.rows.iter_mut().filter(|row| column < row.len()) {
            row.remove(column);
        }
    }
}

fn width(table: &Table) -> usize {
    render(table).lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// A long name is cut in the middle: people tell machines of a set apart by the ends of their names.
fn shortened(name: &str, room: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= room {
        return name.to_owned();
    }
    let end = room / 2;
    let begin = letters.iter().take(room - end - 1);
    begin.chain(std::iter::once(&'…')).chain(letters.iter().skip(letters.len() - end)).collect()
}

fn shown(cell: &str) -> String {
    if cell.is_empty() { "-".to_owned() } else { terminal::line(cell) }
}

/// `2h5m`, `3m2s`, `4s`: two units are enough.
pub(crate) fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes}m"),
        (_, _, _) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let table = Table {
            heading: vec!["NAME", "STATE", "AGE"],
            rows: vec![row(["ä-long-name", "", "1s"]), row(["b", "accepted", ""])],
        };
        let expected = "\
NAME          STATE      AGE
ä-long-name   -          1s
b             accepted   -";
        assert_eq!(render(&table), expected);
    }

    #[test]
    fn a_cell_begins_no_line_and_says_nothing_to_the_terminal() {
        use crate::terminal::tests::{HOSTILE, assert_harmless};
        let row = [HOSTILE, "b"].map(str::to_owned).to_vec();
        let shown = render(&Table { heading: vec!["NAME", "AGE"], rows: vec![row] });
        assert_harmless(&shown);
        assert_eq!(shown.lines().count(), 2);
    }

    #[test]
    fn what_matters_least_goes_from_a_table_that_is_too_wide_and_names_keep_their_ends() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let table = || Table {
            heading: vec!["NAME", "WAITS FOR", "NODE", "ZONE"],
            rows: vec![
                row(["workers-7c9d4-of-a-long-name-hdkfn", "CapacityExhausted", "node-1", ""]),
                row(["b", "", "", ""]),
            ],
        };
        let lines = |columns| {
            let text = fit(table(), columns, &["NODE"]);
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(80)[1], "workers-7c9d4-of-a-long-name-hdkfn   CapacityExhausted   node-1");
        assert_eq!(lines(60)[1], "workers-7c9d4-of-a-long-name-hdkfn   CapacityExhausted");
        assert_eq!(lines(40)[1], "workers-7…name-hdkfn   CapacityExhausted");
        assert_eq!(lines(10)[1], "workers…me-hdkfn   CapacityExhausted", "the reason is never cut");
    }

    #[test]
    fn a_table_without_rows_is_its_heading() {
        assert_eq!(render(&Table { heading: vec!["NAME", "AGE"], rows: Vec::new() }), "NAME   AGE");
    }
}
