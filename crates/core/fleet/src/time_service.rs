//! Claims of time services about the clock of their host: output of chrony and of ptp4l.

use wb_model::fleet::HostClock;

/// Program and arguments that print the state of chrony.
pub const CHRONY: &[&str] = &["chronyc", "-c", "tracking"];
/// Program and arguments that print the state of ptp4l.
pub const PTP: &[&str] = &["pmc", "-u", "-b", "0", "GET TIME_STATUS_NP"];

/// Reads the output of [`CHRONY`]. `None` if the clock is not synchronised, or the text is something else.
///
/// The largest error is the one that chrony documents: the correction that is still to be made, the dispersion of the
/// source, and half of the round trip to it.
#[must_use]
pub fn chrony(text: &str) -> Option<HostClock> {
    // ID, name, stratum, time, correction, last offset, RMS offset, frequency, residual, skew, round trip to the source,
    // dispersion, interval, leap status.
    let fields: Vec<&str> = text.lines().next()?.trim().split(',').collect();
    let [
        id,
        name,
        stratum,
        _,
        correction,
        _,
        _,
        _,
        _,
        _,
        delay,
        dispersion,
        _,
        leap,
    ] = fields[..]
    else {
        return None;
    };
    // A server that follows only its own clock has the name 127.127.x.x and claims no error.
    let is_own = id.starts_with("7F7F");
    if is_own || leap == "Not synchronised" || stratum.parse::<u32>().ok()? == 0 {
        return None;
    }
    let seconds = |field: &str| field.parse::<f64>().ok().filter(|s| s.is_finite());
    let correction = seconds(correction)?.abs();
    let error = correction + seconds(dispersion)?.abs() + seconds(delay)?.abs() / 2.0;
    Some(HostClock {
        method: "chrony".to_owned(),
        source: name.to_owned(),
        error_ns: (error * 1e9).ceil() as u64,
    })
}

/// Reads the output of [`PTP`]. `None` if ptp4l follows no other clock, or the text is something else.
#[must_use]
pub fn ptp(text: &str) -> Option<HostClock> {
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(name)?.split_whitespace().next())
    };
    if value("gmPresent ")? != "true" {
        return None;
    }
    Some(HostClock {
        method: "ptp".to_owned(),
        source: value("gmIdentity ")?.to_owned(),
        error_ns: value("master_offset ")?.parse::<i64>().ok()?.unsigned_abs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_chrony_has_three_parts() {
        let text = "C0A80101,192.168.1.1,2,1795726288.123456789,-0.000012345,0.000002000,0.000030000,-12.345,\
            0.001,0.050,0.000600000,0.000100000,64.2,Normal\n";
        let clock = chrony(text).unwrap();
        assert_eq!((&*clock.method, &*clock.source), ("chrony", "192.168.1.1"));
        assert_eq!(clock.error_ns, 412_345);
        // chrony 4.3, at a client and at a server with `local`.
        let text = "C6120901,198.18.9.1,9,1796098150.715121265,-0.000002625,-0.000000118,0.000000645,-0.066,-0.004,\
            0.663,0.000008980,0.000002650,1.0,Normal\n";
        assert_eq!(chrony(text).unwrap().error_ns, 9_765);
        let text = "7F7F0101,,8,1796098143.555903824,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,0.000000000,\
            0.000000000,0.0,Normal\n";
        assert_eq!(chrony(text), None);
    }

    #[test]
    fn a_chrony_without_a_source_claims_nothing() {
        let text = "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,1.000000000,\
            1.000000000,0.0,Not synchronised\n";
        assert_eq!(chrony(text), None);
        for other in [
            "",
            "506 Cannot talk to daemon\n",
            "a,b,c\n",
            "C0A80101,h,2,1.0,x,0,0,0,0,0,0.1,0.1,64.2,Normal\n",
            "C0A80101,h,2,1.0,NaN,0,0,0,0,0,0.1,0.1,64.2,Normal\n",
        ] {
            assert_eq!(chrony(other), None, "{other}");
        }
    }

    const STATUS: &str = "sending: GET TIME_STATUS_NP\n\
        \t0c42a1.fffe.d1d1d1-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP\n\
        \t\tmaster_offset              -27\n\
        \t\tingress_time               1795726288123456789\n\
        \t\tcumulativeScaledRateOffset +0.000000000\n\
        \t\tscaledLastGmPhaseChange    0\n\
        \t\tgmTimeBaseIndicator        0\n\
        \t\tlastGmPhaseChange          0x0000'0000000000000000.0000\n\
        \t\tgmPresent                  true\n\
        \t\tgmIdentity                 0c42a1.fffe.a1b2c3\n";

    #[test]
    fn ptp_claims_its_offset_from_the_grandmaster() {
        let clock = ptp(STATUS).unwrap();
        assert_eq!(
            (&*clock.method, &*clock.source),
            ("ptp", "0c42a1.fffe.a1b2c3")
        );
        assert_eq!(clock.error_ns, 27);
    }

    #[test]
    fn a_ptp_clock_that_follows_nobody_claims_nothing() {
        let own = STATUS.replace(
            "gmPresent                  true",
            "gmPresent                  false",
        );
        assert_eq!(ptp(&own), None);
        assert_eq!(ptp("sending: GET TIME_STATUS_NP\n"), None);
        assert_eq!(ptp(&STATUS.replace("-27", "none")), None);
    }
}
