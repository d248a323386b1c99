//! Columns that line up.

/// Between two columns.
const GAP: &str = "   ";

/// A heading and rows of as many cells.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) heading: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The table as text, without white space at the ends of lines. An empty cell is `-`.
pub(super) fn render(table: &Table) -> String {
    let heading: Vec<String> = table.heading.iter().map(|&cell| cell.to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&heading).chain(&table.rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| shown(cell).chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{:<width$}", shown(cell)))
            .collect();
        padded.join(GAP).trim_end().to_owned()
    };
    lines.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn shown(cell: &str) -> &str {
    if cell.is_empty() { "-" } else { cell }
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
    fn a_table_without_rows_is_its_heading() {
        assert_eq!(render(&Table { heading: vec!["NAME", "AGE"], rows: Vec::new() }), "NAME   AGE");
    }
}
