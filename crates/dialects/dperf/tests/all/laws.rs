//! Properties that hold for all inputs.

use proptest::prelude::*;

use wb_dperf::{accepted, fuzz, keywords::KEYWORDS, parse};

/// Readable lines for every keyword, as regular expressions in which a dot is a literal dot.
const LINES: &[&str] = &[
    "mode (client|server)",
    "cpu [0-9]( 1[0-5]-1[6-9])?( 2[0-9])?",
    "socket_mem [0-9]{1,5},[0-9]{1,5}",
    "duration [1-9][0-9]{0,2}(.[0-9]{1,2})?[smhdx]?",
    "daemon",
    "quiet",
    "clear_screen",
    "log_level (error|warn|info|debug)",
    "simd512",
    "port (0000:)?1b:0[0-9].[0-7] 198.18.0.[1-9] 198.18.1.[1-9]( 02:00:00:00:[A-Fa-f0-9]{2}:01)?",
    "port if:[a-z0-9]{1,8} 2001:2::[1-9a-f] 2001:2::1:[0-9]",
    "port (vdev:[a-z,=]{1,9}|bond[0-6]:[0-3]\\((0000:)?1b:00.0(,1b:00.1){0,3}\\)) 198.18.0.[1-9] 198.18.1.[1-9]",
    "client 198.18.[1-9][0-9]?.[1-9] [1-9][0-9]?( 198.18.200.1[1-4][0-9])?",
    "client 2001:2::[1-9a-f] [1-9][0-9]?",
    "server (198.19.0.|2001:2::)[1-9] [1-9]",
    "listen [1-9][0-9]{0,3} [1-9][0-9]{0,2}",
    "(client_port_range|lport_range) [1-9][0-9]{0,3}( [1-6]0000)?",
    "client_hop",
    "change_dip (198.18.0.|2001:2::)[1-9] (-1|[0-9]{1,3}) [0-9]{1,3}",
    "vlan [1-9][0-9]{0,2}",
    "vxlan [1-9][0-9]{0,3} 02:00:00:00:00:0[1-9] 02:00:00:00:00:0[1-9] 198.18.0.1 [1-9] 198.19.0.1 [1-9]",
    "neigh_ignore",
    "kni( [a-z][a-z0-9]{0,8})?",
    "jumbo( 9[0-6][0-9]{2})?",
    "tos (0x[0-9a-f]{1,2}|[0-9]{1,2}z?)",
    "rss( (l3|l3l4|auto|auto l3|auto l3l4))?( (mq_rx_rss|mq_rx_none|other))?",
    "flow_isolate",
    "cps [0-9]{1,3}(.[0-9]{1,3})?[kKmM]?",
    "cc [1-9][0-9]{0,2}(.[0-9]{1,3})?[kKmM]?",
    "launch_num [0-9]{1,3}",
    "slow_start [1-5][0-9]{1,2}",
    "wait [1-9]",
    "flood",
    "keepalive (0(ns|us|s)|[1-9][0-9]{0,4}(.5)?(us|ms|s)( [1-9][0-9]{0,4})?|[1-9][0-9]{0,6}ns)",
    "pipeline [0-9]{1,2}",
    "tx_burst [1-9][0-9]{0,2}",
    "protocol (tcp|udp|http)",
    "payload_size( [0-9]{1,3}k?){1,3}",
    "payload_random",
    "payload_file [ -~&&[^ #]]{1,20}",
    "packet_size [1-8][0-9]{1,3}",
    "mss [1-9][0-9]{1,2}",
    "send_window [2-9]",
    "http_host [ -~&&[^ ]]{1,20}",
    "http_path /[ -~&&[^ ]]{0,20}",
    "http_method (GET|POST)",
    "fast_close",
    "disable_ack",
    "tcp_rst [01]",
    "retransmit_timeout [2-9][0-9]?(s)?",
];

fn line() -> impl Strategy<Value = String> {
    prop::sample::select(LINES).prop_flat_map(|form| {
        let form = form.replace('.', "[.]");
        proptest::string::string_regex(&form).expect("a regular expression")
    })
}

/// A file in which any line may be wrong.
fn wild() -> impl Strategy<Value = String> {
    let names: Vec<_> = KEYWORDS.iter().map(|k| k.name).collect();
    let any = prop_oneof![
        3 => line(),
        3 => (prop::sample::select(names), "[ \t]{0,2}", "[ -~]{0,30}")
            .prop_map(|(name, gap, rest)| format!("{name}{gap}{rest}")),
        1 => "[ -~é\u{b}\r]{0,60}",
    ];
    prop::collection::vec(any, 0..30).prop_map(|lines| lines.join("\n"))
}

#[test]
fn every_keyword_has_a_form() {
    for keyword in KEYWORDS {
        let known = LINES.iter().any(|form| form.contains(keyword.name));
        assert!(known, "{}", keyword.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_is_printed_reads_the_same(lines in prop::collection::vec(line(), 0..25)) {
        // Keep each line that can be read after the previous ones: no duplicates.
        let mut text = String::new();
        for line in lines {
            let longer = format!("{text}{line}\n");
            if accepted(&parse("a.conf", &longer).problems) {
                text = longer;
            }
        }
        let config = parse("a.conf", &text).config.expect("readable lines");
        let printed = config.to_string();
        let again = parse("b.conf", &printed).config.expect("printed lines");
        prop_assert_eq!(&again, &config);
        prop_assert_eq!(again.to_string(), printed);
    }

    #[test]
    fn readable_forms_are_read(line in line()) {
        let parsed = parse("a.conf", &line);
        prop_assert!(parsed.config.is_some(), "{line}: {:?}", parsed.problems);
    }

    #[test]
    fn no_file_does_harm(text in wild()) {
        fuzz::exercise(text.as_bytes());
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz::exercise(&bytes);
    }
}
