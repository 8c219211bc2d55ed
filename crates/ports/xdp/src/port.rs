//! Opens a port: chooses the mode, attaches the program, opens the queues.

#[cfg(feature = "bpf")]
use std::os::fd::OwnedFd;
use std::thread;
#[cfg(feature = "bpf")]
use std::time::{Duration, Instant};

use wb_port::{Interface, PortError, PortFacts, QueuePair, StampSource};

use crate::link::{self, CarrierReader};
use crate::options::{Mode, RX_HEADROOM, XdpOptions};
use crate::port_errors::Failure;
#[cfg(feature = "bpf")]
use crate::program::{self, Abilities, AttachMode, Program};
use crate::rx::XdpRx;
use crate::socket::{Directions, open_queue};
use crate::tx::XdpTx;

/// Open port.
///
/// Queues may be moved to workers. The port itself must outlive them, because it holds the XDP program of the
/// interface.
pub struct XdpPort {
    /// Properties of the port.
    pub facts: PortFacts,
    /// Queue pairs, in the order in which they were requested.
    pub queues: Vec<XdpQueue>,
    /// Detaches the program when closed, even if the process is killed.
    #[cfg(feature = "bpf")]
    _link: Option<OwnedFd>,
}

/// Queue pair of an [`XdpPort`].
pub struct XdpQueue {
    tx: XdpTx,
    rx: XdpRx,
    queue: u32,
}

impl XdpQueue {
    /// Number of the queue on its device.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.queue
    }

    pub(crate) fn into_halves(self) -> (XdpTx, XdpRx) {
        (self.tx, self.rx)
    }

    /// Length of the longest frame that it may receive, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.rx.longest()
    }
}

impl QueuePair for XdpQueue {
    type Tx = XdpTx;
    type Rx = XdpRx;

    #[inline]
    fn split(&mut self) -> (&mut XdpTx, &mut XdpRx) {
        (&mut self.tx, &mut self.rx)
    }
}

/// Opens `interface` in the network namespace of the calling thread.
///
/// # Errors
/// [`PortError::Input`] for invalid options, [`PortError::Privilege`] with the command that grants it,
/// [`PortError::Unsupported`] if the queue is off or in use, another XDP program is attached, or the mode is not
/// available, [`PortError::Gone`] if there is no such interface.
pub fn open(interface: &Interface, options: &XdpOptions) -> Result<XdpPort, PortError> {
    let frame_size = options.resolve(interface)?;
    let mut warnings = Vec::new();
    if options.hw_stamps {
        warnings
            .push("timestamps are taken by the XDP program, not by the network card".to_owned());
    }
    let longest = interface.mtu.saturating_add(14);
    if options.tx && longest > frame_size {
        warnings.push(format!(
            "frames longer than {frame_size} bytes cannot be sent, although the MTU allows {longest}"
        ));
    }

    if options.rx && longest + RX_HEADROOM > frame_size {
        warnings.push(format!(
            "frames longer than {} bytes are dropped (and counted), although the MTU allows {longest}",
            frame_size - RX_HEADROOM
        ));
    }

    let attempts = attempts(interface, options)?;
    let last = attempts.len().saturating_sub(1);
    for (i, attempt) in attempts.into_iter().enumerate() {
        match attempt.open(interface, options, frame_size) {
            Ok(mut port) => {
                warnings.append(&mut port.facts.warnings);
                port.facts.warnings = warnings;
                return Ok(port);
            }
            Err(failure) if failure.fall_back && i < last => {
                let reason = failure.error.to_string();
                let prefix = format!("{}: ", interface.port);
                warnings.push(format!(
                    "not {}: {}",
                    attempt.name(),
                    reason.strip_prefix(&prefix).unwrap_or(&reason)
                ));
            }
            Err(failure) => return Err(failure.error),
        }
    }
    unreachable!("there is always an attempt, and the last one returns")
}

/// Mode in which to try to open the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Sending only, by copies, which needs no program.
    Bare,
    #[cfg(feature = "bpf")]
    With { hook: AttachMode, zero_copy: bool },
}

