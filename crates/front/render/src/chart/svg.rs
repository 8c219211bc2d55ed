//! The picture as SVG: self-contained, without scripts, readable on light and dark ground.
//!
//! Colours in the elements are those of the light ground; a rule for each ink replaces them if the
//! reader prefers a dark one. Programs without style sheets show the light picture.

use std::fmt::Write as _;

use super::{
    Chart, layout,
    scene::{Anchor, At, Ink, Item, Scene, Shape, Text, Theme},
};
use crate::markup::escaped;

/// The chart as an SVG document, which can be embedded in HTML. It has no identifiers, so
/// one page can hold several.
#[must_use]
pub fn svg(chart: &Chart) -> String {
    paint(&layout::scene(chart))
}

/// A picture as an SVG document.
pub(crate) fn paint(scene: &Scene) -> String {
    let (width, height) = (figure(scene.width), figure(scene.height));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\" \
         font-family=\"sans-serif\">\n",
        escaped(&scene.title)
    );
    out.push_str("<style>@media (prefers-color-scheme:dark){");
    for ink in Ink::all() {
        let (class, rgb) = (class(ink), hex(ink, Theme::Dark));
        let _ = write!(
            out,
            ".wb-f-{class}{{fill:{rgb}}}.wb-s-{class}{{stroke:{rgb}}}"
        );
    }
    out.push_str("}</style>\n");
    let _ = writeln!(
        out,
        "<rect width=\"{width}\" height=\"{height}\"{}/>",
        fill(Ink::Paper)
    );
    for item in &scene.items {
        element(&mut out, item);
    }
    out.push_str("</svg>\n");
    out
}

fn element(out: &mut String, item: &Item) {
    let (name, attributes) = match &item.shape {
        Shape::Text(text) => {
            written(out, item.ink, text);
            return;
        }
        Shape::Polyline { points, width } => (
            "polyline",
            format!(
                " points=\"{}\" fill=\"none\"{} stroke-width=\"{}\" stroke-linecap=\"round\" \
                 stroke-linejoin=\"round\"",
                list(points),
                stroke(item.ink),
                figure(*width)
            ),
        ),
        Shape::Rect { at, width, height } => (
            "rect",
            format!(
                " x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}",
                figure(at.x),
                figure(at.y),
                figure(*width),
                figure(*height),
                fill(item.ink)
            ),
        ),
    };
    let _ = match &item.tip {
        Some(tip) => writeln!(
            out,
            "<{name}{attributes}><title>{}</title></{name}>",
            escaped(tip)
        ),
        None => writeln!(out, "<{name}{attributes}/>"),
    };
}

fn written(out: &mut String, ink: Ink, text: &Text) {
    let (x, y) = (figure(text.at.x), figure(text.at.y));
    let _ = write!(
        out,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\"",
        figure(text.size)
    );
    out.push_str(match text.anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    });
    if text.bold {
        out.push_str(" font-weight=\"bold\"");
    }
    if text.turn != 0.0 {
        let _ = write!(out, " transform=\"rotate({} {x} {y})\"", figure(text.turn));
    }
    let _ = writeln!(out, "{}>{}</text>", fill(ink), escaped(&text.text));
}

fn fill(ink: Ink) -> String {
    format!(
        " fill=\"{}\" class=\"wb-f-{}\"",
        hex(ink, Theme::Light),
        class(ink)
    )
}

fn stroke(ink: Ink) -> String {
    format!(
        " stroke=\"{}\" class=\"wb-s-{}\"",
        hex(ink, Theme::Light),
        class(ink)
    )
}

fn class(ink: Ink) -> String {
    match ink {
        Ink::Paper => "paper".to_owned(),
        Ink::Text => "text".to_owned(),
        Ink::Muted => "muted".to_owned(),
        Ink::Axis => "axis".to_owned(),
        Ink::Grid => "grid".to_owned(),
        Ink::Series(n) => format!("s{}", n % super::scene::HUES),
    }
}

fn hex(ink: Ink, theme: Theme) -> String {
    let [red, green, blue] = ink.rgb(theme);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn list(points: &[At]) -> String {
    let pairs = points
        .iter()
        .map(|p| format!("{},{}", figure(p.x), figure(p.y)));
    pairs.collect::<Vec<_>>().join(" ")
}

/// A length to a hundredth of a pixel, without trailing zeros.
fn figure(length: f64) -> String {
    let rounded = (length * 100.0).round() / 100.0;
    // Not "-0".
    (rounded + 0.0).to_string()
}
