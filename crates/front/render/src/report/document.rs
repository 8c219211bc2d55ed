//! A report as headings, sentences, tables and plots, from which all its forms are written.

use super::plot::Plot;
use crate::figures::UNKNOWN;

/// A report, from top to bottom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Title of the report.
    pub title: String,
    /// Verdict of each run.
    pub verdicts: Vec<Outcome>,
    /// Main figures of the run.
    pub tiles: Vec<Tile>,
    /// Sections, in order.
    pub sections: Vec<Section>,
}

/// Verdict of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Name of the run; empty if there is only one.
    pub run: String,
    /// Meaning of the verdict.
    pub mark: Mark,
    /// Word of the verdict: `PASS`.
    pub word: String,
    /// Reason, in a sentence.
    pub reason: String,
}

/// A main figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Its name.
    pub label: String,
    /// Its value.
    pub value: Cell,
}

/// A part with a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Contents.
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A sentence that must not be missed.
    Warning(String),
    /// Figures.
    Table(Table),
    /// A picture.
    Plot(Plot),
    /// A finished picture, as SVG.
    Picture(String),
    /// Preformatted text, below a summary that opens it.
    Code(String, String),
}

/// Meaning of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Neither good nor bad.
    #[default]
    Plain,
    /// Expected, or better.
    Good,
    /// Not expected, or worse.
    Bad,
}

/// Rows of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Caption above the table; empty for none.
    pub caption: String,
    /// Titles of the columns; figures are aligned right.
    pub head: Vec<(String, Side)>,
    /// Rows, each with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Words.
    #[default]
    Left,
    /// Figures.
    Right,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Text of the cell.
    pub text: String,
    /// Meaning of the text.
    pub mark: Mark,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            mark: Mark::Plain,
        }
    }
}

impl Cell {
    /// A cell with this meaning.
    #[must_use]
    pub fn marked(text: impl Into<String>, mark: Mark) -> Self {
        Self {
            text: text.into(),
            mark,
        }
    }
}

impl Table {
    /// A table with these column names; those after a `>` hold figures.
    #[must_use]
    pub fn new(caption: &str, head: &[&str]) -> Self {
        let side = |name: &&str| match name.strip_prefix('>') {
            Some(name) => (name.to_owned(), Side::Right),
            None => ((*name).to_owned(), Side::Left),
        };
        Self {
            caption: caption.to_owned(),
            head: head.iter().map(side).collect(),
            rows: Vec::new(),
        }
    }

    /// Removes the columns without any known value.
    #[must_use]
    pub fn known(mut self) -> Self {
        let says = |cell: &Cell| !["", UNKNOWN].contains(&cell.text.as_str());
        let kept: Vec<bool> = (0..self.head.len())
            .map(|i| self.rows.iter().any(|row| says(&row[i])))
            .collect();
        let mut keep = kept.iter();
        self.head.retain(|_| keep.next() == Some(&true));
        for row in &mut self.rows {
            let mut keep = kept.iter();
            row.retain(|_| keep.next() == Some(&true));
        }
        self
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        row.resize(self.head.len(), Cell::default());
        self.rows.push(row);
    }
}

impl Section {
    /// An empty section.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            blocks: Vec::new(),
        }
    }

    /// Adds a table, unless it has no rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// Adds a plot, if there is one.
    pub fn plot(&mut self, plot: Option<Plot>) {
        self.blocks.extend(plot.map(Block::Plot));
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }
}

impl Document {
    /// Adds a section, unless it is empty.
    pub fn section(&mut self, section: Section) {
        if !section.blocks.is_empty() {
            self.sections.push(section);
        }
    }

    /// All plots, in order.
    pub fn plots(&self) -> impl Iterator<Item = &Plot> {
        let blocks = self.sections.iter().flat_map(|s| &s.blocks);
        blocks.filter_map(|block| match block {
            Block::Plot(plot) => Some(plot),
            _ => None,
        })
    }
}
