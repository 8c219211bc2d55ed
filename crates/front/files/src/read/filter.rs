//! Packet filter for any link type.

use anyhow::{Result, anyhow};
use wb_filter::{Ancillary, KernelValue, Program};
use wb_machine::expression;
use wb_pcapng::{CaptureInterface, LINK_ETHERNET, MAX_CAPTURED};

use super::input::Packet;

/// Filter expression, with its compiled program per link type.
pub(super) struct Filter {
    expression: String,
    programs: Vec<(u16, Program)>,
}

impl Filter {
    /// Compiles the expression for the link types of these interfaces, or for Ethernet without interfaces.
    ///
    /// # Errors
    /// The expression with a caret under the mistake.
    pub(super) fn new(expression: &str, interfaces: &[CaptureInterface]) -> Result<Self> {
        let mut filter = Self {
            expression: expression.to_owned(),
            programs: Vec::new(),
        };
        let met = interfaces.iter().map(|interface| interface.link_type);
        let link_types = if interfaces.is_empty() {
            vec![LINK_ETHERNET]
        } else {
            met.collect()
        };
        for link_type in link_types {
            filter.program(link_type)?;
        }
        Ok(filter)
    }

    /// Returns the program for a link type.
    ///
    /// # Errors
    /// If the expression cannot be compiled for it.
    pub(super) fn program(&mut self, link_type: u16) -> Result<&Program> {
        let known = self.programs.iter().position(|(of, _)| *of == link_type);
        let at = match known {
            Some(at) => at,
            None => {
                let compiled =
                    expression::compile(&self.expression, link_type, MAX_CAPTURED as u32, true);
                let program = compiled.map_err(|error| anyhow!(error.render()))?;
                if let Some(value) = program.kernel_values().next() {
                    return Err(anyhow!(
                        "{}: not recorded in files ({})",
                        self.expression,
                        what(value)
                    ));
                }
                self.programs.push((link_type, program));
                self.programs.len() - 1
            }
        };
        Ok(&self.programs[at].1)
    }

    /// Returns true if a packet passes.
    ///
    /// # Errors
    /// If the expression cannot be compiled for its link type.
    pub(super) fn accepts(&mut self, packet: &Packet) -> Result<bool> {
        let program = self.program(packet.link_type)?;
        let length = packet.original_len;
        Ok(program.accepts(&packet.bytes, length, &Ancillary::default()) != 0)
    }
}

/// Returns the primitive that needs a value of the kernel, in the words of the expression.
const fn what(value: KernelValue) -> &'static str {
    match value {
        KernelValue::PacketType => "inbound, outbound",
        KernelValue::InterfaceIndex => "ifindex",
        _ => "its metadata",
    }
}
