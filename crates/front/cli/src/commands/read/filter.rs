//! The filter over packets of any link type.

use anyhow::{Result, anyhow};
use wb_filter::{Ancillary, KernelValue, Program};
use wb_machine::expression;
use wb_pcapng::{Interface, LINK_ETHERNET, MAX_CAPTURED};

use super::input::Packet;

/// An expression, and its program for each link type that was met.
pub(super) struct Filter {
    expression: String,
    programs: Vec<(u16, Program)>,
}

impl Filter {
    /// Compiles for the link types of these interfaces; for Ethernet if there are none.
    ///
    /// # Errors
    /// The expression with a caret under the mistake.
    pub(super) fn new(expression: &str, interfaces: &[Interface]) -> Result<Self> {
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

    /// The program for a link type.
    ///
    /// # Errors
    /// If the expression makes none for it.
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
                        "{}: a file does not hold what the kernel knew of the packet ({})",
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

    /// Whether a packet passes.
    ///
    /// # Errors
    /// If the expression makes no program for its link type.
    pub(super) fn accepts(&mut self, packet: &Packet) -> Result<bool> {
        let program = self.program(packet.link_type)?;
        let length = packet.original_len;
        Ok(program.accepts(&packet.bytes, length, &Ancillary::default()) != 0)
    }
}

/// What a filter asked the kernel for, in the words of the expression.
const fn what(value: KernelValue) -> &'static str {
    match value {
        KernelValue::PacketType => "inbound, outbound",
        KernelValue::InterfaceIndex => "ifindex",
        _ => "its metadata",
    }
}
