//! Frames of one stream: templates, the fields patched into them, and the tag.
//!
//! Headers up to the end of the tag are stored per size, the payload once. The cookie of a slot records its content:
//! the frames (one number for each stream of each sender), the size, and the length of valid payload. Therefore only
//! the differing bytes of a reused slot are written:
//!
//! ```text
//!  bit 63        44 43       29 28        15 14          0
//!      sender (not 0) | frames | size index | payload end
//! ```
//!
//! Knows no time and no schedule.

mod field_slot;
mod flow_cursor;
mod offload;
mod sizes;
mod stack;

use std::collections::BTreeMap;

use wb_model::units::FrameSize;
use wb_model::vary::Field;
use wb_model::{Proto, TagKind};
use wb_port::Slot;
use wb_wire::checksum::{self, finish, fold};
use wb_wire::{ChecksumField, PktgenTag, SplitMix64, Tag};

use crate::modify::{Modifier, WorkerShare};
use crate::{CompileError, StreamSpec};

use field_slot::{ChecksumSums, CoveredRanges, FieldSlot, ValueSource};
pub(crate) use flow_cursor::FlowCursor;
use sizes::SizeSequence;

const LEN_BITS: u32 = 15;
const INDEX_BITS: u32 = 14;
const FRAMES_BITS: u32 = 15;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;
const FRAMES_MASK: u64 = !((1 << (LEN_BITS + INDEX_BITS)) - 1);

/// Maximum number of different frames that one sender can mark slots for.
pub(crate) const MOST_FRAMES: usize = 1 << FRAMES_BITS;

/// Upper part of the cookies of some frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CookieMark(u64);

impl CookieMark {
    /// Mark for frames number `frames` of the sender with this number (not 0).
    pub(crate) fn new(sender: u64, frames: usize) -> Self {
        let shift = LEN_BITS + INDEX_BITS;
        Self((sender << (shift + FRAMES_BITS)) | ((frames as u64) << shift))
    }

    /// The mark of the frames with the next number.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + (1 << (LEN_BITS + INDEX_BITS)))
    }

    /// The cookie of a frame that is identified by its number alone.
    pub(crate) fn numbered_cookie(self, frame: usize) -> u64 {
        self.0 | (frame as u64 & !FRAMES_MASK)
    }
}

/// Contents of a frame's tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TagContents {
    /// Flow, as on the wire.
    pub(crate) flow: u32,
    /// Number in the flow.
    pub(crate) sequence: u32,
    /// Wall clock.
    pub(crate) time_ns: u64,
}

/// A field of the 5-tuple that changes with the flow.
#[derive(Clone, Debug)]
struct TupleField {
    at: FieldSlot,
    first: u128,
    digit: usize,
}

/// Value of a 5-tuple field in one frame.
struct TupleOffset {
    first: u128,
    offset: u32,
}

impl ValueSource for TupleOffset {
    #[inline]
    fn next(&mut self) -> u64 {
        self.first as u64 + u64::from(self.offset)
    }

    #[inline]
    fn next_wide(&mut self) -> u128 {
        self.first + u128::from(self.offset)
    }
}

/// Template of one size.
#[derive(Clone, Debug)]
struct FrameTemplate {
    len: u32,
    sums: ChecksumSums,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct StreamFrames {
    mark: CookieMark,
    /// Bytes up to the end of the tag, for each template.
    headers: Box<[u8]>,
    header_len: usize,
    /// Bytes after the tag, as long as the longest frame needs.
    payload: Box<[u8]>,
    templates: Box<[FrameTemplate]>,
    sizes: SizeSequence,
    tuple: Box<[TupleField]>,
    fields: Vec<(FieldSlot, Modifier)>,
    tag: TagKind,
    tag_at: usize,
    /// Offsets of checksums that differ between frames of one size.
    ip_checksum: Option<usize>,
    l4_checksum: Option<usize>,
    udp: bool,
    /// Checksums of given headers, for each template; empty without such headers.
    derived: Box<[Box<[ChecksumField]>]>,
}

/// Parameters for building frames, in addition to the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildContext {
    pub(crate) mark: CookieMark,
    pub(crate) share: WorkerShare,
    pub(crate) seed: u64,
    /// Number of the stream, which selects its random numbers.
    pub(crate) number: usize,
    /// Longest frame of the port, without FCS.
    pub(crate) capacity: usize,
    /// Tag to write, which may differ from the stream's.
    pub(crate) tag: TagKind,
}

