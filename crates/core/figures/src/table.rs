//! Small tables of plain text: a header, columns aligned left or right, nothing drawn.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// Blanks between two columns.
const GAP: usize = 2;

/// A table that is filled row by row and then formatted as text.
///
/// ```
/// use wb_figures::table::Table;
/// let mut table = Table::new().left("port").right("frames");
/// table.row(["a", "1,000"]);
/// table.row(["b", "90"]);
/// assert_eq!(table.text(2), "  port  frames\n  a      1,000\n  b         90\n");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without columns.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column of words.
    #[must_use]
    pub fn left(mut self, title: impl Into<String>) -> Self {
        self.columns.push((title.into(), Align::Left));
        self
    }

    /// Adds a column of figures.
    #[must_use]
    pub fn right(mut self, title: impl Into<String>) -> Self {
        self.columns.push((title.into(), Align::Right));
        self
    }

    /// Adds a row. Missing cells stay blank; surplus cells are left out.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// Returns true if the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes the columns in which every cell is blank.
    #[must_use]
    pub fn without_blank_columns(mut self) -> Self {
        let keep: Vec<bool> = (0..self.columns.len())
            .map(|i| self.rows.iter().any(|row| !row[i].is_empty()))
            .collect();
        let kept = |i: &mut usize| {
            *i += 1;
            keep[*i - 1]
        };
        let mut i = 0;
        self.columns.retain(|_| kept(&mut i));
        for row in &mut self.rows {
            let mut i = 0;
            row.retain(|_| kept(&mut i));
        }
        self
    }

    /// One line for the header, if any column has a title, and one for each row, all behind
    /// `indent` blanks.
    #[must_use]
    pub fn lines(&self, indent: usize) -> Vec<String> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        self.lines_of(&all, indent)
    }

    /// The whole table, however wide.
    #[must_use]
    pub fn text(&self, indent: usize) -> String {
        joined(&self.lines(indent))
    }

    /// The table in blocks of columns, each at most `width` wide if its columns allow: as few as
    /// possible, and about equally wide. The first `keys` columns are repeated in each block.
    #[must_use]
    pub fn blocks(&self, indent: usize, keys: usize, width: usize) -> Vec<Vec<String>> {
        let mut split = self.split(indent, keys, width);
        for narrower in (0..width).rev() {
            let more = self.split(indent, keys, narrower);
            if more.len() > split.len() {
                break;
            }
            split = more;
        }
        split
            .iter()
            .map(|columns| self.lines_of(columns, indent))
            .collect()
    }

    /// Columns of each block: as many as fit, then the next block.
    fn split(&self, indent: usize, keys: usize, width: usize) -> Vec<Vec<usize>> {
        let keys: Vec<usize> = (0..keys.min(self.columns.len())).collect();
        let used: usize = indent + keys.iter().map(|i| self.width(*i) + GAP).sum::<usize>();
        let mut blocks = Vec::new();
        let mut block = keys.clone();
        let mut at = used;
        for i in keys.len()..self.columns.len() {
            let needed = self.width(i) + GAP;
            if block.len() > keys.len() && at + needed > width + GAP {
                blocks.push(block);
                block = keys.clone();
                at = used;
            }
            block.push(i);
            at += needed;
        }
        blocks.push(block);
        blocks
    }

    /// [`Table::blocks`] as text.
    #[must_use]
    pub fn text_within(&self, indent: usize, keys: usize, width: usize) -> String {
        let blocks: Vec<String> = self
            .blocks(indent, keys, width)
            .iter()
            .map(|lines| joined(lines))
            .collect();
        blocks.join("\n")
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([self.columns[column].0.chars().count()])
            .max()
            .unwrap_or(0)
    }

    fn lines_of(&self, columns: &[usize], indent: usize) -> Vec<String> {
        let widths: Vec<usize> = columns.iter().map(|i| self.width(*i)).collect();
        let line = |cell: &dyn Fn(usize) -> String| {
            let mut text = " ".repeat(indent);
            for (i, width) in columns.iter().zip(&widths) {
                let cell = cell(*i);
                match self.columns[*i].1 {
                    Align::Left => text.push_str(&format!("{cell:<width$}")),
                    Align::Right => text.push_str(&format!("{cell:>width$}")),
                }
                text.push_str(&" ".repeat(GAP));
            }
            text.truncate(text.trim_end().len());
            text
        };
        let header = columns
            .iter()
            .any(|i| !self.columns[*i].0.is_empty())
            .then(|| line(&|i| self.columns[i].0.clone()));
        header
            .into_iter()
            .chain(self.rows.iter().map(|row| line(&|i| row[i].clone())))
            .collect()
    }
}

fn joined(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new().left("k").right("one").left("no").right("two");
        table.row(["a", "1", "", "22"]);
        table.row(["bb", "100", "", "3"]);
        table
    }

    #[test]
    fn figures_stand_under_each_other() {
        assert_eq!(
            sample().without_blank_columns().text(1),
            " k   one  two\n a     1   22\n bb  100    3\n"
        );
        assert_eq!(sample().lines(0)[1], "a     1       22");
    }

    #[test]
    fn wide_tables_break_between_columns() {
        let table = sample().without_blank_columns();
        assert_eq!(
            table.text_within(0, 1, 9),
            "k   one\na     1\nbb  100\n\nk   two\na    22\nbb    3\n"
        );
        assert_eq!(table.text_within(0, 1, 12), table.text(0));
        assert_eq!(table.blocks(0, 1, 11).len(), 2);
        assert_eq!(table.blocks(0, 1, 0).len(), 2);
    }

    #[test]
    fn short_rows_and_no_header() {
        let mut table = Table::new().left("").left("");
        assert!(table.is_empty());
        table.row(["x"]);
        table.row(["y", "z", "left out"]);
        assert_eq!(table.text(0), "x\ny  z\n");
    }
}
