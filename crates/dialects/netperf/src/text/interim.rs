//! Interim results: `-D`.

use wb_model::socket::{SocketJob, SocketLive};

use super::unit::RateUnit;
use crate::{OutputForm, OutputOptions};

/// Lines of a completed interval, with line ends. `number` counts the intervals from 0.
#[must_use]
pub fn interim(show: &OutputOptions, job: &SocketJob, live: &SocketLive, number: u64) -> String {
    let unit = RateUnit::of_result(show, job);
    let rate = if live.interval_s > 0.0 {
        live.units as f64 / live.interval_s
    } else {
        0.0
    };
    let value = match (unit, live.transactions) {
        (RateUnit::Transactions, _) => rate,
        (unit, true) => {
            let bytes = f64::from(job.request_size) + f64::from(job.response_size);
            unit.convert_rate(rate * 8.0 * bytes, show.strict)
        }
        (unit, false) => unit.convert_rate(rate * 8.0, show.strict),
    };
    let unit = unit.name();
    let seconds = live.interval_s;
    // The time of day needs more than the seven digits of a float; a double has
    // enough for milliseconds.
    let milliseconds = (live.ended_s * 1000.0).max(0.0) as u64;
    let ended = format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000);
    match show.form {
        OutputForm::Classic | OutputForm::Human => format!(
            "Interim result: {value:>7.2} {unit}/s over {seconds:.3} seconds ending at {ended}\n"
        ),
        OutputForm::Csv => format!("{value:>7.2},{unit}/s,{seconds:.3},{ended}\n"),
        OutputForm::KeyValue => format!(
            "NETPERF_INTERIM_RESULT[{number}]={value:.2}\n\
             NETPERF_UNITS[{number}]={unit}/s\n\
             NETPERF_INTERVAL[{number}]={seconds:.3}\n\
             NETPERF_ENDING[{number}]={ended}\n"
        ),
    }
}
