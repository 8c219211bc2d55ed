//! The values themselves: bars, whiskers, and their swatches in the legend.

use super::{
    super::{
        Chart,
        data::{Mark, Placed, Value},
        scene::{Anchor, At, HUES, Ink, Scene, Shape, Text, at},
    },
    Plot, SMALL, extent, line_of, sharp,
};

const WHISKER: f64 = 1.25;
/// Width of the swatch of a series in the legend.
pub(super) const SWATCH: f64 = 14.0;
/// Limit on tooltips: more of them would only make the file long.
const MOST_TIPS: usize = 500;
const WIDEST_BAR: f64 = 56.0;
/// Share of the width of a category that its bars occupy.
const GROUP: f64 = 0.78;

pub(super) fn draw(scene: &mut Scene, chart: &Chart, placed: &Placed, plot: &Plot) {
    if !(0..placed.series.len()).any(|i| placed.has_values(i)) {
        let middle = at(plot.x(0.5), plot.y(0.5));
        let text = line_of("no data", middle, Anchor::Middle);
        scene.add(Ink::Muted, Shape::Text(text));
        return;
    }
    bars(scene, chart, placed, plot);
}

/// Draws the swatch of a series in the legend, around the height of `left`.
pub(super) fn swatch(scene: &mut Scene, series: usize, left: At) {
    bar(scene, series, at(left.x, left.y - 6.0), SWATCH, 12.0);
}

fn bars(scene: &mut Scene, chart: &Chart, placed: &Placed, plot: &Plot) {
    let many = placed.series.len().max(1) as f64;
    let slots = placed.names.len().max(1) as f64;
    let step = (plot.width / slots * GROUP / many).min(WIDEST_BAR);
    // Neighbours do not touch, as long as there is room.
    let width = if step > 5.0 { step - 1.5 } else { step };
    let zero = plot.y(placed.y.share(0.0));
    let values = || placed.series.iter().flatten().map(|mark| mark.value);
    let widest = values()
        .map(|value| extent(&placed.unit.figure(value.y), SMALL))
        .fold(0.0, f64::max);
    let told = widest <= step + 2.0;
    let tips = values().count() <= MOST_TIPS;
    for (i, series) in placed.series.iter().enumerate() {
        for mark in series {
            let value = mark.value;
            let left = plot.x(mark.across) + (i as f64 - many / 2.0) * step + (step - width) / 2.0;
            let y = plot.y(placed.y.share(value.y));
            let (top, bottom) = (y.min(zero), y.max(zero));
            bar(scene, i, at(left, top), width, bottom - top);
            if tips && let Some(item) = scene.items.last_mut() {
                item.tip = Some(tip(chart, placed, i, mark));
            }
            let middle = left + width / 2.0;
            let (high, low) = whisker(scene, placed, plot, middle, width / 3.0, value);
            if told {
                let y = if value.y < 0.0 {
                    low + 12.0
                } else {
                    high - 5.0
                };
                let figure = placed.unit.figure(value.y);
                figure_at(scene, &figure, at(middle, y), step);
            }
        }
    }
    let zero = sharp(zero);
    scene.line(Ink::Axis, at(plot.left, zero), at(plot.right(), zero), 1.0);
}

/// The figure of a bar, on a ground that hides the lines of the grid.
fn figure_at(scene: &mut Scene, figure: &str, place: At, most: f64) {
    let width = extent(figure, SMALL).min(most);
    let ground = Shape::Rect {
        at: at(place.x - width / 2.0, place.y - 9.0),
        width,
        height: 10.0,
    };
    scene.add(Ink::Paper, ground);
    let text = Text {
        size: SMALL,
        ..line_of(figure, place, Anchor::Middle)
    };
    scene.add(Ink::Text, Shape::Text(text));
}

/// A bar of a series. When the colours begin again, bars are hollow.
fn bar(scene: &mut Scene, series: usize, corner: At, width: f64, height: f64) {
    let ink = Ink::Series(series);
    let hollow = series / HUES % 2 == 1;
    let edge = (width / 4.0).min(2.0);
    if !hollow || edge < 0.75 || height < 2.0 * edge {
        let at = corner;
        scene.add(ink, Shape::Rect { at, width, height });
        return;
    }
    let (left, top) = (corner.x + edge / 2.0, corner.y + edge / 2.0);
    let (right, bottom) = (left + width - edge, top + height - edge);
    let points = vec![
        at(left, top),
        at(right, top),
        at(right, bottom),
        at(left, bottom),
        at(left, top),
    ];
    scene.add(
        ink,
        Shape::Polyline {
            points,
            width: edge,
        },
    );
}

/// The confidence interval around a value, if it has one; returns where it ends, top and bottom.
fn whisker(
    scene: &mut Scene,
    placed: &Placed,
    plot: &Plot,
    x: f64,
    reach: f64,
    value: Value,
) -> (f64, f64) {
    let (low, high) = value.ends();
    let top = plot.y(placed.y.share(high));
    let bottom = plot.y(placed.y.share(low));
    if value.half_width.is_some() {
        let reach = reach.min(5.0);
        scene.line(Ink::Text, at(x, top), at(x, bottom), WHISKER);
        for y in [top, bottom] {
            scene.line(Ink::Text, at(x - reach, y), at(x + reach, y), WHISKER);
        }
    }
    (top, bottom)
}

/// Tooltip of a value: `4 streams, 2Ki: 941 +-3.1 Mbit/s`.
fn tip(chart: &Chart, placed: &Placed, series: usize, mark: &Mark) -> String {
    let names = [chart.series[series].name.as_str(), &mark.place];
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let text = format!(
        "{}: {} {}",
        names.join(", "),
        placed.figure(mark.value),
        placed.unit.name
    );
    text.trim_end().to_owned()
}
