//! Figures of a report type: a static table of names, units and accessors.

use wb_measure::{Histogram, Times};

use crate::{Unit, Value};

/// Behaviour of a figure over time and over several parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises; parts add up.
    Counter,
    /// Rises and falls; parts add up, or are merged as the table says.
    Gauge,
    /// Computed from other figures; after a merge it is computed again.
    Derived,
    /// Distribution of times; parts merge slot by slot.
    Distribution,
    /// Text.
    Fact,
}

/// Direction in which a figure improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Higher is better.
    Higher,
    /// Lower is better; any value above 0 that is not a time is marked as bad.
    Lower,
    /// Neither direction.
    Neither,
}

/// When a figure is shown to people. CSV, JSON, OpenMetrics and criteria have all figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Whenever it is known.
    Always,
    /// If it is known and not 0.
    IfAny,
    /// Only with details.
    Details,
    /// Never.
    Never,
}

/// Description of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Def {
    /// Stable name in CSV, timelines, OpenMetrics and criteria.
    pub name: &'static str,
    /// Name for people.
    pub label: &'static str,
    /// Unit of its value.
    pub unit: Unit,
    /// Behaviour over time.
    pub kind: Kind,
    /// Direction in which it improves.
    pub better: Better,
    /// When it is shown to people.
    pub show: Show,
    /// True for the figures of a summary.
    pub leads: bool,
    /// Name of the figure of which its share is shown; empty for none.
    pub share_of: &'static str,
    /// CSV columns of a figure that is a number for each label: their prefix, and the labels that always exist.
    pub labels: (&'static str, &'static [&'static str]),
    /// Names in criteria besides `name`. For a distribution they are prefixes: `connect` in `connect_p99`; empty for
    /// `p99`.
    pub judged: &'static [&'static str],
}

impl Def {
    /// A figure that is always shown. Of a distribution of times, lower is better.
    #[must_use]
    pub const fn new(name: &'static str, label: &'static str, unit: Unit, kind: Kind) -> Self {
        Self {
            name,
            label,
            unit,
            kind,
            better: match kind {
                Kind::Distribution => Better::Lower,
                _ => Better::Neither,
            },
            show: Show::Always,
            leads: false,
            share_of: "",
            labels: ("", &[]),
            judged: &[],
        }
    }

    /// Sets when it is shown.
    #[must_use]
    pub const fn show(mut self, show: Show) -> Self {
        self.show = show;
        self
    }

    /// Lower is better, and any value above 0 is bad unless it is a time.
    #[must_use]
    pub const fn bad(mut self) -> Self {
        self.better = Better::Lower;
        self
    }
}

/// A figure of the report type `S`.
pub struct Field<S: 'static> {
    /// Its description.
    pub def: Def,
    /// Returns its value.
    pub get: for<'a> fn(&'a S) -> Value<'a>,
    /// Adds the value of another part; does nothing for derived figures.
    pub merge: fn(&mut S, &S),
    /// Returns a remark shown next to the value; empty for none.
    pub note: fn(&S) -> String,
    /// Returns the stored distribution, if the figure is one.
    pub times: for<'a> fn(&'a mut S) -> Option<&'a mut Times>,
}

impl<S> Field<S> {
    /// A figure of any kind.
    pub const fn new(
        (name, label, unit, kind): (&'static str, &'static str, Unit, Kind),
        get: for<'a> fn(&'a S) -> Value<'a>,
        merge: fn(&mut S, &S),
    ) -> Self {
        Self {
            def: Def::new(name, label, unit, kind),
            get,
            merge,
            note: |_| String::new(),
            times: |_| None,
        }
    }

    /// A distribution of times in ns that is not merged.
    pub const fn distribution(
        name: &'static str,
        label: &'static str,
        get: for<'a> fn(&'a S) -> Value<'a>,
    ) -> Self {
        let what = (name, label, Unit::Nanoseconds, Kind::Distribution);
        Self::new(what, get, |_, _| ())
    }

    /// Lower is better, and any value above 0 is bad unless it is a time.
    #[must_use]
    pub const fn bad(mut self) -> Self {
        self.def = self.def.bad();
        self
    }

    /// Higher is better.
    #[must_use]
    pub const fn good(mut self) -> Self {
        self.def.better = Better::Higher;
        self
    }

    /// Neither direction is better.
    #[must_use]
    pub const fn neutral(mut self) -> Self {
        self.def.better = Better::Neither;
        self
    }

    /// Sets when it is shown.
    #[must_use]
    pub const fn show(mut self, show: Show) -> Self {
        self.def = self.def.show(show);
        self
    }

    /// Puts it into the summary of a report.
    #[must_use]
    pub const fn leads(mut self) -> Self {
        self.def.leads = true;
        self
    }

    /// Also shows it as a share of the figure `whole`.
    #[must_use]
    pub const fn share_of(mut self, whole: &'static str) -> Self {
        self.def.share_of = whole;
        self
    }

    /// Sets the CSV columns `PREFIX_LABEL` of a figure that is a number for each label.
    #[must_use]
    pub const fn labels(mut self, prefix: &'static str, labels: &'static [&'static str]) -> Self {
        self.def.labels = (prefix, labels);
        self
    }

    /// Sets its names in criteria.
    #[must_use]
    pub const fn judged(mut self, names: &'static [&'static str]) -> Self {
        self.def.judged = names;
        self
    }

    /// Replaces the merge function, for example by the larger of two values.
    #[must_use]
    pub const fn merged(mut self, merge: fn(&mut S, &S)) -> Self {
        self.merge = merge;
        self
    }

    /// Sets where the distribution is stored.
    #[must_use]
    pub const fn stored(mut self, times: for<'a> fn(&'a mut S) -> Option<&'a mut Times>) -> Self {
        self.times = times;
        self
    }

    /// Sets the remark next to the value.
    #[must_use]
    pub const fn note(mut self, note: fn(&S) -> String) -> Self {
        self.note = note;
        self
    }
}

