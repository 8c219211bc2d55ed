//! Selects addresses and ports of a trial. As far as possible they differ from those of previous trials, because the
//! device may still have state for those.

use wb_model::{
    bench::{LbMetric, LbPlan},
    units::AddressRange,
};

/// Cycles through the client's addresses, trial by trial.
#[derive(Clone, Debug)]
pub(super) struct ClientAddresses {
    hosts: Vec<AddressRange>,
    addresses: u128,
    per_address: u128,
    next: u128,
    /// Maximum number of addresses that one trial needed.
    most: u128,
    /// Last time at which the first address was the next one.
    began: Option<u64>,
    remembered_ns: u64,
    came_round: bool,
}

impl ClientAddresses {
    /// Addresses of a plan.
    pub(super) fn new(plan: &LbPlan) -> Self {
        let addresses = plan
            .client
            .hosts
            .iter()
            .map(AddressRange::count)
            .sum::<u128>()
            .max(1);
        Self {
            hosts: plan.client.hosts.clone(),
            addresses,
            per_address: (plan.tuples() / addresses).max(1),
            next: 0,
            most: 1,
            began: None,
            remembered_ns: plan.device.state_timeout.as_nanos(),
            came_round: false,
        }
    }

    /// Returns true if the next trial may have to reuse addresses of this one.
    pub(super) fn is_narrow(&self) -> bool {
        self.most * 2 > self.addresses
    }

    /// Returns true if a trial has reused addresses within the time that the device keeps its state.
    pub(super) const fn came_round(&self) -> bool {
        self.came_round
    }

    /// Addresses for the next trial of this number of connections, starting with the least recently used.
    pub(super) fn next(
        &mut self,
        metric: LbMetric,
        connections: u64,
        now: u64,
    ) -> Vec<AddressRange> {
        // A small number of flows is reused, because the device should know them.
        if metric != LbMetric::Cps {
            return self.hosts.clone();
        }
        let needed = u128::from(connections).div_ceil(self.per_address);
        self.most = self.most.max(needed);
        let hosts = rotate_addresses(&self.hosts, self.next);
        let end = self.next + needed;
        if end > self.addresses {
            let since = self
                .began
                .map_or(u64::MAX, |began| now.saturating_sub(began));
            self.came_round |= since < self.remembered_ns;
        }
        if self.next == 0 || end > self.addresses {
            self.began = Some(now);
        }
        self.next = end % self.addresses;
        hosts
    }
}

/// The addresses, rotated to start with the n-th.
fn rotate_addresses(hosts: &[AddressRange], n: u128) -> Vec<AddressRange> {
    let mut left = n;
    for (i, range) in hosts.iter().enumerate() {
        let count = range.count();
        if left >= count {
            left -= count;
            continue;
        }
        let cut = |from: u128, to: u128| AddressRange::between(range.nth(from), range.nth(to));
        let tail = if left == 0 {
            Some(*range)
        } else {
            cut(left, count - 1)
        };
        let head = if left == 0 { None } else { cut(0, left - 1) };
        return tail
            .into_iter()
            .chain(hosts[i + 1..].iter().copied())
            .chain(hosts[..i].iter().copied())
            .chain(head)
            .collect();
    }
    hosts.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_addresses_from_another_one_on() {
        let hosts: Vec<AddressRange> = ["10.0.0.1-10.0.0.4", "10.0.1.1", "10.0.2.1-10.0.2.2"]
            .map(|r| r.parse().unwrap())
            .to_vec();
        let all = |ranges: &[AddressRange]| -> Vec<String> {
            let each = |r: &AddressRange| {
                (0..r.count())
                    .map(|i| r.nth(i).to_string())
                    .collect::<Vec<_>>()
            };
            ranges.iter().flat_map(each).collect()
        };
        let plain = all(&hosts);
        for n in 0..7usize {
            let mut expected = plain.clone();
            expected.rotate_left(n);
            assert_eq!(all(&rotate_addresses(&hosts, n as u128)), expected, "{n}");
        }
    }
}
