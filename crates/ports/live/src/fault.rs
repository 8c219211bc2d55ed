//! System errors as port errors: what failed, on what, and what to type.

use wb_port::{Interface, PortError};

pub(crate) fn unsupported(interface: &Interface, what: impl Into<String>) -> PortError {
    PortError::Unsupported {
        port: interface.port.clone(),
        what: what.into(),
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
            command: PortError::command_granting()
                .replace("cap_bpf", "cap_bpf,cap_perfmon,cap_sys_admin"),
        }
    }

    /// How an error says EACCES; the library keeps the number to itself.
    fn refused() -> String {
        format!("(os error {})", Errno::ACCESS.raw_os_error())
    }

    pub(crate) fn loading(interface: &Interface, cause: &libbpf_rs::Error) -> PortError {
        let told = format!("{cause:#}");
        match cause.kind() {
            // Whoever lacks a capability gets EPERM; the verifier refuses a program by EACCES.
            libbpf_rs::ErrorKind::PermissionDenied if !told.contains(&refused()) => privilege(
                interface,
                "loading programs that send and account needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and not in a user namespace",
            ),
            _ => unsupported(
                interface,
                format!(
                    "the kernel does not load the programs of the live driver ({told}); xdp: or packet: may work"
                ),
            ),
        }
    }

    /// Why a device took no frames.
    pub(crate) fn refusal(interface: &Interface, error: i32) -> PortError {
        let name = &interface.name;
        match Errno::from_raw_os_error(error) {
            Errno::OPNOTSUPP => unsupported(interface, no_transmit(interface)),
            Errno::MSGSIZE => unsupported(
                interface,
                format!(
                    "its device refuses frames of this length (its MTU was {} when the run was prepared); try `ip link set {name} mtu N`",
                    interface.mtu
                ),
            ),
            Errno::NETDOWN | Errno::NXIO => PortError::LinkDown {
                port: interface.port.clone(),
            },
            cause => io(interface, "hand frames to the device", cause),
        }
    }

    /// What a device lacks that takes no frames from programs, and what would make it.
    pub(crate) fn no_transmit(interface: &Interface) -> String {
        match interface.kernel_driver.as_str() {
            "veth" => "the live driver cannot send: this veth takes frames from programs only while its other end has an XDP program or GRO; try `ethtool -K PEER gro on` there, or xdp: here".to_owned(),
            "" => "the live driver cannot send: this device takes no frames from programs (no NDO_XMIT); take xdp:".to_owned(),
            driver => format!(
                "the live driver cannot send: {driver} takes no frames from programs here (no NDO_XMIT, see `bpftool net` and the driver's manual); take xdp:"
            ),
        }
    }
}

#[cfg(feature = "bpf")]
pub(crate) use of_programs::*;
