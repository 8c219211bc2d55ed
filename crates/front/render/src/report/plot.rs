//! A plot as figures, independent of the drawing. The page draws it with uPlot, a file with
//! [`super::lines`]; both take the axes from here, so they show the same picture.

use crate::chart::scale::Unit;

/// Lines over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Name for files, and to find the same plot of another run: `rates`.
    pub name: String,
    /// The heading.
    pub title: String,
    /// The horizontal axis.
    pub x: X,
    /// The vertical axis.
    pub y: Y,
    /// Places on the x axis, ascending, as returned by [`X::place`].
    pub xs: Vec<f64>,
    /// Lines in the order of the legend.
    pub series: Vec<Series>,
    /// A sentence below the plot. Empty for none.
    pub note: String,
    /// True if an unknown value interrupts its line.
    pub gaps: bool,
}

/// The horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct X {
    /// The quantity that varies: `time since the start`.
    pub label: String,
    /// Its unit: `s`. Empty for none, and if the marks include it.
    pub unit: String,
    /// Mapping of values to places.
    pub scale: Scale,
}

/// Mapping of the values of an axis to places on it.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Places are the values.
    Linear,
    /// Whole numbers: no value lies between two of them.
    Counts,
    /// Times in ns of either sign, by the logarithm of their amount.
    Times,
    /// Shares up to 1, by the remainder: 0.9, 0.99, 0.999 are equally spaced.
    Tail,
    /// Names at 0, 1, 2, ….
    Names(Vec<String>),
}

/// The vertical axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Y {
    /// The measured quantity: `rate`.
    pub label: String,
    /// Its unit without a prefix: `pps`, `s`, `%`.
    pub unit: String,
    /// True for a logarithmic axis; a linear one begins at 0 unless a value is negative.
    pub log: bool,
    /// Minimum upper end of the axis, whatever is drawn.
    pub up_to: Option<u32>,
}

/// Points of one name and colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// One value for each place; none if it is unknown.
    pub values: Vec<Option<f64>>,
    /// Style of the points.
    pub form: Form,
}

/// Style of the points of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line from point to point.
    Line,
    /// A dashed line, for a reference value.
    Dashes,
    /// Each value holds until the next; the area below is filled.
    Area,
    /// A mark at each point, and a line between them.
    Marks,
}

impl X {
    /// Time since the start of a run, in s.
    #[must_use]
    pub fn time() -> Self {
        Self::linear("time since the start", "s")
    }

    /// A linear axis.
    #[must_use]
    pub fn linear(label: &str, unit: &str) -> Self {
        Self {
            label: label.to_owned(),
            unit: unit.to_owned(),
            scale: Scale::Linear,
        }
    }

    /// An axis with another scale.
    #[must_use]
    pub fn scaled(label: &str, scale: Scale) -> Self {
        Self {
            label: label.to_owned(),
            unit: String::new(),
            scale,
        }
    }

    /// Label and unit.
    #[must_use]
    pub fn title(&self) -> String {
        titled(&self.label, &self.unit)
    }

    /// The place of a value.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        match &self.scale {
            Scale::Linear | Scale::Counts | Scale::Names(_) => value,
            Scale::Times => value.signum() * value.abs().max(1.0).log10() * f64::from(value != 0.0),
            Scale::Tail => -(1.0 - value).max(1e-12).log10(),
        }
    }

    /// The value at a place.
    #[must_use]
    pub(crate) fn value_at(&self, place: f64) -> f64 {
        match &self.scale {
            Scale::Linear | Scale::Counts | Scale::Names(_) => place,
            Scale::Times if place == 0.0 => 0.0,
            Scale::Times => place.signum() * 10f64.powf(place.abs()),
            Scale::Tail => 1.0 - 10f64.powf(-place),
        }
    }

    /// Marks between two places, each with its text; none if round numbers suffice.
    #[must_use]
    pub fn marks(&self, low: f64, high: f64) -> Vec<(f64, String)> {
        let whole = |from: f64, to: f64| {
            let (from, to) = (from.floor().max(-20.0) as i32, to.ceil().min(20.0) as i32);
            from..=to
        };
        match &self.scale {
            Scale::Linear => Vec::new(),
            // No axis has room for more marks: round numbers are whole ones then.
            Scale::Counts if high - low > 100.0 => Vec::new(),
            Scale::Counts => (low.ceil() as i64..=high.floor() as i64)
                .map(|n| (n as f64, n.to_string()))
                .collect(),
            Scale::Names(names) => {
                let names = names.iter().enumerate();
                names.map(|(i, name)| (i as f64, name.clone())).collect()
            }
            Scale::Times => whole(low, high)
                .map(|power| {
                    let time = whole_time(power.unsigned_abs());
                    let text = if power < 0 { format!("-{time}") } else { time };
                    (f64::from(power), text)
                })
                .collect(),
            Scale::Tail => whole(low.max(0.0), high)
                .map(|nines| {
                    let text = match nines {
                        0 => "0 %".to_owned(),
                        1 => "90 %".to_owned(),
                        n => format!(
                            "99{}{} %",
                            if n > 2 { "." } else { "" },
                            "9".repeat(n as usize - 2)
                        ),
                    };
                    (f64::from(nines), text)
                })
                .collect(),
        }
    }
}

