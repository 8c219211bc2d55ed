//! Replacement for builds without BPF programs: each call returns that reason.

use std::sync::Arc;

use wb_measure::{Counters, FlowStats, Histogram, Measurement};
use wb_port::offload::{
    Awaited, Halt, ReceiveOffload, Refusal, SendCounters, SendOffload, SendOrder, SendTurn,
    StreamOrder, StreamProgram,
};
use wb_port::{Interface, PortError};

use crate::fault;

fn refuse<T>(interface: &Interface) -> Result<T, PortError> {
    Err(fault::refused(interface, Refusal::NoPrograms))
}

/// Has no values in this build.
pub enum Sender {}

impl Sender {
    /// Fails in this build.
    ///
    /// # Errors
    /// Always.
    pub fn load(interface: &Interface, _streams: &[StreamProgram]) -> Result<Self, PortError> {
        refuse(interface)
    }

    /// Never called: the type has no values.
    #[must_use]
    pub fn halt(&self) -> Arc<dyn Halt> {
        match *self {}
    }
}

impl SendOffload for Sender {
    fn turn(&mut self, _order: &SendOrder, _streams: &[StreamOrder]) -> Result<(), PortError> {
        match *self {}
    }

    fn taken(&self) -> SendTurn {
        match *self {}
    }

    fn most_late_ns(&self, _stream: usize) -> u64 {
        match *self {}
    }

    fn counters(&self, _stream: usize) -> SendCounters {
        match *self {}
    }

    fn hand_overs(&self) -> (u64, u64) {
        match *self {}
    }

    fn position(&self, _stream: usize) -> (u32, u64) {
        match *self {}
    }

    fn refused_by_flow(&self, _stream: usize) -> Vec<u64> {
        match *self {}
    }
}

/// `None`: unknown in this build.
#[must_use]
pub fn takes_frames(_interface: &Interface) -> Option<bool> {
    None
}

/// Accepts any streams.
///
/// # Errors
/// Never.
pub fn fits(_streams: &[StreamProgram]) -> Result<(), Refusal> {
    Ok(())
}

/// Fails in this build.
///
/// # Errors
/// Always.
pub fn probe(interface: &Interface, _longest: usize, _now_ns: u64) -> Result<u64, PortError> {
    refuse(interface)
}

/// Has no values in this build.
pub enum PassProgram {}

impl PassProgram {
    /// Fails in this build.
    ///
    /// # Errors
    /// Always.
    pub fn open(interface: &Interface) -> Result<Self, PortError> {
        refuse(interface)
    }
}

/// Has no values in this build.
pub enum Account {}

impl Account {
    /// 0: this build makes no accounts.
    #[must_use]
    pub fn memory(_queues: u32, _flows: u32) -> u64 {
        0
    }

    /// Fails in this build.
    ///
    /// # Errors
    /// Always.
    pub fn open(interface: &Interface, _awaited: Awaited) -> Result<Self, PortError> {
        refuse(interface)
    }

    /// Never called: the type has no values.
    pub fn beside_others(&self) {
        match *self {}
    }

    /// Never called: the type has no values.
    #[must_use]
    pub fn hook(&self) -> &'static str {
        match *self {}
    }

    /// Never called: the type has no values.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match *self {}
    }

    /// Never called: the type has no values.
    #[must_use]
    pub fn receivers(self, _workers: u32) -> Vec<Receiver> {
        match self {}
    }
}

/// Has no values in this build.
pub enum Receiver {}

impl ReceiveOffload for Receiver {
    fn begin(&mut self, _wall_minus_mono: u64) {
        match *self {}
    }

    fn since(&mut self, _wall_ns: u64) {
        match *self {}
    }

    fn drain_since(&mut self, _wall_ns: u64) {
        match *self {}
    }

    fn end_at(&mut self, _wall_ns: u64) {
        match *self {}
    }

    fn counters(&self) -> Counters {
        match *self {}
    }

    fn latency(&self) -> (u64, u128) {
        match *self {}
    }

    fn ramp_frames(&self) -> u64 {
        match *self {}
    }

    fn dropped_frames(&self) -> u64 {
        match *self {}
    }

    fn latencies(&self) -> Vec<Histogram> {
        match *self {}
    }

    fn first_flows(&self, _count: u32) -> Vec<FlowStats> {
        match *self {}
    }

    fn measurement(&self) -> Measurement {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let port = Interface {
            port: "n/a0".to_owned(),
            name: "a0".to_owned(),
            index: 1,
            mac: [0; 6],
            mtu: 1500,
            speed: None,
            kernel_driver: String::new(),
            tx_queues: 1,
            rx_queues: 1,
        };
        let awaited = Awaited {
            first_flow: 0,
            flows: 1,
            ramp_flow: u32::MAX,
            ..Awaited::default()
        };
        let refusals = [
            Sender::load(&port, &[]).err(),
            Account::open(&port, awaited).err(),
            PassProgram::open(&port).err(),
            probe(&port, 60, 0).err(),
        ];
        for refusal in refusals {
            let said = refusal.map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains("no BPF programs"), "{said}");
        }
    }
}
