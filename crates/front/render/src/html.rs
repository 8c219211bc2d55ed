//! A report as one HTML file: inline style, no scripts, nothing fetched from anywhere.
//!
//! Whatever the texts contain stays text. The page forbids scripts and resources to the browser as
//! well, so that a mistake here could not run anything.

use crate::{
    chart::{self, Chart},
    markup::escaped,
};

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;\
color:#1c2025;background:#fff}\
h1{font-size:1.6rem;line-height:1.25}\
h2{font-size:1.2rem;margin-top:2.2rem}\
pre{overflow-x:auto;padding:.8rem;background:#f3f5f7}\
.wide{overflow-x:auto}\
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .8rem;text-align:left;border-bottom:1px solid #d9dde2;vertical-align:top}\
th{border-bottom-color:#7b828a}\
.figure{text-align:right;white-space:nowrap}\
figure{margin:1.5rem 0;overflow-x:auto}\
figure svg{max-width:100%;height:auto}\
@media (prefers-color-scheme:dark){\
body{color:#eceff2;background:#15191e}\
pre{background:#20262d}\
th,td{border-bottom-color:#30363d}}";

/// A page under construction, from top to bottom.
///
/// ```
/// use wb_render::html::Document;
/// let mut page = Document::new("Sweep of <sizes>");
/// page.paragraph("Two hosts, one switch.");
/// page.table(&["message", "Mbit/s"], &[["2 KiB", "412"], ["4 KiB", "810"]]);
/// let html = page.finish();
/// assert!(html.contains("<h1>Sweep of &lt;sizes&gt;</h1>"));
/// assert!(html.contains("<td class=\"figure\">412</td>"));
/// ```
#[derive(Clone, Debug)]
pub struct Document {
    html: String,
}

impl Document {
    /// A page with this title, which is also its heading.
    #[must_use]
    pub fn new(title: &str) -> Self {
        let title = escaped(title);
        let html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        Self { html }
    }

    /// Adds a heading of a section.
    pub fn heading(&mut self, text: &str) {
        self.element("h2", text);
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.element("p", text);
    }

    /// Adds text whose blanks and line ends count, such as what a terminal showed.
    pub fn preformatted(&mut self, text: &str) {
        // The first line feed inside the element is not part of it (HTML, 13.1.2.5).
        self.element("pre", &format!("\n{text}"));
    }

    /// Adds a table. Columns whose cells are figures are aligned right. Rows may differ in
    /// length: missing cells stay blank, and columns beyond the headers have no header.
    pub fn table<H, R, C>(&mut self, headers: &[H], rows: &[R])
    where
        H: AsRef<str>,
        R: AsRef<[C]>,
        C: AsRef<str>,
    {
        let longest = rows.iter().map(|row| row.as_ref().len()).max();
        let columns = headers.len().max(longest.unwrap_or(0));
        let cell = |row: &R, column: usize| {
            let cell = row.as_ref().get(column);
            cell.map_or_else(String::new, |cell| cell.as_ref().to_owned())
        };
        let classes: Vec<&str> = (0..columns)
            .map(|column| {
                let cells = || rows.iter().map(|row| cell(row, column));
                let figures = cells().all(|cell| cell.is_empty() || is_figure(&cell))
                    && cells().any(|cell| !cell.is_empty());
                if figures { " class=\"figure\"" } else { "" }
            })
            .collect();
        self.html
            .push_str("<div class=\"wide\"><table>\n<thead><tr>");
        for (column, class) in classes.iter().enumerate() {
            let header = headers.get(column).map_or("", AsRef::as_ref);
            let header = escaped(header);
            self.html
                .push_str(&format!("<th{class} scope=\"col\">{header}</th>"));
        }
        self.html.push_str("</tr></thead>\n<tbody>\n");
        for row in rows {
            self.html.push_str("<tr>");
            for (column, class) in classes.iter().enumerate() {
                let text = escaped(&cell(row, column));
                self.html.push_str(&format!("<td{class}>{text}</td>"));
            }
            self.html.push_str("</tr>\n");
        }
        self.html.push_str("</tbody>\n</table></div>\n");
    }

    /// Adds a chart.
    pub fn chart(&mut self, chart: &Chart) {
        self.html.push_str("<figure>\n");
        self.html.push_str(&chart::svg(chart));
        self.html.push_str("</figure>\n");
    }

    /// The whole page.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.html.push_str("</body>\n</html>\n");
        self.html
    }

    fn element(&mut self, name: &str, text: &str) {
        let text = escaped(text);
        self.html.push_str(&format!("<{name}>{text}</{name}>\n"));
    }
}

/// Whether a cell reads as a figure: `1,234`, `-0.5 %`, `941 +-3`, or the dash of the unknown.
fn is_figure(cell: &str) -> bool {
    let digits = cell.trim_start_matches(['-', '+', '<', '>', '~', '.']);
    cell == crate::figures::UNKNOWN || digits.starts_with(|c: char| c.is_ascii_digit())
}
