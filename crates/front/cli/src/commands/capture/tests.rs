//! Tests of tcpdump's command line in its usual forms.

use clap::Parser;
use proptest::prelude::*;

use super::*;

#[derive(Parser, Debug)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    capture: CaptureArgs,
}

fn parse(words: &[&str]) -> Result<CaptureArgs, String> {
    let line = Line::try_parse_from(words);
    line.map(|line| line.capture).map_err(|e| e.to_string())
}

fn typed(line: &str) -> CaptureArgs {
    let words: Vec<_> = line.split(' ').collect();
    parse(&words).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Returns the options as text; equal for equivalent command lines.
fn meaning(args: &CaptureArgs) -> String {
    format!("{args:?}")
}

#[test]
fn what_people_type_is_taken() {
    for (line, filter) in [
        ("-nni eth0 -w f", ""),
        ("-nnvvXSs 0 -c2 icmp", "icmp"),
        ("-i any -nn -e -tttt -l -A port 80", "port 80"),
        ("src host 172.16.32.25 -w a.pcap", "src host 172.16.32.25"),
        (
            "host 10.0.0.1 -nni eth0 and port 80 -c 5",
            "host 10.0.0.1 and port 80",
        ),
        ("-ieth0 -s96 -B4096 -Qin -c10 -G60 -wf_%H -W3", ""),
        ("-n -K -p -O -N -f -U -S -# -q -x arp", "arp"),
        (
            "--interface=eth0 --snapshot-length 96 --direction in --immediate-mode --number tcp",
            "tcp",
        ),
        ("--imm --absolute --list-d --time-stamp-p nano", ""),
        ("-i eth0 -Z root -C 1 -w f -z gzip", ""),
        ("-i eth0 -- icmp or arp", "icmp or arp"),
        ("-vvv -tt -XX -i lo --print -w f udp", "udp"),
    ] {
        assert_eq!(typed(line).expression().unwrap(), filter, "{line}");
    }
    // getopt(3): the last value applies.
    let args = typed("-c 5 -s 10 -w a -c 7 -w b -s 20 --micro --nano");
    assert_eq!((args.most, args.snap()), (Some(7), 20));
    assert_eq!(args.output.write.as_deref(), Some("b"));
    assert!(args.tcpdump_options.nano() && !args.tcpdump_options.micro());
}

#[test]
fn what_is_not_supported_is_named() {
    for (line, named) in [
        ("-E algo:secret -i eth0", "-E"),
        ("-I -i eth0", "-I"),
        ("--monitor-mode", "-I"),
        ("-M secret", "-M"),
        ("-nnT rtp udp", "-T"),
        ("-m mib", "-m"),
        ("-u", "-u"),
        ("-V list", "-V"),
    ] {
        let told = typed(line).check().unwrap_err().to_string();
        assert!(told.starts_with(&format!("{named} of tcpdump ")), "{told}");
        assert!(!told.contains('\n'), "{told}");
    }
    for (line, told) in [
        ("-C 10 -i eth0", "-w <FILE>"),
        ("-G 10 -i eth0", "-w <FILE>"),
        ("-z gzip -i eth0", "-w <FILE>"),
        ("--part -i eth0", "-w <FILE>"),
        ("-c 0", "-c"),
        ("-Q sideways", "inout, in, out"),
        ("-b host", "BGP"),
    ] {
        let error = parse(&line.split(' ').collect::<Vec<_>>()).unwrap_err();
        assert!(error.contains(told), "{line}: {error}");
    }
    for line in [
        "-w - --json",
        "-w - --print",
        "--print --json -w f",
        "--print --count -w f",
    ] {
        assert!(typed(line).check().is_err(), "{line}");
    }
}

#[test]
fn frames_are_printed_where_tcpdump_prints_them() {
    for (line, prints) in [
        ("-i eth0", true),
        ("-i eth0 -v", true),
        ("-i eth0 -w f", false),
        ("-i eth0 -w f --print", true),
        ("-i eth0 --count", false),
        ("-i eth0 --json", false),
    ] {
        assert_eq!(typed(line).prints(), prints, "{line}");
    }
}

#[test]
fn files_by_time_are_so_many_and_files_by_size_a_ring() {
    for (line, ring, limit) in [
        ("-G 1 -W 3 -w f", 0, 3),
        ("-C 1 -W 3 -w f", 3, 0),
        ("-C 1 -G 1 -W 3 -w f", 3, 0),
        ("-G 1 -w f", 0, 0),
    ] {
        let output = typed(line).output.output(false).unwrap();
        assert_eq!((output.files, output.file_limit), (ring, limit), "{line}");
    }
}

/// Options as typed, all with different letters.
const OPTIONS: [&[&str]; 24] = [
    &["-i", "eth0"],
    &["-nn"],
    &["-e"],
    &["-ttt"],
    &["-X"],
    &["-A"],
    &["-s96"],
    &["-c", "10"],
    &["-w", "out.pcap"],
    &["-B", "4096"],
    &["-Q", "in"],
    &["-p"],
    &["-l"],
    &["-U"],
    &["-K"],
    &["-S"],
    &["-q"],
    &["-vv"],
    &["-#"],
    &["--immediate-mode"],
    &["-Z", "nobody"],
    &["--nano"],
    &["-y", "EN10MB"],
    &["--print"],
];
const FILTER: [&str; 7] = ["host", "10.0.0.1", "and", "(", "port", "80", ")"];

/// Combines options of one letter without a value, also before one with a value.
fn clustered(options: &[&[&'static str]]) -> Vec<String> {
    let mut words = Vec::new();
    let mut cluster = String::new();
    for option in options {
        let short = !option[0].starts_with("--");
        if short && option.len() == 1 && !option[0][1..].contains(char::is_numeric) {
            cluster += &option[0][1..];
        } else if short && option.len() == 2 {
            words.push(format!("-{cluster}{}", &option[0][1..]));
            words.push(option[1].to_owned());
            cluster.clear();
        } else {
            words.push(option[0].to_owned());
        }
    }
    if !cluster.is_empty() {
        words.push(format!("-{cluster}"));
    }
    words
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_order_of_options_and_words_means_the_same(
        (sorted, shuffled) in prop::sample::subsequence(OPTIONS.to_vec(), 0..OPTIONS.len())
            .prop_flat_map(|chosen| (Just(chosen.clone()), Just(chosen).prop_shuffle())),
        places in prop::collection::vec(0..=OPTIONS.len(), FILTER.len()),
    ) {
        let mut first: Vec<&str> = sorted.concat();
        first.extend(FILTER);
        let expected = meaning(&parse(&first).unwrap());

        // The words of the filter stand between the options, in order.
        let mut places = places;
        places.sort_unstable();
        let mut mixed: Vec<&str> = Vec::new();
        let mut words = places.iter().zip(FILTER).peekable();
        for at in 0..=shuffled.len() {
            while let Some((_, word)) = words.next_if(|(place, _)| **place <= at) {
                mixed.push(word);
            }
            mixed.extend(shuffled.get(at).copied().unwrap_or_default());
        }
        mixed.extend(words.map(|(_, word)| word));
        prop_assert_eq!(meaning(&parse(&mixed).unwrap()), expected.clone());

        let mut short = clustered(&shuffled);
        short.extend(FILTER.map(str::to_owned));
        let short: Vec<_> = short.iter().map(String::as_str).collect();
        prop_assert_eq!(meaning(&parse(&short).unwrap()), expected);
    }

    #[test]
    fn no_line_makes_the_parser_fall(words in prop::collection::vec("[-a-zA-Z0-9#= ]{0,6}", 0..8)) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        if let Ok(args) = parse(&words) {
            let _ = args.check();
        }
    }
}

#[test]
fn statistics_for_a_pipe_are_written_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let place = pipe.clone();
    let reader = std::thread::spawn(move || std::fs::read_to_string(place).unwrap());
    super::replace(&pipe, "counts").unwrap();
    assert_eq!(reader.join().unwrap(), "counts");
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());
}
