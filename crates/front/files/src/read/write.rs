//! Output file: pcapng or pcap, optionally compressed.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use flate2::write::GzEncoder;
use lz4_flex::frame::FrameEncoder;
use wb_model::capture::{Compression, FileFormat, by_name};
use wb_pcapng::{
    CaptureInterface, EnhancedPacket, LINK_ETHERNET, PcapWriter, PcapngWriter, Precision,
    Statistics,
};
use wb_session::Fault;

use super::{
    input::{Packet, SectionTexts},
    written,
};
use crate::{Output, is_same_file};

/// Size of the write buffer, in bytes.
const GATHERED: usize = 256 << 10;

/// Settings of an output file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Path of the file; `-` is standard output.
    pub path: PathBuf,
    /// Format of the file.
    pub format: FileFormat,
    /// Compression of the file.
    pub compression: Compression,
    /// Maximum bytes kept of each packet, if limited.
    pub cut: Option<usize>,
    /// True if each packet is written at once.
    pub unbuffered: bool,
}

enum Packed {
    Plain(Box<dyn Write>),
    Zstd(zstd::Encoder<'static, Box<dyn Write>>),
    Lz4(Box<FrameEncoder<Box<dyn Write>>>),
    Gzip(GzEncoder<Box<dyn Write>>),
}

impl Packed {
    fn new(compression: Compression, out: Box<dyn Write>) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::Plain(out),
            Compression::Zstd => Self::Zstd(zstd::Encoder::new(out, 0)?),
            Compression::Lz4 => Self::Lz4(Box::new(FrameEncoder::new(out))),
            Compression::Gzip => Self::Gzip(GzEncoder::new(out, flate2::Compression::default())),
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Zstd(out) => out,
            Self::Lz4(out) => out,
            Self::Gzip(out) => out,
        }
    }

    fn finish(self) -> io::Result<()> {
        let mut out = match self {
            Self::Plain(out) => out,
            Self::Zstd(out) => out.finish()?,
            Self::Lz4(out) => out.finish().map_err(io::Error::from)?,
            Self::Gzip(out) => out.finish()?,
        };
        out.flush()
    }
}

enum Encoding {
    Pcapng {
        writer: PcapngWriter,
        /// Number of each input interface in the output, once it has one.
        numbers: Vec<Option<u32>>,
    },
    /// The header is written with the first packet, which gives the link type.
    Pcap(Option<(PcapWriter, u16)>),
}

/// Output for unmodified blocks, compressed according to its name.
pub(super) struct Copy(Packed);

impl Copy {
    /// Creates the file.
    ///
    /// # Errors
    /// If the file cannot be created, or is one of the inputs.
    pub(super) fn create(path: &Path, inputs: &[PathBuf], output: &dyn Output) -> Result<Self> {
        let out = create(path, inputs, output)?;
        let (_, compression) = by_name(&path.to_string_lossy());
        let packed = Packed::new(compression, out);
        Ok(Self(packed.with_context(|| {
            format!("cannot write {}", path.display())
        })?))
    }

    /// Returns the writer for the bytes.
    pub(super) fn writer(&mut self) -> &mut dyn Write {
        self.0.writer()
    }

    /// Finishes the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn finish(self) -> io::Result<()> {
        self.0.finish()
    }
}

/// Creates a file, unless it is one of the inputs; `-` is standard output.
fn create(path: &Path, inputs: &[PathBuf], output: &dyn Output) -> Result<Box<dyn Write>> {
    if path == Path::new("-") {
        return output.packets().map_err(|error| {
            Fault(format!(
                "cannot write the results to standard output: {error}"
            ))
            .into()
        });
    }
    refuse_input(path, inputs)?;
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(Box::new(file))
}

/// Writes packets to one file.
pub(super) struct Writer {
    order: Order,
    out: Packed,
    buffer: Vec<u8>,
    encoding: Encoding,
}

impl Writer {
    /// Creates the file.
    ///
    /// # Errors
    /// If the file cannot be created, or is one of the inputs.
    pub(super) fn create(
        order: Order,
        inputs: &[PathBuf],
        section: Option<&SectionTexts>,
        output: &dyn Output,
    ) -> Result<Self> {
        let out = create(&order.path, inputs, output)?;
        Self::onto(order, out, section)
    }

