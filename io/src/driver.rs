//! The contract that every driver keeps.
//!
//! A loop owns a [`Queue`] and calls [`Driver::turn`] repeatedly. A turn
//!
//! 1. takes every operation from the queue and starts it, in order;
//! 2. waits until something completes, a wake arrives or `until` has passed; the wait may be shorter, and there is none
//!    if work is left over;
//! 3. calls the sink once for each completion. The sink may push operations. They start in the next turn at the latest;
//!    a driver may start them before it reports the next completion.
//!
//! **Buffers.** Received bytes belong to the driver and are valid only during the sink's call. Bytes to send are a
//! range of [`Queue::output`], or shared and immutable ([`Op::SendBytes`](crate::Op::SendBytes)), so no other code can
//! change memory in flight. A file's bytes ([`Op::SendFile`](crate::Op::SendFile)) are read when they are sent. The
//! driver clears `output` once no operation refers to it. Before that, it copies the bytes that a socket has not taken.
//!
//! **Sending.** The bytes of one socket leave in the order in which the loop queued them. The driver handles a short
//! send: it keeps the rest, reports [`Blocked`](crate::Completion::Blocked) once,
//! [`Progress`](crate::Completion::Progress) while the rest shrinks, and [`Drained`](crate::Completion::Drained) when
//! it is sent. After `SendBytes` or `SendFile`, a socket counts as blocked without a `Blocked` report; `Drained` or
//! `Failed` follows, unless the loop closes the socket first. The loop must not keep sending on a blocked socket,
//! because the driver's memory would grow.
//!
//! The driver sends as much of a file as the socket takes, but only a limited amount per turn. If a file ends before
//! the part to send does, the driver sends the bytes that exist, drops everything queued behind the part, and reports
//! `Failed`; it resets a socket that the loop has already closed. The file's bytes should be in memory; if they are
//! not, the driver's thread waits for the disk.
//!
//! **Receiving** starts automatically when a connection is accepted, adopted or connected, and continues until the loop
//! pauses it or the driver reports `Ended` or `Failed`. The driver reports `Ended` and `Failed` at most once per socket
//! each, `Failed` possibly after `Ended`. It reports no bytes after either. If a send finds that the peer has reset the
//! connection, a real driver first receives what arrived before, unless receiving is paused, and then reports `Failed`: a
//! server may answer an upload that it does not read to the end. It receives at most 64 KiB (io_uring) or 256 KiB.
//!
//! A loop that does not receive can still ask for the peer's end, with [`Op::WatchEnd`](crate::Op::WatchEnd). A peer that has
//! closed its socket while its window is closed may have no other sign: Linux answers probes of the window for it.
//!
//! With [`Op::ReceiveInto`](crate::Op::ReceiveInto), the loop lends a buffer for the next bytes of one socket, so that
//! many bytes need no copy and few calls. Bytes that the driver received before it started the operation are still
//! reported with `Received`; the loop can take the buffer back until then ([`Queue::take_back`]). From the start until
//! `ReceivedInto`, the driver reports no `Received` for the socket, and ignores operations that pause receiving. An
//! operation that resumes receiving cancels the receive: the driver drops the buffer, and reports what arrives with
//! `Received`.
//!
//! **Closing.** Once a `Close` or `Abort` has started, no completion names the socket's id. After `Close`, the driver
//! closes the descriptor when the queued bytes are sent. It resets the connection if that takes longer than
//! [`limit::LINGER`](crate::limit::LINGER). While all closed sockets together hold more than
//! [`limit::LINGER_BYTES`](crate::limit::LINGER_BYTES), a real driver resets those that the loop closed first. The loop
//! needs no deadline for closed sockets.
//!
//! **Accepting.** A connection is reported with its peer's address. If the peer resets the connection before the driver
//! can read that address, the driver drops it without a report. If accepting fails, for example for lack of descriptors
//! or memory, the driver pauses the listener and reports `AcceptFailed`. An error of a single incoming connection only
//! ends that connection, without a report.
//!
//! **Connecting.** [`Op::Connect`](crate::Op::Connect) contains a token that the loop chooses. Unless the loop cancels
//! the attempt, exactly one completion answers it: [`Connected`](crate::Completion::Connected) with the new socket, or
//! [`ConnectFailed`](crate::Completion::ConnectFailed). Once [`Op::CancelConnect`](crate::Op::CancelConnect) is queued,
//! no completion of the attempt is reported, even if the attempt has ended by then. The driver has no deadline for
//! attempts. Linux gives up after about two minutes by default; a loop that needs a shorter deadline cancels the
//! attempt.
//!
//! **Watching.** The loop can also wait for descriptors of others ([`Op::Watch`](crate::Op::Watch)). Each operation is
//! reported at most once, by [`Watched`](crate::Completion::Watched).
//!
//! **Failing.** After a turn has returned an error, the loop must drop the driver. The io_uring driver then returns an
//! error from every later turn, because the kernel may still read memory that the failed turn passed to it.
//!
//! **Time** stands still while a turn reports completions: [`Driver::now`] returns the time at which the round of
//! completions began.

