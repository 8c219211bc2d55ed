//! Comparison of socket tests.

use wb_model::socket::SocketJobReport;

use super::plot::{Form, Plot, Scale, Series, X, Y};

/// Plot that compares several tests.
pub(super) fn compared(jobs: &[SocketJobReport]) -> Option<Plot> {
    let moves = jobs.first()?.test.is_stream();
    if jobs.len() < 2 || jobs.iter().any(|job| job.test.is_stream() != moves) {
        return None;
    }
    let names = jobs.iter().map(|job| job.name.clone()).collect();
    let xs = (0..jobs.len()).map(|i| i as f64).collect();
    let value = |job: &SocketJobReport| match moves {
        true => job.result.throughput_bps,
        false => job.result.transactions_per_second,
    };
    let values = jobs.iter().map(|job| Some(value(job))).collect();
    let (label, unit) = match moves {
        true => ("throughput", "bit/s"),
        false => ("transactions", "/s"),
    };
    let series = vec![Series::line(label, values).as_form(Form::Marks)];
    let x = X::scaled("test", Scale::Names(names));
    Plot::new(
        "socket-tests",
        "Comparison of the tests",
        x,
        Y::new(label, unit),
        xs,
        series,
    )
}
