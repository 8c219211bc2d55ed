//! A report as headings, sentences, tables and plots: what all its forms are written from.

use super::plot::Plot;
use crate::figures::UNKNOWN;

/// A report, from top to bottom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// What it is about.
    pub title: String,
    /// How each run came out: its name (empty for the only one), the word, and why.
    pub verdicts: Vec<Outcome>,
    /// The rest.
    pub sections: Vec<Section>,
}

/// How a run came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of several runs, which.
    pub run: String,
    /// How it is meant.
    pub mark: Mark,
    /// `PASS`.
    pub word: String,
    /// Why, in a sentence.
    pub reason: String,
}

/// A part with a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// What it holds.
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
    /// A picture that is drawn already, as SVG.
    Picture(String),
    /// Text whose blanks and line ends count, below a word to open it by.
    Code(String, String),
}

/// How something is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Neither.
    #[default]
    Plain,
    /// As it should be, or better.
    Good,
    /// Not, or worse.
    Bad,
}

/// Rows of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Above it; empty for none.
    pub caption: String,
    /// Of the columns; figures are ranged right.
    pub head: Vec<(String, Side)>,
    /// As many cells as columns.
    pub rows: Vec<Vec<Cell>>,
}

/// Where the text of a column stands.
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
    /// What it says.
    pub text: String,
    /// How it is meant.
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
    /// One that is meant so.
    #[must_use]
    pub fn marked(text: impl Into<String>, mark: Mark) -> Self {
        Self {
            text: text.into(),
            mark,
        }
    }
}

impl Table {
    /// Columns by their names; those behind a `>` hold figures.
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

    /// Without the columns in which nothing is known.
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
    /// An empty one.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            blocks: Vec::new(),
        }
    }

    /// Adds a table that has rows.
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
    /// Adds a section that holds something.
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
