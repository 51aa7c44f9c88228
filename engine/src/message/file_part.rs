//! A range of an open file as the body of a response.
//!
//! The worker itself reads or sends bytes that are in the page cache, at the pace of the peer. The blocking pool reads
//! other bytes, because they would make the worker wait for a disk, and then wakes the response's task. If the file has
//! shrunk and ends before the range does, the body fails, because the head has announced the length.

use crate::runtime::context;
use crate::runtime::promise::Asked;
use crate::runtime::time::{Sleep, sleep};
use bytes::Bytes;
use highwire_io::Instant;
use highwire_io::file::File;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The most bytes of one read. They are enough that the call costs little compared with the copy, and few enough to be
/// held for many peers at the same time.
const READ_BYTES: usize = 32 * 1024;

/// The least length in bytes of a range that is sent without being read into memory, if the connection can do that.
const SEND_FROM_BYTES: u64 = 32 * 1024;

/// The usual length of a step in bytes. The last step may have up to [`SEND_FROM_BYTES`] more. A step is sent without
/// being read, and the next one begins when the driver has reported that it is sent.
const STEP_BYTES: u64 = 512 * 1024;

/// The same length for a peer that has taken the previous step within [`FAST`], so that its steps need fewer calls.
const FAST_STEP_BYTES: u64 = 2 * 1024 * 1024;

/// The longest time in which a fast peer takes a step. For a step of [`STEP_BYTES`], the peer's rate is at least 2.5
/// MB/s.
const FAST: Duration = Duration::from_millis(200);

const _: () = assert!(
    STEP_BYTES + SEND_FROM_BYTES <= highwire_io::limit::UNBOUNDED_FILE_BYTES
        && FAST_STEP_BYTES >= highwire_io::limit::UNBOUNDED_FILE_BYTES
);

/// The most bytes of one read if the pool only brings a range into memory.
const TOUCH_BYTES: usize = 64 * 1024;

/// The pause before a full blocking pool is tried again. A read from a disk takes about as long.
const POOL_PAUSE: Duration = Duration::from_millis(10);

/// A response body that sends a range of an open file. It keeps track of the bytes that have not been taken yet.
pub struct FilePart {
    file: Arc<dyn File>,
    rest: Range<u64>,
    waits: Waits,
    /// The moment at which the last step was taken.
    last_step: Option<Instant>,
    /// True if the first step, which has not been taken yet, was in memory a moment ago.
    begins_warm: bool,
}

/// A range of a file that was in memory when it was last checked.
#[derive(Debug)]
pub struct Step {
    /// The file.
    pub(crate) file: Arc<dyn File>,
    /// The range of its bytes.
    pub(crate) range: Range<u64>,
    /// True if another step follows.
    pub more: bool,
}

/// The event that a range waits for.
enum Waits {
    Nothing,
    /// A read of the blocking pool.
    Fetch(Asked<Result<Vec<u8>>>),
    /// A pause, because the blocking pool was full or its read panicked. The read is then tried again, at most until
    /// the handler's deadline.
    Room(Sleep),
}

impl FilePart {
    /// Creates the body of a range. A range that ends before it starts is empty.
    pub fn new(file: Arc<dyn File>, range: Range<u64>) -> FilePart {
        FilePart {
            file,
            rest: range.start..range.end.max(range.start),
            waits: Waits::Nothing,
            last_step: None,
            begins_warm: false,
        }
    }

    /// Records that the first step was [in memory](begins_warm) a moment ago, so that it is not checked again.
    pub fn assume_warm(&mut self) {
        self.begins_warm = true;
    }

    /// Returns the number of bytes that are left.
    pub fn left(&self) -> u64 {
        self.rest.end - self.rest.start
    }

    /// Returns true if the rest is large enough to be sent without being read into memory.
    pub fn is_large(&self) -> bool {
        self.left() >= SEND_FROM_BYTES
    }

    /// Takes all bytes that are left, if they are one step that was in memory a moment ago.
    pub(crate) fn take_whole(&mut self) -> Option<Step> {
        let is_whole = self.begins_warm && self.is_large() && step_length(self.left(), STEP_BYTES) == self.left();
        is_whole.then(|| {
            let range = self.rest.clone();
            self.rest.start = range.end;
            Step { file: self.file.clone(), range, more: false }
        })
    }

