//! Distribution of the total rate over workers.

use wb_model::load::LoadRate;
use wb_model::units::Rational;

/// A worker's part of a total: an equal whole part, plus the remainder for the first worker. If the total is smaller
/// than the number of workers, the first ones get 1 (as in dperf).
pub fn worker_share(total: u64, worker: u32, workers: u32) -> u64 {
    let (worker, workers) = (u64::from(worker), u64::from(workers.max(1)));
    if total <= workers {
        return u64::from(worker < total);
    }
    total / workers + if worker == 0 { total % workers } else { 0 }
}

/// Cost of one connection, to convert all rates to connection rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCost {
    /// Requests per connection; `None` means unlimited.
    pub requests: Option<u64>,
    /// Bytes of a request's frame with FCS; `None` if frames and bits do not determine requests (TCP).
    pub frame_size: Option<u32>,
}

/// The limits of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLimits {
    /// New connections per second; `None`: as many as `open` permits.
    pub launches: Option<Rational>,
    /// New connections as fast as the worker can open them; `launches` is `None` then.
    pub unlimited: bool,
    /// Connections open at a time.
    pub open: Option<u64>,
    /// Requests per second over all persistent connections; `None`: according to the interval.
    pub requests: Option<Rational>,
}

impl WorkerLimits {
    /// One worker's part of a rate.
    pub fn for_worker(rate: &LoadRate, cost: ConnectionCost, worker: u32, workers: u32) -> Self {
        let is_max = |rate: Option<u64>| rate == Some(LoadRate::MAX);
        let counted = |rate: Option<u64>| rate.filter(|rate| *rate != LoadRate::MAX);
        let part = |total: Option<u64>| total.map(|total| worker_share(total, worker, workers));
        let whole = |total: Option<u64>| part(total).map(Rational::whole);
        // For short connections, a request limit is a connection limit. Held connections share it, and workers without
        // held connections get no part.
        let held = rate.cc.is_some() && cost.requests != Some(1);
        let active = match rate.cc {
            Some(cc) if held && cc < u64::from(workers) => cc as u32,
            _ => workers,
        };
        let asked = |total: Option<u64>| match total {
            Some(_) if worker >= active => Some(0),
            total => total.map(|total| worker_share(total, worker, active)),
        };
        let mut requests = asked(counted(rate.rps)).map(Rational::whole);
        if let Some(size) = cost.frame_size {
            requests = min_rate(requests, asked(rate.pps).map(Rational::whole));
            let bits =
                asked(rate.bps).and_then(|bps| Rational::new(bps.into(), u128::from(size) * 8));
            requests = min_rate(requests, bits);
        }
        // A flow needs no handshake, so one is enough if only its packets are limited.
        let one_flow = cost.frame_size.is_some()
            && cost.requests != Some(1)
            && (rate.cc, rate.cps) == (None, None)
            && (requests.is_some() || is_max(rate.rps));
        let open = part(rate.cc).or(one_flow.then_some(1));
        let mut launches = whole(counted(rate.cps));
        let come_and_go = !(held || one_flow) && cost.requests.is_some();
        if let (false, Some(n)) = (held || one_flow, cost.requests) {
            let by_requests = requests.and_then(|rate| rate.over(Rational::whole(n)));
            launches = min_rate(launches, by_requests);
            requests = None;
        }
        let at_max = is_max(rate.cps) || come_and_go && rate.cps.is_none() && is_max(rate.rps);
        Self {
            launches,
            unlimited: at_max && launches.is_none(),
            open,
            requests,
        }
    }
}

fn min_rate(a: Option<Rational>, b: Option<Rational>) -> Option<Rational> {
    match (a, b) {
        (Some(a), Some(b)) => {
            let left = u128::from(a.numerator()) * u128::from(b.denominator());
            let right = u128::from(b.numerator()) * u128::from(a.denominator());
            Some(if left <= right { a } else { b })
        }
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_dperf_divides() {
        let shares = |total| {
            (0..4)
                .map(|w| worker_share(total, w, 4))
                .collect::<Vec<_>>()
        };
        assert_eq!(shares(3), [1, 1, 1, 0]);
        assert_eq!(shares(4), [1, 1, 1, 1]);
        assert_eq!(shares(11), [5, 2, 2, 2]);
        assert_eq!(shares(0), [0; 4]);
    }

    #[test]
    fn the_tightest_limit_counts() {
        let one = ConnectionCost {
            requests: Some(1),
            frame_size: Some(100),
        };
        let rate = LoadRate {
            cps: Some(5000),
            pps: Some(4000),
            bps: Some(800_000),
            ..LoadRate::default()
        };
        assert_eq!(
            WorkerLimits::for_worker(&rate, one, 0, 1).launches,
            Some(Rational::whole(1000))
        );
        let tcp = ConnectionCost {
            requests: Some(4),
            frame_size: None,
        };
        let rate = LoadRate {
            cps: Some(5000),
            rps: Some(8000),
            ..LoadRate::default()
        };
        assert_eq!(
            WorkerLimits::for_worker(&rate, tcp, 1, 2).launches,
            Some(Rational::whole(1000))
        );
    }

    #[test]
    fn held_connections_share_the_requests() {
        let held = ConnectionCost {
            requests: None,
            frame_size: None,
        };
        let rate = LoadRate {
            cc: Some(100),
            rps: Some(8000),
            ..LoadRate::default()
        };
        let limits = WorkerLimits::for_worker(&rate, held, 0, 1);
        assert_eq!((limits.launches, limits.open), (None, Some(100)));
        assert_eq!(limits.requests, Some(Rational::whole(8000)));
    }

    #[test]
    fn requests_are_for_those_who_hold_connections() {
        let held = ConnectionCost {
            requests: None,
            frame_size: Some(64),
        };
        let rate = LoadRate {
            cc: Some(2),
            pps: Some(9),
            ..LoadRate::default()
        };
        let limits = |rate, worker| {
            let limits = WorkerLimits::for_worker(rate, held, worker, 4);
            (limits.open, limits.requests.map(|rate| rate.numerator()))
        };
        let all = [0, 1, 2, 3].map(|worker| limits(&rate, worker));
        let some = |open, rate| (Some(open), Some(rate));
        assert_eq!(all, [some(1, 5), some(1, 4), some(0, 0), some(0, 0)]);
        // Without a number each worker has one flow.
        let none = LoadRate { cc: None, ..rate };
        assert_eq!(limits(&none, 3), (Some(1), Some(2)));
        let tcp = ConnectionCost {
            frame_size: None,
            ..held
        };
        let rate = LoadRate {
            rps: Some(9),
            ..LoadRate::default()
        };
        assert_eq!(WorkerLimits::for_worker(&rate, tcp, 0, 1).open, None);
    }
}
