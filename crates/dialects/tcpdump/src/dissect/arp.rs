//! ARP, RARP and inverse ARP.

use super::{DissectStep, Dissector, names, put};

impl Dissector<'_> {
    pub(super) fn arp(&mut self, at: usize, length: usize) -> DissectStep {
        self.protocol = "arp";
        self.need_bytes(at, 8)?;
        let (hardware, protocol) = (self.u16(at)?, self.u16(at + 2)?);
        let (hw_len, pr_len) = (usize::from(self.u8(at + 4)?), usize::from(self.u8(at + 5)?));
        let operation = self.u16(at + 6)?;
        self.need_bytes(at, 8 + 2 * (hw_len + pr_len))?;
        if !self.options.link_header {
            put!(self, "ARP, ");
        }
        let v4 = matches!(protocol, 0x0800 | 0x1000);
        if !v4 || pr_len != 4 || hw_len == 0 || self.verbosity() > 0 {
            match names::hardware_name(hardware) {
                Some(name) => put!(self, "{name} (len {hw_len}), "),
                None => put!(self, "Unknown Hardware ({hardware}) (len {hw_len}), "),
            }
            match names::ethertype_name(protocol) {
                Some(name) => put!(self, "{name} (len {pr_len})"),
                None => put!(self, "Unknown Protocol (0x{protocol:04x}) (len {pr_len})"),
            }
            if self.verbosity() == 0 {
                put!(self, ", length {length}");
                return Ok(());
            }
            put!(self, ", ");
        }
        let hw = |at| {
            if hw_len == 0 {
                Ok("<wrong len>".to_string())
            } else {
                self.hardware_address(at, hw_len)
            }
        };
        let pr = |at| {
            Ok(if !v4 {
                "<wrong proto type>".to_string()
            } else if pr_len != 4 {
                "<wrong len>".to_string()
            } else {
                self.v4(at)?.to_string()
            })
        };
        let sender = at + 8;
        let target = sender + hw_len + pr_len;
        let (sender_hw, sender_pr) = (hw(sender)?, pr(sender + hw_len)?);
        let (target_hw, target_pr) = (hw(target)?, pr(target + hw_len)?);
        match operation {
            1 => {
                put!(self, "Request who-has {target_pr}");
                if self.slice(target, hw_len)?.iter().any(|&byte| byte != 0) {
                    put!(self, " ({target_hw})");
                }
                put!(self, " tell {sender_pr}");
            }
            2 => put!(self, "Reply {sender_pr} is-at {sender_hw}"),
            3 => put!(self, "Reverse Request who-is {target_hw} tell {sender_hw}"),
            4 => put!(self, "Reverse Reply {target_hw} at {target_pr}"),
            8 => put!(self, "Inverse Request who-is {target_hw} tell {sender_hw}"),
            9 => put!(self, "Inverse Reply {sender_hw} at {sender_pr}"),
            _ => {
                match operation {
                    10 => put!(self, "NACK Reply "),
                    _ => put!(self, "Unknown ({operation}) "),
                }
                self.figures_and_text(at, usize::MAX);
                return Ok(());
            }
        }
        put!(self, ", length {length}");
        Ok(())
    }
}
