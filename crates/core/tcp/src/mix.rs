//! Request mix: selects the next of several requests.

use crate::message::Message;

/// Request of a client.
#[derive(Clone, Debug)]
pub struct WeightedRequest {
    /// Bytes of the request.
    pub message: Message,
    /// Relative frequency of the request.
    pub weight: u32,
    /// True for the method HEAD: the answer has no body.
    pub head: bool,
}

/// Weighted round robin that spreads each request evenly.
#[derive(Debug)]
pub(crate) struct Mix {
    /// Weight, credit, and true for HEAD.
    all: Box<[(i64, i64, bool)]>,
    total: i64,
}

impl Mix {
    pub(crate) fn new(asks: &[WeightedRequest]) -> Self {
        let all: Box<[_]> = asks
            .iter()
            .map(|ask| (ask.weight.into(), 0, ask.head))
            .collect();
        Self {
            total: all.iter().map(|(weight, ..)| weight).sum(),
            all,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_head(&self, text: u16) -> bool {
        self.all.get(usize::from(text)).is_some_and(|ask| ask.2)
    }

    /// Index of the next request.
    pub(crate) fn choose(&mut self) -> u16 {
        if self.all.len() < 2 {
            return 0;
        }
        let mut best = (0, i64::MIN);
        for (i, (weight, credit, _)) in self.all.iter_mut().enumerate() {
            *credit += *weight;
            if *credit > best.1 {
                best = (i, *credit);
            }
        }
        self.all[best.0].1 -= self.total;
        best.0 as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_held_in_every_round() {
        let asks = [5, 1, 1].map(|weight| WeightedRequest {
            message: Message::bytes(b"x"),
            weight,
            head: false,
        });
        let mut mix = Mix::new(&asks);
        for _ in 0..3 {
            let round: Vec<u16> = (0..7).map(|_| mix.choose()).collect();
            assert_eq!(round, [0, 0, 1, 0, 2, 0, 0]);
        }
    }
}
