//! The report to hand over, as a browser shows it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{run, wirebench};

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut places = std::env::split_paths(&path).flat_map(|p| names.map(|name| p.join(name)));
    let found = places.find(|place| place.is_file());
    if found.is_none() {
        wb_testing::skipped("no chromium, to show a page");
    }
    found
}

/// Content of the page after its scripts have run, and the time that they took.
fn shown(chromium: &Path, page: &Path, folder: &Path) -> (String, Duration) {
    let began = Instant::now();
    let output = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "--window-size=1200,900",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .expect("chromium runs");
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        began.elapsed(),
    )
}

/// Each plot is drawn, by scripts that the page allows, even with 100,000 moments.
#[test]
fn a_browser_draws_every_plot() {
    let Some(chromium) = chromium() else { return };
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name);
    let trial = "trial --tx memory:x --rx memory:x --rate 5kpps --duration 500ms --catch-up 10s --json -q --report";
    let output = wirebench()
        .args(trial.split_whitespace())
        .arg(file("page.html"))
        .output()
        .unwrap();
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let drawn = |page: &str| {
        let (dom, took) = shown(&chromium, &file(page), folder.path());
        let plots = dom.matches("<figure>").count();
        assert!(plots > 3, "{plots}");
        assert!(
            dom.contains(&format!("data-drawn=\"{plots}\"")),
            "{page}: not drawn"
        );
        assert_eq!(dom.matches("<canvas").count(), plots);
        took
    };
    drawn("page.html");
    let moments = 100_000_u64;
    report["timeline"]["at_ns"] = (0..moments).map(|i| i * 100_000_000).collect();
    for column in report["timeline"]["columns"].as_array_mut().unwrap() {
        column["values"] = (0..moments).map(|i| json!(i * 100 + i % 7)).collect();
    }
    fs::write(file("long.json"), report.to_string()).unwrap();
    let long = file("long.json").display().to_string();
    let page = file("long.html").display().to_string();
    assert_eq!(run(&["report", &long, "-o", &page]).status.code(), Some(0));
    let empty = file("empty.html");
    fs::write(&empty, "<p>").unwrap();
    let (_, start) = shown(&chromium, &empty, folder.path());
    let took = drawn("long.html").saturating_sub(start);
    // Delays by other processes on a busy machine are not the page's.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