/// Adds all figures of another part.
pub fn merge_fields<S>(fields: &[Field<S>], own: &mut S, other: &S) {
    fields.iter().for_each(|field| (field.merge)(own, other));
}

/// Gives distributions that were read from a report their values. `values` returns those of a figure by its name.
pub fn attach<S>(fields: &[Field<S>], own: &mut S, values: impl Fn(&str) -> Option<Histogram>) {
    for field in fields {
        if let Some(times) = (field.times)(own)
            && let Some(values) = values(field.def.name)
        {
            times.attach(&values);
        }
    }
}

/// Table of the figures of a report type: `fields!(LoadJobReport: counter!(…), derived!(…))`.
#[macro_export]
macro_rules! fields {
    ($of:ty: $($field:expr),* $(,)?) => {{
        type S = $of;
        &[$($field),*]
    }};
}

/// A counter: `counter!(totals.requests, "requests", UNIT)`. Its name is that of the last field.
#[macro_export]
macro_rules! counter {
    ($($field:ident).+, $label:expr, $unit:expr) => {
        $crate::stored!(Counter, $unit, $label, $($field).+)
    };
}

/// A gauge or a rate, written like [`counter!`].
#[macro_export]
macro_rules! gauge {
    ($($field:ident).+, $label:expr, $unit:expr) => {
        $crate::stored!(Gauge, $unit, $label, $($field).+)
    };
}

/// A distribution of times in ns: `times!(connect_ns, "connect")`.
#[macro_export]
macro_rules! times {
    ($($field:ident).+, $label:expr) => {
        $crate::stored!(Distribution, $crate::Unit::Nanoseconds, $label, $($field).+)
            .stored(|s| $crate::AsTimes::as_times(&mut s.$($field).+))
    };
}

/// A figure computed from others: `derived!("loss", "loss", Unit::Share, |job| job.loss().into())`.
#[macro_export]
macro_rules! derived {
    ($name:literal, $label:literal, $unit:expr, $get:expr) => {
        $crate::Field::<S>::new(
            ($name, $label, $unit, $crate::Kind::Derived),
            $get,
            |_, _| (),
        )
    };
}

/// A text: `fact!("filter", "filter", |job| (&job.filter).into())`.
#[macro_export]
macro_rules! fact {
    ($name:literal, $label:literal, $get:expr) => {
        $crate::Field::<S>::new(
            ($name, $label, $crate::Unit::None, $crate::Kind::Fact),
            $get,
            |_, _| (),
        )
    };
}

/// A field of the report type, or of a part of it, that merges as its type does.
#[macro_export]
#[doc(hidden)]
macro_rules! stored {
    ($kind:ident, $unit:expr, $label:expr, $($field:ident).+) => {
        $crate::Field::<S>::new(
            ($crate::last!($($field).+), $label, $unit, $crate::Kind::$kind),
            |s| $crate::Value::from(&s.$($field).+),
            |own, other| $crate::Merge::merge(&mut own.$($field).+, &other.$($field).+),
        )
    };
}

/// Name of the last field of a path.
#[macro_export]
#[doc(hidden)]
macro_rules! last {
    ($last:ident) => { stringify!($last) };
    ($first:ident . $($rest:ident).+) => { $crate::last!($($rest).+) };
}