/// A port of wirebench that was closed a moment ago may still have its program attached: a child of that process holds
/// a copy of the link from its fork to its exec.
#[cfg(feature = "bpf")]
const DETACH_TIMEOUT: Duration = Duration::from_millis(300);
#[cfg(feature = "bpf")]
const DETACH_PAUSE: Duration = Duration::from_millis(10);

/// Modes to try, best first.
#[cfg(feature = "bpf")]
fn attempts(interface: &Interface, options: &XdpOptions) -> Result<Vec<Attempt>, PortError> {
    // A sender by copies needs no program, and no BPF privilege to query abilities.
    if !options.rx && options.mode != Mode::NativeZeroCopy {
        return Ok(vec![Attempt::Bare]);
    }
    let start = Instant::now();
    loop {
        let abilities = match program::abilities(interface) {
            Ok(abilities) => abilities,
            Err(failure) if options.rx => return Err(failure.error),
            Err(_) => Abilities::default(),
        };
        let attempts = order(options.mode, options.rx, abilities);
        let Some(id) = abilities.attached else {
            return Ok(attempts);
        };
        if start.elapsed() > DETACH_TIMEOUT {
            return Err(program::occupied(interface, Some(id)).error);
        }
        thread::sleep(DETACH_PAUSE);
    }
}

#[cfg(feature = "bpf")]
fn order(mode: Mode, rx: bool, abilities: Abilities) -> Vec<Attempt> {
    let zero_copy = Attempt::With {
        hook: AttachMode::Native,
        zero_copy: true,
    };
    let native = Attempt::With {
        hook: AttachMode::Native,
        zero_copy: false,
    };
    let generic = Attempt::With {
        hook: AttachMode::Generic,
        zero_copy: false,
    };
    match mode {
        Mode::NativeZeroCopy => vec![zero_copy],
        Mode::NativeCopy if rx => vec![native],
        Mode::Generic if rx => vec![generic],
        Mode::NativeCopy | Mode::Generic => vec![Attempt::Bare],
        Mode::Auto => {
            // Zero copy also takes over the receive side of a queue, which the host uses if the port only sends.
            if !rx {
                return vec![Attempt::Bare];
            }
            let mut order = Vec::new();
            // Older kernels do not report zero copy. By default, only a device that reports it is tried, because an
            // attempt resets the queues of some devices.
            if abilities.zero_copy == Some(true) {
                order.push(zero_copy);
            }
            order.extend([native, generic]);
            order
        }
    }
}

#[cfg(not(feature = "bpf"))]
fn attempts(interface: &Interface, options: &XdpOptions) -> Result<Vec<Attempt>, PortError> {
    if options.rx || options.mode == Mode::NativeZeroCopy {
        return Err(crate::port_errors::unsupported(
            interface,
            "this build has no XDP program (feature `bpf`), so it can only send, in copy mode"
                .into(),
        ));
    }
    Ok(vec![Attempt::Bare])
}

