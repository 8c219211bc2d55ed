//! A device with frames made by its port: the tables of its walk, and the turns of the port.

use std::sync::Arc;

use wb_model::device::{Delay, DeviceConfig, TimeForm};
use wb_pktgen_device::{PlaceSelection, Recipe, Walker};
use wb_port::PortError;
use wb_port::offload::{
    Draw, FieldProgram, FieldValues, FlowWalk, Halt, HeaderTemplate, Pace, PktgenStamp,
    SendCounters, SendOffload, SendOrder, StreamOrder, StreamProgram, TagProgram,
};
use wb_wire::checksum;
use wb_wire::protocol;

use crate::sender::offload::batch_size;

/// Turn at full speed.
const TURN_NS: u64 = 5_000_000;
/// Turn with a schedule; new settings wait for its end.
const PACED_TURN_NS: u64 = 10_000_000;
/// Turn of single calls, which the port does not wait for.
const SPARSE_TURN_NS: u64 = 1_000_000;
/// The port waits for a call that is due sooner than this.
pub(super) const SOON_NS: u64 = 300_000;

/// A loaded port, and the object that interrupts its turns.
pub type LoadedPort = (Box<dyn SendOffload>, Arc<dyn Halt>);

/// Loads tables into a port.
pub type TableLoader = dyn FnMut(&StreamProgram) -> Result<LoadedPort, PortError> + Send;

/// A device sent by its port, as long as its settings allow it.
pub struct DeviceOffload {
    load: Box<TableLoader>,
    port: Box<dyn SendOffload>,
    pub(super) halt: Arc<dyn Halt>,
    /// Settings from which the tables were built.
    settings: DeviceConfig,
    /// No queue may send the device instead.
    pub(super) is_only_way: bool,
    before: SendCounters,
    /// Totals of ports loaded earlier.
    past: PastTotals,
}

#[derive(Clone, Copy, Default)]
struct PastTotals {
    counters: SendCounters,
    calls: u64,
    full: u64,
}

/// Result of a turn.
pub(super) struct OffloadTurn {
    pub(super) frames: u64,
    pub(super) octets: u64,
    pub(super) refused_frames: u64,
    pub(super) refused_octets: u64,
    pub(super) last_departure_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) most_late_ns: u64,
    pub(super) stalls: (u64, u64, u64),
    /// Last reading of the clock by the port.
    pub(super) seen_ns: u64,
}

impl DeviceOffload {
    /// Loads the walk of a device into a port. `is_only_way`: settings that the port cannot send are refused instead of
    /// being sent through a queue.
    ///
    /// # Errors
    /// Returns the reason if the port cannot send the device.
    pub fn new(
        walker: &Walker,
        is_only_way: bool,
        mut load: Box<TableLoader>,
    ) -> Result<Self, String> {
        let (port, halt) = load_walk(walker, &mut load)?;
        Ok(Self {
            load,
            port,
            halt,
            settings: table_settings(walker.config()),
            is_only_way,
            before: SendCounters::default(),
            past: PastTotals::default(),
        })
    }

    /// Returns true if the loaded tables match the current settings.
    pub(super) fn matches_settings(&self, walker: &Walker) -> bool {
        self.settings == table_settings(walker.config())
    }

    /// Loads the current walk into the port.
    pub(super) fn reload(&mut self, walker: &Walker) -> Result<(), String> {
        let (port, halt) = load_walk(walker, &mut self.load)?;
        let (counters, (calls, full)) = (self.port.counters(0), self.port.hand_overs());
        self.past = self.past.add_counters(counters, calls, full);
        self.before = SendCounters::default();
        (self.port, self.halt) = (port, halt);
        self.settings = table_settings(walker.config());
        Ok(())
    }

    /// Totals over all ports.
    pub(super) fn totals(&self) -> (SendCounters, u64, u64) {
        let (calls, full) = self.port.hand_overs();
        let all = self.past.add_counters(self.port.counters(0), calls, full);
        (all.counters, all.calls, all.full)
    }

    /// Lets the port send at most `frames` until `until_ns`. `started_ns`: start of the device.
    pub(super) fn turn(
        &mut self,
        walker: &Walker,
        (now_ns, started_ns): (u64, u64),
        (frames, until_ns): (u64, u64),
        wall_minus_mono: u64,
    ) -> (OffloadTurn, Result<(), PortError>) {
        let config = walker.config();
        let Delay { shown_ns, exact_ns } = config.delay;
        let is_free = shown_ns == 0;
        let (due_ns, rest) = walker.next_call();
        let pace = (!is_free).then(|| Pace {
            due_ns: started_ns.saturating_add(due_ns),
            rest,
            whole_ns: exact_ns.numerator() / exact_ns.denominator(),
            part: exact_ns.numerator() % exact_ns.denominator(),
            parts: exact_ns.denominator(),
            carry_ns: 1,
        });
        let stream = StreamOrder {
            pace,
            frames,
            until_ns,
            // A device never gives up frames.
            allowance_ns: u64::MAX,
        };
        let pps = match is_free {
            true => f64::INFINITY,
            false => f64::from(config.burst.max(1)) * 1e9 / exact_ns.as_f64(),
        };
        let order = SendOrder {
            now_ns,
            frames,
            length_ns: match shown_ns {
                0 => TURN_NS,
                1..=SOON_NS => PACED_TURN_NS,
                _ => SPARSE_TURN_NS,
            },
            batch: batch_size(pps),
            overdue: false,
            wall_minus_mono,
        };
        let result = self.port.turn(&order, &[stream]);
        let (now, before) = (self.port.counters(0), self.before);
        let taken = self.port.taken();
        self.before = now;
        let taken = OffloadTurn {
            frames: now.submitted_frames - before.submitted_frames,
            octets: now.submitted_octets - before.submitted_octets,
            refused_frames: now.refused_frames - before.refused_frames,
            refused_octets: now.refused_octets - before.refused_octets,
            last_departure_ns: taken.last_departure_ns,
            idle_ns: taken.idle_ns,
            most_late_ns: if is_free {
                0
            } else {
                self.port.most_late_ns(0)
            },
            stalls: (taken.stalls, taken.stalled_ns, taken.largest_gap_ns),
            seen_ns: taken.seen_ns,
        };
        (taken, result)
    }
}

