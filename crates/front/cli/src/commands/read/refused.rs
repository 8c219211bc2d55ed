//! tcpdump options that apply only to capturing.

use crate::args::{Row, Table};

const CAPTURES: &str = "only for capturing: see `wirebench capture --help`";
const ONE_FILE: &str = "read writes one file; select packets with --from, --to, --skip and --first";

/// Options that reading refuses.
pub(super) struct Reading;

impl Table for Reading {
    const ROWS: &'static [Row] = &[
        ('B', "buffer-size", true, CAPTURES),
        ('C', "", true, ONE_FILE),
        ('D', "list-interfaces", false, CAPTURES),
        ('G', "", true, ONE_FILE),
        (
            'I',
            "monitor-mode",
            false,
            "Wi-Fi monitor mode is not supported",
        ),
        ('J', "list-time-stamp-types", false, CAPTURES),
        ('O', "no-optimize", false, "filters are always optimized"),
        ('Q', "direction", true, CAPTURES),
        ('V', "", true, "name several files, each with -r"),
        ('W', "", true, ONE_FILE),
        (
            'b',
            "",
            false,
            "BGP is not decoded; use --as tcpdump or --decode",
        ),
        ('i', "interface", true, CAPTURES),
        ('j', "time-stamp-type", true, CAPTURES),
        ('p', "no-promiscuous-mode", false, CAPTURES),
        ('z', "", true, ONE_FILE),
    ];
}
