//! A picture as a list of shapes, made by the layout and drawn as SVG.
//!
//! Lengths are CSS pixels, x to the right, y down. Colours are roles; the actual
//! colours depend on the theme.

/// Light or dark ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// Dark ink on white.
    Light,
    /// Light ink on near black.
    Dark,
}

/// Role of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Paper,
    Text,
    /// Figures of axes, notes.
    Muted,
    Axis,
    Grid,
    /// The series with this index, modulo [`HUES`].
    Series(usize),
}

/// Number of distinct series colours.
pub(crate) const HUES: usize = 7;

/// Hues that differ with any colour vision, as proposed by Okabe and Ito ("Color Universal
/// Design", 2008), without their yellow, which is lost on white. The dark theme has lighter
/// variants of the same hues.
const SERIES: [[Rgb; HUES]; 2] = [
    [
        [0x00, 0x72, 0xb2],
        [0xd5, 0x5e, 0x00],
        [0x00, 0x9e, 0x73],
        [0xcc, 0x79, 0xa7],
        [0xe6, 0x9f, 0x00],
        [0x56, 0xb4, 0xe9],
        [0x55, 0x55, 0x55],
    ],
    [
        [0x3d, 0x9b, 0xdc],
        [0xf0, 0x7c, 0x28],
        [0x1f, 0xc3, 0x94],
        [0xdf, 0x97, 0xbf],
        [0xf3, 0xb7, 0x32],
        [0x8c, 0xd0, 0xf7],
        [0xb4, 0xb4, 0xb4],
    ],
];

pub(crate) type Rgb = [u8; 3];

impl Ink {
    /// Returns every ink.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Paper, Self::Text, Self::Muted, Self::Axis, Self::Grid]
            .into_iter()
            .chain((0..HUES).map(Self::Series))
    }

    pub(crate) fn rgb(self, theme: Theme) -> Rgb {
        let dark = theme == Theme::Dark;
        let [light_rgb, dark_rgb] = match self {
            Self::Paper => [[0xff, 0xff, 0xff], [0x15, 0x19, 0x1e]],
            Self::Text => [[0x1c, 0x20, 0x25], [0xec, 0xef, 0xf2]],
            Self::Muted => [[0x52, 0x59, 0x61], [0xae, 0xb5, 0xbd]],
            Self::Axis => [[0x7b, 0x82, 0x8a], [0x86, 0x8e, 0x97]],
            Self::Grid => [[0xe1, 0xe4, 0xe8], [0x30, 0x36, 0x3d]],
            Self::Series(n) => [SERIES[0][n % HUES], SERIES[1][n % HUES]],
        };
        if dark { dark_rgb } else { light_rgb }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct At {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

pub(crate) const fn at(x: f64, y: f64) -> At {
    At { x, y }
}

/// Part of a text that is aligned with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// One line of text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    /// Start of the text, on the baseline.
    pub(crate) at: At,
    pub(crate) text: String,
    /// Font size, in pixels.
    pub(crate) size: f64,
    pub(crate) anchor: Anchor,
    pub(crate) bold: bool,
    /// Degrees clockwise around `at`.
    pub(crate) turn: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Round ends and joints.
    Polyline {
        points: Vec<At>,
        width: f64,
    },
    Rect {
        at: At,
        width: f64,
        height: f64,
    },
    Text(Text),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) ink: Ink,
    pub(crate) shape: Shape,
    /// Tooltip.
    pub(crate) tip: Option<String>,
}

/// The shapes of a picture, the first is the lowest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scene {
    pub(crate) title: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) items: Vec<Item>,
}

impl Scene {
    pub(crate) fn add(&mut self, ink: Ink, shape: Shape) -> &mut Item {
        self.items.push(Item {
            ink,
            shape,
            tip: None,
        });
        self.items.last_mut().expect("it was just added")
    }

    pub(crate) fn line(&mut self, ink: Ink, from: At, to: At, width: f64) {
        let points = vec![from, to];
        self.add(ink, Shape::Polyline { points, width });
    }
}
