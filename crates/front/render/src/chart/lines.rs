//! A plot of a report as a picture: the same axes as in its page, without a script.

use super::{
    layout::{self, BODY, LINE_HEIGHT, MARGIN, extent, line_of, sharp},
    scale::{Ticks, Unit},
    scene::{Anchor, At, HUES, Ink, Scene, Shape, Text, at},
    svg::paint,
};
use crate::report::{Form, Plot};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 280.0;
const MOST_TICKS: usize = 7;
const SWATCH: f64 = 14.0;
/// Maximum number of points of a line. Of longer lines the extremes of each part of a pixel are drawn.
const MOST_POINTS: usize = 2 * WIDTH as usize;

/// The plot as an SVG document.
#[must_use]
pub fn svg(plot: &Plot) -> String {
    paint(&scene(plot))
}

/// Marks of an axis, each with its place from 0 to 1, and the place of any value.
type Axis = (Vec<(f64, String)>, Box<dyn Fn(f64) -> f64>);

/// Marks of the y axis: place from 0 to 1, and text.
fn y_marks(plot: &Plot, unit: &Unit) -> Axis {
    let (low, high) = plot.extent();
    if !plot.y.log {
        let ticks = Ticks::linear(low.min(0.0), high.max(0.0), MOST_TICKS);
        let marks = ticks
            .at
            .iter()
            .map(|v| (ticks.share(*v), unit.tick(*v, ticks.step)));
        return (marks.collect(), Box::new(move |v| ticks.share(v)));
    }
    let (first, last) = (low.log10().floor(), high.log10().ceil());
    let last = last.max(first + 1.0);
    let every = ((last - first) / MOST_TICKS as f64).ceil().max(1.0) as usize;
    let powers = (first as i32..=last as i32).step_by(every);
    let share = move |v: f64| ((v.log10() - first) / (last - first)).clamp(0.0, 1.0);
    let marks = powers.map(|power| {
        let value = 10f64.powi(power);
        (share(value), unit.figure(value))
    });
    (marks.collect(), Box::new(share))
}

/// Places of the x axis from 0 to 1, and its marks.
fn x_marks(plot: &Plot) -> Axis {
    let low = plot.xs.first().copied().unwrap_or(0.0);
    let high = plot.xs.last().copied().unwrap_or(1.0);
    let (low, high) = match (&plot.x.scale, high > low) {
        (crate::report::Scale::Names(names), _) => (-0.5, names.len() as f64 - 0.5),
        (_, true) => (low, high),
        // Wide enough for a double, however large they are.
        (_, false) => {
            let room = (low.abs() * 1e-6).max(0.5);
            (low - room, high + room)
        }
    };
    let share = move |v: f64| ((v - low) / (high - low)).clamp(0.0, 1.0);
    let mut marks = plot.x.marks(low, high);
    if marks.is_empty() {
        let ticks = Ticks::linear(low, high, MOST_TICKS + 3);
        let unit = Unit::of("", 1.0);
        marks = ticks
            .at
            .iter()
            .map(|v| (*v, unit.tick(*v, ticks.step)))
            .collect();
    }
    let slack = (high - low) * 1e-9;
    marks.retain(|(v, _)| *v >= low - slack && *v <= high + slack);
    let marks = marks.into_iter().map(|(v, text)| (share(v), text));
    (marks.collect(), Box::new(share))
}

fn scene(plot: &Plot) -> Scene {
    let unit = plot.unit();
    let (y_marks, y_share) = y_marks(plot, &unit);
    let (x_marks, x_share) = x_marks(plot);
    let widest = y_marks
        .iter()
        .map(|(_, text)| extent(text, BODY))
        .fold(0.0, f64::max);
    let left = (MARGIN + LINE_HEIGHT + widest + 8.0).round();
    let mut scene = Scene {
        title: plot.title.clone(),
        width: left + WIDTH + MARGIN + 8.0,
        height: 0.0,
        items: Vec::new(),
    };
    let under_title = layout::heading(&mut scene, &plot.title);
    let top = (legend(&mut scene, plot, under_title) + 14.0).round();
    let bottom = top + HEIGHT;
    for (share, text) in &y_marks {
        let y = sharp(bottom - share * HEIGHT);
        scene.line(Ink::Grid, at(left, y), at(left + WIDTH, y), 1.0);
        let text = line_of(text, at(left - 8.0, y + 4.5), Anchor::End);
        scene.add(Ink::Muted, Shape::Text(text));
    }
    let title = layout::clipped(&plot.y_title(), layout::LONGEST_NAME);
    let place = at(left - widest - LINE_HEIGHT + 4.0, top + HEIGHT / 2.0);
    let title = Text {
        turn: -90.0,
        ..line_of(&title, place, Anchor::Middle)
    };
    scene.add(Ink::Text, Shape::Text(title));
    for (i, series) in plot.series.iter().enumerate() {
        let points = plot.xs.iter().zip(&series.values);
        let points = points.map(|(x, y)| {
            (*y).map(|y| at(left + x_share(*x) * WIDTH, bottom - y_share(y) * HEIGHT))
        });
        curve(&mut scene, i, series.form, plot.gaps, points.collect());
    }
    scene.line(
        Ink::Axis,
        at(left, sharp(bottom)),
        at(left + WIDTH, sharp(bottom)),
        1.0,
    );
    let longest = x_marks
        .iter()
        .map(|(_, text)| extent(text, BODY))
        .fold(0.0, f64::max);
    let room = WIDTH / (longest + 12.0);
    let every = (x_marks.len() as f64 / room.max(1.0)).ceil().max(1.0) as usize;
    for (share, text) in x_marks.iter().step_by(every) {
        let x = left + share * WIDTH;
        scene.line(Ink::Axis, at(x, bottom), at(x, bottom + 4.0), 1.0);
        let text = layout::clipped(text, 28);
        scene.add(
            Ink::Muted,
            Shape::Text(line_of(&text, at(x, bottom + 19.0), Anchor::Middle)),
        );
    }
    let mut end = bottom + 19.0 + LINE_HEIGHT;
    let title = line_of(&plot.x.title(), at(left + WIDTH / 2.0, end), Anchor::Middle);
    scene.add(Ink::Text, Shape::Text(title));
    for line in layout::lines(&plot.note, BODY, scene.width - 2.0 * MARGIN) {
        end += LINE_HEIGHT;
        scene.add(
            Ink::Muted,
            Shape::Text(line_of(&line, at(MARGIN, end + 4.0), Anchor::Start)),
        );
    }
    scene.height = (end + MARGIN).ceil();
    scene.width = scene.width.ceil();
    scene
}

