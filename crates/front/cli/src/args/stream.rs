//! Options for streams, shared by `trial`, `tx` and plans.

use clap::Args;
use wb_model::Stream;
use wb_options::{Opt, Typed, options, pairs};

use super::ids;

options! {
    /// Sizes and times of frames.
    Pace: Stream = Stream::default(), "Frames", [
        Opt::new("size", "SIZE"),
        Opt::new("rate", "RATE").help(
            "Rate of all workers together: 100kpps or 100k, 1.2mpps, 10gbps (layer 1), 9gbps-l2, 37%, max (default max)",
        ),
        Opt::new("burst", "N").with(|arg| arg.requires("gap")),
        Opt::new("gap", "TIME").with(|arg| arg.requires("burst")),
    ]
}

options! {
    /// Headers and payload of frames, independent of size and rate.
    Frames: Stream = Stream::default(), "Frames", [
        Opt::new("flows", "N"),
        Opt::new("proto", "PROTO"),
        Opt::flag("ipv6").with(|arg| arg.short('6')),
        Opt::new("src", "ADDR"),
        Opt::new("dst", "ADDR"),
        Opt::new("sport", "PORTS"),
        Opt::new("dport", "PORTS"),
        Opt::new("src-mac", "MAC"),
        Opt::new("dst-mac", "MAC"),
        Opt::new("vlan", "ID").list(),
        Opt::new("mpls", "LABEL").list(),
        Opt::new("ext", "EXTENSION").list(),
        Opt::new("tos", "NUMBER"),
        Opt::new("ttl", "NUMBER"),
        Opt::new("tcp-flags", "NUMBER"),
        Opt::new("ethertype", "NUMBER"),
        Opt::new("payload", "HEX"),
        Opt::new("vary", "MODIFIER"),
        Opt::new("tag", "TAG"),
    ]
}

options! {
    /// Recorded frames, which are sent unmodified.
    Recording: Stream = Stream::default(), "Frames", [
        // The ids in place of the group, so that an error names only the options that were given.
        Opt::new("replay", "FILE").with(|arg| arg.conflicts_with("size").conflicts_with_all(ids::<Typed<Frames>>())),
        Opt::new("speed", "X").with(|arg| arg.requires("replay").conflicts_with("rate")),
    ]
}

/// Frames to send.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Frames")]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    pace: Typed<Pace>,
    #[command(flatten)]
    frames: Typed<Frames>,
    #[command(flatten)]
    recording: Typed<Recording>,
    /// Add a stream, "size=1518 rate=10kpps vlan=7 …" (keys as in plan files); repeatable. The options above then set
    /// the values that the streams do not give.
    #[arg(long = "stream", value_name = "KEYS")]
    streams: Vec<String>,
}

impl StreamArgs {
    /// Returns the streams that the options describe.
    pub(crate) fn streams(&self) -> anyhow::Result<Vec<Stream>> {
        let common = self.recording.over(&self.frames.over(&self.pace.value()));
        if self.streams.is_empty() {
            return Ok(vec![common]);
        }
        let own = self.streams.iter().map(|text| {
            pairs::<Frames>(&common, text).map_err(|e| anyhow::anyhow!("--stream {text:?}: {e}"))
        });
        own.collect()
    }
}
