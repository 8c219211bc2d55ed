//! Command lines of the recordings.

use wb_model::socket::SocketJob;
use wb_netperf::{NetperfRefusal, OutputOptions, netperf};

/// Parses a command line, with the original's output.
pub(crate) fn read(line: &str) -> Result<(OutputOptions, SocketJob), NetperfRefusal> {
    let mut command = netperf(&words(line)[1..])?;
    command.be_strict();
    Ok((command.show.clone(), command.job().clone()))
}

/// Splits words like a shell, as far as the recordings need it.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("there is one").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
