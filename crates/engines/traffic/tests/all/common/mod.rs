//! A sender at one end of a memory link in virtual time, and the frames that arrive at the other end.

use wb_port::{PortError, QueuePair, RxQueue, TxQueue, memory};
use wb_traffic::{Sender, SenderOutcome, SenderSpec, StreamSpec, VirtualClock};

/// A memory link and its clock.
pub(crate) struct Lab {
    pub(crate) clock: VirtualClock,
    pub(crate) near: memory::MemoryPort,
    pub(crate) far: memory::MemoryPort,
}

impl Lab {
    pub(crate) fn new(change: impl FnOnce(&mut memory::LinkOptions)) -> Self {
        let clock = VirtualClock::ticking(40);
        let mut options = memory::LinkOptions::new("lab", clock.stamps());
        options.mtu = 9000;
        change(&mut options);
        let (near, far) = memory::link(&options).unwrap();
        Self { clock, near, far }
    }

    pub(crate) fn sender(&mut self, spec: &SenderSpec) -> Sender {
        Sender::new(spec, self.near.queues[0].tx().frame_capacity()).unwrap()
    }

    /// Frames waiting at the far end, with their timestamps.
    pub(crate) fn arrived(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut frames = Vec::new();
        let rx = self.far.queues[0].rx();
        while rx
            .receive(64, |frame| {
                frames.push((frame.stamp_ns, frame.bytes.to_vec()))
            })
            .unwrap()
            > 0
        {}
        frames
    }

    /// Sends everything, starting now.
    pub(crate) fn send(&mut self, spec: &SenderSpec) -> (Vec<Vec<u8>>, SenderOutcome) {
        let mut sender = self.sender(spec);
        sender.start(0);
        let mut frames = Vec::new();
        loop {
            let step = sender.step(self.near.queues[0].tx(), &self.clock);
            frames.extend(self.arrived().into_iter().map(|(_, bytes)| bytes));
            match step {
                Ok(step) if step.done => break,
                Ok(_) | Err(PortError::LinkDown { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let outcome = sender.finish(self.near.queues[0].tx());
        frames.extend(self.arrived().into_iter().map(|(_, bytes)| bytes));
        (frames, outcome)
    }
}

/// A number of frames of one stream at full speed.
pub(crate) fn count(stream: wb_model::Stream, frames: u64) -> SenderSpec {
    SenderSpec {
        streams: vec![StreamSpec {
            flows: stream.flow_count(),
            stream,
            ..StreamSpec::default()
        }],
        count: Some(frames),
        ..SenderSpec::default()
    }
}
