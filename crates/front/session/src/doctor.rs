//! Checks if streams can run inside the kernel on this machine, and how to make it possible.

use wb_machine::{
    doctor::{Attach, InterfaceDescription, XdpAbilities},
    locks::{Direction, QueueLock},
    privilege::{Capability, Privileges},
};
use wb_model::{Locator, Plan, plan::PortPlan};
use wb_open::{StartError, Use, Wire, locate_wire};

use wb_traffic::engine::{Device, Host};

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
    let inside = move || {
        let features = wb_xdp::features(interface);
        XdpAbilities {
            native: features.native,
            zero_copy: features.zero_copy,
            transmit: features.transmit,
            attach: match used {
                Some(why) => Attach::NotTried(why),
                None => match wb_xdp::try_native(interface) {
                    Ok(Ok(())) => Attach::Accepted,
                    Ok(Err(words)) => Attach::Refused(words),
                    Err(error) => Attach::NotTried(error.reason()),
                },
            },
        }
    };
    wb_machine::in_namespace(&wire.namespace, inside)
        .map_err(|cause| StartError::host(locator, cause))
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
