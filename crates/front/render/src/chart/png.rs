//! The picture as a PNG file.

use super::{
    Chart, font, layout,
    raster::Canvas,
    scene::{At, Ink, Scene, Shape, Theme, at},
};

/// Maximum number of pixels per side of a CSS pixel.
const MOST_SCALE: u32 = 4;

/// The chart on white as the bytes of a PNG file: 8 bits for red, green and blue. `scale` is the number
/// of pixels on each side of a CSS pixel, 1 to 4 (other values are clamped).
#[must_use]
pub fn png(chart: &Chart, scale: u32) -> Vec<u8> {
    let scene = layout::scene(chart);
    let scale = f64::from(scale.clamp(1, MOST_SCALE));
    let width = (scene.width * scale).ceil() as u32;
    let height = (scene.height * scale).ceil() as u32;
    let rgb = painted(&scene, scale, width as usize, height as usize);
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(::png::ColorType::Rgb);
    encoder.set_depth(::png::BitDepth::Eight);
    encoder
        .write_header()
        .and_then(|mut writer| {
            writer.write_image_data(&rgb)?;
            writer.finish()
        })
        .expect("a vector takes all bytes, and the image has the size of the header");
    bytes
}

fn painted(scene: &Scene, scale: f64, width: usize, height: usize) -> Vec<u8> {
    let mut canvas = Canvas::new(width, height, Ink::Paper.rgb(Theme::Light));
    let to = |p: &At| at(p.x * scale, p.y * scale);
    let all = |points: &[At]| points.iter().map(to).collect::<Vec<_>>();
    for item in &scene.items {
        match &item.shape {
            Shape::Polyline { points, width } => canvas.stroke(&all(points), width * scale),
            Shape::Rect { at, width, height } => {
                canvas.rect(to(at), width * scale, height * scale);
            }
            Shape::Text(text) => {
                let width = font::stroke_width(text.size, text.bold) * scale;
                font::strokes(text, scale, |stroke| canvas.stroke(stroke, width));
            }
        }
        canvas.ink(item.ink.rgb(Theme::Light));
    }
    canvas.into_rgb()
}
