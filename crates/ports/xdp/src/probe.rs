//! Checks what works on an interface, without opening it.

use wb_port::{Interface, PortError};

use crate::socket::new_socket;

/// Abilities of the driver on an interface, for this process, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// True if frames can be sent, at least by copies.
    pub send: bool,
    /// True if the XDP program can run in the driver.
    pub native: bool,
    /// True if the XDP program can run in the generic receive path.
    pub generic: bool,
    /// True if the device can access the memory directly.
    pub zero_copy: bool,
    /// Id of the attached XDP program, which prevents receiving.
    pub attached_program: Option<u32>,
    /// Reasons for missing abilities; empty if nothing is missing.
    pub reason: String,
}

/// Checks what works on `interface`, in the network namespace of the calling thread.
///
/// Creates a socket and loads the XDP program, but does not attach or bind. So only [`crate::open`] detects that
/// another program uses a queue.
#[must_use]
pub fn probe(interface: &Interface) -> Probe {
    let mut probe = Probe {
        send: false,
        native: false,
        generic: false,
        zero_copy: false,
        attached_program: None,
        reason: String::new(),
    };
    if let Err(failure) = new_socket(interface) {
        probe.reason = failure.error.to_string();
        return probe;
    }
    probe.send = true;
    ask_for_program(interface, &mut probe);
    probe
}

/// XDP abilities of a driver. `None` if the kernel does not report them (before Linux 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// True if the driver runs XDP programs.
    pub native: Option<bool>,
    /// True if the driver has zero copy.
    pub zero_copy: Option<bool>,
    /// True if the driver accepts frames from XDP programs.
    pub transmit: Option<bool>,
}

/// Returns what the kernel reports about the driver of `interface`, in the network namespace of the calling thread.
/// Needs no privileges.
#[must_use]
pub fn features(interface: &Interface) -> Features {
    #[cfg(feature = "bpf")]
    if let Ok(abilities) = crate::program::abilities(interface) {
        return Features {
            native: abilities.native,
            zero_copy: abilities.zero_copy,
            transmit: abilities.transmit,
        };
    }
    let _ = interface;
    Features::default()
}

/// Attaches a program that passes every frame to the host, in the driver of `interface`, and removes it again. Returns
/// the message of the kernel if the driver refuses the program. Some cards reset themselves for a program.
///
/// # Errors
/// If no program can be loaded: a privilege is missing, or this build has none.
pub fn try_native(interface: &Interface) -> Result<Result<(), String>, PortError> {
    #[cfg(feature = "bpf")]
    {
        let program = crate::program::Program::load(interface, None, 1);
        program
            .map(|program| program.try_native(interface))
            .map_err(|failure| failure.error)
    }
    #[cfg(not(feature = "bpf"))]
    {
        Err(crate::port_errors::unsupported(
            interface,
            "this build has no XDP program (feature `bpf`)".into(),
        ))
    }
}

#[cfg(feature = "bpf")]
fn ask_for_program(interface: &Interface, probe: &mut Probe) {
    use crate::program::{Program, abilities, occupied};

    let abilities = match abilities(interface) {
        Ok(abilities) => abilities,
        Err(failure) => {
            probe.reason = failure.error.to_string();
            return;
        }
    };
    probe.attached_program = abilities.attached;
    if let Err(failure) = Program::load(interface, None, 1) {
        probe.reason = failure.error.to_string();
        return;
    }
    probe.generic = true;
    // Kernels before 6.3 do not report it; only an attempt shows the result.
    probe.native = abilities.native != Some(false);
    probe.zero_copy = abilities.zero_copy == Some(true);
    probe.reason = match (abilities.attached, probe.native, probe.zero_copy) {
        (Some(id), ..) => occupied(interface, Some(id)).error.to_string(),
        (None, false, _) => format!(
            "{}: the driver does not support XDP programs",
            interface.port
        ),
        (None, true, false) => format!("{}: the driver does not support zero copy", interface.port),
        (None, true, true) => String::new(),
    };
}

#[cfg(not(feature = "bpf"))]
fn ask_for_program(interface: &Interface, probe: &mut Probe) {
    probe.reason = format!(
        "{}: this build has no XDP program (feature `bpf`)",
        interface.port
    );
}
