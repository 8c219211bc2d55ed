//! What an implementation of control files is asked, and how it answers.

use std::fmt;

/// Who wrote a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The writing thread, as this process's `/proc` numbers it; 0 where it is in another pid
    /// namespace.
    pub pid: u32,
    /// The user it writes as.
    pub uid: u32,
}

/// The files of one folder.
///
/// Called from several threads at once, of which there are only a few: a method that does not
/// return for long keeps other files from being used.
pub trait ControlFiles: Send + Sync + 'static {
    /// The names of all files there are now.
    fn names(&self) -> Vec<String>;

    /// Whether there is a file of that name now.
    fn exists(&self, name: &str) -> bool;

    /// Its permission bits: 0o600 or 0o400. The owner is whoever mounted the folder.
    fn mode(&self, name: &str) -> u32;

    /// The whole content.
    ///
    /// # Errors
    /// The error number that `read(2)` shall fail with: `ENOENT` where the file has gone.
    fn read(&self, name: &str) -> Result<Vec<u8>, i32>;

    /// Carries out one command: the bytes of one `write(2)`, at least one, as they were written.
    ///
    /// A command that takes long keeps the answer, returns, and answers later from any thread; the
    /// writer blocks until then.
    fn write(&self, name: &str, command: &[u8], writer: Writer, answer: Answer);

    /// A writer that blocks on `name` has been sent INT, TERM, HUP, QUIT or KILL, or has vanished.
    /// Told once per blocked write, by a thread of the folder's own.
    ///
    /// Whoever keeps its [`Answer`] stops what it is waiting for and then says
    /// [`taken`](Answer::taken): only then does the writer see its signal.
    fn interrupted(&self, name: &str, writer: Writer);
}

/// The answer one writer waits for. Dropped without a word it fails with `EIO`.
#[must_use = "dropping it fails the write with EIO"]
pub struct Answer {
    reply: Option<Reply>,
}

type Reply = Box<dyn FnOnce(Result<(), i32>) + Send>;

impl Answer {
    /// An answer that goes to `reply`, exactly once: `Ok` for [`taken`](Answer::taken), the error
    /// number for a refusal. For front doors that are no file system, and for tests.
    pub fn new(reply: impl FnOnce(Result<(), i32>) + Send + 'static) -> Self {
        Answer {
            reply: Some(Box::new(reply)),
        }
    }

    /// The write succeeds, with its full byte count.
    pub fn taken(self) {
        self.give(Ok(()));
    }

    /// The write fails with this error number, `libc::EINVAL` for instance.
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
