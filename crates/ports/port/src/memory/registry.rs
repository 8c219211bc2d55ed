//! Connects the two ends of `memory:NAME`.

use std::collections::HashMap;

use super::{LinkOptions, MemoryPort, link};
use crate::PortError;

/// Memory links of one run, or of several runs that start together. The first caller that opens a name gets the first end, the next caller the second.
#[derive(Debug, Default)]
pub struct Registry {
    links: HashMap<String, Made>,
}

#[derive(Debug)]
struct Made {
    queues: u32,
    /// Ends that were not opened, the next one last.
    ends: Vec<MemoryPort>,
}

impl Registry {
    /// Creates a registry without links.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns one end of the link named in the options, and creates the link on the first call.
    ///
    /// The options of the first call apply to both ends. The second call only compares the number of queues.
    ///
    /// # Errors
    /// Both ends are taken, the ends differ in the number of queues, or an option is out of range.
    pub fn open(&mut self, options: &LinkOptions) -> Result<MemoryPort, PortError> {
        if !self.links.contains_key(&options.name) {
            self.add(options)?;
        }
        let made = self.links.get_mut(&options.name).expect("added above");
        let wrong = |what| {
            Err(PortError::Input {
                port: options.locator(),
                what,
            })
        };
        if !made.ends.is_empty() && made.queues != options.queues {
            return wrong(format!(
                "queues requested: {}, at the other end: {}",
                options.queues, made.queues
            ));
        }
        match made.ends.pop() {
            Some(end) => Ok(end),
            None => wrong("both ends of this link are in use; use another name".to_owned()),
        }
    }

    /// Makes a link before its first end is opened, for links with other options than those of a run, such as an
    /// impairment.
    ///
    /// # Errors
    /// If an option is out of range.
    pub fn add(&mut self, options: &LinkOptions) -> Result<(), PortError> {
        let (first, second) = link(options)?;
        let made = Made {
            queues: options.queues,
            ends: vec![second, first],
        };
        self.links.insert(options.name.clone(), made);
        Ok(())
    }

    /// Drops the second ends that were never opened. A sender at the first end is then not blocked by a receiver that
    /// never comes.
    pub fn drop_unopened(&mut self) {
        for made in self.links.values_mut() {
            made.ends.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::VirtualClock;
    use crate::{QueuePair, RxQueue, TxQueue};

    fn options(name: &str) -> LinkOptions {
        LinkOptions::new(name, VirtualClock::new(0).into())
    }

    #[test]
    fn a_name_has_two_ends() {
        let mut registry = Registry::new();
        let mut a = registry.open(&options("x")).unwrap();
        let mut other = registry.open(&options("y")).unwrap();
        let mut b = registry.open(&options("x")).unwrap();
        assert_eq!(
            (a.facts.locator.as_str(), b.facts.locator.as_str()),
            ("memory:x", "memory:x")
        );
        assert_ne!(a.facts.mac, b.facts.mac);

        let tx = a.queues[0].tx();
        assert_eq!(tx.lend(1), 1);
        *tx.slot(0).len = 60;
        tx.submit(1);
        tx.flush().unwrap();
        assert_eq!(other.queues[0].rx().receive(9, |_| ()).unwrap(), 0);
        assert_eq!(b.queues[0].rx().receive(9, |_| ()).unwrap(), 1);

        assert_eq!(
            registry.open(&options("x")).unwrap_err().to_string(),
            "memory:x: both ends of this link are in use; use another name"
        );
    }

    #[test]
    fn the_ends_must_agree_on_queues() {
        let mut registry = Registry::new();
        registry.open(&options("x")).unwrap();
        let four = LinkOptions {
            queues: 4,
            ..options("x")
        };
        assert_eq!(
            registry.open(&four).unwrap_err().to_string(),
            "memory:x: queues requested: 4, at the other end: 1"
        );
        assert!(registry.open(&options("x")).is_ok());
    }
}