/// A power of ten in ns: `100 us`.
fn whole_time(power: u32) -> String {
    let unit = ["ns", "us", "ms", "s"][(power / 3).min(3) as usize];
    let rest = power - 3 * (power / 3).min(3);
    format!("1{} {unit}", "0".repeat(rest as usize))
}

impl Y {
    /// A linear axis.
    #[must_use]
    pub fn new(label: &str, unit: &str) -> Self {
        Self {
            label: label.to_owned(),
            unit: unit.to_owned(),
            log: false,
            up_to: None,
        }
    }

    /// Extends the axis at least up to this value.
    #[must_use]
    pub fn up_to(mut self, value: u32) -> Self {
        self.up_to = Some(value);
        self
    }

    /// Makes the axis logarithmic.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }
}

fn titled(label: &str, unit: &str) -> String {
    match (label.is_empty(), unit.is_empty()) {
        (_, true) => label.to_owned(),
        (true, false) => unit.to_owned(),
        (false, false) => format!("{label} ({unit})"),
    }
}

impl Series {
    /// A line.
    #[must_use]
    pub fn line(name: &str, values: Vec<Option<f64>>) -> Self {
        Self {
            name: name.to_owned(),
            values,
            form: Form::Line,
        }
    }

    /// Sets the style of the series.
    #[must_use]
    pub fn as_form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }
}

impl Plot {
    /// A plot of the drawable values: finite and within bounds; none if no such value exists.
    #[must_use]
    pub fn new(
        name: &str,
        title: &str,
        x: X,
        y: Y,
        xs: Vec<f64>,
        series: Vec<Series>,
    ) -> Option<Self> {
        let log = y.log;
        let drawable = |v: &f64| v.abs() <= 1e300 && (!log || *v > 0.0);
        let xs: Vec<f64> = xs.iter().map(|v| x.place(*v)).collect();
        if xs.is_empty() || !xs.iter().all(|v| v.abs() <= 1e300) {
            return None;
        }
        let clean = |mut s: Series| {
            s.values.resize(xs.len(), None);
            s.values.iter_mut().for_each(|v| *v = v.filter(drawable));
            s
        };
        let series: Vec<Series> = series.into_iter().map(clean).collect();
        let known = |s: &Series| s.values.iter().any(Option::is_some);
        let plot = Self {
            name: name.to_owned(),
            title: title.to_owned(),
            x,
            y,
            xs,
            series: series.into_iter().filter(known).collect(),
            note: String::new(),
            gaps: true,
        };
        (!plot.series.is_empty()).then_some(plot)
    }

    /// Sets the sentence below the plot.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Lets lines continue across unknown values.
    #[must_use]
    pub fn joined(mut self) -> Self {
        self.gaps = false;
        self
    }