/// A worker's walk through the flows of a stream.
pub(crate) fn cursor_of(spec: &StreamSpec, share: WorkerShare) -> FlowCursor {
    let flows = match spec.stream.tag {
        TagKind::Wirebench => spec.flows,
        TagKind::Pktgen | TagKind::None => spec.stream.flow_count(),
    };
    stack::worker_cursor(&spec.stream, flows, share)
}

impl StreamFrames {
    pub(crate) fn new(
        spec: &StreamSpec,
        cursor: &FlowCursor,
        build: &BuildContext,
    ) -> Result<Self, CompileError> {
        let stream = &spec.stream;
        let stack = stack::layer_stack(spec, cursor)?;
        let random = |path: u64| SplitMix64::for_purpose(build.seed, &[build.number as u64, path]);
        let (sizes, order) = SizeSequence::new(&stream.sizes(), build.share, random(0));

        let tag_len = match build.tag {
            TagKind::Wirebench => Tag::LEN,
            TagKind::Pktgen => PktgenTag::LEN,
            TagKind::None => 0,
        };
        let given = stream.headers.as_ref().map_or(&[][..], |bytes| &bytes.0);
        let tag_at = stack.min_len() + given.len();
        let header_len = tag_at + tag_len;
        check_sizes(spec, &sizes, header_len, build.capacity)?;

        let smallest = sizes.iter().min().map_or(60, |s| s.len_without_fcs());
        let layout = stack.layout(smallest);
        let (ipv6, icmp) = (stream.is_ipv6(), stream.proto == Proto::Icmp);
        let find = |field| {
            FieldSlot::for_field(field, &layout, ipv6, stream.proto == Proto::Tcp, icmp).ok_or_else(
                || CompileError::NoField {
                    stream: spec.name.clone(),
                    field,
                },
            )
        };
        let mut tuple = tuple_fields(spec, cursor, find)?;
        let mut fields = modified_fields(spec, build, random, find)?;

        let covered = CoveredRanges::new(&layout, ipv6, icmp);
        let mut taken: BTreeMap<usize, u8> = (tag_at..header_len).map(|at| (at, 0xff)).collect();
        // The last write of a bit wins, so earlier ones are omitted.
        fields.reverse();
        fields.retain_mut(|(slot, _)| slot.claim_bits(&mut taken, &covered));
        fields.reverse();
        tuple.retain_mut(|field| field.at.claim_bits(&mut taken, &covered));

        let slots = || {
            fields
                .iter()
                .map(|f| &f.0)
                .chain(tuple.iter().map(|f| &f.at))
        };
        let ip_moves = slots().any(FieldSlot::moves_ip);
        let l4_moves = slots().any(FieldSlot::moves_l4) || tag_len > 0;
        // A checksum that a modifier writes is not recomputed.
        let free = |at: &usize| !slots().any(|slot| slot.writes_at(*at));
        let ip_checksum = layout.ip_checksum.filter(free);
        let l4_checksum = layout.l4_checksum.filter(free);
        let udp = stream.proto == Proto::Udp;

        let longest = sizes.iter().max().map_or(60, |s| s.len_without_fcs());
        let mut payload = vec![0; longest - header_len];
        if let Some(pattern) = stream.payload.as_ref().filter(|p| !p.0.is_empty()) {
            let bytes = payload.iter_mut().zip(pattern.0.iter().cycle());
            bytes.for_each(|(byte, p)| *byte = *p);
        }
        let mut templates = Vec::with_capacity(sizes.len());
        let mut headers = Vec::with_capacity(sizes.len() * header_len);
        let mut derived = Vec::new();
        for size in &sizes {
            let (mut frame, layout) = stack.build_with_layout(size.len_without_fcs());
            frame[tag_at - given.len()..tag_at].copy_from_slice(given);
            frame[header_len..].copy_from_slice(&payload[..size.len_without_fcs() - header_len]);
            if !given.is_empty() {
                let fields = wb_wire::derive(&mut frame, tag_at).into_iter();
                let fields = fields.filter(|field| free(&field.at()));
                derived.push(with_bad_ones(fields.collect(), spec)?);
            }
            frame[tag_at..header_len].fill(0);
            slots().for_each(|slot| slot.clear(&mut frame));
            write_magic(build.tag, &mut frame[tag_at..header_len]);
            for at in [ip_checksum, l4_checksum].into_iter().flatten() {
                frame[at..at + 2].fill(0);
            }
            let base = base_sums(&frame, &layout);
            if let Some(at) = ip_checksum {
                frame[at..at + 2].copy_from_slice(&finish(base.ip).to_be_bytes());
            }
            if let Some(at) = l4_checksum {
                frame[at..at + 2].copy_from_slice(&l4_field(base.l4, udp).to_be_bytes());
            }
            headers.extend_from_slice(&frame[..header_len]);
            templates.push(FrameTemplate {
                len: frame.len() as u32,
                sums: base,
            });
        }
        // Bits of fields after the tag are patched too, so they are zero in the shared payload.
        let mut whole = vec![0; header_len];
        whole.extend_from_slice(&payload);
        slots().for_each(|slot| slot.clear(&mut whole));
        payload.copy_from_slice(&whole[header_len..]);

        Ok(Self {
            mark: build.mark,
            headers: headers.into(),
            header_len,
            payload: payload.into(),
            templates: templates.into(),
            sizes: order,
            tuple: tuple.into(),
            fields,
            tag: build.tag,
            tag_at,
            ip_checksum: ip_checksum.filter(|_| ip_moves),
            l4_checksum: l4_checksum.filter(|_| l4_moves),
            udp,
            derived: derived.into(),
        })
    }

