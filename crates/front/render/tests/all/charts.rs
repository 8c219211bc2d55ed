//! Charts in all their forms: values read back from them, and robustness against any data.

use insta::assert_snapshot;
use proptest::prelude::*;
use wb_render::{
    chart::{Chart, Point, Series, XAxis, YAxis, svg},
    report::{Block, Document, Section, html},
};

/// Throughput by message size for three numbers of streams, with whiskers.
fn bars() -> Chart {
    let x = XAxis::new(
        "message size (bytes)",
        ["2 KiB", "4 KiB", "8 KiB", "16 KiB"],
    );
    let series = |name: &str, values: [f64; 4]| {
        let points = values.into_iter().enumerate();
        let points = points.map(|(i, y)| Point::new(i as f64, y).plus_minus(y * 0.03));
        Series::new(name, points)
    };
    Chart::bars(
        "TCP_STREAM by message size",
        x,
        YAxis::new("throughput", "bit/s"),
    )
    .with(series("1 stream", [3.1e9, 5.2e9, 7.9e9, 9.1e9]))
    .with(series("2 streams", [5.6e9, 8.3e9, 9.2e9, 9.3e9]))
    .with(series("4 streams", [8.8e9, 9.2e9, 9.36e9, 9.38e9]))
    .note("Means of 5 runs; whiskers are the 99 % confidence intervals.")
}

/// One value for each category, in their order.
fn of_values(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Series {
    let points = values.into_iter().enumerate();
    Series::new(name, points.map(|(i, y)| Point::new(i as f64, y)))
}

/// The value of an attribute.
fn attribute<'a>(element: &'a str, name: &str) -> &'a str {
    let start = element.find(&format!(" {name}=\"")).expect(name) + name.len() + 3;
    element[start..].split('"').next().expect("a closing quote")
}

fn number(element: &str, name: &str) -> f64 {
    attribute(element, name).parse().expect("a number")
}

#[test]
fn svg_of_bars() {
    assert_snapshot!(svg(&bars()));
}

#[test]
fn page_of_all_blocks() {
    let mut setup = Section::new("<Setup>");
    setup.text("Two hosts.");
    let code = "MIGRATED TCP STREAM TEST\n  10 ".to_owned();
    setup.blocks.push(Block::Code("text".to_owned(), code));
    for _ in 0..2 {
        setup.blocks.push(Block::Picture(svg(&bars())));
    }
    let mut page = Document::default();
    page.section(setup);
    let text = html(&page);
    assert!(text.contains(">&lt;Setup&gt;</h2>"), "{text}");
    assert!(text.contains("<p>Two hosts.</p>"), "{text}");
    assert!(
        text.contains("<pre>\nMIGRATED TCP STREAM TEST\n  10 </pre>"),
        "{text}"
    );
    assert_eq!(text.matches("<svg").count(), 2);
    assert_eq!(text.matches("</figure>").count(), 2);
}

#[test]
fn each_series_has_its_colour() {
    let text = svg(&bars());
    let (width, height) = (number(&text, "width"), number(&text, "height"));
    assert_eq!(attribute(&text, "viewBox"), format!("0 0 {width} {height}"));
    let rects: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("<rect") && line.contains("<title>"))
        .collect();
    assert_eq!(rects.len(), 12);
    let paper = attribute(
        text.lines()
            .find(|l| l.starts_with("<rect"))
            .expect("a ground"),
        "fill",
    );
    let mut inks: Vec<&str> = rects.iter().map(|rect| attribute(rect, "fill")).collect();
    assert!(!inks.contains(&paper), "{inks:?}");
    inks.sort_unstable();
    inks.dedup();
    assert_eq!(inks.len(), 3, "one colour for each series");
}

#[test]
fn longer_bars_are_larger_values() {
    let text = svg(&bars());
    let of_one_stream = text.lines().filter(|line| line.contains("<title>1 stream"));
    let tops_and_heights: Vec<(f64, f64)> = of_one_stream
        .map(|line| (number(line, "y"), number(line, "height")))
        .collect();
    let (first_top, first_height) = tops_and_heights[0];
    let figures = text.lines().find(|line| line.ends_with(">0</text>"));
    let zero = number(figures.expect("the figure of the lowest mark"), "y");
    for ((top, height), value) in tops_and_heights.iter().zip([3.1, 5.2, 7.9, 9.1]) {
        assert!(
            (height / first_height - value / 3.1).abs() < 0.01,
            "{height}"
        );
        assert!(
            (top + height - first_top - first_height).abs() < 0.1,
            "{top}"
        );
        // The middle of the figure is level with the end of the bar, its baseline 4.5 below.
        let off = top + height + 4.5 - zero;
        assert!(off.abs() < 1.5, "{top} {height} {zero}");
    }
}