impl Attempt {
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "copy",
            #[cfg(feature = "bpf")]
            Self::With {
                zero_copy: true, ..
            } => "native zero copy",
            #[cfg(feature = "bpf")]
            Self::With {
                hook: AttachMode::Native,
                ..
            } => "native copy",
            #[cfg(feature = "bpf")]
            Self::With {
                hook: AttachMode::Generic,
                ..
            } => "generic",
        }
    }

    #[cfg(feature = "bpf")]
    fn zero_copy(self) -> bool {
        matches!(
            self,
            Self::With {
                zero_copy: true,
                ..
            }
        )
    }

    #[cfg(not(feature = "bpf"))]
    fn zero_copy(self) -> bool {
        false
    }

    fn open(
        self,
        interface: &Interface,
        options: &XdpOptions,
        frame_size: u32,
    ) -> Result<XdpPort, Failure> {
        let link = CarrierReader::new(interface)?;
        let carried = link.may_carry();
        #[cfg(feature = "bpf")]
        let program = self.attach(interface, options)?;
        let mut queues = Vec::new();
        for (queue, tx) in options.senders() {
            let directions = Directions { tx, rx: options.rx };
            let (tx, rx) = open_queue(
                interface,
                options,
                directions,
                frame_size,
                queue,
                self.zero_copy(),
            )?;
            #[cfg(feature = "bpf")]
            if let (Some((program, _)), Some(rx)) = (&program, &rx) {
                program.serve(interface, queue, &rx.socket)?;
            }
            queues.push(XdpQueue {
                tx: match tx {
                    Some(parts) => XdpTx::new(interface, parts, self.zero_copy())?,
                    None => XdpTx::closed(),
                },
                rx: rx.map_or_else(XdpRx::closed, |parts| {
                    XdpRx::new(
                        &interface.port,
                        parts,
                        options.busy_poll.is_some(),
                        #[cfg(feature = "bpf")]
                        program.as_ref().map(|(program, _)| program.gate()),
                    )
                }),
                queue,
            });
        }
        let mut facts = self.facts(interface, options);
        // Some devices reset themselves for a program or a pool of frames, and negotiate the link again.
        if carried && self != Self::Bare && !link::comes_back(|| link.may_carry(), thread::sleep) {
            facts.warnings.push(format!(
                "the link did not come up within {} s after the XDP program was attached",
                link::CARRIER_TIMEOUT.as_secs()
            ));
        }
        Ok(XdpPort {
            facts,
            queues,
            #[cfg(feature = "bpf")]
            _link: program.map(|(_, link)| link),
        })
    }

    /// The program goes first: drivers set up their queues for it, and for zero copy some drivers require it before the
    /// bind.
    #[cfg(feature = "bpf")]
    fn attach(
        self,
        interface: &Interface,
        options: &XdpOptions,
    ) -> Result<Option<(Program, OwnedFd)>, Failure> {
        let Self::With { hook, .. } = self else {
            return Ok(None);
        };
        let queues = options.numbers().into_iter().max().map_or(1, |q| q + 1);
        let select = options.rx.then_some(options.select);
        let program = match &options.filter {
            Some(filter) if options.rx => Program::with_filter(interface, filter, queues)?,
            _ => Program::load(interface, select, queues)?,
        };
        let link = program.attach(interface, hook)?;
        Ok(Some((program, link)))
    }

    fn facts(self, interface: &Interface, options: &XdpOptions) -> PortFacts {
        PortFacts {
            locator: interface.port.clone(),
            driver: "xdp",
            mode: self.name().to_owned(),
            ifindex: interface.index,
            mac: interface.mac,
            mtu: interface.mtu,
            speed: interface.speed,
            queues: u32::try_from(options.numbers().len()).unwrap_or(u32::MAX),
            stamp_source: if options.rx {
                StampSource::KernelXdp
            } else {
                StampSource::UserSpace
            },
            kernel_driver: interface.kernel_driver.clone(),
            warnings: Vec::new(),
        }
    }
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use super::*;

    fn names(mode: Mode, rx: bool, zero_copy: Option<bool>) -> Vec<&'static str> {
        let abilities = Abilities {
            zero_copy,
            ..Abilities::default()
        };
        order(mode, rx, abilities)
            .into_iter()
            .map(Attempt::name)
            .collect()
    }

    #[test]
    fn the_best_mode_is_tried_first() {
        assert_eq!(
            names(Mode::Auto, true, Some(true)),
            ["native zero copy", "native copy", "generic"]
        );
        assert_eq!(names(Mode::Auto, true, None), ["native copy", "generic"]);
    }

    #[test]
    fn sending_alone_leaves_the_receive_side_to_the_host() {
        for zero_copy in [None, Some(false), Some(true)] {
            assert_eq!(names(Mode::Auto, false, zero_copy), ["copy"]);
        }
    }

    #[test]
    fn a_mode_that_was_named_has_no_substitute() {
        assert_eq!(
            names(Mode::NativeZeroCopy, false, Some(false)),
            ["native zero copy"]
        );
        assert_eq!(names(Mode::NativeCopy, true, Some(true)), ["native copy"]);
        assert_eq!(names(Mode::Generic, true, Some(true)), ["generic"]);
    }
}
