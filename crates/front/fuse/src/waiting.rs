//! The writers that wait for an answer, and the interrupted ones among them.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;

use crate::{Answer, Writer};

/// All unanswered writes of a folder.
pub(crate) struct Waiting {
    table: Mutex<Table>,
    /// Signalled when there is news for the watching thread.
    bell: OwnedFd,
}

#[derive(Default)]
struct Table {
    last: u64,
    waiters: HashMap<u64, Waiter>,
}

struct Waiter {
    name: String,
    writer: Writer,
    told: bool,
}

impl Waiting {
    pub(crate) fn new() -> rustix::io::Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Arc::new(Waiting {
            table: Mutex::default(),
            bell: rustix::event::eventfd(0, flags)?,
        }))
    }

    /// An answer that counts as pending until it is passed to `reply`.
    pub(crate) fn answer(
        self: &Arc<Self>,
        name: &str,
        writer: Writer,
        reply: impl FnOnce(Result<(), i32>) + Send + 'static,
    ) -> Answer {
        let waiter = Waiter {
            name: name.to_owned(),
            writer,
            // No state is available for a writer in another pid namespace.
            told: writer.pid == 0,
        };
        let (id, first) = {
            let mut table = self.table();
            table.last += 1;
            let id = table.last;
            table.waiters.insert(id, waiter);
            (id, table.waiters.len() == 1)
        };
        if first {
            self.ring();
        }
        let waiting = Arc::clone(self);
        Answer::new(move |answer| {
            waiting.table().waiters.remove(&id);
            reply(answer);
        })
    }

    /// Returns true if there is a writer with signals to check.
    pub(crate) fn is_worth_watching(&self) -> bool {
        self.table().waiters.values().any(|waiter| !waiter.told)
    }

    /// Writers for which `is_interrupted` holds, each only once.
    pub(crate) fn interrupted(
        &self,
        is_interrupted: impl Fn(u32) -> bool,
    ) -> Vec<(String, Writer)> {
        let mut table = self.table();
        let waiters = table.waiters.values_mut();
        waiters
            .filter(|waiter| !waiter.told && is_interrupted(waiter.writer.pid))
            .map(|waiter| {
                waiter.told = true;
                (waiter.name.clone(), waiter.writer)
            })
            .collect()
    }

    /// Wakes the watching thread.
    pub(crate) fn ring(&self) {
        // Fails only if the bell has been rung 2^64 - 2 times without being read.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Resets the bell.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Waiting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_told_once_and_not_after_its_answer() {
        let waiting = Waiting::new().unwrap();
        let writer = |pid| Writer { pid, uid: 0 };
        let first = waiting.answer("a", writer(7), |_| ());
        let second = waiting.answer("b", writer(8), |_| ());
        assert!(waiting.is_worth_watching());
        assert!(waiting.interrupted(|_| false).is_empty());
        assert_eq!(
            waiting.interrupted(|pid| pid == 7),
            [("a".into(), writer(7))]
        );
        assert!(waiting.interrupted(|pid| pid == 7).is_empty());
        assert!(waiting.is_worth_watching(), "the second one");
        second.taken();
        assert!(!waiting.is_worth_watching());
        assert!(waiting.interrupted(|_| true).is_empty());
        drop(first);
        let _stranger = waiting.answer("a", writer(0), |_| ());
        assert!(!waiting.is_worth_watching());
    }
}
