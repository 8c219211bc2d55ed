//! Splits a load over hosts. The parts differ by at most one, and their sum is exact.

use wb_model::{HttpJob, LoadJob, http::HttpStage, load::LoadRate, units::AddressRange};

/// Largest number that a `f64` holds exactly, as all smaller ones.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Part `index` of `of` parts of a number: the largest remainder method with equal weights.
#[must_use]
pub fn part(whole: u64, index: u32, of: u32) -> u64 {
    let (index, of) = (u64::from(index), u64::from(of.max(1)));
    whole / of + u64::from(index < whole % of)
}

/// Part of a rate. The sum of the parts of a whole number is exact.
fn part_of_rate(rate: f64, index: u32, of: u32) -> f64 {
    match rate.fract() == 0.0 && (0.0..EXACT).contains(&rate) {
        true => part(rate as u64, index, of) as f64,
        false => rate / f64::from(of.max(1)),
    }
}

/// Part of the addresses of several ranges, in their order.
#[must_use]
pub fn part_of_addresses(ranges: &[AddressRange], index: u32, of: u32) -> Vec<AddressRange> {
    let (index, of) = (u128::from(index), u128::from(of.max(1)));
    let count: u128 = ranges
        .iter()
        .fold(0, |sum, range| sum.saturating_add(range.count()));
    let (least, more) = (count / of, count % of);
    let mut skip = least * index + index.min(more);
    let mut left = least + u128::from(index < more);
    let mut found = Vec::new();
    for range in ranges {
        let length = range.count();
        if left > 0 && skip < length {
            let taken = left.min(length - skip);
            let (first, last) = (range.nth(skip), range.nth(skip + taken - 1));
            found.extend(AddressRange::between(first, last));
            left -= taken;
        }
        skip = skip.saturating_sub(length);
    }
    found
}

/// Part of an HTTP job.
#[must_use]
pub fn http_part(job: &HttpJob, index: u32, of: u32) -> HttpJob {
    let connections = u32::try_from(part(job.connections.into(), index, of)).unwrap_or(u32::MAX);
    let stage = |stage: &HttpStage| HttpStage {
        from: part_of_rate(stage.from, index, of),
        to: part_of_rate(stage.to, index, of),
        ..*stage
    };
    HttpJob {
        connections,
        threads: job.threads.min(connections),
        amount: job.amount.map(|amount| part(amount, index, of)),
        rate: job.rate.iter().map(stage).collect(),
        sources: part_of_addresses(&job.sources, index, of),
        share: None,
        ..job.clone()
    }
}

/// Part of a load.
#[must_use]
pub fn load_part(job: &LoadJob, index: u32, of: u32) -> LoadJob {
    let number = |rate: Option<u64>| match rate {
        Some(LoadRate::MAX) => rate,
        rate => rate.map(|rate| part(rate, index, of)),
    };
    LoadJob {
        clients: part_of_addresses(&job.clients, index, of),
        rate: LoadRate {
            cps: number(job.rate.cps),
            cc: number(job.rate.cc),
            rps: number(job.rate.rps),
            pps: number(job.rate.pps),
            bps: number(job.rate.bps),
            ..job.rate
        },
        share: None,
        ..job.clone()
    }
}

/// First problem that makes a split impossible: a part would have nothing to do.
#[must_use]
pub fn load_problem(job: &LoadJob, of: u32) -> Option<String> {
    let addresses = job
        .clients
        .iter()
        .fold(0, |sum: u128, range| sum.saturating_add(range.count()));
    if addresses < of.into() {
        return Some(format!(
            "each of {of} hosts needs an address of clients; there are {addresses}"
        ));
    }
    let rate = &job.rate;
    let rates = [
        ("cps", rate.cps),
        ("cc", rate.cc),
        ("rps", rate.rps),
        ("pps", rate.pps),
        ("bps", rate.bps),
    ];
    let too_low = rates
        .into_iter()
        .find(|(_, rate)| rate.is_some_and(|rate| rate < of.into()));
    too_low.map(|(name, _)| format!("{name} is too low for {of} hosts"))
}

/// First problem that makes a split impossible: a part would have nothing to do.
#[must_use]
pub fn http_problem(job: &HttpJob, of: u32) -> Option<String> {
    if job.amount.is_some_and(|amount| amount < of.into()) {
        return Some(format!("amount is too low for {of} hosts"));
    }
    let sources = job
        .sources
        .iter()
        .fold(0, |sum: u128, range| sum.saturating_add(range.count()));
    (!job.sources.is_empty() && sources < of.into())
        .then(|| format!("each of {of} hosts needs an address of sources; there are {sources}"))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn addresses(ranges: &[AddressRange]) -> Vec<IpAddr> {
        let all = ranges
            .iter()
            .flat_map(|range| (0..range.count()).map(|i| range.nth(i)));
        all.collect()
    }

    proptest! {
        #[test]
        fn parts_of_a_number_differ_by_one_and_sum_up(whole: u64, of in 1_u32..1000) {
            let parts: Vec<u64> = (0..of).map(|index| part(whole, index, of)).collect();
            prop_assert_eq!(parts.iter().sum::<u64>(), whole);
            let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
            prop_assert!(most - least <= 1);
        }

        #[test]
        fn every_address_is_in_one_part(
            ranges in proptest::collection::vec((any::<u16>(), 1_u32..40), 1..5),
            of in 1_u32..20,
        ) {
            let ranges: Vec<AddressRange> = ranges.iter().enumerate().map(|(n, (first, count))| {
                let first = 0x0a00_0000 + ((n as u32) << 20) + u32::from(*first);
                let ip = |bits: u32| IpAddr::V4(bits.into());
                AddressRange::between(ip(first), ip(first + count - 1)).unwrap()
            }).collect();
            let parts = (0..of).flat_map(|index| addresses(&part_of_addresses(&ranges, index, of)));
            prop_assert_eq!(parts.collect::<Vec<_>>(), addresses(&ranges));
        }

        #[test]
        fn a_split_job_has_the_rates_of_the_whole(
            connections in 1_u32..1_000_000,
            amount: Option<u64>,
            rate in 0_u32..1_000_000_000,
            cps in 0_u64..LoadRate::MAX,
            of in 1_u32..1000,
        ) {
            let http = HttpJob {
                connections,
                amount,
                rate: vec![HttpStage { from: rate.into(), to: f64::from(rate) / 2.0, time: None }],
                ..HttpJob::default()
            };
            let parts: Vec<HttpJob> = (0..of).map(|index| http_part(&http, index, of)).collect();
            prop_assert_eq!(parts.iter().map(|job| job.connections).sum::<u32>(), connections);
            prop_assert_eq!(parts.iter().map(|job| job.amount).sum::<Option<u64>>(), amount);
            let from: f64 = parts.iter().map(|job| job.rate[0].from).sum();
            prop_assert_eq!(from, f64::from(rate));
            let to: f64 = parts.iter().map(|job| job.rate[0].to).sum();
            prop_assert!((to - f64::from(rate) / 2.0).abs() <= f64::from(rate) * 1e-12);

            let load = LoadJob {
                rate: LoadRate { cps: Some(cps), rps: Some(LoadRate::MAX), ..LoadRate::default() },
                ..LoadJob::default()
            };
            let parts: Vec<LoadJob> = (0..of).map(|index| load_part(&load, index, of)).collect();
            prop_assert_eq!(parts.iter().filter_map(|job| job.rate.cps).sum::<u64>(), cps);
            prop_assert!(parts.iter().all(|job| job.rate.rps == Some(LoadRate::MAX)));
        }
    }
}
