//! Layout of a picture.
//!
//! The area of the values has a fixed size; heading, legend and labels take what they need around
//! it, so that a long legend makes the picture higher and not the curves flatter.

mod marks;

use super::{
    Chart,
    data::Placed,
    scene::{Anchor, At, Ink, Scene, Shape, Text, at},
};
use crate::page::wrapped;

pub(crate) const MARGIN: f64 = 16.0;
const TITLE: f64 = 16.0;
pub(crate) const BODY: f64 = 13.0;
const SMALL: f64 = 11.0;
pub(crate) const LINE_HEIGHT: f64 = 20.0;
const PLOT_HEIGHT: f64 = 280.0;
const LEAST_PLOT_WIDTH: f64 = 600.0;
const MOST_PLOT_WIDTH: f64 = 1600.0;
/// Average width of a character in a common sans-serif font, as a share of the font size.
const CHARACTER_WIDTH: f64 = 0.62;
const MOST_ENTRIES: usize = 40;
pub(crate) const LONGEST_NAME: usize = 60;
const LONGEST_CATEGORY: usize = 28;
/// Maximum number of lines of the heading, and of the note.
const MOST_LINES: usize = 4;
const MOST_Y_TICKS: usize = 7;

/// The area of the values and its mapping to places.
struct Plot {
    left: f64,
    top: f64,
    width: f64,
}

impl Plot {
    fn x(&self, share: f64) -> f64 {
        self.left + share * self.width
    }

    fn y(&self, share: f64) -> f64 {
        self.top + (1.0 - share) * PLOT_HEIGHT
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }

    fn bottom(&self) -> f64 {
        self.top + PLOT_HEIGHT
    }
}

/// Labels of the x axis: the visible ones, and if they are turned.
struct Labels {
    shown: Vec<(f64, String)>,
    turn: f64,
    /// Height below the axis.
    height: f64,
    /// Distance by which the first label extends to the left of its place.
    overhang: f64,
}

/// The picture of a chart.
pub(crate) fn scene(chart: &Chart) -> Scene {
    let placed = Placed::new(chart, MOST_Y_TICKS);
    // Wide enough for the existing bars, within bounds.
    let columns = placed.names.len() as f64 * (chart.series.len() as f64 * 12.0 + 8.0);
    let width = columns.clamp(LEAST_PLOT_WIDTH, MOST_PLOT_WIDTH).round();
    let labels = Labels::new(&placed, width);
    let figures: Vec<String> = placed
        .y
        .at
        .iter()
        .map(|tick| placed.unit.tick(*tick, placed.y.step))
        .collect();
    let figures_width = figures.iter().map(|f| extent(f, BODY)).fold(0.0, f64::max);
    let y_title = clipped(&placed.y_title(chart), LONGEST_NAME);
    let title_width = if y_title.is_empty() { 0.0 } else { LINE_HEIGHT };
    let first = labels.shown.first().map_or(0.0, |(share, _)| share * width);
    let mut plot = Plot {
        left: (MARGIN + title_width + figures_width + 8.0)
            .max(MARGIN + labels.overhang - first)
            .round(),
        top: 0.0,
        width,
    };
    let mut scene = Scene {
        title: chart.title.clone(),
        width: plot.right() + MARGIN + 8.0,
        height: 0.0,
        items: Vec::new(),
    };
    let under_title = heading(&mut scene, &chart.title);
    let under_legend = legend(&mut scene, chart, &placed, under_title);
    // Room for a value above the highest bar.
    plot.top = (under_legend + 22.0).round();
    grid(&mut scene, &plot, &placed, &figures);
    if !y_title.is_empty() {
        let x = plot.left - figures_width - title_width + 4.0;
        let place = at(x, plot.top + PLOT_HEIGHT / 2.0);
        let mut text = line_of(&y_title, place, Anchor::Middle);
        text.turn = -90.0;
        scene.add(Ink::Text, Shape::Text(text));
    }
    marks::draw(&mut scene, chart, &placed, &plot);
    let under_labels = x_axis(&mut scene, &plot, &labels);
    let mut bottom = under_labels;
    let x_title = clipped(&chart.x.label, LONGEST_NAME);
    if !x_title.is_empty() {
        bottom += LINE_HEIGHT;
        let place = at(plot.left + plot.width / 2.0, bottom);
        let text = line_of(&x_title, place, Anchor::Middle);
        scene.add(Ink::Text, Shape::Text(text));
    }
    for line in lines(&chart.note, BODY, scene.width - 2.0 * MARGIN) {
        bottom += LINE_HEIGHT;
        let text = line_of(&line, at(MARGIN, bottom + 4.0), Anchor::Start);
        scene.add(Ink::Muted, Shape::Text(text));
    }
    scene.height = (bottom + MARGIN).ceil();
    scene.width = scene.width.ceil();
    scene
}

pub(crate) fn heading(scene: &mut Scene, title: &str) -> f64 {
    let mut bottom = MARGIN;
    for line in lines(title, TITLE, scene.width - 2.0 * MARGIN) {
        bottom += LINE_HEIGHT + 2.0;
        let text = Text {
            size: TITLE,
            bold: true,
            ..line_of(&line, at(MARGIN, bottom - 6.0), Anchor::Start)
        };
        scene.add(Ink::Text, Shape::Text(text));
    }
    bottom
}

