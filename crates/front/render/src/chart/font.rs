//! Built-in stroke font, so that pictures need no installed font.
//!
//! A glyph is a path of centre lines on a grid: the baseline is 0, capitals are 9 high, small
//! letters 6, tails go down to -3, y is up. In [`UNIT_SIZE`] pixels one step of the grid is one
//! pixel, so most stems and bars meet whole pixels.
//!
//! The words of a path: `M x y` begins a stroke, `L x y`, `H x` and `V y` go straight,
//! `Q cx cy x y` is a quadratic curve, `U x y` and `F x y` are quarter turns that leave upright and
//! flat, `D x y` is a dot.

use super::scene::{Anchor, At, Text, at};

/// Size of the font at which a step of the grid is a pixel.
pub(crate) const UNIT_SIZE: f64 = 13.0;

/// Widths of strokes in steps of the grid.
const REGULAR: f64 = 1.25;
const BOLD: f64 = 1.75;

/// Additional advance of a bold glyph.
const BOLD_ADVANCE: f64 = 0.3;

/// Pieces of a curve.
const PIECES: usize = 8;

/// Advance to the next glyph, and the path.
type Glyph = (u8, &'static str);

const UNKNOWN: Glyph = (7, "M 1 0 V 9 H 5 V 0 H 1");

/// Glyphs from space to tilde.
const ASCII: [Glyph; 95] = [
    (4, ""),
    (3, "M 1 9 V 3 D 1 .2"),
    (5, "M 1 9 V 6.5 M 3 9 V 6.5"),
    (9, "M 3 9 L 2 0 M 6 9 L 5 0 M .8 6 H 7.2 M .6 3 H 7"),
    (
        7,
        "M 5 7 Q 4.6 8 3 8 F 1 6.3 Q 1 5 3 4.5 Q 5.2 4 5.2 2.6 U 3 1 Q 1.2 1 .8 2.2 M 3 9.6 V -.6",
    ),
    (
        11,
        "M 1 7 U 2.5 9 F 4 7 U 2.5 5 F 1 7 M 6 2 U 7.5 4 F 9 2 U 7.5 0 F 6 2 M 7.5 9 L 2.5 0",
    ),
    (
        9,
        "M 7.2 0 L 2.4 6 Q 1.5 7.2 2 8.2 Q 2.4 9 3.4 9 F 5 7.4 Q 5 6 3.2 5 Q .8 3.8 .8 2.2 U 3.2 0 Q 6.4 0 6.8 4.2",
    ),
    (3, "M 1 9 V 6.5"),
    (4, "M 3 10 Q 1 7.5 1 4 Q 1 .5 3 -2"),
    (4, "M 1 10 Q 3 7.5 3 4 Q 3 .5 1 -2"),
    (6, "M 3 9 V 5 M 1.2 8 L 4.8 6 M 4.8 8 L 1.2 6"),
    (8, "M 4 7 V 1 M 1 4 H 7"),
    (3, "M 1.2 .3 L .6 -1.8"),
    (5, "M 1 3 H 4"),
    (3, "D 1 .2"),
    (5, "M 4 9.5 L .6 -1"),
    (7, "M 1 3 V 6 U 3 9 F 5 6 V 3 U 3 0 F 1 3"),
    (7, "M 1 7.4 L 3 9 V 0 M 1 0 H 5"),
    (7, "M 1 7 Q 1.2 9 3 9 F 5 6.8 Q 5 5.3 3.6 3.7 L .9 0 H 5.2"),
    (
        7,
        "M 1 7.5 Q 1.4 9 3 9 F 5 6.9 U 2.9 5 H 2.2 M 2.9 5 F 5.2 2.5 U 3 0 Q 1.3 0 .8 1.7",
    ),
    (7, "M 4 0 V 9 L .8 3 H 5.6"),
    (
        7,
        "M 5 9 H 1.4 L 1 4.9 Q 1.8 5.8 3 5.8 F 5.1 3 U 3 0 Q 1.3 0 .8 1.6",
    ),
    (
        7,
        "M 4.9 7.7 Q 4.4 9 3.2 9 F 1 4.5 V 3 U 3 0 F 5.1 2.9 U 3.1 5.7 F 1 2.9",
    ),
    (7, "M .9 9 H 5.1 L 2.4 0"),
    (
        7,
        "M 3 4.9 F 1.2 7 U 3 9 F 4.8 7 U 3 4.9 F .9 2.4 U 3 0 F 5.1 2.4 U 3 4.9",
    ),
    (
        7,
        "M 1.1 1.3 Q 1.6 0 2.8 0 F 5 4.5 V 6 U 3 9 F .9 6.1 U 2.9 3.3 F 5 6.1",
    ),
    (3, "D 1 5.6 D 1 .2"),
    (3, "D 1 5.6 M 1.2 .3 L .6 -1.8"),
    (8, "M 7 7 L 1 4 L 7 1"),
    (8, "M 1 5 H 7 M 1 3 H 7"),
    (8, "M 1 7 L 7 4 L 1 1"),
    (
        6,
        "M .9 7.2 U 2.9 9 F 5 7 Q 5 5.8 3.9 5 Q 3 4.2 3 2.8 D 3 .2",
    ),
    (
        13,
        "M 9.4 -.4 Q 8 -1.4 6 -1.4 F 1 3.6 U 6.2 8.8 F 11.2 4.2 Q 11.2 1.4 9.6 1.4 Q 8 1.4 8 3 V 6 M 8 3.8 U 6.2 6 F 4 3.7 U 6 1.4 F 8 3.8",
    ),
    (8, "M .6 0 L 3.8 9 L 7 0 M 1.7 3 H 5.9"),
    (
        8,
        "M 1 0 V 9 H 3.8 F 6 7 U 3.8 5 H 1 M 3.8 5 F 6.4 2.5 U 3.8 0 H 1",
    ),
    (8, "M 7 7 Q 6.2 9 4.1 9 F 1 4.5 U 4.1 0 Q 6.2 0 7 2"),
    (9, "M 1 0 V 9 H 3.5 F 7 4.5 U 3.5 0 H 1"),
    (8, "M 6 9 H 1 V 0 H 6.2 M 1 5 H 5.5"),
    (7, "M 6 9 H 1 V 0 M 1 5 H 5.2"),
    (
        9,
        "M 7 7.2 Q 6.2 9 4.2 9 F 1 4.5 U 4.2 0 Q 6 0 7 1.2 V 4 H 4.4",
    ),
    (9, "M 1 0 V 9 M 7 0 V 9 M 1 5 H 7"),
    (3, "M 1 0 V 9"),
    (6, "M 4 9 V 2.2 U 2.3 0 Q .9 0 .5 1.5"),
    (8, "M 1 0 V 9 M 6.6 9 L 1 3.6 M 3 5.4 L 7 0"),
    (7, "M 1 9 V 0 H 5.8"),
    (10, "M 1 0 V 9 L 4.5 1.5 L 8 9 V 0"),
    (9, "M 1 0 V 9 L 7 0 V 9"),
    (9, "M .8 4.5 U 4 9 F 7.2 4.5 U 4 0 F .8 4.5"),
    (8, "M 1 0 V 9 H 3.8 F 6.3 6.5 U 3.8 4 H 1"),
    (
        9,
        "M .8 4.5 U 4 9 F 7.2 4.5 U 4 0 F .8 4.5 M 4.8 2.2 L 7.2 -.6",
    ),
    (8, "M 1 0 V 9 H 3.8 F 6.3 7 U 3.8 5 H 1 M 4 5 L 6.8 0"),
    (
        8,
        "M 6.2 7.2 Q 5.7 9 3.7 9 F 1 6.9 Q 1 5.3 3.7 4.7 Q 6.5 4.1 6.5 2.3 U 3.7 0 Q 1.3 0 .8 2",
    ),
    (8, "M .7 9 H 7.3 M 4 9 V 0"),
    (9, "M 1 9 V 3 U 4 0 F 7 3 V 9"),
    (8, "M .6 9 L 3.8 0 L 7 9"),
    (11, "M .6 9 L 3 0 L 5.5 8.5 L 8 0 L 10.4 9"),
    (8, "M .8 9 L 6.8 0 M 6.8 9 L .8 0"),
    (8, "M .6 9 L 4 4.4 V 0 M 7.4 9 L 4 4.4"),
    (8, "M 1 9 H 6.8 L .8 0 H 7"),
    (4, "M 3 10 H 1 V -2 H 3"),
    (5, "M .6 9.5 L 4 -1"),
    (4, "M 1 10 H 3 V -2 H 1"),
    (7, "M 1 5.5 L 3.5 9 L 6 5.5"),
    (7, "M 0 -2 H 6.5"),
    (4, "M 1 9.5 L 2.5 7.8"),
    (
        7,
        "M 1.2 4.9 Q 1.6 6 3 6 F 5 4.2 V 0 M 5 3.4 H 2.9 F 1 1.7 U 2.6 0 Q 4.4 0 5 1.6",
    ),
    (7, "M 1 9 V 0 M 1 3 U 3.1 6 F 5.2 3 U 3.1 0 F 1 3"),
    (6, "M 5 4.6 Q 4.6 6 3 6 F 1 3 U 3 0 Q 4.6 0 5 1.4"),
    (7, "M 5 9 V 0 M 5 3 U 2.9 6 F .8 3 U 2.9 0 F 5 3"),
    (7, "M 1 3 H 5 U 3 6 F 1 3 U 3.1 0 Q 4.5 0 5 1.3"),
    (4, "M 3.8 9 Q 2 9 2 7.2 V 0 M .5 6 H 3.7"),
    (
        7,
        "M 5 6 V -1 U 3 -3 Q 1.5 -3 1.1 -2 M 5 3 U 2.9 6 F .8 3 U 2.9 0 F 5 3",
    ),
    (7, "M 1 9 V 0 M 1 4 U 3.2 6 F 5 4 V 0"),
    (3, "M 1 6 V 0 D 1 8.6"),
    (3, "M 1 6 V -1.5 Q 1 -3 -.5 -3 D 1 8.6"),
    (6, "M 1 9 V 0 M 4.7 6 L 1 2.4 M 2.4 3.7 L 5 0"),
    (3, "M 1 9 V 1.3 Q 1 0 2.2 0"),
    (
        11,
        "M 1 6 V 0 M 1 4 U 3.1 6 F 5 4 V 0 M 5 4 U 7.1 6 F 9 4 V 0",
    ),
    (7, "M 1 6 V 0 M 1 4 U 3.2 6 F 5 4 V 0"),
    (7, "M .9 3 U 3 6 F 5.1 3 U 3 0 F .9 3"),
    (7, "M 1 6 V -3 M 1 3 U 3.1 6 F 5.2 3 U 3.1 0 F 1 3"),
    (7, "M 5 6 V -3 M 5 3 U 2.9 6 F .8 3 U 2.9 0 F 5 3"),
    (5, "M 1 6 V 0 M 1 3.6 Q 1.2 6 3.5 6"),
    (
        6,
        "M 4.7 4.9 Q 4.3 6 2.9 6 F 1.1 4.5 Q 1.1 3.4 2.9 3.1 Q 4.9 2.8 4.9 1.5 U 2.9 0 Q 1.3 0 .9 1.2",
    ),
    (4, "M 2 8 V 1.5 Q 2 0 3.7 0 M .5 6 H 3.7"),
    (7, "M 1 6 V 2 U 2.8 0 F 5 2 M 5 6 V 0"),
    (6, "M .6 6 L 3 0 L 5.4 6"),
    (9, "M .6 6 L 2.5 0 L 4.5 5.6 L 6.5 0 L 8.4 6"),
    (6, "M .8 6 L 5.2 0 M 5.2 6 L .8 0"),
    (6, "M .6 6 L 3 0 M 5.4 6 L 3 0 L 2.4 -1.8 Q 2 -3 .8 -3"),
    (6, "M 1 6 H 5 L 1 0 H 5"),
    (
        5,
        "M 4 10 Q 2.4 10 2.4 8.6 V 5.6 Q 2.4 4 1 4 Q 2.4 4 2.4 2.4 V -.6 Q 2.4 -2 4 -2",
    ),
    (3, "M 1 10 V -2"),
    (
        5,
        "M 1 10 Q 2.6 10 2.6 8.6 V 5.6 Q 2.6 4 4 4 Q 2.6 4 2.6 2.4 V -.6 Q 2.6 -2 1 -2",
    ),
    (8, "M 1 3.5 Q 2 5 4 4 Q 6 3 7 4.5"),
];

fn glyph(c: char) -> Glyph {
    match c {
        ' '..='~' => ASCII[c as usize - ' ' as usize],
        'µ' | 'μ' => (7, "M 1 6 V -3 M 1 2 U 2.8 0 F 5 2 M 5 6 V 0"),
        '±' => (8, "M 4 8 V 2 M 1 5 H 7 M 1 0 H 7"),
        '×' => (8, "M 1.5 6.5 L 6.5 1.5 M 6.5 6.5 L 1.5 1.5"),
        '–' => (7, "M 1 3 H 6"),
        '…' => (9, "D 1 .2 D 4 .2 D 7 .2"),
        '\u{a0}' => ASCII[0],
        _ => UNKNOWN,
    }
}

fn advance(c: char, bold: bool) -> f64 {
    f64::from(glyph(c).0) + if bold { BOLD_ADVANCE } else { 0.0 }
}

/// Width of a line in a font of this size.
pub(crate) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let steps: f64 = text.chars().map(|c| advance(c, bold)).sum();
    steps * size / UNIT_SIZE
}