    /// Polls for the next step of a range that is [large](Self::is_large). The step is ready when it seems to be in
    /// memory, so that sending it hardly ever waits for the disk.
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step>> {
        let left = self.left();
        let most = if self.last_step.is_some_and(|at| context::now().since(at) <= FAST) {
            FAST_STEP_BYTES
        } else {
            STEP_BYTES
        };
        let range = self.rest.start..self.rest.start + step_length(left, most);
        loop {
            let warm = match self.fetched(cx) {
                Poll::Pending => return Poll::Pending,
                // The range may have left the page cache again. Sending it then waits for the disk.
                Poll::Ready(Some(fetched)) => fetched.map(|_| true),
                Poll::Ready(None) if std::mem::take(&mut self.begins_warm) => Ok(true),
                Poll::Ready(None) => is_warm(&*self.file, &range),
            };
            match warm {
                Ok(true) => {
                    self.rest.start = range.end;
                    self.last_step = Some(context::now());
                    return Poll::Ready(Ok(Step { file: self.file.clone(), range, more: self.left() > 0 }));
                }
                Ok(false) => {
                    let (file, range) = (self.file.clone(), range.clone());
                    self.waits = Waits::Fetch(context::ask(move || touch(&*file, range)));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Returns the number of bytes to charge while the blocking pool reads for this body, otherwise 0. The body itself
    /// holds no bytes.
    pub(crate) fn held(&self) -> usize {
        if matches!(self.waits, Waits::Fetch(_)) { self.next_bytes() } else { 0 }
    }

    fn next_bytes(&self) -> usize {
        usize::try_from(self.left()).map_or(READ_BYTES, |left| left.min(READ_BYTES))
    }

    /// Polls for the next bytes. Returns `None` at the end.
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
            return Err(ended_early());
        }
        self.rest.start += bytes.len() as u64;
        Ok(bytes.into())
    }

    /// Polls for the bytes that the blocking pool reads. Returns `None` if the pool is not reading, or if it has failed
    /// and the pause is over.
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

/// Returns the length of the next step if `left` bytes are left and a step usually has `most` bytes.
fn step_length(left: u64, most: u64) -> u64 {
    // This step includes a small rest, which would be too short for a step of its own.
    if left < most + SEND_FROM_BYTES { left } else { most }
}

/// Returns true if the first step of a whole file seems to be in memory. Returns false if reading the file fails. The
/// file must not be empty.
pub fn begins_warm(file: &dyn File) -> bool {
    is_warm(file, &(0..step_length(file.metadata().length, STEP_BYTES))).is_ok_and(|warm| warm)
}

/// Returns true if the first and the last byte of a range are in memory. The range must not be empty. Read-ahead and
/// eviction hardly ever leave a hole between them.
fn is_warm(file: &dyn File, range: &Range<u64>) -> Result<bool> {
    for at in [range.start, range.end - 1] {
        match file.read_now(&mut [0], at)? {
            None => return Ok(false),
            Some(0) => return Err(ended_early()),
            Some(_) => {}
        }
    }
    Ok(true)
}

fn ended_early() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the file is shorter than the announced length of the body")
}

/// Brings a range into memory by reading it. Returns an empty vector.
fn touch(file: &dyn File, mut range: Range<u64>) -> Result<Vec<u8>> {
    let mut buffer = vec![0; TOUCH_BYTES];
    while range.start < range.end {
        let most = usize::try_from(range.end - range.start).map_or(TOUCH_BYTES, |rest| rest.min(TOUCH_BYTES));
        match file.read(&mut buffer[..most], range.start)? {
            0 => return Err(ended_early()),
            count => range.start += count as u64,
        }
    }
    Ok(Vec::new())
}

/// Reads from a file into a buffer. Returns the buffer, shortened to the bytes read.
fn read(file: &dyn File, mut buffer: Vec<u8>, offset: u64) -> Result<Vec<u8>> {
    let count = file.read(&mut buffer, offset)?;
    Ok(shortened(buffer, count))
}

fn shortened(mut buffer: Vec<u8>, length: usize) -> Vec<u8> {
    buffer.truncate(length);
    buffer
}
