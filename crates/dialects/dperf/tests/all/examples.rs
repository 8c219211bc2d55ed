//! Files under `examples/dperf`: each can be read and gets its expected verdict.

use std::collections::BTreeSet;
use std::path::PathBuf;

use wb_dperf::{Severity, TranslateOptions, check, is_configuration, parse, translate};
use wb_model::LoadJob;

/// Files that dperf 1.9 rejects, with the error code.
const REFUSED: &[(&str, &str)] = &[
    ("04-http-cps-ipv6-server", "E_ADDR_OVERLAP"),
    ("07-udp-cps-ipv6-server", "E_ADDR_OVERLAP"),
    ("37-kni-ipv6-server", "E_ADDR_OVERLAP"),
];

/// Files that use a function which the kernel performs here: they run, and a warning explains the difference.
const WARNED: &[(&str, &str)] = &[
    ("35-bond-server", "W_BOND"),
    ("36-kni-server", "W_KNI"),
    ("37-kni-ipv6-server", "W_KNI"),
];

fn files() -> Vec<(String, String)> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../examples/dperf"
    ));
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("examples/dperf")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "conf"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (
                name,
                std::fs::read_to_string(&path).expect("a readable file"),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn verdicts() {
    let files = files();
    assert_eq!(files.len(), 47);
    for (number, (name, text)) in files.iter().enumerate() {
        assert!(name.starts_with(&format!("{:02}-", number + 1)), "{name}");
        assert!(is_configuration(text), "{name}");
        assert!(
            text.starts_with("# "),
            "{name} does not say what it measures"
        );
        let config = parse(name, text).config.expect("a readable file");
        assert_eq!(config.is_client(), !name.ends_with("-server"), "{name}");
        for (strict, severity, refused) in [
            (true, Severity::Error, REFUSED),
            (false, Severity::Warning, WARNED),
        ] {
            let problems = check(name, text, strict);
            assert!(
                problems.iter().all(|p| p.severity == severity),
                "{name}: {problems:#?}"
            );
            let found: BTreeSet<&str> = problems.iter().map(|p| p.code.name()).collect();
            let wanted = refused.iter().find(|(file, _)| file == name);
            let wanted = wanted.map_or(BTreeSet::new(), |(_, codes)| codes.split(' ').collect());
            assert_eq!(found, wanted, "{name} strict {strict}: {problems:#?}");
        }
    }
}

#[test]
fn clients_and_servers_fit() {
    let files = files();
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with("-client")) {
        let partner = name[3..].replace("-client", "-server");
        // A flood needs no server.
        let Some((server_name, server)) = files.iter().find(|(other, _)| other[3..] == partner)
        else {
            assert!(name.contains("-flood-"), "{name} has no server");
            continue;
        };
        let client = parse(name, text).config.unwrap();
        let server = parse(server_name, server).config.unwrap();
        let all = |ranges: &[wb_dperf::config::AddressSpan]| -> BTreeSet<_> {
            ranges
                .iter()
                .flat_map(|r| r.addresses().collect::<Vec<_>>())
                .collect()
        };
        assert_eq!(all(&client.servers), all(&server.servers), "{name}");
        assert!(
            all(&client.clients).is_subset(&all(&server.clients)),
            "{name}"
        );
        assert_eq!(client.listen(), server.listen(), "{name}");
        assert_eq!(client.is_udp(), server.is_udp(), "{name}");
        assert_eq!(
            client.keepalive.is_some(),
            server.keepalive.is_some(),
            "{name}"
        );
    }
}

#[test]
fn all_translate() {
    // Devices as in the files, some of them without the domain.
    let locators = [
        ("1b:00.0", "wb-x-a/a0"),
        ("0000:1b:00.1", "xdp:wb-x-b/b0"),
        ("81:10.0", "eth2"),
        ("0000:81:10.1", "eth3"),
    ];
    let locators = locators.map(|(device, port)| (device.to_owned(), port.parse().unwrap()));
    let options = TranslateOptions {
        locators: locators.into(),
    };
    for (name, text) in files() {
        let config = parse(&name, &text).config.unwrap();
        let made = translate(&config, &options);
        let made = made.unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        assert_eq!(made.ports.len(), config.ports.len(), "{name}");
        let workers: u32 = made.ports.iter().map(|p| p.workers).sum();
        assert_eq!(workers as usize, config.cpus.len(), "{name}");
        let cps: u64 = made.jobs.iter().filter_map(|j| j.rate.cps).sum();
        assert_eq!(cps, u64::from(config.cps().unwrap_or(0)), "{name}");
        let cc: u64 = made.jobs.iter().filter_map(|j| j.rate.cc).sum();
        assert_eq!(cc, u64::from(config.cc().unwrap_or(0)), "{name}");
        for (port, job) in made.ports.iter().zip(&made.jobs) {
            assert_eq!(port.name, job.port, "{name}");
            assert_eq!(job.problems(), [], "{name}");
            let text = toml::to_string_pretty(job).unwrap();
            let again: LoadJob = toml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(again, *job, "{name}: {text}");
        }
    }
}