    /// Writes to an open output.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(super) fn onto(
        order: Order,
        out: Box<dyn Write>,
        section: Option<&SectionTexts>,
    ) -> Result<Self> {
        let name = order.path.display().to_string();
        let out =
            Packed::new(order.compression, out).with_context(|| format!("cannot write {name}"))?;
        let mut buffer = Vec::with_capacity(2 * GATHERED);
        let encoding = match order.format {
            FileFormat::Pcapng => Encoding::Pcapng {
                writer: match section {
                    Some(section) => PcapngWriter::section(&section.section(), &mut buffer),
                    None => PcapngWriter::new(
                        concat!("wirebench ", env!("CARGO_PKG_VERSION")),
                        &mut buffer,
                    ),
                },
                numbers: Vec::new(),
            },
            FileFormat::PcapNs | FileFormat::Pcap => Encoding::Pcap(None),
        };
        Ok(Self {
            order,
            out,
            buffer,
            encoding,
        })
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// If the format cannot hold the packet, or the file cannot be written.
    pub(super) fn packet(
        &mut self,
        packet: &Packet,
        interfaces: &[CaptureInterface],
    ) -> Result<()> {
        let most = self.order.cut.unwrap_or(usize::MAX);
        let captured = &packet.bytes[..packet.bytes.len().min(most)];
        let original_len = packet.original_len;
        match &mut self.encoding {
            Encoding::Pcapng { writer, numbers } => {
                let interface = described(
                    packet.interface,
                    interfaces,
                    most,
                    (writer, numbers),
                    &mut self.buffer,
                );
                let enhanced = EnhancedPacket {
                    interface,
                    ticks: packet.stamp_ns,
                    original_len,
                    captured,
                    options: packet.options(),
                };
                writer.packet(&enhanced, &mut self.buffer);
            }
            Encoding::Pcap(begun) => {
                let (writer, link_type) = begun.get_or_insert_with(|| {
                    begin_pcap(&self.order, packet.link_type, interfaces, &mut self.buffer)
                });
                if *link_type != packet.link_type {
                    bail!(
                        "a pcap file can have one link type only ({link_type}), but the next packet has {}; \
                         use --format pcapng",
                        packet.link_type
                    );
                }
                writer.record(packet.stamp_ns, original_len, captured, &mut self.buffer);
            }
        }
        if self.order.unbuffered {
            self.flush()?;
            let name = self.order.path.display().to_string();
            written(self.out.writer().flush(), &name)
        } else if self.buffer.len() >= GATHERED {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        let result = self.out.writer().write_all(&self.buffer);
        self.buffer.clear();
        written(result, &self.order.path.display().to_string())
    }

    /// Returns true if the output is pcapng.
    pub(super) fn is_pcapng(&self) -> bool {
        matches!(self.encoding, Encoding::Pcapng { .. })
    }

    /// Finishes the file and adds the statistics of the interfaces from the input.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn finish(
        mut self,
        interfaces: &[CaptureInterface],
        statistics: &[Statistics],
    ) -> Result<()> {
        let most = self.order.cut.unwrap_or(usize::MAX);
        match &mut self.encoding {
            Encoding::Pcapng { writer, numbers } => {
                // Interfaces without packets are also part of the capture.
                for (at, _) in interfaces.iter().enumerate() {
                    described(at, interfaces, most, (writer, numbers), &mut self.buffer);
                }
                for found in statistics {
                    let number = numbers.get(found.interface as usize).copied().flatten();
                    if let Some(interface) = number {
                        let found = Statistics {
                            interface,
                            ..*found
                        };
                        writer.statistics(&found, &mut self.buffer);
                    }
                }
            }
            Encoding::Pcap(None) => {
                let first = interfaces.first().map(|interface| interface.link_type);
                let link_type = first.unwrap_or(LINK_ETHERNET);
                begin_pcap(&self.order, link_type, interfaces, &mut self.buffer);
            }
            Encoding::Pcap(Some(_)) => {}
        }
        self.flush()?;
        written(self.out.finish(), &self.order.path.display().to_string())
    }
}

/// Returns the number of an interface in the output, and describes the interface first if necessary.
fn described(
    at: usize,
    interfaces: &[CaptureInterface],
    most: usize,
    (writer, numbers): (&mut PcapngWriter, &mut Vec<Option<u32>>),
    buffer: &mut Vec<u8>,
) -> u32 {
    if numbers.len() <= at {
        numbers.resize(at + 1, None);
    }
    *numbers[at].get_or_insert_with(|| {
        let interface = &interfaces[at];
        let cut = CaptureInterface {
            snap_len: snap_len(interface.snap_len, most),
            ..interface.clone()
        };
        writer.describe(&cut, buffer)
    })
}

fn begin_pcap(
    order: &Order,
    link_type: u16,
    interfaces: &[CaptureInterface],
    buffer: &mut Vec<u8>,
) -> (PcapWriter, u16) {
    let most = order.cut.unwrap_or(usize::MAX);
    let unlimited = interfaces.iter().any(|interface| interface.snap_len == 0);
    let longest = interfaces.iter().map(|interface| interface.snap_len).max();
    let known = longest.filter(|_| !unlimited).unwrap_or(0);
    let snap_len = snap_len(known, most);
    let precision = match order.format {
        FileFormat::Pcap => Precision::Micro,
        FileFormat::PcapNs | FileFormat::Pcapng => Precision::Nano,
    };
    let writer = PcapWriter::with(link_type, snap_len, precision, buffer);
    (writer, link_type)
}

/// Returns the smaller of two limits; 0 means unlimited.
fn snap_len(known: u32, most: usize) -> u32 {
    let most = u32::try_from(most).unwrap_or(0);
    match (known, most) {
        (0, limit) | (limit, 0) => limit,
        (a, b) => a.min(b),
    }
}

fn refuse_input(path: &Path, inputs: &[PathBuf]) -> Result<()> {
    if path.is_file() && inputs.iter().any(|input| is_same_file(input, path)) {
        bail!("{} is an input file; write to another file", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_limits_the_smaller_holds() {
        assert_eq!(snap_len(0, usize::MAX), 0);
        assert_eq!(snap_len(96, usize::MAX), 96);
        assert_eq!(snap_len(0, 64), 64);
        assert_eq!(snap_len(96, 64), 64);
    }
}
