//! Prints a table in Markdown.

/// Rows of cells. The first row is the header.
pub(crate) struct TextTable(Vec<Vec<String>>);

impl TextTable {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&cell| cell.to_owned()).collect()])
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }

    pub(crate) fn print(&self) {
        let columns = self.0[0].len();
        let width = |column: usize| self.0.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for (number, row) in self.0.iter().enumerate() {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!(" {cell:<width$} |"));
            println!("|{}", cells.collect::<String>());
            if number == 0 {
                let rules = widths.iter().map(|&width| format!("{}|", "-".repeat(width + 2)));
                println!("|{}", rules.collect::<String>());
            }
        }
        println!();
    }
}
