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
figure{margin:1.5rem 0;overflow-x:auto}\
figure svg{max-width:100%;height:auto}\
@media (prefers-color-scheme:dark){\
body{color:#eceff2;background:#15191e}\
pre{background:#20262d}}";

/// A page under construction, from top to bottom.
///
/// ```
/// use wb_render::html::Document;
/// let mut page = Document::new("Sweep of <sizes>");
/// page.paragraph("Two hosts, one switch.");
/// let html = page.finish();
/// assert!(html.contains("<h1>Sweep of &lt;sizes&gt;</h1>"));
/// assert!(html.contains("<p>Two hosts, one switch.</p>"));
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
