//! A table of text with aligned columns.

use std::fmt;

/// Rows, the first of which may be a head.
#[derive(Debug)]
pub(crate) struct TextTable(Vec<Vec<String>>);

impl TextTable {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|it| (*it).to_owned()).collect()])
    }

    /// A table without a head.
    pub(crate) const fn bare() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(cells.map(|cell| plain(&cell)).into());
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.first().map_or(0, Vec::len);
        let width = |column: usize| self.0.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<_> = (0..columns).map(|it| width(it).unwrap_or_default()).collect();
        for row in &self.0 {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Replaces control characters: text from a record must not move the cursor or fake a line.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_escapes() {
        let mut table = TextTable::new(&["KEY", "ID"]);
        table.row(["0a".to_owned(), "order\u{1b}[2J\n-42".to_owned()]);
        table.row(["0b0b0b".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "KEY     ID\n0a      order\u{fffd}[2J\u{fffd}-42\n0b0b0b\n");
    }
}
