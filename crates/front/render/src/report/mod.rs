//! A report to hand over: one page, or text, tables and pictures, of one run or a comparison of several.
//!
//! [`document`] builds the contents once; [`html`], [`markdown`], [`csv`] and [`svg`] write them.

mod compare;
mod content;
mod csv;
mod document;
mod html;
mod markdown;
mod metrics;
pub(crate) mod over_time;
mod plot;
mod socket;
mod suite;
pub(crate) mod times;

pub use self::{
    csv::csv,
    document::{Block, Cell, Document, Mark, Outcome, Section, Side, Table, Tile},
    html::{Fragment, PLOTS, STYLE, UPLOT, UPLOT_STYLE, fragment, html},
    markdown::markdown,
    plot::{Form, Plot, Scale, Series, X, Y},
};

use wb_model::Report;

pub use crate::{chart::lines::svg, markup::escaped};

pub(crate) use self::over_time::{Course, rises};

/// A run with its name.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name, such as that of its file; shown if there are several runs.
    pub name: String,
    /// Report of the run.
    pub report: Report,
}

/// Main figures of a run.
#[must_use]
pub fn tiles(report: &Report) -> Vec<Tile> {
    content::tiles(report)
}

/// Contents of the report of a run, or of a comparison of several.
#[must_use]
pub fn document(runs: &[Run]) -> Document {
    match runs {
        [only] => content::document(&only.report),
        _ => compare::document(runs),
    }
}
