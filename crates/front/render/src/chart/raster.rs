//! Rasterises shapes with smooth edges.
//!
//! The coverage of a pixel is taken from its distance to the edge of the shape, which is exact for
//! straight edges and good for small round ones. All strokes of one shape raise one mask before
//! any colour is mixed, so joints are not drawn twice.

use super::scene::{At, Rgb, at};

/// Longer strokes are drawn in pieces, so that few pixels outside the stroke are examined.
const PIECE: f64 = 32.0;

/// A picture in memory, 8 bits for red, green and blue, row after row from the top.
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
    /// Coverage of the shape being drawn, 0 to 1; all 0 between shapes.
    mask: Vec<f32>,
    /// Area of the mask that may differ from 0.
    touched: Area,
}

/// Columns and rows from the first to before the last.
#[derive(Clone, Copy)]
struct Area {
    left: usize,
    top: usize,
    right: usize,
    bottom: usize,
}

const NOTHING: Area = Area {
    left: usize::MAX,
    top: usize::MAX,
    right: 0,
    bottom: 0,
};

impl Canvas {
    pub(crate) fn new(width: usize, height: usize, ground: Rgb) -> Self {
        Self {
            width,
            height,
            rgb: ground.repeat(width * height),
            mask: vec![0.0; width * height],
            touched: NOTHING,
        }
    }

    pub(crate) fn into_rgb(self) -> Vec<u8> {
        self.rgb
    }

    /// Adds a line of this width with round ends to the shape; a single point is a dot.
    pub(crate) fn stroke(&mut self, points: &[At], width: f64) {
        if let [dot] = points {
            // A dot as wide as a stroke looks smaller than it.
            self.disc(*dot, width * 0.6);
        }
        for pair in points.windows(2) {
            let length = (pair[1].x - pair[0].x).hypot(pair[1].y - pair[0].y);
            let pieces = (length / PIECE).ceil().max(1.0);
            let along = |i: f64| {
                let t = i / pieces;
                at(
                    pair[0].x + (pair[1].x - pair[0].x) * t,
                    pair[0].y + (pair[1].y - pair[0].y) * t,
                )
            };
            for i in 0..pieces as usize {
                self.piece(along(i as f64), along(i as f64 + 1.0), width / 2.0);
            }
        }
    }

    fn piece(&mut self, from: At, to: At, radius: f64) {
        let (dx, dy) = (to.x - from.x, to.y - from.y);
        let square = dx * dx + dy * dy;
        self.cover(&[from, to], radius, |p| {
            let t = if square > 0.0 {
                ((p.x - from.x) * dx + (p.y - from.y) * dy) / square
            } else {
                0.0
            };
            let t = t.clamp(0.0, 1.0);
            let distance = (p.x - from.x - t * dx).hypot(p.y - from.y - t * dy);
            radius + 0.5 - distance
        });
    }

    fn disc(&mut self, middle: At, radius: f64) {
        self.cover(&[middle], radius, |p| {
            radius + 0.5 - (p.x - middle.x).hypot(p.y - middle.y)
        });
    }

    /// Adds a rectangle, exact to the part of a pixel.
    pub(crate) fn rect(&mut self, corner: At, width: f64, height: f64) {
        let far = at(corner.x + width, corner.y + height);
        let overlap = |middle: f64, low: f64, high: f64| {
            (high.min(middle + 0.5) - low.max(middle - 0.5)).clamp(0.0, 1.0)
        };
        self.cover(&[corner, far], 0.0, |p| {
            overlap(p.x, corner.x, far.x) * overlap(p.y, corner.y, far.y)
        });
    }