fn legend(scene: &mut Scene, plot: &Plot, top: f64) -> f64 {
    let (mut x, mut bottom) = (MARGIN, top + LINE_HEIGHT);
    for (i, series) in plot.series.iter().enumerate() {
        let name = layout::clipped(&series.name, layout::LONGEST_NAME) + &plot.typical(series);
        let width = extent(&name, BODY) + SWATCH + 6.0;
        if x > MARGIN && x + width > scene.width - MARGIN {
            x = MARGIN;
            bottom += LINE_HEIGHT;
        }
        scene.line(
            Ink::Series(i % HUES),
            at(x, bottom - 4.5),
            at(x + SWATCH, bottom - 4.5),
            3.0,
        );
        let text = line_of(&name, at(x + SWATCH + 6.0, bottom), Anchor::Start);
        scene.add(Ink::Text, Shape::Text(text));
        x += width + 18.0;
    }
    bottom
}

/// Draws one line, in one piece for each run of known points.
fn curve(scene: &mut Scene, number: usize, form: Form, gaps: bool, points: Vec<Option<At>>) {
    let ink = Ink::Series(number % HUES);
    let pieces: Vec<Vec<At>> = match gaps {
        true => points
            .split(Option::is_none)
            .map(|piece| piece.iter().flatten().copied().collect())
            .collect(),
        false => vec![points.into_iter().flatten().collect()],
    };
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        let piece = thinned(piece);
        if form == Form::Marks || piece.len() == 1 {
            for p in &piece {
                scene.add(
                    ink,
                    Shape::Rect {
                        at: at(p.x - 3.0, p.y - 3.0),
                        width: 6.0,
                        height: 6.0,
                    },
                );
            }
        }
        let points = match form {
            Form::Area => steps(&piece),
            Form::Dashes => {
                for pair in piece.windows(2) {
                    dashed(scene, ink, pair[0], pair[1]);
                }
                continue;
            }
            Form::Line | Form::Marks => piece,
        };
        if points.len() > 1 {
            scene.add(ink, Shape::Polyline { points, width: 1.5 });
        }
    }
}

/// Each value until the next.
fn steps(points: &[At]) -> Vec<At> {
    let mut out = Vec::new();
    for p in points {
        if let Some(last) = out.last().copied() {
            let last: At = last;
            out.push(at(p.x, last.y));
        }
        out.push(*p);
    }
    out
}

fn dashed(scene: &mut Scene, ink: Ink, from: At, to: At) {
    const DASH: f64 = 6.0;
    let length = (to.x - from.x).hypot(to.y - from.y);
    let along = |way: f64| {
        let share = (way / length).min(1.0);
        at(
            from.x + share * (to.x - from.x),
            from.y + share * (to.y - from.y),
        )
    };
    let mut way = 0.0;
    while way < length {
        scene.line(ink, along(way), along(way + DASH), 1.5);
        way += 2.0 * DASH;
    }
}

/// Reduces many points to the lowest and the highest of each part, so that no peak is lost.
fn thinned(points: Vec<At>) -> Vec<At> {
    if points.len() <= MOST_POINTS {
        return points;
    }
    let part = points.len().div_ceil(MOST_POINTS / 2);
    let extremes = points.chunks(part).flat_map(|chunk| {
        let least = (0..chunk.len()).min_by(|a, b| chunk[*a].y.total_cmp(&chunk[*b].y));
        let most = (0..chunk.len()).max_by(|a, b| chunk[*a].y.total_cmp(&chunk[*b].y));
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
        [chunk[least.min(most)], chunk[least.max(most)]]
    });
    extremes.collect()
}
