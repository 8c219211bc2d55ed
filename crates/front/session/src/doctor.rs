//! Checks if streams can run inside the kernel on this machine, and how to make it possible.

use schemars::JsonSchema;
use serde::Serialize;
use wb_machine::{
    doctor::{self, Attach, Description, InterfaceDescription, XdpAbilities},
    locks::{Direction, QueueLock},
    privilege::{Capability, Privileges},
};
use wb_model::{Driver, Locator, Plan, plan::PortPlan};
use wb_open::{StartError, Use, Wire, drivers_to_try, locate_wire};

use wb_traffic::engine::{CHOSEN_LIVE, Device, Host};

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InKernel {
    /// True if streams can run inside the kernel.
    pub can: bool,
    /// The finding as a sentence.
    pub text: String,
    /// Command that makes it possible.
    pub fix: Option<String>,
}

/// Checks this machine and, if given, an interface.
///
/// # Errors
/// Fails if there is no such interface.
pub fn in_kernel(port: Option<&Locator>) -> Result<Vec<InKernel>, StartError> {
    let machine = machine();
    let Some(locator) = port.filter(|_| machine.can) else {
        return Ok(vec![machine]);
    };
    let plan = PortPlan::new("port", locator.clone());
    let wire = locate_wire(&plan)?;
    let device = Device::of(&plan, &wire, &Plan::default());
    let prefix = wire.namespace.command_prefix();
    Ok(vec![of_device(&device, &locator.name, &prefix)])
}

/// Driver at an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PortDriver {
    /// Name, as in locators: `live`, `xdp`, `packet`.
    pub name: &'static str,
    /// Way in which XDP programs of the driver run: `native` or `generic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    /// True if the driver can send here.
    pub sends: bool,
    /// True if a plan that leaves the driver open would receive with the driver, unless a faster one does.
    pub receives: bool,
    /// Why the driver can or cannot be used, in a sentence.
    pub why: String,
}

/// Drivers at an interface, and those that a plan which leaves the driver open uses for test streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PortDrivers {
    /// Drivers, the fastest first.
    pub drivers: Vec<PortDriver>,
    /// Name of the driver that would send, if there is one.
    pub sends_with: Option<&'static str>,
    /// Name of the driver that would receive, if there is one.
    pub receives_with: Option<&'static str>,
    /// Choice and reason, in a sentence.
    pub driver_choice: String,
}

const SENDS: Use = Use {
    tx: true,
    rx: false,
    watch: false,
    shares: false,
    sharing: wb_open::Sharing::Alone,
};
const RECEIVES: Use = Use {
    tx: false,
    rx: true,
    ..SENDS
};

/// Returns the drivers at an interface, and the choice of a plan that leaves the driver open. Opens and attaches
/// nothing, so a run may still find an obstacle, for example a queue that another process uses. `about`: description of
/// the interface.
///
/// # Errors
/// Fails if there is no such interface.
pub fn port_drivers(locator: &Locator, about: &Description) -> Result<PortDrivers, StartError> {
    let plan = PortPlan::new(
        "port",
        Locator {
            driver: None,
            ..locator.clone()
        },
    );
    let wire = locate_wire(&plan)?;
    let host = Host::here();
    let device = Device::of(&plan, &wire, &Plan::default());
    let (receivers, reason) = drivers_to_try(&plan, RECEIVES, &wire)?;
    let missing = |needed: &[Capability]| {
        let missing = Privileges::of_this_process().missing(needed);
        missing
            .into_iter()
            .next()
            .map(|missing| missing.to_string())
    };
    Ok(chosen(vec![
        live_driver(&host, &device, &locator.name),
        xdp_driver(
            about,
            missing(&[Capability::NetRaw, Capability::NetAdmin, Capability::Bpf]),
            (!receivers.contains(&Driver::Xdp)).then_some(reason),
        ),
        packet_driver(missing(&[Capability::NetRaw])),
    ]))
}

fn live_driver(host: &Host, device: &Device, name: &str) -> PortDriver {
    let cannot = |used| host.why_not(used);
    let (sends, receives) = (cannot(SENDS), cannot(RECEIVES));
    let found = of_device(device, name, "");
    PortDriver {
        name: Driver::Live.name(),
        mode: None,
        sends: sends.is_none() && device.keeps_out(true).is_none(),
        receives: receives.is_none() && device.program.is_none(),
        why: match sends.or(receives) {
            Some(why) => why.to_string(),
            None if found.can => CHOSEN_LIVE.to_owned(),
            // The list names the driver.
            None => (found.text.strip_prefix("live ").unwrap_or(&found.text)).to_owned(),
        },
    }
}

