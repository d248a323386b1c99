//! Columns that line up.

use jiff::SignedDuration;

use crate::terminal;

/// Between two columns.
const GAP: &str = "   ";

/// A heading and rows of as many cells.
#[derive(Debug, PartialEq, Eq)]
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
    fn a_table_without_rows_is_its_heading() {
        assert_eq!(render(&Table { heading: vec!["NAME", "AGE"], rows: Vec::new() }), "NAME   AGE");
    }
}
