//! Arbitrary bytes on a control connection of socket tests: no panics, and a valid request reads
//! the same after it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_netperf_wire::{
    Calibration, ClassicKind, ClassicResponse, ClassicResults, Framer, Generation, OmniResponse,
    OmniResults, Request, ResultsLayout, SystemText,
};

// The first byte selects the generation and the size of the pieces.
fuzz_target!(|bytes: &[u8]| {
    let Some((&how, stream)) = bytes.split_first() else {
        return;
    };
    let generation = if how & 1 == 0 { Generation::Words164 } else { Generation::Words64 };
    let mut framer = Framer::new(generation);
    for piece in stream.chunks(usize::from(how) + 1) {
        framer.push(piece);
        if framer.may_be_old() && how & 2 != 0 {
            framer.switch(Generation::Words64);
        }
        while let Some(message) = framer.next_message() {
            look_at(&message, framer.generation());
        }
        assert!(framer.waiting() < framer.generation().len());
    }
});

fn look_at(message: &[u8], generation: Generation) {
    if let Ok(request) = Request::parse(message) {
        let again = Request::parse(&request.encode(generation)).expect("sound before");
        // Compared as text, because NaN differs from itself.
        assert_eq!(format!("{again:?}"), format!("{request:?}"));
    }
    for cpu_asked in [false, true] {
        let layout = ResultsLayout::guess(message, cpu_asked);
        if let Ok(results) = OmniResults::parse(message, layout, cpu_asked) {
            let again = OmniResults::parse(&results.encode(layout), layout, cpu_asked);
            assert_eq!(format!("{:?}", again.expect("sound before")), format!("{results:?}"));
            if let Some(datagrams) = results.extension.and_then(|extension| extension.datagrams) {
                let _ = datagrams.missing();
            }
        }
        for kind in ClassicKind::ALL {
            let _ = ClassicResults::parse(message, kind, cpu_asked);
        }
    }
    for kind in ClassicKind::ALL {
        let _ = ClassicResponse::parse(message, kind);
    }
    if let Ok(response) = OmniResponse::parse(message) {
        let again = OmniResponse::parse(&response.encode(generation)).expect("sound before");
        assert_eq!(format!("{again:?}"), format!("{response:?}"));
    }
    let _ = Calibration::parse(message);
    let _ = SystemText::parse(message).map(|text| text.texts().count());
}