impl PastTotals {
    fn add_counters(self, more: SendCounters, calls: u64, full: u64) -> Self {
        let c = self.counters;
        Self {
            counters: SendCounters {
                submitted_frames: c.submitted_frames + more.submitted_frames,
                submitted_octets: c.submitted_octets + more.submitted_octets,
                refused_frames: c.refused_frames + more.refused_frames,
                refused_octets: c.refused_octets + more.refused_octets,
            },
            calls: self.calls + calls,
            full: self.full + full,
        }
    }
}

fn load_walk(walker: &Walker, load: &mut Box<TableLoader>) -> Result<LoadedPort, String> {
    let recipe = walker.recipe()?;
    let paced = walker.config().delay.shown_ns != 0;
    load(&build_program(&recipe, paced)).map_err(|e| e.reason())
}

/// The settings that determine the tables.
fn table_settings(config: &DeviceConfig) -> DeviceConfig {
    DeviceConfig {
        count: 0,
        duration_ns: 0,
        clears: 0,
        delay: Delay::whole(u64::from(config.delay.shown_ns != 0)),
        ..config.clone()
    }
}

/// The frames of a device in the form of a stream.
#[must_use]
pub fn build_program(recipe: &Recipe, paced: bool) -> StreamProgram {
    let draws = |turn: &PlaceSelection| match *turn {
        PlaceSelection::Drawn { state, stride, .. } => Some(Draw { state, stride }),
        PlaceSelection::InOrder { .. } => None,
    };
    let templates = recipe.templates.iter().map(|template| {
        let header = &template.header;
        let (ip, udp) = (recipe.ip_at, recipe.udp_at);
        let (len, at) = (
            template.len as usize - udp,
            if recipe.is_ipv6 { 8 } else { 12 },
        );
        // Addresses, protocol and length, and the datagram, which is zero after the tag.
        let sum = checksum::sum(&header[ip + at..]) + u64::from(protocol::UDP) + len as u64;
        HeaderTemplate {
            len: template.len,
            ip_sum: checksum::sum(&header[ip..udp]) as u32,
            l4_sum: sum as u32,
            header: header.clone(),
        }
    });
    let fields = recipe.fields.iter().map(|field| FieldProgram {
        at: field.at,
        width: field.width,
        shift: 0,
        mask: field.mask,
        ip: if field.in_ip { field.mask } else { 0 },
        l4: match field.in_udp && recipe.udp_checksum {
            true => field.mask,
            false => 0,
        },
        odd: false,
        values: match field.turn {
            PlaceSelection::InOrder { places, next } => FieldValues::Steps {
                base: field.first,
                down: false,
                position: next,
                advance: 1,
                values: places,
                step: 1,
            },
            PlaceSelection::Drawn {
                places,
                state,
                stride,
            } => FieldValues::Random {
                first: field.first,
                step: 1,
                values: places,
                draw: Draw { state, stride },
            },
        },
    });
    let longest = recipe.templates.iter().map(|t| t.len as usize).max();
    let header_len = recipe.udp_at + 8 + wb_wire::PktgenTag::LEN;
    StreamProgram {
        templates: templates.collect(),
        payload: vec![0; longest.unwrap_or(0).saturating_sub(header_len)],
        order: recipe.places.clone(),
        order_at: match recipe.order {
            Some(PlaceSelection::InOrder { next, .. }) => next as u32,
            _ => 0,
        },
        order_advance: 1,
        order_drawn: recipe.order.as_ref().and_then(draws),
        fields: fields.collect(),
        walk: FlowWalk {
            workers: 1,
            flows: 1,
            one_flow: true,
            ..FlowWalk::default()
        },
        tag_at: Some(recipe.udp_at + 8),
        tag: TagProgram::Pktgen {
            first: recipe.sequence,
            time: match recipe.time {
                None => PktgenStamp::None,
                Some(TimeForm::Kernel) => PktgenStamp::Micros,
                Some(TimeForm::Osta) => PktgenStamp::Nanos,
            },
        },
        copies: recipe.copies,
        burst: recipe.burst,
        ip_checksum: (!recipe.is_ipv6).then_some(recipe.ip_at + 10),
        l4_checksum: recipe.udp_checksum.then_some(recipe.udp_at + 6),
        udp: true,
        paced,
    }
}