/// A swatch and a name for each series, in as many rows as needed.
fn legend(scene: &mut Scene, chart: &Chart, placed: &Placed, top: f64) -> f64 {
    let swatch = marks::SWATCH;
    let names = (0..chart.series.len()).map(|i| (i, placed.name(chart, i)));
    let names: Vec<_> = names.filter(|(_, name)| !name.is_empty()).collect();
    let (mut x, mut bottom) = (MARGIN, top);
    for (n, (i, name)) in names.iter().enumerate() {
        let rest = names.len() - n;
        let last = n + 1 >= MOST_ENTRIES && rest > 1;
        let name = if last {
            format!("and {rest} more")
        } else {
            clipped(name, LONGEST_NAME)
        };
        let width = extent(&name, BODY) + if last { 0.0 } else { swatch + 6.0 };
        if n == 0 || x + width > scene.width - MARGIN {
            x = MARGIN;
            bottom += LINE_HEIGHT;
        }
        let mut text_x = x;
        if !last {
            text_x += swatch + 6.0;
            marks::swatch(scene, *i, at(x, bottom - 4.5));
        }
        let text = line_of(&name, at(text_x, bottom), Anchor::Start);
        scene.add(Ink::Text, Shape::Text(text));
        if last {
            break;
        }
        x += width + 18.0;
    }
    bottom
}

/// Lines across at the marks of the y axis, and its figures.
fn grid(scene: &mut Scene, plot: &Plot, placed: &Placed, figures: &[String]) {
    for (tick, figure) in placed.y.at.iter().zip(figures) {
        let y = sharp(plot.y(placed.y.share(*tick)));
        scene.line(Ink::Grid, at(plot.left, y), at(plot.right(), y), 1.0);
        let place = at(plot.left - 8.0, y + 4.5);
        let text = line_of(figure, place, Anchor::End);
        scene.add(Ink::Muted, Shape::Text(text));
    }
}

/// The line at the bottom with its labels; returns where they end.
fn x_axis(scene: &mut Scene, plot: &Plot, labels: &Labels) -> f64 {
    let y = sharp(plot.bottom());
    scene.line(Ink::Axis, at(plot.left, y), at(plot.right(), y), 1.0);
    for (share, label) in &labels.shown {
        let x = plot.x(*share);
        let text = if labels.turn == 0.0 {
            line_of(label, at(x, y + 18.0), Anchor::Middle)
        } else {
            Text {
                turn: labels.turn,
                ..line_of(label, at(x + 4.0, y + 14.0), Anchor::End)
            }
        };
        scene.add(Ink::Muted, Shape::Text(text));
    }
    plot.bottom() + labels.height
}

impl Labels {
    fn new(placed: &Placed, width: f64) -> Self {
        const TURN: f64 = -40.0;
        let all: Vec<(f64, String)> = placed
            .labels()
            .map(|(share, label)| (share, clipped(label, LONGEST_CATEGORY)))
            .collect();
        let widest = all.iter().map(|(_, l)| extent(l, BODY)).fold(0.0, f64::max);
        let distance = match all.as_slice() {
            [first, second, ..] => (second.0 - first.0) * width,
            _ => width,
        };
        let turned = widest + 8.0 > distance;
        // Turned lines need their height, others their width.
        let needed = if turned { LINE_HEIGHT } else { widest + 8.0 };
        let every = (needed / distance).ceil().max(1.0) as usize;
        let shown = all.into_iter().step_by(every).collect();
        let (sin, cos) = TURN.to_radians().abs().sin_cos();
        Self {
            shown,
            turn: if turned { TURN } else { 0.0 },
            height: if turned { widest * sin + 20.0 } else { 22.0 },
            overhang: if turned { widest * cos } else { widest / 2.0 },
        }
    }
}

/// The middle of the pixel: a line one pixel wide is sharp there.
pub(crate) fn sharp(length: f64) -> f64 {
    length.floor() + 0.5
}

pub(crate) fn line_of(text: &str, at: At, anchor: Anchor) -> Text {
    Text {
        at,
        text: text.to_owned(),
        size: BODY,
        anchor,
        bold: false,
        turn: 0.0,
    }
}

/// Estimated width of a text. The viewer chooses the font, so the exact width is unknown.
pub(crate) fn extent(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * CHARACTER_WIDTH
}

/// At most [`MOST_LINES`] lines of about this width; none for an empty text.
pub(crate) fn lines(text: &str, size: f64, width: f64) -> Vec<String> {
    let columns = (width / (size * 0.6)) as usize;
    let mut lines = wrapped(text, columns);
    lines.retain(|line| !line.is_empty());
    if lines.len() > MOST_LINES {
        lines.truncate(MOST_LINES);
        if let Some(last) = lines.last_mut() {
            last.push_str(" …");
        }
    }
    lines.iter().map(|line| clipped(line, columns)).collect()
}

/// Returns the text, shortened to at most `most` characters.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept = text.chars().take(most.saturating_sub(1));
    kept.chain(['…']).collect()
}
