//! The table in virtual time, against a path that loses, duplicates, delays and reorders.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::OutstandingRequests;

/// Result of an exchange.
#[derive(Clone, Debug)]
enum ExchangeFate {
    Lost,
    /// The answer arrives after this delay.
    After(u64),
    /// The answer arrives twice.
    Twice(u64, u64),
}

fn fate() -> impl Strategy<Value = ExchangeFate> {
    prop_oneof![
        1 => Just(ExchangeFate::Lost),
        8 => (1_u64..400).prop_map(ExchangeFate::After),
        1 => (1_u64..400, 1_u64..800).prop_map(|(a, b)| ExchangeFate::Twice(a, b)),
    ]
}

fn under_way_at_most(timeout: Option<u64>) -> u64 {
    timeout.unwrap_or(u64::MAX)
}

proptest! {
    /// requests = answers + given up + in flight, at every instant. With numbers, each answer finds its request and the
    /// correct time; late and duplicate answers find none.
    #[test]
    fn every_request_ends_once(
        fates in prop::collection::vec(fate(), 1..300),
        gap in 1_u64..40,
        span in prop_oneof![Just(8_u64), Just(64), Just(1024)],
        timeout in prop::option::of(1_u64..500),
        numbered in any::<bool>(),
    ) {
        let mut book = OutstandingRequests::new(span);
        let mut arrivals: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let (mut answers, mut seen) = (0, BTreeSet::new());
        let mut arrive = |book: &mut OutstandingRequests, now: u64, arrivals: &mut BTreeMap<(u64, u64), u64>| {
            while let Some((&(at, order), &number)) = arrivals.first_key_value() {
                if at > now {
                    break;
                }
                arrivals.remove(&(at, order));
                if let Some(limit) = timeout {
                    book.give_up_until(at.saturating_sub(limit));
                }
                let since = if numbered { book.take_start(number) } else { book.answer_oldest() };
                if let Some(since) = since {
                    answers += 1;
                    if numbered {
                        prop_assert_eq!(since, number * gap);
                        prop_assert!(seen.insert(number), "answered twice");
                        prop_assert!(at - since < under_way_at_most(timeout));
                    }
                }
                prop_assert_eq!(book.begun_requests(), answers + book.given_up() + book.under_way());
            }
            Ok(())
        };
        for (number, fate) in (0_u64..).zip(&fates) {
            let now = number * gap;
            arrive(&mut book, now, &mut arrivals)?;
            book.begin_next(now);
            let order = 2 * number;
            match *fate {
                ExchangeFate::Lost => {}
                ExchangeFate::After(delay) => {
                    arrivals.insert((now + delay, order), number);
                }
                ExchangeFate::Twice(first, second) => {
                    arrivals.insert((now + first, order), number);
                    arrivals.insert((now + second, order + 1), number);
                }
            }
        }
        arrive(&mut book, u64::MAX, &mut arrivals)?;
        let lost = fates.iter().filter(|fate| matches!(fate, ExchangeFate::Lost)).count() as u64;
        // With room for all and no timeout, only lost requests have no answer.
        if numbered && timeout.is_none() && span >= fates.len() as u64 {
            prop_assert_eq!((book.given_up(), book.under_way()), (0, lost));
        }
        book.give_up_until(u64::MAX - 1);
        prop_assert_eq!((book.under_way(), book.begun_requests()), (0, answers + book.given_up()));
    }
}

#[test]
fn an_overtaken_request_is_still_under_way() {
    let mut book = OutstandingRequests::new(8);
    for since in 0..5 {
        book.begin_next(since);
    }
    assert_eq!(book.take_start(4), Some(4));
    assert_eq!(book.take_start(4), None);
    assert_eq!((book.under_way(), book.given_up()), (4, 0));
    assert_eq!(book.take_start(0), Some(0));
    assert_eq!(book.oldest_start(), Some(1));
    // After as many further requests as there are entries, the first one has lost its entry.
    for since in 5..10 {
        book.begin_next(since);
    }
    assert_eq!(book.given_up(), 1);
    assert_eq!(book.take_start(1), None);
    assert_eq!(book.take_start(2), Some(2));
}