    /// Writes the next frame with the 5-tuple of `cursor`. Returns its size, with FCS.
    // Always inlined: a call would pass slot and stamp through memory, some 20 instructions of 150.
    #[inline(always)]
    pub(crate) fn write(&mut self, slot: Slot<'_>, cursor: &FlowCursor, stamp: TagContents) -> u32 {
        let index = self.sizes.next();
        let template = &self.templates[index];
        let len = template.len as usize;
        *slot.len = template.len;
        let frame = &mut slot.bytes[..len];
        let cookie = self.mark.0 | ((index as u64) << LEN_BITS);
        if *slot.cookie & !LEN_MASK != cookie {
            *slot.cookie = self.write_template(frame, index, *slot.cookie) | cookie;
        }

        let mut sums = template.sums;
        for field in &self.tuple {
            let mut value = TupleOffset {
                first: field.first,
                offset: cursor.tuple_offset(field.digit),
            };
            field.at.write(frame, &mut value, &mut sums);
        }
        for (slot, modifier) in &mut self.fields {
            slot.write(frame, modifier, &mut sums);
        }
        match self.tag {
            TagKind::Wirebench => {
                let tag = Tag {
                    flow: stamp.flow,
                    sequence: stamp.sequence,
                    time_ns: stamp.time_ns,
                };
                let bytes = frame[self.tag_at..self.tag_at + Tag::LEN].first_chunk_mut();
                tag.write(bytes.expect("a slice of that length"));
                sums.l4 += u64::from(stamp.flow) + u64::from(stamp.sequence);
                sums.l4 += (stamp.time_ns >> 32) + (stamp.time_ns & 0xffff_ffff);
            }
            TagKind::Pktgen => {
                let tag = PktgenTag::at(stamp.sequence, stamp.time_ns);
                let bytes = frame[self.tag_at..self.tag_at + PktgenTag::LEN].first_chunk_mut();
                tag.write(bytes.expect("a slice of that length"));
                sums.l4 +=
                    u64::from(stamp.sequence) + u64::from(tag.time[0]) + u64::from(tag.time[1]);
            }
            TagKind::None => {}
        }
        if let Some(fields) = self.derived.get(index) {
            fields.iter().for_each(|field| field.write(frame));
        }
        if let Some(at) = self.ip_checksum {
            frame[at..at + 2].copy_from_slice(&finish(sums.ip).to_be_bytes());
        }
        if let Some(at) = self.l4_checksum {
            frame[at..at + 2].copy_from_slice(&l4_field(sums.l4, self.udp).to_be_bytes());
        }
        template.len + FrameSize::FCS
    }

