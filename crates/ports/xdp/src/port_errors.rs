//! Converts system errors to port errors: the operation, the interface and the remedy.

use std::io;

use rustix::io::Errno;
use wb_port::{Interface, PortError};

/// Error of an attempt, and whether a simpler mode may still work.
pub(crate) struct Failure {
    pub(crate) error: PortError,
    pub(crate) fall_back: bool,
}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Self {
        Self {
            error,
            fall_back: false,
        }
    }
}

impl Failure {
    /// Error of one mode; another mode may work.
    pub(crate) fn of_mode(interface: &Interface, what: String) -> Self {
        Self {
            error: unsupported(interface, what),
            fall_back: true,
        }
    }
}

pub(crate) fn unsupported(interface: &Interface, what: String) -> PortError {
    PortError::Unsupported {
        port: interface.port.clone(),
        what,
    }
}

pub(crate) fn io(interface: &Interface, operation: &str, cause: impl Into<io::Error>) -> PortError {
    PortError::Io {
        port: interface.port.clone(),
        operation: operation.to_owned(),
        cause: cause.into(),
    }
}

pub(crate) fn gone(port: &str) -> PortError {
    PortError::Gone {
        port: port.to_owned(),
    }
}

pub(crate) fn privilege(interface: &Interface, what: &str) -> PortError {
    PortError::Privilege {
        port: interface.port.clone(),
        what: what.to_owned(),
        command: PortError::command_granting(),
    }
}

pub(crate) fn queue_off(interface: &Interface, queue: u64) -> PortError {
    let Interface {
        tx_queues,
        rx_queues,
        ..
    } = interface;
    let switch_on = interface.switch_on(queue + 1);
    unsupported(
        interface,
        format!(
            "queue {queue} is off (on: {tx_queues} transmit, {rx_queues} receive); {switch_on}"
        ),
    )
}

/// Error of creating a socket.
pub(crate) fn socket(interface: &Interface, cause: Errno) -> PortError {
    match cause {
        Errno::PERM | Errno::ACCESS => {
            privilege(interface, "opening an AF_XDP socket needs CAP_NET_RAW")
        }
        Errno::AFNOSUPPORT => unsupported(
            interface,
            "the kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS); use the packet driver".into(),
        ),
        cause => io(interface, "open an AF_XDP socket", cause),
    }
}

/// Error of registering the memory of the frames.
pub(crate) fn memory(interface: &Interface, bytes: u64, cause: Errno) -> PortError {
    match cause {
        // The kernel counts the pages against RLIMIT_MEMLOCK unless the process has the privilege to lock memory.
        Errno::NOBUFS => privilege(
            interface,
            &format!(
                "{} KiB of frame memory exceed the limit of locked memory; raise it with `ulimit -l unlimited` or CAP_IPC_LOCK",
                bytes / 1024
            ),
        ),
        cause => io(interface, "register frame memory (XDP_UMEM_REG)", cause),
    }
}

/// Error of binding a socket to its queue.
pub(crate) fn bind(interface: &Interface, queue: u32, zero_copy: bool, cause: Errno) -> Failure {
    match cause {
        Errno::BUSY => unsupported(
            interface,
            format!("queue {queue} is in use by another AF_XDP socket; stop that program or use another queue"),
        )
        .into(),
        Errno::NODEV | Errno::NXIO => gone(&interface.port).into(),
        Errno::PERM => privilege(interface, "binding an AF_XDP socket needs CAP_NET_RAW").into(),
        cause if zero_copy => Failure::of_mode(
            interface,
            format!("no zero copy on queue {queue} ({})", io::Error::from(cause)),
        ),
        Errno::INVAL => queue_off(interface, queue.into()).into(),
        cause => io(interface, &format!("bind queue {queue}"), cause).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::interface;

    #[test]
    fn messages_say_what_to_type() {
        let interface = interface();
        let text = |error: PortError| error.to_string();
        assert!(text(socket(&interface, Errno::PERM)).contains("sudo setcap cap_net_raw"));
        assert!(text(socket(&interface, Errno::AFNOSUPPORT)).contains("CONFIG_XDP_SOCKETS"));
        assert!(text(memory(&interface, 8 << 20, Errno::NOBUFS)).contains("8192 KiB"));
        assert!(text(bind(&interface, 3, false, Errno::BUSY).error).contains("queue 3 is in use"));
        assert!(
            text(bind(&interface, 3, false, Errno::INVAL).error)
                .contains("ethtool -L a0 rx 4 tx 4")
        );
        // More queues would disable XDP on the card.
        let ena = Interface {
            kernel_driver: "ena".into(),
            ..interface.clone()
        };
        let refused = text(bind(&ena, 3, false, Errno::INVAL).error);
        assert!(
            refused.contains("half of its queues") && !refused.contains("ethtool -L"),
            "{refused}"
        );
        assert!(matches!(
            bind(&interface, 0, false, Errno::NODEV).error,
            PortError::Gone { .. }
        ));
    }

    #[test]
    fn only_a_refused_mode_falls_back() {
        let interface = interface();
        assert!(bind(&interface, 0, true, Errno::OPNOTSUPP).fall_back);
        assert!(!bind(&interface, 0, true, Errno::BUSY).fall_back);
        assert!(!bind(&interface, 0, false, Errno::INVAL).fall_back);
    }
}