/// Width of a stroke in a font of this size.
pub(crate) fn stroke_width(size: f64, bold: bool) -> f64 {
    size / UNIT_SIZE * if bold { BOLD } else { REGULAR }
}

/// Calls `stroke` with every stroke of `text`, on pixels that are `scale` times smaller.
pub(crate) fn strokes(text: &Text, scale: f64, mut stroke: impl FnMut(&[At])) {
    let unit = text.size * scale / UNIT_SIZE;
    let length = width(&text.text, text.size, text.bold) * scale;
    let back = match text.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => length / 2.0,
        Anchor::End => length,
    };
    let (sin, cos) = text.turn.to_radians().sin_cos();
    // The grid is aligned to the centres of pixels, whatever place was requested.
    let x = (text.at.x * scale - back * cos).floor() + 0.5;
    let y = (text.at.y * scale - back * sin).ceil() - 0.5;
    let mut pen = 0.0;
    for c in text.text.chars() {
        for points in paths(glyph(c).1) {
            let place = |p: &At| {
                let (right, down) = (pen + p.x * unit, -p.y * unit);
                at(x + right * cos - down * sin, y + right * sin + down * cos)
            };
            stroke(&points.iter().map(place).collect::<Vec<_>>());
        }
        pen += advance(c, text.bold) * unit;
    }
}

