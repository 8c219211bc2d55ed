//! Whether a load met what was asked.

use wb_model::{
    Summary, Totals,
    criteria::{Criterion, Limit, Metric},
    load::{ConnectionTotals, LoadJobReport, LoadTransport},
    report::CriterionReport,
};

/// Judges by all jobs of the end that is shown. A share of nothing is no measurement, and does not hold.
pub(super) fn judge<'a>(
    criterion: &Criterion,
    jobs: impl Iterator<Item = &'a LoadJobReport>,
    latency: &Summary,
) -> CriterionReport {
    let (mut c, mut unsent) = (ConnectionTotals::default(), (0, 0));
    // TCP loses no requests, so its own would only dilute the share.
    let mut udp = ConnectionTotals::default();
    for job in jobs {
        c = c.plus(&job.totals);
        if job.transport == LoadTransport::Udp {
            udp = udp.plus(&job.totals);
        }
        unsent.0 += job.unsent_connections;
        unsent.1 += job.unsent_requests;
    }
    let awaited = udp.requests - udp.unawaited_requests;
    #[allow(clippy::cast_precision_loss)]
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let worse = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (one, other) => one.or(other),
    };
    let loss = share(udp.lost_requests + udp.in_flight_requests, awaited);
    let measured = match criterion.metric {
        // What is open when the drain is over has not ended well either. A flow of UDP that goes on until
        // the end has done so with a single answer, so its requests are judged as well.
        Metric::Failed => {
            let bad = c.failed_connections + c.open_connections;
            worse(share(bad, c.attempted_connections), loss)
        }
        Metric::Errors => share(c.error_responses, c.responses),
        Metric::Unsent => worse(
            share(unsent.0, c.attempted_connections + unsent.0),
            share(unsent.1, c.requests + unsent.1),
        ),
        Metric::Loss => loss,
        Metric::Duplicates => share(udp.duplicate_responses, awaited),
        _ => return crate::settle::judge(criterion, &Totals::default(), latency),
    };
    #[allow(clippy::cast_precision_loss)]
    let limit = match criterion.limit {
        Limit::Share(share) => share.as_f64(),
        Limit::Time(time) => time.as_nanos() as f64,
    };
    CriterionReport {
        criterion: criterion.to_string(),
        measured,
        held: measured.is_some_and(|m| m <= limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str, job: &LoadJobReport) -> (Option<f64>, bool) {
        let judged = judge(
            &text.parse().expect("a criterion"),
            std::iter::once(job),
            &Summary::default(),
        );
        (judged.measured, judged.held)
    }

    #[test]
    fn what_is_open_at_the_end_has_not_held() {
        let mut job = LoadJobReport::default();
        assert_eq!(judged("failed<=100%", &job), (None, false));
        job.totals.attempted_connections = 300;
        job.totals.open_connections = 300;
        assert_eq!(judged("failed<=0.1%", &job), (Some(1.0), false));
        (job.totals.open_connections, job.totals.failed_connections) = (1, 2);
        assert_eq!(judged("failed<=1%", &job), (Some(0.01), true));
    }

    /// A flow of UDP that got one answer to thousands of requests is completed.
    #[test]
    fn requests_that_were_lost_have_failed() {
        let mut job = LoadJobReport {
            transport: LoadTransport::Udp,
            ..LoadJobReport::default()
        };
        (job.totals.attempted_connections, job.totals.requests) = (10, 4000);
        job.totals.completed_connections = 10;
        (job.totals.responses, job.totals.lost_requests) = (40, 3960);
        assert_eq!(judged("failed<=10%", &job), (Some(0.99), false));
        (job.totals.responses, job.totals.lost_requests) = (3999, 1);
        assert_eq!(judged("failed<=0%", &job), (Some(0.00025), false));
        assert_eq!(judged("failed<=0.1%", &job), (Some(0.00025), true));
        (
            job.totals.completed_connections,
            job.totals.open_connections,
        ) = (9, 1);
        assert_eq!(judged("failed<=1%", &job), (Some(0.1), false));
    }

    #[test]
    fn what_tcp_asks_dilutes_no_loss() {
        let asked = |transport, requests, lost| {
            let mut job = LoadJobReport {
                transport,
                ..LoadJobReport::default()
            };
            job.totals.requests = requests;
            job.totals.lost_requests = lost;
            job
        };
        let jobs = [
            asked(LoadTransport::Tcp, 900, 0),
            asked(LoadTransport::Udp, 100, 10),
        ];
        let criterion = "loss<=1%".parse().expect("a criterion");
        let judged = judge(&criterion, jobs.iter(), &Summary::default());
        assert_eq!((judged.measured, judged.held), (Some(0.1), false));
    }

    #[test]
    fn shares_of_requests() {
        let mut job = LoadJobReport {
            transport: LoadTransport::Udp,
            ..LoadJobReport::default()
        };
        job.totals.attempted_connections = 10;
        job.totals.requests = 200;
        job.totals.responses = 180;
        job.totals.error_responses = 45;
        job.totals.lost_requests = 15;
        job.totals.in_flight_requests = 5;
        job.totals.duplicate_responses = 2;
        assert_eq!(judged("errors<=25%", &job), (Some(0.25), true));
        assert_eq!(judged("loss<=9%", &job), (Some(0.1), false));
        assert_eq!(judged("duplicates<=1%", &job), (Some(0.01), true));
        assert_eq!(judged("unsent<=0%", &job), (Some(0.0), true));
        job.unsent_requests = 200;
        job.unsent_connections = 90;
        assert_eq!(judged("unsent<=50%", &job), (Some(0.9), false));
        job.totals.unawaited_requests = 200;
        assert_eq!(judged("loss<=1%", &job), (None, false));
    }
}