#[test]
fn texts_stay_texts() {
    let evil = "</text><script>alert('1')</script>&\"\x1b[2J\x00";
    let chart = Chart {
        title: evil.to_owned(),
        x: XAxis::new(evil, [evil]),
        y: YAxis::new(evil, evil),
        series: vec![of_values(evil, [1.0])],
        note: evil.to_owned(),
    };
    let mut section = Section::new(evil);
    section.text(evil);
    let code = Block::Code(evil.to_owned(), evil.to_owned());
    section.blocks.push(code);
    section.blocks.push(Block::Picture(svg(&chart)));
    let mut page = Document {
        title: evil.to_owned(),
        ..Document::default()
    };
    page.section(section);
    let own = html(&Document::default()).matches("<script").count();
    for (text, scripts) in [(svg(&chart), 0), (html(&page), own)] {
        assert_eq!(text.matches("<script").count(), scripts, "{text}");
        assert!(!text.contains(['\x1b', '\0']));
        assert!(text.contains("&lt;script&gt;"));
    }
}

#[test]
fn nothing_to_draw_is_said() {
    let x = || XAxis::new("x", ["0"]);
    let y = || YAxis::new("y", "s");
    let empty = Chart::bars("none", x(), y());
    let unnamed = Chart::bars("none", x(), y()).with(of_values("", [f64::NAN]));
    let one = Chart::bars("one", x(), y())
        .with(of_values("there", [1.0]))
        .with(of_values("not there", [f64::INFINITY]));
    for chart in [empty, unnamed] {
        assert!(svg(&chart).contains(">no data<"));
    }
    assert!(svg(&one).contains(">not there (no data)<"));
}

#[test]
fn long_and_many_names_have_room() {
    let names: Vec<String> = (0..64)
        .map(|i| format!("message 64Ki buffer {i}"))
        .collect();
    let mut chart = Chart::bars(
        "word ".repeat(200),
        XAxis::new("x".repeat(300), names),
        YAxis::new("y", "%"),
    );
    for i in 0..100 {
        let values = (0..64).map(|x| f64::from(x * i));
        chart = chart.with(of_values(format!("series {i}"), values));
    }
    let text = svg(&chart);
    assert!(text.contains(">and 61 more<"));
    let (width, height) = (number(&text, "width"), number(&text, "height"));
    assert!(width < 2000.0 && height < 1000.0, "{width} x {height}");
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e3..1e6,
        1 => any::<f64>(),
        1 => Just(0.0),
        1 => prop::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE,
            -0.0, 5e-324, 1e300, -1e300,
        ]),
    ]
}

fn any_chart() -> impl Strategy<Value = Chart> {
    let x = prop_oneof![4 => (0u32..6).prop_map(f64::from), 1 => any_value()];
    let point = (x, any_value(), prop::option::of(any_value()))
        .prop_map(|(x, y, half_width)| Point { x, y, half_width });
    let series = (".{0,12}", prop::collection::vec(point, 0..8))
        .prop_map(|(name, points)| Series { name, points });
    let categories = prop::collection::vec(".{0,30}", 0..6);
    let unit = prop::sample::select(vec!["", "s", "bit/s", "/s", "%", "frames"]);
    (
        ".{0,40}",
        (".{0,20}", categories),
        (".{0,20}", unit),
        prop::collection::vec(series, 0..9),
        ".{0,20}",
    )
        .prop_map(|(title, (x, categories), (y, unit), series, note)| Chart {
            title,
            x: XAxis::new(x, categories),
            y: YAxis::new(y, unit),
            series,
            note,
        })
}

proptest! {
    #[test]
    fn no_values_break_a_form(chart in any_chart()) {
        let text = svg(&chart);
        prop_assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        prop_assert!(!text.contains("=\"NaN") && !text.contains("inf\""), "{}", text);
        prop_assert!(number(&text, "width") >= 1.0 && number(&text, "height") >= 1.0);
    }
}
