//! Prepares the peer of a veth so that the veth takes frames from programs.

use std::os::fd::AsFd;

use wb_port::{Interface, PortError};

use crate::fault;
use crate::hook::{self, Hook};
use crate::object::{self, built};

/// Program that passes all frames of an interface on, until the value is dropped.
pub struct PassProgram(#[expect(dead_code, reason = "it detaches the program")] Hook);

impl PassProgram {
    /// Attaches the program to `interface`, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// See [`Account::open`](crate::Account::open).
    pub fn open(interface: &Interface) -> Result<Self, PortError> {
        hook::quiet();
        let object = object::open(built!("pass"))
            .and_then(|object| object.load())
            .map_err(|cause| fault::loading(interface, &cause))?;
        let program = object::program(&object, "wb_pass")
            .map_err(|cause| fault::loading(interface, &cause))?;
        let hook = match hook::attach_native(program.as_fd(), interface)? {
            Ok(hook) => hook,
            Err(_) => hook::attach_generic(program.as_fd(), interface)?,
        };
        Ok(Self(hook))
    }
}