    /// Writes the template with this index into a slot. Returns the length of the valid payload.
    #[cold]
    fn write_template(&self, frame: &mut [u8], index: usize, cookie: u64) -> u64 {
        let header = self.headers[index * self.header_len..].iter().as_slice();
        frame[..self.header_len].copy_from_slice(&header[..self.header_len]);
        let ours = cookie & FRAMES_MASK == self.mark.0;
        let from = if ours {
            (cookie & LEN_MASK) as usize
        } else {
            self.header_len
        };
        if from < frame.len() {
            let payload = from - self.header_len..frame.len() - self.header_len;
            frame[from..].copy_from_slice(&self.payload[payload]);
        }
        from.max(frame.len()) as u64
    }

    /// The flow in the tag of a frame, read at the tag position of these frames.
    pub(crate) fn flow_of(&self, frame: &[u8]) -> Option<u32> {
        Tag::read(frame.get(self.tag_at..)?).map(|tag| tag.flow)
    }

    /// Returns true if checksums of given headers are computed for each frame.
    pub(crate) fn derives_checksums(&self) -> bool {
        self.derived.iter().any(|fields| !fields.is_empty())
    }

    /// Returns true if a frame has a pktgen header at the tag position of these frames.
    pub(crate) fn has_pktgen_tag(&self, frame: &[u8]) -> bool {
        frame
            .get(self.tag_at..)
            .is_some_and(|bytes| PktgenTag::read(bytes).is_some())
    }

    /// Returns true if a frame has one of the sizes of these frames.
    pub(crate) fn has_len(&self, len: usize) -> bool {
        self.templates
            .iter()
            .any(|template| template.len as usize == len)
    }
}

/// Layer-4 checksum in its transmitted form.
#[inline]
/// Makes those checksums wrong that the stream names.
fn with_bad_ones(
    fields: Vec<ChecksumField>,
    spec: &StreamSpec,
) -> Result<Box<[ChecksumField]>, CompileError> {
    let bad = &spec.stream.bad_checksums;
    let known = |at: &u16| fields.iter().any(|field| field.at() == usize::from(*at));
    if let Some(at) = bad.iter().find(|at| !known(at)) {
        return Err(CompileError::NoChecksum {
            stream: spec.name.clone(),
            at: *at,
        });
    }
    let is_bad = |at: usize| bad.iter().any(|own| usize::from(*own) == at);
    let fields = fields.into_iter().map(|field| match is_bad(field.at()) {
        true => field.wrong(),
        false => field,
    });
    Ok(fields.collect())
}

fn l4_field(sum: u64, udp: bool) -> u16 {
    let checksum = finish(sum);
    if udp {
        checksum::udp(checksum)
    } else {
        checksum
    }
}

