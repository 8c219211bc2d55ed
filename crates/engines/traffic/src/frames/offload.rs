//! Frames as tables, for a port that makes them itself.

use wb_model::TagKind;
use wb_port::offload::{FieldValues, HeaderTemplate, StreamProgram, TagProgram};

use super::{FlowCursor, StreamFrames};

impl StreamFrames {
    /// These frames as tables. Returns the reason if that is not possible.
    pub(crate) fn program(
        &self,
        cursor: &FlowCursor,
        first_flow: u32,
        paced: bool,
    ) -> Result<StreamProgram, &'static str> {
        if self.tag == TagKind::Pktgen {
            return Err("frames with a pktgen tag have one sequence over all flows");
        }
        if self.derives_checksums() {
            return Err("checksums of given headers are computed in user space");
        }
        let slots = self.fields.iter().map(|f| &f.0);
        let ends = slots
            .chain(self.tuple.iter().map(|f| &f.at))
            .map(|slot| slot.end_offset());
        let header_len = ends.fold(self.header_len, usize::max);
        let beyond = header_len - self.header_len;
        let mut templates: Vec<HeaderTemplate> = self
            .templates
            .iter()
            .zip(self.headers.chunks(self.header_len.max(1)))
            .map(|(template, header)| HeaderTemplate {
                len: template.len,
                ip_sum: template.sums.ip as u32,
                l4_sum: template.sums.l4 as u32,
                header: [header, &self.payload[..beyond]].concat(),
            })
            .collect();
        let mut fields = Vec::new();
        for field in &self.tuple {
            let (first, most) = (field.first, u128::from(cursor.max_digit(field.digit)));
            if (first + most) >> 64 != first >> 64 {
                return Err("the addresses of the flows differ in more than 64 bits");
            }
            let values = FieldValues::Digit {
                digit: field.digit as u8,
                first: first as u64,
            };
            fields.push(
                field
                    .at
                    .program(values, (first >> 64) as u64, &mut templates),
            );
        }
        for (slot, modifier) in &self.fields {
            let (values, above) = modifier.values_table()?;
            fields.push(slot.program(values, above, &mut templates));
        }
        let (order, order_at, order_advance) = self.sizes.order_table();
        Ok(StreamProgram {
            templates,
            payload: self.payload[beyond..].to_vec(),
            order,
            order_at,
            order_advance,
            order_drawn: None,
            fields,
            walk: cursor.walk_table(first_flow),
            tag_at: (self.tag == TagKind::Wirebench).then_some(self.tag_at),
            tag: TagProgram::Wirebench,
            copies: 1,
            burst: 1,
            ip_checksum: self.ip_checksum,
            l4_checksum: self.l4_checksum,
            udp: self.udp,
            paced,
        })
    }
}