/// The strokes of a path as points on the grid.
fn paths(path: &str) -> Vec<Vec<At>> {
    let mut strokes: Vec<Vec<At>> = Vec::new();
    let mut words = path.split_ascii_whitespace();
    let mut here = at(0.0, 0.0);
    while let Some(word) = words.next() {
        let mut next = || -> f64 {
            let word = words.next().expect("every word of a path has its numbers");
            word.parse().expect("numbers follow the words of a path")
        };
        let (bend, to) = match word {
            "H" => (None, at(next(), here.y)),
            "V" => (None, at(here.x, next())),
            "Q" => (Some(at(next(), next())), at(next(), next())),
            "U" => {
                let to = at(next(), next());
                (Some(at(here.x, to.y)), to)
            }
            "F" => {
                let to = at(next(), next());
                (Some(at(to.x, here.y)), to)
            }
            _ => (None, at(next(), next())),
        };
        if matches!(word, "M" | "D") {
            strokes.push(vec![to]);
        } else if let Some(stroke) = strokes.last_mut() {
            match bend {
                Some(bend) => stroke.extend((1..=PIECES).map(|i| {
                    let t = i as f64 / PIECES as f64;
                    let mix = |a: f64, b: f64, c: f64| {
                        (1.0 - t) * (1.0 - t) * a + 2.0 * t * (1.0 - t) * b + t * t * c
                    };
                    at(mix(here.x, bend.x, to.x), mix(here.y, bend.y, to.y))
                })),
                None => stroke.push(to),
            }
        }
        here = to;
    }
    strokes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_glyph_is_drawn_inside_its_box() {
        for c in (' '..='~').chain("µ±×–…€".chars()) {
            let (advance, path) = glyph(c);
            let strokes = paths(path);
            assert_eq!(strokes.is_empty(), c == ' ', "{c:?}");
            for p in strokes.iter().flatten() {
                assert!(p.x >= -0.5 && p.x <= f64::from(advance), "{c:?}: {p:?}");
                assert!((-3.0..=10.0).contains(&p.y), "{c:?}: {p:?}");
            }
        }
    }

    #[test]
    fn no_two_glyphs_are_the_same() {
        let mut paths: Vec<&str> = ASCII.iter().map(|(_, path)| *path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), ASCII.len());
    }

    #[test]
    fn text_ends_where_its_anchor_says() {
        let ends = |anchor, turn| {
            let text = Text {
                at: at(100.0, 50.0),
                text: "HH".to_owned(),
                size: UNIT_SIZE,
                anchor,
                bold: false,
                turn,
            };
            let mut points = Vec::new();
            strokes(&text, 1.0, |stroke| points.extend_from_slice(stroke));
            let x = points.iter().map(|p| p.x);
            let y = points.iter().map(|p| p.y);
            let range = |v: &mut dyn Iterator<Item = f64>| {
                v.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)))
            };
            (range(&mut x.into_iter()), range(&mut y.into_iter()))
        };
        assert_eq!(ends(Anchor::Start, 0.0), ((101.5, 116.5), (40.5, 49.5)));
        assert_eq!(ends(Anchor::End, 0.0), ((83.5, 98.5), (40.5, 49.5)));
        let (x, y) = ends(Anchor::Start, -90.0);
        assert!(
            (x.0 - 91.5).abs() < 1e-6 && (x.1 - 100.5).abs() < 1e-6,
            "{x:?}"
        );
        assert!(y.1 < 50.0 && y.0 > 30.0, "{y:?}");
    }
}