/// The xdp driver. `missing`: privilege that the process lacks. `hides`: why the driver must not receive.
fn xdp_driver(about: &Description, missing: Option<String>, hides: Option<String>) -> PortDriver {
    let mode = doctor::xdp_mode(about);
    let works = missing.is_none();
    PortDriver {
        name: Driver::Xdp.name(),
        mode: mode.as_ref().map(|mode| match mode.is_native {
            true => "native",
            false => "generic",
        }),
        sends: works,
        receives: works && hides.is_none(),
        why: match (missing, mode, hides) {
            (Some(missing), ..) => missing,
            (None, mode, hides) => {
                let mode = mode.map(|mode| mode.text).unwrap_or_default();
                let hides = hides.map(|why| format!("; does not receive: {why}"));
                format!("{mode}{}", hides.unwrap_or_default())
            }
        },
    }
}

fn packet_driver(missing: Option<String>) -> PortDriver {
    let works = missing.is_none();
    PortDriver {
        name: Driver::Packet.name(),
        mode: None,
        sends: works,
        receives: works,
        why: missing
            .unwrap_or_else(|| "works on every interface; slower than the others".to_owned()),
    }
}

/// Chooses the first driver that sends and the first that receives.
fn chosen(drivers: Vec<PortDriver>) -> PortDrivers {
    let sender = drivers.iter().find(|driver| driver.sends);
    let receiver = drivers.iter().find(|driver| driver.receives);
    let reason = |driver: &PortDriver| format!("{}: {}", driver.name, driver.why);
    let choice = match (sender, receiver) {
        (Some(sender), Some(receiver)) if sender.name == receiver.name => {
            format!("sends and receives with {}", reason(sender))
        }
        (Some(sender), Some(receiver)) => format!(
            "sends with {}; receives with {}",
            reason(sender),
            reason(receiver)
        ),
        _ => drivers.iter().map(reason).collect::<Vec<_>>().join("; "),
    };
    PortDrivers {
        sends_with: sender.map(|driver| driver.name),
        receives_with: receiver.map(|driver| driver.name),
        driver_choice: choice,
        drivers,
    }
}

/// States in one finding if streams can be sent and accounted for by programs at a port.
fn of_device(device: &Device, name: &str, prefix: &str) -> InKernel {
    let why = device.keeps_out(true);
    if let Some(id) = device.program {
        let nor_sent = why.map(|why| format!(", nor send: {why}"));
        return InKernel {
            can: false,
            text: format!(
                "XDP program {id} is attached: live cannot receive{}",
                nor_sent.unwrap_or_default()
            ),
            fix: Some(format!("{prefix}ip link set {name} xdp off")),
        };
    }
    let text = match (&why, &device.far) {
        (Some(why), _) => {
            format!("live can receive but not send: {why}")
        }
        (None, Some(far)) if far.of_a_lab && device.takes_frames == Some(false) => {
            "live can send and receive; during a run, an XDP program at the other end enables sending".to_owned()
        }
        (None, _) if device.takes_frames.is_none() => {
            "live can receive; the kernel does not report if it can send, so a run tries it".to_owned()
        }
        (None, _) => "live can send and receive".to_owned(),
    };
    let command = device.far.as_ref().map(|far| far.command.clone());
    InKernel {
        can: why.is_none(),
        text,
        fix: why
            .filter(|_| device.driver == "veth")
            .map(|_| command.unwrap_or_else(|| "ethtool -K PEER gro on".to_owned())),
    }
}

/// Returns the XDP abilities of an interface, as the kernel reports them. If nothing uses the interface, an XDP program
/// is attached and removed again.
///
/// # Errors
/// Fails if there is no such interface.
pub fn xdp_abilities(
    locator: &Locator,
    about: &InterfaceDescription,
) -> Result<XdpAbilities, StartError> {
    let plan = PortPlan::new("port", locator.clone());
    let wire = locate_wire(&plan)?;
    let interface = &wire.interface;
    let used = in_use(&wire, about);
    let inside = move || XdpAbilities {
        attach: match used {
            Some(why) => Attach::NotTried(why),
            None => match wb_xdp::try_native(interface) {
                Ok(Ok(())) => Attach::Accepted,
                Ok(Err(words)) => Attach::Refused(words),
                Err(error) => Attach::NotTried(error.reason()),
            },
        },
        ..reported(interface)
    };
    wb_machine::in_namespace(&wire.namespace, inside)
        .map_err(|cause| StartError::host(locator, cause))
}

/// Returns the XDP abilities of an interface, as the kernel reports them. Attaches nothing.
///
/// # Errors
/// Fails if there is no such interface.
pub fn reported_xdp_abilities(locator: &Locator) -> Result<XdpAbilities, StartError> {
    let wire = locate_wire(&PortPlan::new("port", locator.clone()))?;
    let interface = &wire.interface;
    wb_machine::in_namespace(&wire.namespace, || reported(interface))
        .map_err(|cause| StartError::host(locator, cause))
}

fn reported(interface: &wb_port::Interface) -> XdpAbilities {
    let features = wb_xdp::features(interface);
    XdpAbilities {
        native: features.native,
        zero_copy: features.zero_copy,
        transmit: features.transmit,
        attach: Attach::default(),
    }
}

