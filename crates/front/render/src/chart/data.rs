//! From a chart to places on axes: what all forms share.

use std::cmp::Ordering;

use super::{
    Chart, Kind, Point, Positions,
    scale::{self, Ticks, Unit, drawable},
};

/// A chart whose points have places.
pub(crate) struct Placed {
    pub(crate) x: Places,
    pub(crate) y: Ticks,
    /// In which figures of the y axis are written.
    pub(crate) unit: Unit,
    /// As many as the chart has.
    pub(crate) series: Vec<Vec<Mark>>,
}

/// A point with its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Share of the x axis, 0 to 1.
    pub(crate) across: f64,
    /// Index of its category; 0 on an axis of numbers.
    pub(crate) slot: usize,
    /// Its x in words.
    pub(crate) place: String,
    /// `None` where nothing can be drawn: a gap.
    pub(crate) value: Option<Value>,
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

/// Where on the x axis points stand.
pub(crate) enum Places {
    /// Categories share the axis evenly.
    Slots {
        names: Vec<String>,
        /// The numbers the categories were made of, ascending; `None`: x is the index.
        numbers: Option<Vec<f64>>,
    },
    Linear(Ticks),
    /// Ticks are powers of two.
    Log2(Ticks),
}

impl Places {
    fn of(chart: &Chart, most: usize) -> Self {
        let log2 = match &chart.x.positions {
            Positions::Categories(names) => {
                return Self::Slots {
                    names: names.clone(),
                    numbers: None,
                };
            }
            Positions::Linear => false,
            Positions::Log2 => true,
        };
        let points = chart.series.iter().flat_map(|series| &series.points);
        let mut numbers: Vec<f64> = points
            .map(|point| point.x)
            .filter(|x| drawable(*x) && (!log2 || *x > 0.0))
            .collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        if chart.kind == Kind::Bars {
            let name = |x: &f64| {
                if log2 {
                    scale::binary(*x)
                } else {
                    scale::decimal(*x)
                }
            };
            return Self::Slots {
                names: numbers.iter().map(name).collect(),
                numbers: Some(numbers),
            };
        }
        let low = numbers.first().copied();
        let high = numbers.last().copied();
        if log2 {
            let power = |x: Option<f64>, none: f64| x.map_or(none, f64::log2);
            Self::Log2(Ticks::log2(power(low, 0.0), power(high, 1.0), most))
        } else {
            // Nobody asks for one and a half streams.
            let whole = numbers.iter().all(|x| x.fract() == 0.0);
            let least = if whole && !numbers.is_empty() {
                1.0
            } else {
                0.0
            };
            Self::Linear(Ticks::linear(
                low.unwrap_or(0.0),
                high.unwrap_or(1.0),
                most,
                least,
            ))
        }
    }

    /// Category, share of the axis and name of `x`.
    fn locate(&self, x: f64) -> Option<(usize, f64, String)> {
        match self {
            Self::Slots { names, numbers } => {
                let slot = match numbers {
                    Some(numbers) => {
                        let order = |n: &f64| n.partial_cmp(&x).unwrap_or(Ordering::Less);
                        numbers.binary_search_by(order).ok()?
                    }
                    None if x >= 0.0 && x.fract() == 0.0 => x as usize,
                    None => return None,
                };
                let name = names.get(slot)?;
                Some((slot, middle(slot, names.len()), name.clone()))
            }
            Self::Linear(ticks) => drawable(x).then(|| (0, ticks.share(x), scale::decimal(x))),
            Self::Log2(ticks) => {
                (drawable(x) && x > 0.0).then(|| (0, ticks.share(x.log2()), scale::binary(x)))
            }
        }
    }

    /// Share of the axis and text of each mark.
    pub(crate) fn labels(&self) -> Vec<(f64, String)> {
        match self {
            Self::Slots { names, .. } => {
                let names = names.iter().enumerate();
                names
                    .map(|(i, name)| (middle(i, self.slots()), name.clone()))
                    .collect()
            }
            Self::Linear(ticks) => {
                let unit = Unit::of("", ticks.low().abs().max(ticks.high()));
                // 1500 stays as it is; 20,000 is 20k.
                let unit = if unit.factor <= 1e3 && ticks.high() < 1e4 {
                    Unit::of("", 0.0)
                } else {
                    unit
                };
                let text = |t: f64| match unit.tick(t, ticks.step) {
                    zero if t == 0.0 => zero,
                    text => text + &unit.name,
                };
                let at = ticks.at.iter();
                at.map(|t| (ticks.share(*t), text(*t))).collect()
            }
            Self::Log2(ticks) => {
                let at = ticks.at.iter();
                at.map(|t| (ticks.share(*t), scale::power_of_two(*t)))
                    .collect()
            }
        }
    }

    /// How many categories there are; none on an axis of numbers.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Slots { names, .. } => names.len(),
            _ => 0,
        }
    }
}

fn middle(slot: usize, slots: usize) -> f64 {
    (slot as f64 + 0.5) / slots as f64
}

impl Placed {
    /// Places with at most so many marks on the axes of numbers.
    pub(crate) fn new(chart: &Chart, most_x: usize, most_y: usize) -> Self {
        let x = Places::of(chart, most_x);
        let series: Vec<Vec<Mark>> = chart
            .series
            .iter()
            .map(|series| {
                let mut points: Vec<&Point> = series.points.iter().collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                let mark = |point: &Point| {
                    let (slot, across, place) = x.locate(point.x)?;
                    Some(Mark {
                        across,
                        slot,
                        place,
                        value: Value::of(point),
                    })
                };
                points.into_iter().filter_map(mark).collect()
            })
            .collect();
        let ends = || {
            let values = series.iter().flatten().filter_map(|mark| mark.value);
            values.map(Value::ends)
        };
        let zero = chart.y.from_zero || chart.kind == Kind::Bars;
        let start = if zero { 0.0 } else { f64::INFINITY };
        let low = ends().map(|(low, _)| low).fold(start, f64::min);
        let high = ends().map(|(_, high)| high).fold(-start, f64::max);
        let y = if low.is_finite() && high.is_finite() {
            Ticks::linear(low, high, most_y, 0.0)
        } else {
            Ticks::linear(0.0, 1.0, most_y, 0.0)
        };
        // By the values: an axis that ends at 1,000 has figures below it.
        let size = if zero {
            low.abs().max(high.abs())
        } else {
            y.high().abs().max(y.low().abs())
        };
        let unit = Unit::of(&chart.y.unit, size);
        Self { x, y, unit, series }
    }

    /// What the y axis shows, with its unit.
    pub(crate) fn y_title(&self, chart: &Chart) -> String {
        let label = &chart.y.label;
        match (label.is_empty(), self.unit.name.is_empty()) {
            (_, true) => label.clone(),
            (true, false) => self.unit.name.clone(),
            (false, false) => format!("{label} ({})", self.unit.name),
        }
    }

    /// Whether the series has anything to draw.
    pub(crate) fn has_values(&self, series: usize) -> bool {
        self.series[series].iter().any(|mark| mark.value.is_some())
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
