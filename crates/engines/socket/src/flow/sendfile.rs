//! Source of sendfile(2): the given file, or a file in memory.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::BorrowedFd,
};

use rustix::fs::{MemfdFlags, memfd_create, sendfile};

use super::buffers::{BufferPlan, BufferRing, open_filling};

/// A file that is sent repeatedly.
#[derive(Debug)]
pub(super) struct FileSource {
    file: File,
    length: u64,
    at: u64,
    size: usize,
}

impl FileSource {
    /// Uses a regular file as it is. Otherwise fills a file in memory like the buffers, with the length of all of them
    /// together.
    pub(super) fn new(plan: &BufferPlan) -> io::Result<Self> {
        let given = match &plan.fill {
            Some(path) => {
                let file = open_filling(path)?;
                let kind = file.metadata()?;
                kind.is_file().then_some((file, kind.len()))
            }
            None => None,
        };
        let (file, length) = match given {
            Some((_, 0)) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file to send from is empty",
                ));
            }
            Some(given) => given,
            None => in_memory(plan)?,
        };
        Ok(Self {
            file,
            length,
            at: 0,
            size: plan.size as usize,
        })
    }

    /// Sends at most one buffer, at most `most` bytes and at most to the end of the file; then starts over.
    #[inline]
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, most: u64) -> rustix::io::Result<usize> {
        if self.at >= self.length {
            self.at = 0;
        }
        let bytes = (self.size as u64).min(most).min(self.length - self.at);
        sendfile(fd, &self.file, Some(&mut self.at), bytes as usize)
    }
}

fn in_memory(plan: &BufferPlan) -> io::Result<(File, u64)> {
    let ring = BufferRing::new(plan)?;
    let mut file = File::from(memfd_create("wirebench", MemfdFlags::CLOEXEC)?);
    for n in 0..ring.width() {
        file.write_all(ring.at(n))?;
    }
    Ok((file, (ring.width() * ring.size()) as u64))
}
