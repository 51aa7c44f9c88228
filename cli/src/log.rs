//! The log on standard error, written by a separate thread.
//!
//! Standard error may be a pipe whose reader has stopped, or a file on a full disk. If workers wrote to it, peers that
//! cause log lines could make a worker block or fail. Workers put lines into a queue instead. Lines that do not fit are
//! dropped and counted, and write errors are ignored. (`tracing-appender` does the same, but prints to standard output
//! when it cannot end in time, and depends on `time` and other crates for rotating files.)

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::MakeWriter;

/// The largest number of messages that wait for the log thread. Most messages are lines.
const WAITING_LINES: usize = 4096;
/// The largest total size of the waiting lines.
const WAITING_BYTES: usize = 1024 * 1024;

/// The longest time that [`Log::flush`] waits for standard error, for example when the process ends.
const PATIENCE: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// Sends a reply once all earlier lines are written.
    Flush(SyncSender<()>),
}

/// A handle of the log. Clones write to the same log.
#[derive(Clone)]
pub(crate) struct Log {
    messages: SyncSender<Message>,
    waiting: Arc<Waiting>,
}

/// Counters that the writers share with the log thread.
#[derive(Default)]
struct Waiting {
    bytes: AtomicUsize,
    left_out: AtomicU64,
}

impl Log {
    /// Starts the log thread.
    ///
    /// # Errors
    /// Returns an error if the system cannot start a thread.
    pub(crate) fn start() -> io::Result<Log> {
        let (messages, receiver) = sync_channel(WAITING_LINES);
        let waiting = Arc::new(Waiting::default());
        let counted = waiting.clone();
        std::thread::Builder::new()
            .name("highwire-log".to_string())
            .spawn(move || write_lines(&receiver, &counted, io::stderr()))?;
        Ok(Log { messages, waiting })
    }

    /// Queues a line, or drops it and counts it if the queue is full.
    pub(crate) fn write(&self, line: &[u8]) {
        let Waiting { bytes, left_out } = &*self.waiting;
        let has_room = bytes.fetch_add(line.len(), Ordering::Relaxed) + line.len() <= WAITING_BYTES;
        if !has_room || self.messages.try_send(Message::Line(line.to_vec())).is_err() {
            bytes.fetch_sub(line.len(), Ordering::Relaxed);
            left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes panics write to this log, because the standard library's panic hook may block on standard error.
    pub(crate) fn take_panics(&self) {
        let log = self.clone();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let mut text = format!("thread '{}' {panic}\n", thread.name().unwrap_or("?"));
            let trace = std::backtrace::Backtrace::capture();
            if trace.status() == std::backtrace::BacktraceStatus::Captured {
                let _ = write!(text, "{trace}");
            }
            log.write(text.as_bytes());
            if thread.name() == Some("main") {
                // A panic of the main thread ends the process, so the line must be written now.
                log.flush();
            }
        }));
    }

    /// Waits until all lines queued so far are written, but no longer than [`PATIENCE`].
    pub(crate) fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        let end = Instant::now() + PATIENCE;
        let mut message = Message::Flush(done);
        while let Err(error) = self.messages.try_send(message) {
            if Instant::now() > end {
                return;
            }
            message = match error {
                std::sync::mpsc::TrySendError::Full(message) => message,
                std::sync::mpsc::TrySendError::Disconnected(_) => return,
            };
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = is_done.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

fn write_lines(messages: &Receiver<Message>, waiting: &Waiting, mut to: impl Write) {
    for message in messages {
        match message {
            Message::Line(line) => {
                waiting.bytes.fetch_sub(line.len(), Ordering::Relaxed);
                if to.write_all(&line).is_ok() {
                    let lines = waiting.left_out.swap(0, Ordering::Relaxed);
                    if lines > 0 {
                        let _ = writeln!(to, "{lines} log lines were dropped because standard error was too slow");
                    }
                }
            }
            Message::Flush(done) => _ = done.send(()),
        }
    }
}

/// `tracing-subscriber` passes each line in one call of `write`.
impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Log::write(self, bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;
    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}
