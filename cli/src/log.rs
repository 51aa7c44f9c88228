//! The log on standard error, written by a thread of its own.
//!
//! Standard error may be a pipe that nobody reads, or a file on a full disk. Peers can cause log lines, so a worker that wrote
//! them itself could be made to wait or to fail. Workers put lines into a queue instead. Lines that do not fit are counted and
//! left out, and write errors are ignored. (`tracing-appender` does the same, but prints to standard output when it cannot
//! end in time, and depends on `time` and more for files that rotate.)

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::MakeWriter;

/// Lines, and bytes of them, that may wait for standard error.
const WAITING_LINES: usize = 4096;
const WAITING_BYTES: usize = 1024 * 1024;

/// How long the end of the process waits for standard error to take what is left.
const PATIENCE: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// Tells when all lines before it are written.
    Flush(SyncSender<()>),
}

/// The log. Copies write to the same one.
#[derive(Clone)]
pub(crate) struct Log {
    messages: SyncSender<Message>,
    waiting: Arc<Waiting>,
}

/// What the writers and the thread count.
#[derive(Default)]
struct Waiting {
    bytes: AtomicUsize,
    left_out: AtomicU64,
}

impl Log {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The system's, if it has no thread.
    pub(crate) fn start() -> io::Result<Log> {
        let (messages, receiver) = sync_channel(WAITING_LINES);
        let waiting = Arc::new(Waiting::default());
        let counted = waiting.clone();
        std::thread::Builder::new()
            .name("highwire-log".to_string())
            .spawn(move || write_lines(&receiver, &counted, io::stderr()))?;
        Ok(Log { messages, waiting })
    }

    /// Writes a line, or leaves it out if too many wait.
    pub(crate) fn write(&self, line: &[u8]) {
        let Waiting { bytes, left_out } = &*self.waiting;
        let has_room = bytes.fetch_add(line.len(), Ordering::Relaxed) + line.len() <= WAITING_BYTES;
        if !has_room || self.messages.try_send(Message::Line(line.to_vec())).is_err() {
            bytes.fetch_sub(line.len(), Ordering::Relaxed);
            left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets panics be told here too: what the standard library does with them waits for standard error.
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
                // Nothing else waits for the line: the process ends.
                log.flush();
            }
        }));
    }

    /// Waits until all that was written so far is out, if standard error takes it in time.
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
                        let _ = writeln!(to, "{lines} lines of the log were left out: standard error was too slow");
                    }
                }
            }
            Message::Flush(done) => _ = done.send(()),
        }
    }
}

/// A line of `tracing`'s, which comes in one piece.
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
