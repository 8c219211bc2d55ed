//! Accounts: frames sent compared with frames received, so that the figures add up.
//!
//! `offered = (received - duplicate) + lost`, always and exactly. Knows only numbers.

use std::fmt;

use derive_more::{Add, AddAssign, Sum};

use crate::flow::FlowStats;

/// Account of one or more flows: [`Account::balances`] is always true for the results of [`Account::settle`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Add, AddAssign, Sum)]
pub struct Account {
    /// Frames really sent.
    pub offered: u64,
    /// Frames received, including duplicates, without the excess.
    pub received: u64,
    /// Duplicates among them.
    pub duplicate: u64,
    /// Frames offered but not received.
    pub lost: u64,
    /// Originals received in excess of `offered` and removed from `received`. They must come from elsewhere (an earlier
    /// run, another sender) and belong to the foreign frames.
    pub excess: u64,
}

/// Error for figures that do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Figures as given.
    pub account: Account,
}

impl Account {
    /// Settles one flow. Settle flows one by one and add the accounts: an excess of one flow must not hide the loss of
    /// another.
    pub fn settle(offered: u64, received: u64, duplicate: u64) -> Account {
        let duplicate = duplicate.min(received);
        let unique = received - duplicate;
        let excess = unique.saturating_sub(offered);
        Account {
            offered,
            received: received - excess,
            duplicate,
            lost: offered.saturating_sub(unique),
            excess,
        }
    }

    /// Checks figures from another source, for instance a report.
    ///
    /// # Errors
    /// Returns an error if `offered` is not `(received - duplicate) + lost`.
    pub fn check(
        offered: u64,
        received: u64,
        duplicate: u64,
        lost: u64,
    ) -> Result<Account, Imbalance> {
        let account = Account {
            offered,
            received,
            duplicate,
            lost,
            excess: 0,
        };
        if account.balances() {
            Ok(account)
        } else {
            Err(Imbalance { account })
        }
    }

    /// Returns true if `offered = (received - duplicate) + lost`.
    pub fn balances(&self) -> bool {
        let unique = self.received.checked_sub(self.duplicate);
        unique.and_then(|unique| unique.checked_add(self.lost)) == Some(self.offered)
    }

    /// Distinct frames received.
    pub fn unique(&self) -> u64 {
        self.received - self.duplicate
    }
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account {
            offered,
            received,
            duplicate,
            lost,
            ..
        } = self.account;
        write!(
            f,
            "inconsistent frame counts: offered {offered} != (received {received} - duplicate {duplicate}) + lost {lost}"
        )
    }
}

impl std::error::Error for Imbalance {}

/// Settles every flow and adds the accounts. `offered` contains flow and frames sent, `received` the flows of a
/// [`Measurement`](crate::Measurement); both in ascending order, each flow once.
///
/// A flow without received frames is lost; a flow that was not offered is excess. Returns the sum, and the account of
/// each flow that was offered or received.
pub fn settle_flows(
    offered: &[(u32, u64)],
    received: &[FlowStats],
) -> (Account, Vec<(u32, Account)>) {
    let mut accounts: Vec<(u32, Account)> = Vec::with_capacity(offered.len());
    let mut arrived = received.iter().peekable();
    let unoffered = |flow: &FlowStats| {
        (
            flow.flow,
            Account::settle(0, flow.received, flow.duplicates),
        )
    };
    for &(flow, sent) in offered {
        while let Some(other) = arrived.next_if(|other| other.flow < flow) {
            accounts.push(unoffered(other));
        }
        let (received, duplicate) = match arrived.next_if(|arrived| arrived.flow == flow) {
            Some(arrived) => (arrived.received, arrived.duplicates),
            None => (0, 0),
        };
        accounts.push((flow, Account::settle(sent, received, duplicate)));
    }
    accounts.extend(arrived.map(unoffered));
    (accounts.iter().map(|&(_, account)| account).sum(), accounts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Analyser;
    use proptest::prelude::*;

    #[test]
    fn loss_is_what_did_not_come() {
        let account = Account::settle(100, 103, 5);
        let expected = Account {
            offered: 100,
            received: 103,
            duplicate: 5,
            lost: 2,
            excess: 0,
        };
        assert_eq!(account, expected);
    }

    #[test]
    fn more_than_was_sent_is_excess_not_negative_loss() {
        let account = Account::settle(10, 15, 2);
        let expected = Account {
            offered: 10,
            received: 12,
            duplicate: 2,
            lost: 0,
            excess: 3,
        };
        assert_eq!(account, expected);
        assert!(account.balances());
    }

    #[test]
    fn an_excess_does_not_hide_a_loss() {
        let mut analyser = Analyser::open(8);
        for (flow, frames) in [(2, 12), (5, 7), (9, 3)] {
            for sequence in 0..frames {
                analyser.on_frame(flow, sequence, 1, 2, 64);
            }
        }
        let (total, flows) = analyser
            .into_measurement()
            .account(&[(1, 4), (2, 10), (5, 10)]);
        let settled = [
            (1, Account::settle(4, 0, 0)),
            (2, Account::settle(10, 12, 0)),
            (5, Account::settle(10, 7, 0)),
            (9, Account::settle(0, 3, 0)),
        ];
        assert_eq!(flows, settled);
        assert_eq!((total.offered, total.lost, total.excess), (24, 7, 5));
        assert!(total.balances());
    }

    #[test]
    fn foreign_figures_are_checked() {
        assert!(Account::check(10, 9, 1, 2).is_ok());
        let error = Account::check(10, 9, 1, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "inconsistent frame counts: offered 10 != (received 9 - duplicate 1) + lost 1"
        );
        assert!(Account::check(10, 1, 2, 11).is_err());
        assert!(Account::check(0, u64::MAX, 0, 1).is_err());
    }

    proptest! {
        #[test]
        fn always_balances(flows in prop::collection::vec((0u64..50, 0u64..50, 0u64..50), 0..9)) {
            let accounts = flows.iter().map(|&(o, r, d)| Account::settle(o, r, d));
            for account in accounts.clone() {
                prop_assert!(account.balances());
            }
            prop_assert!(accounts.sum::<Account>().balances());
        }
    }
}
