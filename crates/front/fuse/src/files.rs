//! Interface of control files: the requests that an implementation receives, and its answers.

use std::fmt;

/// Author of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The writing thread, as numbered in `/proc` of this process; 0 if the thread is in another pid
    /// namespace.
    pub pid: u32,
    /// The user ID of the thread.
    pub uid: u32,
}

/// The files of one folder.
///
/// The methods are called from several threads at once, but there are only a few: a method that does not
/// return for long blocks other files.
pub trait ControlFiles: Send + Sync + 'static {
    /// Names of all current files.
    fn names(&self) -> Vec<String>;

    /// Returns true if a file of that name exists now.
    fn exists(&self, name: &str) -> bool;

    /// Permission bits of the file: 0o600 or 0o400. The owner is the user that mounted the folder.
    fn mode(&self, name: &str) -> u32;

    /// The whole content.
    ///
    /// # Errors
    /// The error number for `read(2)`: `ENOENT` if the file no longer exists.
    fn read(&self, name: &str) -> Result<Vec<u8>, i32>;

    /// Carries out one command: the bytes of one `write(2)`, at least one, as they were written.
    ///
    /// A command that takes long keeps the answer, returns, and answers later from any thread; the
    /// writer blocks until then.
    fn write(&self, name: &str, command: &[u8], writer: Writer, answer: Answer);

    /// Called if a writer that blocks on `name` has been sent INT, TERM, HUP, QUIT or KILL, or has vanished.
    /// There is one call per blocked write, by a dedicated thread of the folder.
    ///
    /// The holder of its [`Answer`] stops its work and then calls
    /// [`taken`](Answer::taken): only then does the writer see its signal.
    fn interrupted(&self, name: &str, writer: Writer);
}

/// The answer to a blocked write. An answer that is dropped unused makes the write fail with `EIO`.
#[must_use = "dropping it fails the write with EIO"]
pub struct Answer {
    reply: Option<Reply>,
}

type Reply = Box<dyn FnOnce(Result<(), i32>) + Send>;

impl Answer {
    /// An answer that goes to `reply`, exactly once: `Ok` for [`taken`](Answer::taken), the error
    /// number for a refusal. For front ends other than a file system, and for tests.
    pub fn new(reply: impl FnOnce(Result<(), i32>) + Send + 'static) -> Self {
        Answer {
            reply: Some(Box::new(reply)),
        }
    }

    /// Makes the write succeed, with its full byte count.
    pub fn taken(self) {
        self.give(Ok(()));
    }

    /// Makes the write fail with this error number, for instance `libc::EINVAL`.
    pub fn refused(self, errno: i32) {
        self.give(Err(errno));
    }

    fn give(mut self, answer: Result<(), i32>) {
        if let Some(reply) = self.reply.take() {
            reply(answer);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            reply(Err(libc::EIO));
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn every_answer_arrives_once() {
        let (sender, answers) = mpsc::channel();
        let answer = || {
            let sender = sender.clone();
            Answer::new(move |result| sender.send(result).unwrap())
        };
        answer().taken();
        answer().refused(libc::EBUSY);
        drop(answer());
        drop(sender);
        let all: Vec<_> = answers.iter().collect();
        assert_eq!(all, [Ok(()), Err(libc::EBUSY), Err(libc::EIO)]);
    }
}
