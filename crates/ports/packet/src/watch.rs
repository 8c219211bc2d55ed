//! Detects the removal of a socket's interface.
//!
//! The kernel reports `ENETDOWN` once when the link goes down. When the interface is removed, it reports it once more
//! or never. So the interface must be checked after the first report.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{netdevice, sockopt};
use wb_port::PortError;

use crate::sys;

/// Minimum time after the removal in which frames of an open block may still arrive.
const GRACE: Duration = Duration::from_millis(5);

pub(crate) struct InterfaceWatch {
    port: String,
    index: u32,
    down: bool,
    gone_since: Option<Instant>,
    grace: Duration,
}

impl InterfaceWatch {
    pub(crate) fn new(port: &str, index: u32) -> Self {
        Self {
            port: port.to_owned(),
            index,
            down: false,
            gone_since: None,
            grace: GRACE,
        }
    }

    /// Sets the grace time for a ring that the kernel hands over late: `longest` is the time for an open block.
    pub(crate) fn holding(mut self, longest: Duration) -> Self {
        self.grace = self.grace.max(longest);
        self
    }

    /// Reads the socket's pending error, and checks the interface if there was one.
    pub(crate) fn look(&mut self, socket: BorrowedFd<'_>) {
        if self.down || !matches!(sockopt::socket_error(socket), Ok(Ok(()))) {
            self.note_down(socket);
        }
    }

    /// Records that the link is down, and checks the interface.
    pub(crate) fn note_down(&mut self, socket: BorrowedFd<'_>) {
        self.down = true;
        if self.gone_since.is_none() && !self.exists(socket) {
            self.gone_since = Some(Instant::now());
        }
    }

    /// Records that a frame arrived.
    #[inline]
    pub(crate) fn saw_frame(&mut self) {
        self.down = false;
    }

    /// Returns true if the link went down and no frame arrived since.
    pub(crate) fn may_be_gone(&self) -> bool {
        self.down
    }

    /// Checks that the interface exists.
    ///
    /// # Errors
    /// [`PortError::Gone`] if the interface was removed and the grace time for its last frames is over.
    pub(crate) fn check(&self) -> Result<(), PortError> {
        match self.gone_since {
            Some(since) if since.elapsed() > self.grace => Err(self.gone()),
            _ => Ok(()),
        }
    }

    /// Limits a sleep to the grace time if the interface is gone.
    pub(crate) fn at_most(&self, timeout: Duration) -> Duration {
        if self.gone_since.is_some() {
            timeout.min(self.grace)
        } else {
            timeout
        }
    }

    pub(crate) fn gone(&self) -> PortError {
        PortError::Gone {
            port: self.port.clone(),
        }
    }

    /// Converts the error of a failed `operation`.
    pub(crate) fn error(&self, operation: &str, errno: Errno) -> PortError {
        let port = self.port.clone();
        match errno {
            Errno::NETDOWN => PortError::LinkDown { port },
            Errno::NXIO | Errno::NODEV | Errno::BADF => PortError::Gone { port },
            _ => PortError::Io {
                port,
                operation: operation.to_owned(),
                cause: errno.into(),
            },
        }
    }

    /// Checks that the link is up and has a carrier. Returns the current name of the interface.
    ///
    /// # Errors
    /// [`PortError::LinkDown`], [`PortError::Gone`].
    pub(crate) fn check_link(&self, socket: BorrowedFd<'_>) -> Result<String, PortError> {
        let running = libc::IFF_UP | libc::IFF_RUNNING;
        let name = netdevice::index_to_name(socket, self.index).map_err(|_| self.gone())?;
        match sys::interface_flags(socket, &name) {
            Ok(flags) if flags & running != running => Err(self.error("send", Errno::NETDOWN)),
            _ => Ok(name),
        }
    }

    /// Waits until the kernel has installed the qdisc of a link that came up.
    ///
    /// # Errors
    /// See [`InterfaceWatch::check_link`].
    pub(crate) fn ask_for_carrier(&self, socket: BorrowedFd<'_>) -> Result<(), PortError> {
        let name = self.check_link(socket)?;
        // The link counts as running shortly before its qdisc is installed, under one lock; the request for the carrier
        // waits for that lock.
        match sys::has_carrier(socket, &name) {
            Ok(false) => Err(self.error("send", Errno::NETDOWN)),
            _ => Ok(()),
        }
    }

    fn exists(&self, socket: BorrowedFd<'_>) -> bool {
        netdevice::index_to_name(socket, self.index) != Err(Errno::NODEV)
    }
}