fn check_sizes(
    spec: &StreamSpec,
    sizes: &[FrameSize],
    header_len: usize,
    capacity: usize,
) -> Result<(), CompileError> {
    let fcs = FrameSize::FCS as usize;
    for size in sizes {
        let len = size.len_without_fcs();
        if len < header_len {
            return Err(CompileError::TooShort {
                stream: spec.name.clone(),
                size: len + fcs,
                least: (header_len + fcs).max(FrameSize::MIN.get() as usize),
            });
        }
        if len > capacity {
            return Err(CompileError::TooLong {
                stream: spec.name.clone(),
                size: len + fcs,
                most: capacity + fcs,
            });
        }
    }
    Ok(())
}

/// Writes the magic number, the constant part of a tag.
fn write_magic(kind: TagKind, tag: &mut [u8]) {
    match kind {
        TagKind::Wirebench => tag[..2].copy_from_slice(&Tag::MAGIC.to_be_bytes()),
        TagKind::Pktgen => tag[..4].copy_from_slice(&PktgenTag::MAGIC.to_be_bytes()),
        TagKind::None => {}
    }
}

/// The fields that the stream varies, in the order of its plan.
fn modified_fields(
    spec: &StreamSpec,
    build: &BuildContext,
    random: impl Fn(u64) -> SplitMix64,
    find: impl Fn(Field) -> Result<FieldSlot, CompileError>,
) -> Result<Vec<(FieldSlot, Modifier)>, CompileError> {
    let fields = spec.stream.vary.iter().enumerate().map(|(i, vary)| {
        let slot = find(vary.field)?.masked(vary.mask.unwrap_or(u128::MAX));
        let path = 1 + i as u64 + (u64::from(build.share.worker) << 32);
        let modifier = Modifier::new(vary, build.share, random(path)).ok_or_else(|| {
            CompileError::NoValues {
                stream: spec.name.clone(),
                field: vary.field,
            }
        })?;
        Ok((slot, modifier))
    });
    fields.collect()
}

fn tuple_fields(
    spec: &StreamSpec,
    cursor: &FlowCursor,
    find: impl Fn(Field) -> Result<FieldSlot, CompileError>,
) -> Result<Vec<TupleField>, CompileError> {
    let stream = &spec.stream;
    let number = |ip| match ip {
        std::net::IpAddr::V4(ip) => u128::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => ip.to_bits(),
    };
    let ranges = [
        (Field::Sport, u128::from(stream.source_ports().first)),
        (Field::Dport, u128::from(stream.destination_ports().first)),
        (Field::Src, number(stream.source().first())),
        (Field::Dst, number(stream.destination().first())),
    ];
    let mut fields = Vec::new();
    for (digit, (field, first)) in ranges.into_iter().enumerate() {
        if cursor.changing_offsets()[digit] {
            fields.push(TupleField {
                at: find(field)?,
                first,
                digit,
            });
        }
    }
    Ok(fields)
}

/// Sums of a frame as it stands; its checksum fields are included (0, or a modifier's value).
fn base_sums(frame: &[u8], layout: &wb_wire::StackLayout) -> ChecksumSums {
    let without = |range: std::ops::Range<usize>, checksum: Option<usize>| {
        let mut bytes = frame[range.clone()].to_vec();
        if let Some(at) = checksum {
            bytes[at - range.start..at - range.start + 2].fill(0);
        }
        checksum::sum(&bytes)
    };
    let ip = layout
        .ip_checksum
        .and(layout.ip)
        .map_or(0, |ip| without(ip..ip + 20, layout.ip_checksum));
    let l4 = match (layout.l4, layout.l4_checksum) {
        (Some(l4), Some(_)) => {
            layout.pseudo(frame).unwrap_or(0) + without(l4..layout.end, layout.l4_checksum)
        }
        _ => 0,
    };
    ChecksumSums {
        ip: fold(ip).into(),
        l4: fold(l4).into(),
    }
}