    /// The least and the greatest value, and the upper end of the axis.
    #[must_use]
    pub fn extent(&self) -> (f64, f64) {
        let values = self.series.iter().flat_map(|s| s.values.iter().flatten());
        let top = self.y.up_to.map(f64::from);
        values
            .chain(&top)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(*v), high.max(*v))
            })
    }

    /// Unit in which the values are written.
    pub(crate) fn unit(&self) -> Unit {
        let (low, high) = self.extent();
        Unit::of(&self.y.unit, low.abs().max(high.abs()))
    }

    /// Title of the y axis, with its unit.
    pub(crate) fn y_title(&self) -> String {
        titled(&self.y.label, &self.unit().name)
    }

    /// Typical value of a line over time, for the legend: `, median 100 kpps`. Start and end of a run hardly change it.
    /// Empty for other lines and for fewer than three values.
    pub(crate) fn typical(&self, series: &Series) -> String {
        let values = series.values.iter().flatten().copied();
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let is_value = matches!(series.form, Form::Line | Form::Area);
        if self.x != X::time() || !is_value || values.len() < 3 {
            return String::new();
        }
        values.sort_by(f64::total_cmp);
        let median = values[values.len() / 2];
        let unit = Unit::of(&self.y.unit, median);
        format!(", median {} {}", unit.figure(median), unit.name)
            .trim_end()
            .to_owned()
    }

    /// Adds the lines of the same plot of another run, each with the run's name.
    pub(crate) fn overlay(plots: &[(&str, Self)]) -> Option<Self> {
        let (_, first) = plots.first()?;
        let names = plots.iter().filter_map(|(_, p)| match &p.x.scale {
            Scale::Names(names) => Some(names),
            _ => None,
        });
        let mut all_names: Vec<String> = Vec::new();
        for name in names.flatten() {
            if !all_names.contains(name) {
                all_names.push(name.clone());
            }
        }
        // A name has the same place in all plots.
        let places = |p: &Self| -> Vec<f64> {
            let named = |x: &f64| match &p.x.scale {
                Scale::Names(names) => {
                    let name = names.get(*x as usize)?;
                    all_names.iter().position(|n| n == name).map(|i| i as f64)
                }
                _ => Some(*x),
            };
            p.xs.iter().filter_map(named).collect()
        };
        let mut xs: Vec<f64> = plots.iter().flat_map(|(_, p)| places(p)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let mut series = Vec::new();
        for (run, plot) in plots {
            let own = places(plot);
            for s in &plot.series {
                let mut values = vec![None; xs.len()];
                for (x, value) in own.iter().zip(&s.values) {
                    let at = xs.partition_point(|known| known < x);
                    values[at] = value.or(values[at]);
                }
                // A step holds even if only the other run has a place there.
                if s.form == Form::Area {
                    let (mut last, end) = (None, own.last().copied().unwrap_or(0.0));
                    for (x, value) in xs.iter().zip(&mut values) {
                        last = value.or(last).filter(|_| *x <= end);
                        *value = last;
                    }
                }
                series.push(Series {
                    name: format!("{run}: {}", s.name),
                    values,
                    form: s.form,
                });
            }
        }
        let mut plot = Self {
            xs,
            series,
            gaps: false,
            ..first.clone()
        };
        if !all_names.is_empty() {
            plot.x.scale = Scale::Names(all_names);
        }
        let notes: Vec<(&str, &str)> = plots
            .iter()
            .map(|(run, p)| (*run, p.note.as_str()))
            .collect();
        plot.note = match notes.iter().all(|(_, note)| *note == first.note) {
            true => first.note.clone(),
            false => {
                let notes = notes.iter().filter(|(_, note)| !note.is_empty());
                let notes = notes.map(|(run, note)| format!("{run}: {note}"));
                notes.collect::<Vec<_>>().join(" ")
            }
        };
        Some(plot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_over_time_has_its_median_in_the_legend() {
        let typical = |x: X, form: Form, values: &[Option<f64>]| {
            let series = Series::line("offered", values.to_vec()).as_form(form);
            let plot = Plot {
                name: "rate".to_owned(),
                title: String::new(),
                x,
                y: Y::new("rate", "pps"),
                xs: Vec::new(),
                series: vec![series],
                note: String::new(),
                gaps: false,
            };
            plot.typical(&plot.series[0])
        };
        let values = [
            Some(0.0),
            Some(100_000.0),
            Some(100_000.0),
            None,
            Some(99_000.0),
        ];
        let line = |values: &[Option<f64>]| typical(X::time(), Form::Line, values);
        assert_eq!(line(&values), ", median 100 kpps");
        assert_eq!(line(&values[..2]), "");
        assert_eq!(line(&[Some(f64::NAN); 5]), "");
        assert_eq!(typical(X::time(), Form::Dashes, &values), "");
        assert_eq!(typical(X::linear("size", "B"), Form::Line, &values), "");
    }
}