/// Returns why an XDP program must not be attached to an interface, not even for a moment.
fn in_use(wire: &Wire, about: &InterfaceDescription) -> Option<String> {
    if about.is_hosts() {
        return Some("the host uses the interface".to_owned());
    }
    if let Some(program) = &about.xdp_program {
        return Some(format!("XDP program {} is attached", program.id));
    }
    let interface = &wire.interface;
    let queues = interface.tx_queues.max(interface.rx_queues);
    let held = (0..queues).find_map(|queue| {
        [Direction::Tx, Direction::Rx]
            .into_iter()
            .find_map(|direction| {
                let (name, index) = (&interface.name, interface.index);
                QueueLock::acquire(&wire.namespace, name, index, queue, direction).err()
            })
    });
    held.map(|error| error.to_string())
}

fn machine() -> InKernel {
    let both = Use {
        tx: true,
        rx: true,
        ..Use::default()
    };
    let Some(why) = Host::here().why_not(both) else {
        return InKernel {
            can: true,
            text: "live can send and receive".to_owned(),
            fix: None,
        };
    };
    let needed = [
        Capability::NetAdmin,
        Capability::SysAdmin,
        Capability::Bpf,
        Capability::Perfmon,
    ];
    let missing = Privileges::of_this_process().missing(&needed);
    InKernel {
        can: false,
        text: format!("live cannot be used: {why}"),
        fix: missing.into_iter().next().map(|missing| missing.command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_grants_all_that_is_missing_wherever_it_is_missed() {
        let command = wb_machine::privilege::setcap_command();
        assert_eq!(command, wb_port::PortError::command_granting());
    }

    fn device(takes_frames: Option<bool>, program: Option<u32>) -> Device {
        Device {
            driver: "virtio_net".to_owned(),
            takes_frames,
            program,
            queues: 1,
            interface: "eth0".to_owned(),
            ..Device::default()
        }
    }

    fn about(driver: &str, mtu: u32) -> Description {
        Description {
            kernel: "6.1.0".to_owned(),
            interface: Some(InterfaceDescription {
                driver: driver.to_owned(),
                mtu,
                ..InterfaceDescription::default()
            }),
            ..Description::default()
        }
    }

    #[test]
    fn the_fastest_driver_that_works_is_chosen_and_each_has_its_reason() {
        let able = Host {
            kernel: Some((6, 1)),
            ..Host::default()
        };
        let hides = || Some("an address is set".to_owned());
        let at = |device: &Device, missing: Option<&str>, hides| {
            let missing = || missing.map(str::to_owned);
            chosen(vec![
                live_driver(&able, device, "eth0"),
                xdp_driver(&about("veth", 1500), missing(), hides),
                packet_driver(missing()),
            ])
        };
        let fast = at(&device(Some(true), None), None, hides());
        assert_eq!(fast.sends_with, Some("live"));
        assert_eq!(fast.receives_with, Some("live"));
        assert!(
            fast.driver_choice
                .starts_with("sends and receives with live: fastest")
        );

        // Another program keeps live from receiving, and the host keeps xdp from it.
        let taken = at(&device(Some(false), Some(7)), None, hides());
        assert_eq!(taken.sends_with, Some("xdp"));
        assert_eq!(taken.receives_with, Some("packet"));
        assert_eq!(taken.drivers[1].mode, Some("native"));
        let choice = &taken.driver_choice;
        assert!(
            choice.contains("does not receive: an address is set"),
            "{choice}"
        );
        assert!(taken.drivers[0].why.contains("program 7"), "{taken:?}");

        let nothing = at(
            &device(Some(false), Some(7)),
            Some("CAP_NET_RAW is missing"),
            None,
        );
        assert_eq!((nothing.sends_with, nothing.receives_with), (None, None));
        assert!(
            nothing
                .driver_choice
                .contains("packet: CAP_NET_RAW is missing")
        );

        let large = xdp_driver(&about("veth", 9000), None, None);
        assert_eq!(large.mode, Some("generic"));
        assert!(large.why.contains("generic only"), "{}", large.why);
    }

    #[test]
    fn a_port_that_cannot_send_is_not_said_to_send() {
        let found = of_device(&device(Some(false), None), "eth0", "");
        assert!(!found.can);
        assert!(found.text.contains("but not send"), "{}", found.text);
        assert!(!found.text.contains("can send"), "{}", found.text);
        let able = of_device(&device(Some(true), None), "eth0", "");
        assert!(able.can && able.text.contains("can send"), "{}", able.text);
        let taken = of_device(&device(Some(true), Some(7)), "eth0", "ip netns exec n ");
        assert!(
            !taken.can && taken.text.contains("program 7"),
            "{}",
            taken.text
        );
        assert_eq!(
            taken.fix.unwrap(),
            "ip netns exec n ip link set eth0 xdp off"
        );
    }
}
