//! Machine interface for the dialect.

use std::sync::{Mutex, PoisonError};

use wb_pktgen::machine::{Interface, PktgenMachine};
use wb_session::Machine;

/// Machine shared by several threads.
pub struct Host(Mutex<Machine>);

impl Host {
    /// Shares a machine.
    pub fn new(machine: Machine) -> Self {
        Self(Mutex::new(machine))
    }

    pub(crate) fn ask<T>(&self, question: impl FnOnce(&Machine) -> T) -> T {
        question(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PktgenMachine for Host {
    fn interface(&self, name: &str) -> Option<Interface> {
        self.ask(|machine| machine.interface(name))
    }

    fn node_possible(&self, node: i32) -> bool {
        self.ask(|machine| machine.node_possible(node))
    }

    /// Users with write access may administer: the files belong to the user who mounted them.
    fn may_administer(&self) -> bool {
        true
    }
}
