//! Response to an omni request: the server is ready.

use crate::error::AnswerError;
use crate::extension::ResponseExtension;
use crate::flags::Flags;
use crate::framer::Generation;
use crate::request::OMNI_RESPONSE;
use crate::words::{WordWriter, Words};

/// Parameters that the server has set up. Its timer runs from now on.
///
/// Sizes in bytes. `None` for values that do not apply, such as the send size if the server only receives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OmniResponse {
    /// SO_RCVBUF in effect.
    pub receive_buffer: Option<u32>,
    /// Bytes of one receive, or the request's value if the server does not receive.
    pub receive_size: Option<u32>,
    /// Buffers in the receive ring.
    pub receive_width: u32,
    /// SO_SNDBUF in effect.
    pub send_buffer: Option<u32>,
    /// Bytes of one send, or the request's value if the server does not send.
    pub send_size: Option<u32>,
    /// Buffers in the send ring.
    pub send_width: u32,
    /// [`Flags::NO_DELAY`] and [`Flags::MEASURE_CPU`] as granted.
    pub flags: Flags,
    /// Calibration, 100 on Linux; 0 unless CPU utilisation was requested.
    pub cpu_rate: f32,
    /// True if the server receives without copying.
    pub receive_avoid: bool,
    /// True if the server sends without copying.
    pub send_avoid: bool,
    /// Port to connect or send to.
    pub data_port: u16,
    /// Granted pacing: operations per burst, 0 for none.
    pub interval_burst: u32,
    /// Granted pacing: time between bursts in µs.
    pub interval_us: u32,
    /// SO_PRIORITY in effect.
    pub priority: Option<u32>,
    /// IP_TOS or IPV6_TCLASS in effect.
    pub tos: Option<u32>,
    /// Extension granted by a wirebench server.
    pub extension: Option<ResponseExtension>,
}

impl OmniResponse {
    /// Reads a message of either generation.
    ///
    /// # Errors
    /// The server refused, no generation has messages of this length, or the port is invalid.
    pub fn parse(message: &[u8]) -> Result<Self, AnswerError> {
        let words = Words::answer(message)?;
        let is_long = words.generation == Generation::Words164;
        let late = |word| if is_long { words.optional(word) } else { None };
        Ok(Self {
            receive_buffer: words.optional(2),
            receive_size: words.optional(3),
            receive_width: words.optional(4).unwrap_or(0),
            send_buffer: words.optional(5),
            send_size: words.optional(6),
            send_width: words.optional(7).unwrap_or(0),
            flags: Flags(words.unsigned(8)),
            cpu_rate: words.float(9),
            receive_avoid: words.switch(11),
            send_avoid: words.switch(12),
            data_port: words.port(13, "data_port")?,
            interval_burst: words.optional(14).unwrap_or(0),
            interval_us: words.optional(15).unwrap_or(0),
            priority: late(18),
            tos: late(19),
            extension: ResponseExtension::read(words),
        })
    }

    /// Encodes the message. With 64 words it has no priority, TOS and extension.
    pub fn encode(&self, generation: Generation) -> Vec<u8> {
        let mut writer = WordWriter::new(generation, OMNI_RESPONSE, 0);
        writer
            .optional(2, self.receive_buffer)
            .optional(3, self.receive_size)
            .unsigned(4, self.receive_width)
            .optional(5, self.send_buffer)
            .optional(6, self.send_size)
            .unsigned(7, self.send_width)
            .unsigned(8, self.flags.0)
            .float(9, self.cpu_rate)
            .switch(11, self.receive_avoid)
            .switch(12, self.send_avoid)
            .unsigned(13, self.data_port.into())
            .unsigned(14, self.interval_burst)
            .unsigned(15, self.interval_us);
        if generation == Generation::Words164 {
            writer.optional(18, self.priority).optional(19, self.tos);
            if let Some(extension) = &self.extension {
                extension.write(&mut writer);
            }
        }
        writer.finish()
    }
}
