//! Small charts of measured figures: grouped bars and lines, as SVG, PNG and plain text.
//!
//! A [`Chart`] says what is shown and nothing of how. Its values are put on axes once
//! (`data`), laid out once into drawing primitives (`layout`, `scene`), and then painted by
//! [`svg`] or [`png`], so both pictures show the same. [`terminal`] has a layout of its own, of
//! characters.
//!
//! No value makes a chart fail: what cannot be drawn (not a number, infinite, off the scale's
//! domain) is left out, and a series of which nothing is left says `no data`.

mod data;
mod font;
mod layout;
mod png;
mod raster;
mod scale;
mod scene;
mod svg;
mod terminal;

pub use self::{
    png::png,
    scene::Theme,
    svg::svg,
    terminal::{Glyphs, terminal},
};

/// What a picture shows.
///
/// ```
/// use wb_render::chart::{Chart, Glyphs, Positions, Series, XAxis, YAxis, terminal};
/// let chart = Chart::bars(
///     "TCP_STREAM",
///     XAxis::new("message", Positions::categories(["2 KiB", "4 KiB"])),
///     YAxis::new("throughput", "bit/s"),
/// )
/// .with(Series::of_values("one stream", [500e6, 1e9]));
/// let text = terminal(&chart, 48, Glyphs::Ascii);
/// assert!(text.contains("4 KiB  #"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// Where points stand.
    pub x: XAxis,
    /// What is measured.
    pub y: YAxis,
    /// In the order of the legend.
    pub series: Vec<Series>,
    /// How it is drawn.
    pub kind: Kind,
    /// A sentence below the picture, such as what the whiskers mean. Empty for none.
    pub note: String,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line for each series through its points in the order of x. A point that has no y to
    /// draw leaves a gap.
    Lines,
    /// A bar for each point, grouped by x; numbers on the x axis are taken as categories.
    /// Bars begin at zero, whatever the y axis says, because their length is what is read.
    Bars,
}

/// The horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct XAxis {
    /// What varies, with its unit where it has one: `message size (bytes)`.
    pub label: String,
    /// How a point's x is read.
    pub positions: Positions,
}

/// How the x of a point is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Positions {
    /// x is the index of a name, from 0.
    Categories(Vec<String>),
    /// Numbers, equal steps for equal differences.
    Linear,
    /// Numbers above 0, equal steps for equal ratios; powers of two are marked, as sizes are.
    Log2,
}

/// The vertical axis. It is always linear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YAxis {
    /// What is measured: `throughput`.
    pub label: String,
    /// The unit of the values without a prefix: `bit/s`, `/s`, `s`, `%`. The picture chooses
    /// the prefix (`Mbit/s`, `k/s`, `us`). Empty for plain numbers.
    pub unit: String,
    /// Whether zero is on the axis of lines. Bars always have it.
    pub from_zero: bool,
}

/// Points of one name and colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// As the legend has it. Empty for none.
    pub name: String,
    /// In any order. One point for each x.
    pub points: Vec<Point>,
}

/// One measured figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// A number or the index of a category, see [`Positions`].
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
            kind: Kind::Bars,
            note: String::new(),
        }
    }

    /// Lines, without series yet.
    #[must_use]
    pub fn lines(title: impl Into<String>, x: XAxis, y: YAxis) -> Self {
        Self {
            kind: Kind::Lines,
            ..Self::bars(title, x, y)
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
    pub fn new(label: impl Into<String>, positions: Positions) -> Self {
        Self {
            label: label.into(),
            positions,
        }
    }
}

impl Positions {
    /// Names in the order of the axis.
    #[must_use]
    pub fn categories<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Categories(names.into_iter().map(Into::into).collect())
    }
}

impl YAxis {
    /// An axis that has zero on it.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            unit: unit.into(),
            from_zero: true,
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

    /// One value for each category, in their order. What is not a number leaves its place empty.
    #[must_use]
    pub fn of_values(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let points = values.into_iter().enumerate();
        Self::new(name, points.map(|(i, y)| Point::new(i as f64, y)))
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
