//! The impairing device as a separate program, for tests of this crate. Otherwise the program that makes
//! a lab runs itself as the device.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, command, file] = &arguments[..] else {
        eprintln!("usage: impair_device impair-device STATE_FILE");
        return ExitCode::from(2);
    };
    if command != wb_testbed::impair::DEVICE_COMMAND {
        eprintln!(
            "{command}: only {} is known",
            wb_testbed::impair::DEVICE_COMMAND
        );
        return ExitCode::from(2);
    }
    match wb_testbed::impair::device_main(Path::new(file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
