//! Files that the user named, read up to a bound: a device file has no end.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Largest text file that is read: plans, scripts, filters. 16 MiB.
pub const LARGEST_TEXT: u64 = 16 << 20;
/// Largest file that is sent or read as a whole. 1 GiB.
pub const LARGEST_DATA: u64 = 1 << 30;

/// Reads a text file of at most [`LARGEST_TEXT`] bytes.
///
/// # Errors
/// Returns the errors of [`std::fs::read_to_string`], and refuses larger files.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = read_file(path, LARGEST_TEXT)?;
    String::from_utf8(bytes).map_err(|_| not_text())
}

/// Reads standard input, at most [`LARGEST_TEXT`] bytes of text.
///
/// # Errors
/// Returns the errors of [`std::io::read_to_string`], and refuses larger input.
pub fn read_text_input() -> io::Result<String> {
    let bytes = read_all(io::stdin(), LARGEST_TEXT)?;
    String::from_utf8(bytes).map_err(|_| not_text())
}

/// Reads a file of at most `largest` bytes.
///
/// # Errors
/// Returns the errors of [`std::fs::read`], and refuses larger files.
pub fn read_file(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?, largest)
}

/// Reads at most `largest` bytes.
///
/// # Errors
/// Returns the errors of [`Read::read_to_end`], and refuses larger sources.
pub fn read_all(source: impl Read, largest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(largest + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > largest {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than the limit of {} MiB", largest >> 20),
        )),
        false => Ok(bytes),
    }
}

fn not_text() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "larger than the limit of 16 MiB");
        assert_eq!(read_all(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(read_all(&b"abcd"[..], 3).is_err());
    }
}
