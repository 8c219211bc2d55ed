//! The document as one HTML file that makes no network requests.
//!
//! All text is escaped, and the figures of plots are JSON that cannot end its element. The
//! page names by digest the three scripts that may run in it, so that a mistake here could not run any other script.

use std::fmt::Write as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::digest;
use serde_json::{Value, json};

use super::{
    document::{Block, Document, Mark, Outcome, Side, Table, Tile},
    plot::{Form, Plot, Scale},
};
use crate::markup::escaped;

/// uPlot 1.6.32, <https://github.com/leeoniya/uPlot>.
pub const UPLOT: &str = include_str!("../../assets/uPlot.iife.min.js");
/// Style of uPlot.
pub const UPLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../assets/uPlot.LICENSE");
/// Plots of a report: defines `wbPlots`, for which uPlot must be there.
pub const PLOTS: &str = include_str!("../../assets/plots.js");
const SCRIPT: &str = include_str!("../../assets/report.js");
/// Maximum length of texts in tables that stay on one line.
const KEPT: usize = 24;
/// Style of the page, with its colours.
pub const STYLE: &str = include_str!("../../assets/report.css");

/// The page.
#[must_use]
pub fn html(document: &Document) -> String {
    let title = escaped(&document.title);
    let mut out = String::new();
    let digests = [UPLOT, PLOTS, SCRIPT].map(|script| {
        let digest = digest::digest(&digest::SHA256, script.as_bytes());
        format!("'sha256-{}'", BASE64_STANDARD.encode(digest))
    });
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src {}; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<!-- The plots are drawn by uPlot:\n{}-->\n\
         <style>{UPLOT_STYLE}</style>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1><button id=\"wb-theme\" type=\"button\" hidden>colours: system</button></header>\n",
        digests.join(" "),
        UPLOT_LICENCE.replace("--", "- -"),
    );
    let fragment = fragment(document);
    let _ = write!(
        out,
        "{}<script type=\"application/json\" id=\"wb-data\">{}</script>\n\
         <script>{UPLOT}</script>\n<script>{PLOTS}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        fragment.body, fragment.data
    );
    out
}

/// The contents of a page, to be shown inside of another one.
#[derive(Clone, Debug, Default)]
pub struct Fragment {
    /// Verdicts, main figures and sections, as HTML without scripts. All texts are escaped.
    pub body: String,
    /// Figures of the plots, as JSON without a character that could end an element.
    pub data: String,
}

/// The contents of the page.
#[must_use]
pub fn fragment(document: &Document) -> Fragment {
    let mut out = String::new();
    for verdict in &document.verdicts {
        outcome(&mut out, verdict);
    }
    tiles(&mut out, &document.tiles);
    out.push_str("<nav>");
    for (i, section) in document.sections.iter().enumerate() {
        let _ = write!(out, "<a href=\"#s{i}\">{}</a>", escaped(&section.title));
    }
    out.push_str("</nav>\n<noscript><p>The plots need JavaScript. <code>wirebench report --plots DIR</code> writes them to files.</p></noscript>\n");
    let mut plots = Plots::default();
    for (i, section) in document.sections.iter().enumerate() {
        let _ = writeln!(out, "<h2 id=\"s{i}\">{}</h2>", escaped(&section.title));
        for block in &section.blocks {
            match block {
                Block::Text(text) => paragraph(&mut out, "p", text),
                Block::Warning(text) => {
                    let _ = writeln!(out, "<p class=\"warning\">{}</p>", escaped(text));
                }
                Block::Table(one) => table(&mut out, one),
                Block::Plot(plot) => figure(&mut out, plot, plots.add(plot)),
                Block::Picture(svg) => {
                    let _ = writeln!(out, "<figure class=\"wide\">{svg}</figure>");
                }
                Block::Code(summary, text) => {
                    // The first line feed inside the element is not part of it (HTML, 13.1.2.5).
                    let (summary, text) = (escaped(summary), escaped(text));
                    let _ = writeln!(
                        out,
                        "<details><summary>{summary}</summary><pre>\n{text}</pre></details>"
                    );
                }
            }
        }
    }
    Fragment {
        body: out,
        data: plots.json(),
    }
}

fn class(mark: Mark) -> &'static str {
    match mark {
        Mark::Plain => "",
        Mark::Good => "good",
        Mark::Bad => "bad",
    }
}

fn outcome(out: &mut String, verdict: &Outcome) {
    let run = match verdict.run.as_str() {
        "" => String::new(),
        run => format!("{}: ", escaped(run)),
    };
    let _ = writeln!(
        out,
        "<div class=\"verdict {}\">{run}<b>{}</b>{}</div>",
        class(verdict.mark),
        escaped(&verdict.word),
        escaped(&verdict.reason)
    );
}

fn tiles(out: &mut String, tiles: &[Tile]) {
    if tiles.is_empty() {
        return;
    }
    out.push_str("<div class=\"tiles\">");
    for tile in tiles {
        let _ = write!(
            out,
            "<div class=\"{}\"><b>{}</b><span>{}</span></div>",
            class(tile.value.mark),
            escaped(&tile.value.text),
            escaped(&tile.label)
        );
    }
    out.push_str("</div>\n");
}

