use proptest::prelude::*;

use super::*;

fn microseconds(value: u64) -> String {
    time_text(value.into())
}

#[test]
fn digits_stand_below_digits() {
    for (text, width, shown) in [
        ("1.04ms", 8, "  1.04ms"),
        ("31.55k", 8, " 31.55k "),
        ("194.40", 8, "194.40  "),
        ("6.16s", 10, "    6.16s "),
        ("1000000.00T", 8, "1000000 "),
    ] {
        assert_eq!(align_cell(text, width), shown);
    }
}

#[test]
fn the_next_unit_begins_at_85_hundredths_of_it() {
    for (value, shown) in [
        (0, "0.00us"),
        (849, "849.00us"),
        (850, "0.85ms"),
        (999_999, "1000.00ms"),
        (1_000_000, "1.00s"),
        (50_999_999, "51.00s"),
        (51_000_000, "0.85m"),
        (7_200_000_000, "120.00m"),
    ] {
        assert_eq!(microseconds(value), shown, "{value}");
    }
    for (value, shown) in [(849u64, "849.00"), (850, "0.85k"), (1_500_000, "1.50M")] {
        assert_eq!(count(value.into()), shown);
    }
    for (value, shown) in [(870u64, "870.00"), (871, "0.85K"), (1 << 30, "1.00G")] {
        assert_eq!(bytes_text(value.into()), shown);
    }
    assert_eq!(count(u64::MAX.into()), "18446744.07T");
    for (value, shown) in [
        (50, "50s"),
        (51, "1m"),
        (89, "1m"),
        (90, "2m"),
        (150, "2m"),
        (210, "4m"),
        (7200, "120m"),
    ] {
        assert_eq!(
            TIME.scale_value(Extended::from(value as u64), 0),
            shown,
            "{value}"
        );
    }
}

#[test]
fn nothing_arrived() {
    let outcome = WrkResults {
        elapsed_us: 1_000_000,
        ..WrkResults::default()
    };
    let expected = "  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.00us    0.00us   0.00us    -nan%
    Req/Sec     0.00      0.00     0.00      -nan%
  Latency Distribution
     50%    0.00us
     75%    0.00us
     90%    0.00us
     99%    0.00us
  0 requests in 1.00s, 0.00B read
Requests/sec:      0.00
Transfer/sec:       0.00B
";
    assert_eq!(results(&outcome, true), expected);
}

#[test]
fn every_line() {
    let mut latency = Stats::new([(5000, 99), (45_000, 1)]);
    latency.correct_omission(1_000_000, 100, 1);
    let outcome = WrkResults {
        elapsed_us: 2_100_000,
        requests: 128_852,
        bytes: 10_045_358,
        read_errors: 13_425,
        status_errors: 121_596,
        latency,
        rate: Stats::new([(194, 3), (195, 2)]),
        ..WrkResults::default()
    };
    let expected = "Running 2s test @ http://127.0.0.1:8081/
  2 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     5.97ms    5.33ms  45.00ms   96.12%
    Req/Sec   194.40      0.55   195.00     60.00%
  Latency Distribution
     50%    5.00ms
     75%    5.00ms
     90%    5.00ms
     99%   35.00ms
  128852 requests in 2.10s, 9.58MB read
  Socket errors: connect 0, read 13425, write 0, timeout 0
  Non-2xx or 3xx responses: 121596
Requests/sec:  61358.10
Transfer/sec:      4.56MB
";
    let text = banner("http://127.0.0.1:8081/", 2, 2, 10) + &results(&outcome, true);
    assert_eq!(text, expected);
    let short = results(&outcome, false);
    assert!(!short.contains("Distribution") && short.contains("requests in"));
}

proptest! {
    #[test]
    fn columns_do_not_move(value in 0u64..7_200_000_000, rate in 0u64..10_000_000) {
        for width in [8, 9, 10] {
            prop_assert_eq!(align_cell(&microseconds(value), width).len(), width);
            prop_assert_eq!(align_cell(&count(rate.into()), width).len(), width);
        }
    }
}