    /// Raises the mask to `coverage` at the middle of every pixel not farther than `reach` from
    /// the box around `points`.
    fn cover(&mut self, points: &[At], reach: f64, coverage: impl Fn(At) -> f64) {
        let bound = |low: f64, high: f64, end: usize| {
            // Casts from floats saturate, so areas outside the canvas are empty.
            let low = (low - reach - 1.0).floor().max(0.0) as usize;
            let high = (high + reach + 1.0).ceil().max(0.0) as usize;
            (low.min(end), high.min(end))
        };
        let low = |v: fn(&At) -> f64| points.iter().map(v).fold(f64::INFINITY, f64::min);
        let high = |v: fn(&At) -> f64| points.iter().map(v).fold(f64::NEG_INFINITY, f64::max);
        let (left, right) = bound(low(|p| p.x), high(|p| p.x), self.width);
        let (top, bottom) = bound(low(|p| p.y), high(|p| p.y), self.height);
        for y in top..bottom {
            for x in left..right {
                let covered = coverage(at(x as f64 + 0.5, y as f64 + 0.5)).clamp(0.0, 1.0);
                let mask = &mut self.mask[y * self.width + x];
                *mask = mask.max(covered as f32);
            }
        }
        if left < right && top < bottom {
            self.touched.left = self.touched.left.min(left);
            self.touched.top = self.touched.top.min(top);
            self.touched.right = self.touched.right.max(right);
            self.touched.bottom = self.touched.bottom.max(bottom);
        }
    }

    /// Draws the shape in this colour and begins the next shape.
    pub(crate) fn ink(&mut self, ink: Rgb) {
        let area = std::mem::replace(&mut self.touched, NOTHING);
        for y in area.top..area.bottom {
            for x in area.left..area.right {
                let i = y * self.width + x;
                let covered = std::mem::take(&mut self.mask[i]);
                if covered > 0.0 {
                    for (below, ink) in self.rgb[i * 3..][..3].iter_mut().zip(ink) {
                        let mixed = f32::from(*below) * (1.0 - covered) + f32::from(ink) * covered;
                        *below = mixed.round() as u8;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLACK: Rgb = [0; 3];

    /// Darkness of each pixel, 0 to 255.
    fn drawn(draw: impl Fn(&mut Canvas)) -> Vec<u8> {
        let mut canvas = Canvas::new(8, 8, [255; 3]);
        draw(&mut canvas);
        canvas.ink(BLACK);
        assert!(canvas.mask.iter().all(|m| *m == 0.0));
        canvas.into_rgb().chunks(3).map(|p| 255 - p[0]).collect()
    }

    fn area(pixels: &[u8]) -> f64 {
        pixels.iter().map(|p| f64::from(*p) / 255.0).sum()
    }

    #[test]
    fn shapes_cover_their_area() {
        let rect = drawn(|c| c.rect(at(1.25, 2.0), 3.5, 2.5));
        assert!((area(&rect) - 8.75).abs() < 0.05, "{}", area(&rect));
        let disc = drawn(|c| c.disc(at(4.0, 4.0), 3.0));
        assert!((area(&disc) - 28.27).abs() < 0.4, "{}", area(&disc));
    }

    #[test]
    fn a_line_on_the_grid_is_sharp() {
        let line = drawn(|c| c.stroke(&[at(0.0, 3.5), at(8.0, 3.5)], 1.0));
        for (i, p) in line.iter().enumerate() {
            assert_eq!(*p, if i / 8 == 3 { 255 } else { 0 }, "pixel {i}");
        }
    }

    #[test]
    fn joints_are_drawn_once() {
        let once = drawn(|c| c.stroke(&[at(1.0, 1.0), at(6.0, 5.0)], 1.0));
        let twice = drawn(|c| c.stroke(&[at(1.0, 1.0), at(6.0, 5.0), at(1.0, 1.0)], 1.0));
        assert_eq!(once, twice);
    }

    #[test]
    fn what_lies_outside_is_not_drawn() {
        let none = drawn(|c| {
            c.stroke(&[at(-90.0, -50.0), at(-80.0, -50.0)], 2.0);
            c.disc(at(1e9, 3.0), 2.0);
            c.rect(at(9.5, 0.0), 5.0, 5.0);
        });
        assert!(none.iter().all(|p| *p == 0));
    }
}