fn paragraph(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "<{name}>{}</{name}>", escaped(text));
}

fn table(out: &mut String, table: &Table) {
    out.push_str("<div class=\"wide\"><table class=\"t\">");
    if !table.caption.is_empty() {
        let _ = write!(out, "<caption>{}</caption>", escaped(&table.caption));
    }
    let side = |side: Side| match side {
        Side::Left => "",
        Side::Right => "n",
    };
    let attribute = |classes: [&str; 2]| {
        let classes: Vec<&str> = classes.into_iter().filter(|c| !c.is_empty()).collect();
        match classes.is_empty() {
            true => String::new(),
            false => format!(" class=\"{}\"", classes.join(" ")),
        }
    };
    if table.head.iter().any(|(name, _)| !name.is_empty()) {
        out.push_str("<thead><tr>");
        for (name, at) in &table.head {
            let _ = write!(
                out,
                "<th{}>{}</th>",
                attribute([side(*at), ""]),
                escaped(name)
            );
        }
        out.push_str("</tr></thead>");
    }
    out.push_str("<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (cell, (_, at)) in row.iter().zip(&table.head) {
            // A word that is broken to make room for a long text in another cell is hard to read.
            let kept = match at {
                Side::Left if cell.text.chars().count() <= KEPT => "k",
                Side::Left => "l",
                at => side(*at),
            };
            let attribute = attribute([kept, class(cell.mark)]);
            let _ = write!(out, "<td{attribute}>{}</td>", escaped(&cell.text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn figure(out: &mut String, plot: &Plot, number: usize) {
    let _ = write!(
        out,
        "<figure><h3>{}</h3><div class=\"plot\" id=\"plot-{number}\"></div>",
        escaped(&plot.title)
    );
    if !plot.note.is_empty() {
        paragraph(out, "figcaption", &plot.note);
    }
    out.push_str("</figure>\n");
}

/// The figures of all plots. Places that several plots share are written once.
#[derive(Default)]
struct Plots<'a> {
    plots: Vec<String>,
    xs: Vec<&'a [f64]>,
}

impl<'a> Plots<'a> {
    fn add(&mut self, plot: &'a Plot) -> usize {
        let known = self.xs.iter().position(|xs| *xs == plot.xs);
        let xs = known.unwrap_or_else(|| {
            self.xs.push(&plot.xs);
            self.xs.len() - 1
        });
        let unit = plot.unit();
        let (low, high) = (plot.xs.first(), plot.xs.last());
        let kind = match plot.x.scale {
            Scale::Linear => "linear",
            Scale::Counts => "counts",
            Scale::Times => "times",
            Scale::Tail => "tail",
            Scale::Names(_) => "names",
        };
        let marks = plot
            .x
            .marks(low.copied().unwrap_or(0.0), high.copied().unwrap_or(1.0));
        let up_to = plot.y.up_to.map(|top| f64::from(top) / unit.factor);
        let head = json!({
            "x": {"label": plot.x.label, "title": plot.x.title(), "unit": plot.x.unit, "kind": kind, "marks": marks},
            "y": {"title": plot.y_title(), "unit": unit.name, "log": plot.y.log, "upTo": up_to},
            "xs": xs,
            "gaps": plot.gaps,
        });
        let mut text = head.to_string();
        text.pop();
        text.push_str(",\"series\":[");
        for (i, series) in plot.series.iter().enumerate() {
            let form = match series.form {
                Form::Line => "line",
                Form::Dashes => "dashes",
                Form::Area => "area",
                Form::Marks => "marks",
            };
            let comma = if i > 0 { "," } else { "" };
            let name = Value::from(series.name.clone() + &plot.typical(series));
            let _ = write!(
                text,
                "{comma}{{\"name\":{name},\"form\":\"{form}\",\"values\":"
            );
            let values = series.values.iter();
            list(&mut text, values.map(|v| v.map(|v| v / unit.factor)));
            text.push('}');
        }
        text.push_str("]}");
        self.plots.push(text);
        self.plots.len() - 1
    }

    /// JSON without a character that could end the surrounding element.
    fn json(&self) -> String {
        let mut text = String::from("{\"xs\":[");
        for (i, xs) in self.xs.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            list(&mut text, xs.iter().map(|v| Some(*v)));
        }
        let _ = write!(text, "],\"plots\":[{}]}}", self.plots.join(","));
        // These characters occur in strings only.
        text.replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
    }
}

/// Figures in seven digits, which exceed the resolution of a picture.
fn list(out: &mut String, values: impl Iterator<Item = Option<f64>>) {
    out.push('[');
    for (i, value) in values.enumerate() {
        if i > 0 {
            out.push(',');
        }
        let Some(value) = value.filter(|v| v.is_finite()) else {
            out.push_str("null");
            continue;
        };
        let whole = value.round();
        if value == whole && value.abs() < 1e15 {
            let _ = write!(out, "{}", whole as i64);
        } else {
            // Written as `1.234567e-5`, which is valid JSON, too.
            let _ = write!(out, "{value:.6e}");
        }
    }
    out.push(']');
}
