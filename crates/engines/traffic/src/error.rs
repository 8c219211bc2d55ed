//! Errors in streams that cannot be turned into frames.

use wb_model::vary::Field;

/// A stream that cannot be sent by this port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A frame does not fit a slot of the port.
    #[error("{stream}: a frame of {size} bytes (with FCS) exceeds the port's maximum of {most}")]
    TooLong {
        /// Name of the stream.
        stream: String,
        /// Requested frame size.
        size: usize,
        /// Largest size possible.
        most: usize,
    },
    /// A frame has no room for its headers and tag.
    #[error(
        "{stream}: {size} bytes (with FCS) are too few for the headers and the test tag; at least {least} are needed"
    )]
    TooShort {
        /// Name of the stream.
        stream: String,
        /// Requested frame size.
        size: usize,
        /// Smallest size possible.
        least: usize,
    },
    /// A modifier names a field that the frames do not have.
    #[error("{stream}: its frames have no field {field}")]
    NoField {
        /// Name of the stream.
        stream: String,
        /// The field.
        field: Field,
    },
    /// A modifier has no values.
    #[error("{stream}: the modifier of {field} has no values")]
    NoValues {
        /// Name of the stream.
        stream: String,
        /// The field.
        field: Field,
    },
    /// The source and destination of a stream are of different families.
    #[error("{stream}: source and destination must have the same IP version")]
    Families {
        /// Name of the stream.
        stream: String,
    },
    /// The rate cannot be kept exactly in nanoseconds and 64-bit fractions.
    #[error(
        "{stream}: rate: must be above 0 and at most 10^12 frames per second with at most 9 decimals, got {rate}"
    )]
    Rate {
        /// Name of the stream.
        stream: String,
        /// The rate.
        rate: String,
    },
    /// The headers have no computed checksum at an offset of `bad_checksums`.
    #[error("{stream}: bad_checksums: its headers have no checksum to fill in at {at}")]
    NoChecksum {
        /// Name of the stream.
        stream: String,
        /// Offset from the start of the frame.
        at: u16,
    },
    /// A burst or gap of 0.
    #[error("{stream}: burst and gap must be above 0")]
    Burst {
        /// Name of the stream.
        stream: String,
    },
    /// A stream without a ramp-up: it has no rate, or its frames cannot be distinguished from counted ones.
    #[error("{stream}: ramp-up is not possible: {cause}")]
    Ramp {
        /// Name of the stream.
        stream: String,
        /// Reason.
        cause: &'static str,
    },
    /// A recording without frames.
    #[error("{stream}: the recording has no frames")]
    EmptyRecording {
        /// Name of the stream.
        stream: String,
    },
    /// Fewer flows than workers: some worker would have none.
    #[error(
        "{stream}: {workers} workers need at least {workers} flows, one for each worker; got {flows}"
    )]
    Flows {
        /// Name of the stream.
        stream: String,
        /// Tag flows of the stream.
        flows: u32,
        /// Workers that share them.
        workers: u32,
    },
    /// A worker number that is not below the number of workers.
    #[error("worker {worker} does not exist; there are {workers}")]
    Worker {
        /// The worker number.
        worker: u32,
        /// Number of workers.
        workers: u32,
    },
    /// More streams on one worker than slots can be marked for.
    #[error("{streams} streams on one port exceed the maximum of {most}")]
    Streams {
        /// Requested streams.
        streams: usize,
        /// Maximum number of streams.
        most: usize,
    },
}
