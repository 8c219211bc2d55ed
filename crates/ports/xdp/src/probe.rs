//! What works on an interface, without opening it.

use wb_port::Interface;

use crate::socket::new_socket;

/// What the driver can do on an interface, for this process, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Frames can be sent, at least by copies.
    pub send: bool,
    /// The XDP program can run in the driver.
    pub native: bool,
    /// The XDP program can run in the kernel's receive path.
    pub generic: bool,
    /// The device can read and write our memory itself.
    pub zero_copy: bool,
    /// Identity of the XDP program that is attached; receiving is refused while it is.
    pub attached_program: Option<u32>,
    /// Why something of this does not work; empty when all does.
    pub reason: String,
}

/// Asks what works on `interface`, in the network namespace of the calling thread.
///
/// Tries a socket and loads the XDP program, but attaches and binds nothing; so a queue that
/// another program holds is found out only by [`crate::open`].
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
    // Kernels before 6.3 do not tell; then trying decides.
    probe.native = abilities.native != Some(false);
    probe.zero_copy = abilities.zero_copy == Some(true);
    probe.reason = match (abilities.attached, probe.native, probe.zero_copy) {
        (Some(id), ..) => occupied(interface, Some(id)).error.to_string(),
        (None, false, _) => format!("{}: the driver runs no XDP programs", interface.port),
        (None, true, false) => format!("{}: the driver has no zero copy", interface.port),
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
