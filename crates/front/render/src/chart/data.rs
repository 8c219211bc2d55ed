//! Places of the points of a chart on its axes.

use super::{
    Chart, Point,
    scale::{Ticks, Unit, drawable},
};

/// A chart with a place for each point.
pub(crate) struct Placed {
    /// Names of the categories, which share the x axis evenly.
    pub(crate) names: Vec<String>,
    pub(crate) y: Ticks,
    /// Unit in which figures of the y axis are written.
    pub(crate) unit: Unit,
    /// Marks of each series of the chart.
    pub(crate) series: Vec<Vec<Mark>>,
}

/// A point with its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Share of the x axis, 0 to 1.
    pub(crate) across: f64,
    /// Name of its category.
    pub(crate) place: String,
    pub(crate) value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) y: f64,
    pub(crate) half_width: Option<f64>,
}

impl Value {
    fn of(point: &Point) -> Option<Self> {
        let half_width = point
            .half_width
            .filter(|half| *half >= 0.0 && drawable(point.y + half) && drawable(point.y - half));
        drawable(point.y).then_some(Self {
            y: point.y,
            half_width,
        })
    }

    /// The ends of the whisker, or the value twice.
    pub(crate) fn ends(self) -> (f64, f64) {
        let half = self.half_width.unwrap_or(0.0);
        (self.y - half, self.y + half)
    }
}

fn middle(slot: usize, slots: usize) -> f64 {
    (slot as f64 + 0.5) / slots as f64
}

impl Placed {
    /// Places the points of `chart`, with at most `most_y` marks on the y axis.
    pub(crate) fn new(chart: &Chart, most_y: usize) -> Self {
        let names = chart.x.categories.clone();
        let mark = |point: &Point| {
            let slot = (point.x >= 0.0 && point.x.fract() == 0.0).then_some(point.x as usize)?;
            Some(Mark {
                across: middle(slot, names.len()),
                place: names.get(slot)?.clone(),
                value: Value::of(point)?,
            })
        };
        let marks = |points: &[Point]| {
            let mut points: Vec<&Point> = points.iter().collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points.into_iter().filter_map(mark).collect()
        };
        let series: Vec<Vec<Mark>> = chart.series.iter().map(|s| marks(&s.points)).collect();
        let ends = || series.iter().flatten().map(|mark| mark.value.ends());
        // Bars begin at zero, because the reader compares their lengths.
        let low = ends().map(|(low, _)| low).fold(0.0, f64::min);
        let high = ends().map(|(_, high)| high).fold(0.0, f64::max);
        Self {
            y: Ticks::linear(low, high, most_y),
            // The unit follows the values: an axis that ends at 1,000 has figures below it.
            unit: Unit::of(&chart.y.unit, low.abs().max(high.abs())),
            names,
            series,
        }
    }

    /// Share of the axis and text of each category.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (f64, &str)> {
        let many = self.names.len();
        let names = self.names.iter().enumerate();
        names.map(move |(i, name)| (middle(i, many), name.as_str()))
    }

    /// Title of the y axis, with its unit.
    pub(crate) fn y_title(&self, chart: &Chart) -> String {
        let label = &chart.y.label;
        match (label.is_empty(), self.unit.name.is_empty()) {
            (_, true) => label.clone(),
            (true, false) => self.unit.name.clone(),
            (false, false) => format!("{label} ({})", self.unit.name),
        }
    }

    /// Returns true if the series has anything to draw.
    pub(crate) fn has_values(&self, series: usize) -> bool {
        !self.series[series].is_empty()
    }

    /// The name of a series for the legend.
    pub(crate) fn name(&self, chart: &Chart, series: usize) -> String {
        let name = &chart.series[series].name;
        match (name.is_empty(), self.has_values(series)) {
            (_, true) => name.clone(),
            (true, false) => "no data".to_owned(),
            (false, false) => format!("{name} (no data)"),
        }
    }

    /// A value with its whisker and without its unit: `941 +-3.1`.
    pub(crate) fn figure(&self, value: Value) -> String {
        let y = self.unit.figure(value.y);
        match value.half_width {
            Some(half) => format!("{y} +-{}", self.unit.doubt(half, &y)),
            None => y,
        }
    }
}
