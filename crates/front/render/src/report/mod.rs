//! A report to hand over: one page, or text, tables and pictures, of one run or of several compared.
//!
//! [`document`] says what there is to say, once; [`html`], [`markdown`], [`csv`] and [`svg`] write it.

mod compare;
mod content;
mod csv;
mod document;
mod engines;
mod html;
mod markdown;
mod metrics;
mod over_time;
mod plot;
mod suite;
mod times;

pub use self::{
    csv::csv,
    document::{Block, Cell, Document, Mark, Outcome, Section, Side, Table},
    html::html,
    markdown::markdown,
    plot::{Form, Plot, Scale, Series, X, Y},
};

use wb_model::Report;

pub use crate::chart::lines::svg;

/// A run with the name it goes by.
#[derive(Clone, Debug)]
pub struct Run {
    /// Such as that of its file; shown where there are several.
    pub name: String,
    /// What came of it.
    pub report: Report,
}

/// What there is to say of a run, or of several beside each other.
#[must_use]
pub fn document(runs: &[Run]) -> Document {
    match runs {
        [only] => content::document(&only.report),
        _ => compare::document(runs),
    }
}
