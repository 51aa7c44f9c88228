//! The contract that every driver keeps.
//!
//! A loop owns a [`Queue`] and calls [`Driver::turn`] for ever. A turn
//!
//! 1. takes every operation from the queue and starts it, in order;
//! 2. waits until something completes, a wake comes or `until` has passed (not at all where work is left over);
//! 3. calls the sink once for each completion. The sink may push operations; they take effect at the latest in the
//!    next turn, and a driver may start them before it reports the next completion.
//!
//! **Buffers.** Received bytes belong to the driver and are valid during the sink's call. Bytes to send lie in
//! [`Queue::output`], a range an operation, or are shared ([`Op::SendBytes`](crate::Op::SendBytes)): no memory that
//! somebody else may change is ever in flight. Bytes of a file ([`Op::SendFile`](crate::Op::SendFile)) are those that it has
//! when they leave. The driver clears `output` when no operation refers to it any more; what
//! a socket did not take at once the driver copies out first.
//!
//! **Sending.** Bytes of one socket leave in the order in which they were asked for. A short send is the driver's
//! business: it keeps the rest, reports [`Blocked`](crate::Completion::Blocked) once,
//! [`Progress`](crate::Completion::Progress) while the rest shrinks and [`Drained`](crate::Completion::Drained) when it is
//! gone. `SendBytes` and `SendFile` count as blocked from the start, without saying so, and always end in `Drained` or
//! `Failed`. A loop that goes on asking while a socket is blocked makes memory grow: it must not.
//!
//! A file is sent as far as the socket takes it, a bounded piece a turn. Where it ends before its part does, nothing can
//! take the place of what is missing: all before it is sent, then the socket has failed, whatever was asked behind it; one
//! that was closed is reset. Its bytes should be in memory: a driver's thread waits for a disk where they are not.
//!
//! **Receiving** starts by itself when a connection is accepted, adopted or connected, and goes on until paused.
//! `Ended` and `Failed` come at most once a socket each, `Failed` also after `Ended`; nothing is received after them.
//!
//! **Closing.** `Close` and `Abort` take the id away at once: no completion names it afterwards, whatever was in
//! flight. The descriptor itself is closed when the bytes are out. The loop's deadline for a peer that never reads
//! them is [`limit::LINGER`](crate::limit::LINGER), the driver's own.
//!
//! **Accepting.** A connection is reported with its peer's address. One whose peer has reset it before that, so that its address
//! is not known any more, is dropped without a report. Want of descriptors or memory pauses the listener and reports `AcceptFailed`; all else that can go
//! wrong with one incoming connection is that connection's end, and unseen here.
//!
//! **Connecting.** [`Op::Connect`](crate::Op::Connect) carries a token of the loop's choice. Exactly one completion answers it,
//! [`Connected`](crate::Completion::Connected) with the new socket or [`ConnectFailed`](crate::Completion::ConnectFailed), unless
//! [`Op::CancelConnect`](crate::Op::CancelConnect) is queued first: from then on none is reported. An attempt has no deadline of the driver's: the kernel gives up after
//! about two minutes, and a loop that wants to give up earlier cancels.
//!
//! **Failing.** A turn that returns an error was the driver's last: every later one returns an error too and touches nothing, since
//! the kernel may still read what the failed turn has handed over. The driver is dropped then.
//!
//! **Time** stands still during a turn: [`Driver::now`] is when the sink's round began.

use crate::clock;
use crate::sys::Waitable;
use crate::wake::Notifier;
use crate::{Completion, Instant, Listener, ListenerId, Queue, Socket, SocketId};
use std::io;

/// Takes completions.
pub trait Sink {
    /// A round of completions begins; time stands still until the next.
    fn begin(&mut self, now: Instant);

    /// Something happened. Operations may be pushed to the queue.
    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue);
}

/// A source of completions: see the module's text for the contract.
pub trait Driver {
    /// Adds a listener and begins to accept.
    ///
    /// # Errors
    /// What the system says.
    fn listen(&mut self, listener: Listener) -> io::Result<ListenerId>;

    /// Takes over a connected socket and begins to receive.
    ///
    /// # Errors
    /// What the system says.
    fn adopt(&mut self, socket: Socket) -> io::Result<SocketId>;

    /// A descriptor that is readable whenever a turn would find something to do, for a foreign loop to wait on; see
    /// [`arm`](Self::arm).
    ///
    /// # Errors
    /// What the system says; the simulator has none.
    fn descriptor(&mut self) -> io::Result<Waitable>;

    /// Before a foreign loop waits on the descriptor: hands everything that is started to the kernel, and makes the
    /// descriptor readable at `until` at the latest. What is queued must have been given to a turn before.
    ///
    /// # Errors
    /// What the system says.
    fn arm(&mut self, until: Option<Instant>) -> io::Result<()>;

    /// Gives a socket away, with nothing in flight on it: the descriptor leaves the driver, and the id is gone. `None`
    /// where there is no such socket, or bytes wait to be sent.
    fn release(&mut self, socket: SocketId) -> Option<Socket>;

    /// Starts what is queued, waits, and reports: see the module's text. `until` of `None` waits without end.
    ///
    /// # Errors
    /// Only what makes the driver unusable.
    fn turn<S: Sink>(&mut self, until: Option<Instant>, queue: &mut Queue, sink: &mut S) -> io::Result<()>;

    /// When the sink's round began.
    fn now(&self) -> Instant;

    /// A function that tells nanoseconds from any moment on, to measure how long something takes within a turn. Where time does
    /// not pass by itself, as in the simulator, it always tells the same.
    fn stopwatch(&self) -> fn() -> u64 {
        clock::stopwatch
    }

    /// Nanoseconds since 1970, for the Date field.
    fn unix_nanoseconds(&self) -> u64;

    /// Wakes a turn from any thread.
    fn notifier(&self) -> Notifier;

    /// A number that a peer cannot guess (real drivers), or that the seed decides (the simulator).
    fn random(&mut self) -> u64;

    /// How the driver is called in logs.
    fn name(&self) -> &'static str;
}