use crate::clock;
use crate::sys::Waitable;
use crate::wake::Notifier;
use crate::{Completion, Instant, Listener, ListenerId, Queue, Socket, SocketId};
use std::io;

/// Handles completions.
pub trait Sink {
    /// Begins a round of completions. `now` is the driver's time until the next round.
    fn begin(&mut self, now: Instant);

    /// Handles one completion. May push operations to the queue.
    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue);

    /// Called just before the driver may block its thread until something completes. It is not called for a turn that does
    /// not wait. A host with a lock that other threads need, such as an interpreter's, gives it back here.
    fn before_wait(&mut self) {}

    /// Called just after the driver has blocked its thread, with every [`before_wait`](Self::before_wait).
    fn after_wait(&mut self) {}
}

/// Performs operations and reports completions. The module's documentation contains the contract.
pub trait Driver {
    /// Adds a listener and begins to accept.
    ///
    /// # Errors
    /// Returns the system's error.
    fn listen(&mut self, listener: Listener) -> io::Result<ListenerId>;

    /// Takes over a connected socket and begins to receive.
    ///
    /// # Errors
    /// Returns the system's error; [`io::ErrorKind::Unsupported`] in the simulator.
    fn adopt(&mut self, socket: Socket) -> io::Result<SocketId>;

    /// Returns a descriptor on which a foreign loop can wait. It becomes readable when a turn has something to do; the
    /// loop must call [`arm`](Self::arm) before each wait.
    ///
    /// # Errors
    /// Returns the system's error; [`io::ErrorKind::Unsupported`] in the simulator, and outside of Linux.
    fn descriptor(&mut self) -> io::Result<Waitable>;

    /// Prepares for a foreign loop's wait on the descriptor: submits the started operations to the kernel and, if
    /// `until` is given, makes the descriptor readable at that time at the latest. Does not start queued operations,
    /// which need a turn first.
    ///
    /// # Errors
    /// Returns the system's error.
    fn arm(&mut self, until: Option<Instant>) -> io::Result<()>;

    /// Removes a socket from the driver and returns it, which makes its id invalid. Returns `None` if there is no such
    /// socket, if it has bytes to send, if the peer has reset the connection, and always in the simulator.
    fn release(&mut self, socket: SocketId) -> Option<Socket>;

    /// Starts the queued operations, waits for completions and reports them, as the module's documentation describes.
    /// Waits without a limit if `until` is `None`.
    ///
    /// # Errors
    /// Returns an error only if the driver can no longer be used.
    fn turn<S: Sink>(&mut self, until: Option<Instant>, queue: &mut Queue, sink: &mut S) -> io::Result<()>;

    /// Returns the time at which the current or last round of completions began. Before the first round, returns the
    /// time at which the driver was created.
    fn now(&self) -> Instant;

    /// Returns a function that returns nanoseconds since an arbitrary moment, to measure durations within a turn. The
    /// simulator's function always returns 0, because virtual time stands still during a turn.
    fn stopwatch(&self) -> fn() -> u64 {
        clock::stopwatch
    }

    /// Returns the current time as the number of nanoseconds since 1970 (UTC), for example for the Date field.
    fn unix_nanoseconds(&self) -> u64;

    /// Returns a handle with which any thread can end the wait of a turn.
    fn notifier(&self) -> Notifier;

    /// Returns a random number. A peer cannot guess the numbers of a real driver. The simulator's numbers follow from
    /// its seed.
    fn random(&mut self) -> u64;

    /// Returns the driver's name for logs.
    fn name(&self) -> &'static str;
}
