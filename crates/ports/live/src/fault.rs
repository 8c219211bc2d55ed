//! Converts system errors to port errors: the operation, the interface and the remedy.

use wb_port::{Interface, PortError, offload::Refusal};

pub(crate) fn refused(interface: &Interface, why: Refusal) -> PortError {
    PortError::Offload {
        port: interface.port.clone(),
        why,
    }
}

#[cfg(feature = "bpf")]
mod of_programs {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    pub(crate) fn io(
        interface: &Interface,
        operation: &str,
        cause: impl Into<io::Error>,
    ) -> PortError {
        PortError::Io {
            port: interface.port.clone(),
            operation: operation.to_owned(),
            cause: cause.into(),
        }
    }

    pub(crate) fn privilege(interface: &Interface, what: &str) -> PortError {
        PortError::Privilege {
            port: interface.port.clone(),
            what: what.to_owned(),
            command: PortError::command_granting(),
        }
    }

    /// Text of EACCES in an error message; the library does not expose the number.
    fn eacces() -> String {
        format!("(os error {})", Errno::ACCESS.raw_os_error())
    }

    pub(crate) fn loading(interface: &Interface, cause: &libbpf_rs::Error) -> PortError {
        let told = format!("{cause:#}");
        match cause.kind() {
            // A missing capability causes EPERM. The verifier refuses a program with EACCES.
            libbpf_rs::ErrorKind::PermissionDenied if !told.contains(&eacces()) => privilege(
                interface,
                "loading the programs of the live driver needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON outside a user namespace",
            ),
            _ => refused(interface, Refusal::Loading(told)),
        }
    }

    /// Error for frames that a device did not take.
    pub(crate) fn refusal(interface: &Interface, error: i32) -> PortError {
        let name = &interface.name;
        match Errno::from_raw_os_error(error) {
            Errno::OPNOTSUPP => no_transmit(interface),
            Errno::MSGSIZE => PortError::Unsupported {
                port: interface.port.clone(),
                what: format!(
                    "the device refuses frames of this length (its MTU was {} when the run was prepared); try `ip link set {name} mtu N`",
                    interface.mtu
                ),
            },
            Errno::NETDOWN | Errno::NXIO => PortError::LinkDown {
                port: interface.port.clone(),
            },
            cause => io(interface, "pass frames to the device", cause),
        }
    }

    /// Error for a device that does not take frames from programs.
    pub(crate) fn no_transmit(interface: &Interface) -> PortError {
        let driver = interface.kernel_driver.clone();
        let command = None;
        refused(interface, Refusal::NoTransmit { driver, command })
    }
}

#[cfg(feature = "bpf")]
pub(crate) use of_programs::*;
