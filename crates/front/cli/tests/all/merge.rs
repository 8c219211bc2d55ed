//! `wirebench report --merge`: two runs that really took place.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use wb_measure::{EncodedHistogram, NamedHistogram, Summary};
use wb_model::Report;

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_wirebench"))
}

fn merge(folder: &Path, more: &[&str]) -> Output {
    let mut command = command();
    command.args(["report", "--merge"]).args(more);
    command.current_dir(folder).output().unwrap()
}

/// Runs two trials at the same time, which leave `one.json` and `two.json`.
fn two_runs(folder: &Path) -> [Report; 2] {
    let runs = [("one", "4000", "900"), ("two", "5000", "1300")].map(|(name, count, size)| {
        let file = File::create(folder.join(name).with_extension("json")).unwrap();
        let port = format!("memory:{name}");
        command()
            .args(["trial", "--tx", &port, "--rx", &port, "--count", count])
            .args(["--rate", "1kpps", "--size", size, "--allow-unsent"])
            .args(["--criteria", "loss<=0%", "--criteria", "p99<=1m"])
            .args(["--json", "--histograms", "-q"])
            .stdout(file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    });
    for mut run in runs {
        assert!(run.wait().unwrap().success());
    }
    ["one.json", "two.json"].map(|file| {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        serde_json::from_str(&text).unwrap()
    })
}

#[test]
fn two_runs_become_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let both = two_runs(folder);
    let output = merge(folder, &["one.json", "two.json", "-o", "both.json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let text = fs::read_to_string(folder.join("both.json")).unwrap();
    let merged: Report = serde_json::from_str(&text).unwrap();
    let counts = |of: fn(&Report) -> Option<u64>| {
        let parts = both.iter().filter_map(of).sum::<u64>();
        (of(&merged), Some(parts))
    };
    for (merged, parts) in [
        counts(|r| r.totals.offered_frames),
        counts(|r| r.totals.received_frames),
        counts(|r| r.totals.received_octets),
        counts(|r| r.totals.lost_frames),
    ] {
        assert_eq!(merged, parts);
    }
    for (name, told) in [
        ("latency_ns", merged.latency_ns),
        ("ipdv_ns", merged.ipdv_ns),
        ("jitter_ns", merged.jitter_ns),
        ("inter_arrival_ns", merged.inter_arrival_ns),
    ] {
        let values = both.iter().map(|report| {
            let mut all = report.histograms.iter();
            let own: &EncodedHistogram = all.find(|own| own.name == name).unwrap();
            NamedHistogram::try_from(own).unwrap().values
        });
        let all = values.reduce(|mut all, one| {
            all.merge(&one);
            all
        });
        assert_eq!(whole(all.unwrap().summary()), whole(told), "{name}");
    }
    // Both send 1,000 frames per second for at least 4 s, so that they overlap on a busy machine too, which may delay
    // them.
    let rate = merged.rates.offered_pps.unwrap();
    assert!((1100.0..2200.0).contains(&rate), "{rate}");
    assert_eq!(merged.rates.tx_time_ns, merged.rates.rx_time_ns);
    let held: Vec<bool> = merged.criteria.iter().map(|c| c.held).collect();
    assert_eq!(held, [true, true]);
    let names: Vec<&str> = merged.merged.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);

    let printed = merge(folder, &["one.json", "two.json"]);
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(printed, serde_json::from_str::<Value>(&text).unwrap());
    let page = merge(folder, &["one.json", "two.json", "--markdown"]);
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("Merged runs"), "{page}");
    for (files, said) in [
        (
            &["both.json", "one.json"][..],
            "both: is merged already; merge the reports of all runs at once",
        ),
        (
            &["one.json", "two.json", "one.json"],
            "one and one 2 are reports of the same run",
        ),
        (&["one.json"], "--merge: expected two or more reports"),
        (
            &["one.json", "two.json", "-o", "one.json"],
            "would overwrite its input",
        ),
        (
            &["one.json", "two.json", "-o", "x.txt"],
            "expected a name that ends in",
        ),
    ] {
        let output = merge(folder, files);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(
            told.contains(said) && told.trim_end().lines().count() == 1,
            "{told}"
        );
    }
}

/// A number read from JSON may differ in its last digit.
fn whole(summary: Summary) -> Summary {
    Summary {
        mean: summary.mean.map(f64::round),
        stddev: summary.stddev.map(f64::round),
        ..summary
    }
}

/// Percentiles of each job and of each end can be merged.
#[test]
fn every_distribution_has_its_values() {
    for line in [
        "trial --tx memory:v --rx memory:v --bidir --count 200 --rate 1kpps --allow-unsent",
        "load --client memory:w --server memory:w --cps 100 --duration 1s",
    ] {
        let mut command = command();
        command
            .args(line.split(' '))
            .args(["--json", "--histograms", "-q"]);
        let report: Report = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let sections = report.sections();
        let mut seen = 0;
        for section in sections.iter().filter(|section| !section.is_total) {
            // PDV is latency above its minimum. The values of the only client are those of the run.
            for (figure, times) in section.times().filter(|(f, _)| f.def.name != "pdv_ns") {
                let is = |own: &&EncodedHistogram| own.name == figure.def.name;
                let mut own = report.histograms.iter().filter(is).filter(|own| {
                    own.of == section.job || own.of.is_empty() && section.job == "client"
                });
                let is_whole = |own: &EncodedHistogram| {
                    let values = NamedHistogram::try_from(own).unwrap().values;
                    values.count() == times.samples
                };
                assert!(
                    own.any(is_whole),
                    "{line}: {} of {}",
                    figure.def.name,
                    section.job
                );
                seen += 1;
            }
        }
        assert!(seen >= 4, "{line}: {seen}");
    }
}
