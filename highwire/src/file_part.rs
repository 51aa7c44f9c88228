//! A part of an open file as the body of a response.
//!
//! What is in the page cache is read where the worker stands, at the pace at which the peer takes it. What is not would make
//! the worker wait for a disk: the blocking pool fetches it meanwhile, and wakes whoever waits. A file that ends before its
//! part does, as one that has shrunk since, is an error: the head has said how long the body is.

use crate::server::{Asked, context};
use crate::time::{Sleep, sleep};
use bytes::Bytes;
use io::file::File;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Bytes that are read at once: enough that calls cost little beside copying, little enough that many peers may have some.
const READ_BYTES: usize = 32 * 1024;

/// How long to wait for a blocking pool that has no room. A disk takes about as long.
const POOL_PAUSE: Duration = Duration::from_millis(10);

/// The rest of a part of an open file.
pub(crate) struct FilePart {
    file: Arc<dyn File>,
    rest: Range<u64>,
    waits: Waits,
}

/// What a part waits for before it can go on.
enum Waits {
    Nothing,
    /// The blocking pool reads for it.
    Fetch(Asked<Result<Vec<u8>>>),
    /// The blocking pool had no room, or the read panicked: it is tried again, until the handler's deadline.
    Room(Sleep),
}

impl FilePart {
    pub(crate) fn new(file: Arc<dyn File>, range: Range<u64>) -> FilePart {
        FilePart { file, rest: range.start..range.end.max(range.start), waits: Waits::Nothing }
    }

    /// Bytes that are left of it.
    pub(crate) fn left(&self) -> u64 {
        self.rest.end - self.rest.start
    }

    /// Bytes that it holds, or that are read for it.
    pub(crate) fn held(&self) -> usize {
        if matches!(self.waits, Waits::Fetch(_)) { self.next_bytes() } else { 0 }
    }

    fn next_bytes(&self) -> usize {
        usize::try_from(self.left()).map_or(READ_BYTES, |left| left.min(READ_BYTES))
    }

    /// The next bytes, or `None` at the end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        loop {
            match self.fetched(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(read)) => return Poll::Ready(Some(read.and_then(|bytes| self.took(bytes)))),
                Poll::Ready(None) if self.left() == 0 => return Poll::Ready(None),
                Poll::Ready(None) => {}
            }
            let (mut buffer, offset) = (vec![0; self.next_bytes()], self.rest.start);
            match self.file.read_now(&mut buffer, offset) {
                Ok(None) => {
                    let file = self.file.clone();
                    self.waits = Waits::Fetch(context::ask(move || read(&*file, buffer, offset)));
                }
                read => {
                    let read = read.map(|count| shortened(buffer, count.unwrap_or(0)));
                    return Poll::Ready(Some(read.and_then(|bytes| self.took(bytes))));
                }
            }
        }
    }

    fn took(&mut self, bytes: Vec<u8>) -> Result<Bytes> {
        if bytes.is_empty() {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the file is shorter than what was promised of it"));
        }
        self.rest.start += bytes.len() as u64;
        Ok(bytes.into())
    }

    /// What the blocking pool has fetched; `None` where it was not asked to, or did not do it.
    fn fetched(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>>>> {
        if let Waits::Fetch(asked) = &mut self.waits {
            let Poll::Ready(fetched) = asked.poll(cx) else { return Poll::Pending };
            self.waits = Waits::Nothing;
            if fetched.is_some() {
                return Poll::Ready(fetched);
            }
            self.waits = Waits::Room(sleep(POOL_PAUSE));
        }
        if let Waits::Room(pause) = &mut self.waits {
            let Poll::Ready(()) = Pin::new(pause).poll(cx) else { return Poll::Pending };
            self.waits = Waits::Nothing;
        }
        Poll::Ready(None)
    }
}

/// Reads into a buffer what a file has there.
fn read(file: &dyn File, mut buffer: Vec<u8>, offset: u64) -> Result<Vec<u8>> {
    let count = file.read(&mut buffer, offset)?;
    Ok(shortened(buffer, count))
}

fn shortened(mut buffer: Vec<u8>, length: usize) -> Vec<u8> {
    buffer.truncate(length);
    buffer
}
