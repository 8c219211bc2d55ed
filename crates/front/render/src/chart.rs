//! Small charts of measured figures: grouped bars, as SVG.
//!
//! A [`Chart`] describes the data, not the drawing. Its values are put on axes (`data`), laid out
//! into drawing primitives (`layout`, `scene`), and then painted by [`svg`].
//!
//! No value makes a chart fail: values that cannot be drawn (not a number, infinite, of no category)
//! are left out, and a series without drawable values is labelled `no data`.

mod data;
mod layout;
pub(crate) mod lines;
pub(crate) mod scale;
mod scene;
mod svg;

pub use self::svg::svg;

/// Data and labels of a picture.
///
/// ```
/// use wb_render::chart::{Chart, Point, Series, XAxis, YAxis, svg};
/// let chart = Chart::bars(
///     "TCP_STREAM",
///     XAxis::new("message", ["2 KiB", "4 KiB"]),
///     YAxis::new("throughput", "bit/s"),
/// )
/// .with(Series::new("one stream", [Point::new(0.0, 500e6), Point::new(1.0, 1e9)]));
/// assert!(svg(&chart).contains(">4 KiB<"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// The horizontal axis.
    pub x: XAxis,
    /// The vertical axis, with the measured quantity.
    pub y: YAxis,
    /// In the order of the legend.
    pub series: Vec<Series>,
    /// A sentence below the picture, such as what the whiskers mean. Empty for none.
    pub note: String,
}

/// The horizontal axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XAxis {
    /// The quantity that varies, with its unit if it has one: `message size (bytes)`.
    pub label: String,
    /// Names in the order of the axis; the x of a point is the index of one, from 0.
    pub categories: Vec<String>,
}

/// The vertical axis. It is always linear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YAxis {
    /// The measured quantity: `throughput`.
    pub label: String,
    /// The unit of the values without a prefix: `bit/s`, `/s`, `s`, `%`. The picture chooses
    /// the prefix (`Mbit/s`, `k/s`, `us`). Empty for plain numbers.
    pub unit: String,
}

/// Points of one name and colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend. Empty for none.
    pub name: String,
    /// Points in any order, one for each x.
    pub points: Vec<Point>,
}

/// One measured figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The index of a category.
    pub x: f64,
    /// In the unit of the y axis.
    pub y: f64,
    /// Half the width of the confidence interval, in the unit of the y axis; drawn as a
    /// whisker around y. Values below 0 count as none.
    pub half_width: Option<f64>,
}

impl Chart {
    /// Grouped bars, without series yet.
    #[must_use]
    pub fn bars(title: impl Into<String>, x: XAxis, y: YAxis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            series: Vec::new(),
            note: String::new(),
        }
    }

    /// Adds a series.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Sets the sentence below the picture.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl XAxis {
    /// An axis.
    #[must_use]
    pub fn new<S: Into<String>>(
        label: impl Into<String>,
        categories: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            label: label.into(),
            categories: categories.into_iter().map(Into::into).collect(),
        }
    }
}

impl YAxis {
    /// An axis.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            unit: unit.into(),
        }
    }
}

impl Series {
    /// A series of these points.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = Point>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
        }
    }
}

impl Point {
    /// A point without a confidence interval.
    #[must_use]
    pub const fn new(x: f64, y: f64) -> Self {
        Self {
            x,
            y,
            half_width: None,
        }
    }

    /// Sets the half width of the confidence interval.
    #[must_use]
    pub const fn plus_minus(mut self, half_width: f64) -> Self {
        self.half_width = Some(half_width);
        self
    }
}
