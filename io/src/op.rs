//! The vocabulary between a loop and its driver: operations in, completions out.

use crate::Address;
use crate::file::File;
use bytes::Bytes;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// A socket of a driver. The generation tells a socket from an earlier one in the same slot, so that what is said of
/// a socket that is gone is recognised and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    /// The slot: small numbers, used again. A loop may keep its own state in a vector by this index.
    pub index: u32,
    /// Which of the sockets that the slot has held; 24 bits.
    pub generation: u32,
}

/// A listener of a driver, counted from 0 in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

/// Who is at the other end.
///
/// There is no value for a peer that is not known: a driver drops such a connection, since programs trust what is local.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process on this machine, through a unix socket.
    Local,
    /// An internet address.
    Internet(IpAddr, u16),
}

/// What a loop asks for. What it says of a socket that is gone is ignored.
#[derive(Clone, Debug)]
pub enum Op {
    /// Send a range of the queue's output.
    Send {
        /// The socket.
        socket: SocketId,
        /// First byte in [`Queue::output`].
        start: u32,
        /// One past the last.
        end: u32,
        /// An operation that sends follows at once for the same socket, at least a `Shutdown` or a `Close`: what is sent may wait for
        /// it, so that both leave in one packet.
        more: bool,
    },
    /// Send shared bytes without copying them; [`Completion::Drained`] tells when all that was asked for is sent.
    SendBytes {
        /// The socket.
        socket: SocketId,
        /// What to send.
        bytes: Bytes,
    },
    /// Send a part of an open file. [`Completion::Drained`] tells when all that was asked for is sent; a file that ends
    /// before its part does, or cannot be read, is [`Completion::Failed`].
    SendFile {
        /// The socket.
        socket: SocketId,
        /// The file. What of it is not in memory is waited for.
        file: Arc<dyn File>,
        /// Where the part begins.
        offset: u64,
        /// Its bytes. From [`limit::UNBOUNDED_FILE_BYTES`](crate::limit::UNBOUNDED_FILE_BYTES) on the kernel may hold many
        /// of them at once: for peers that are fast.
        length: u64,
        /// Another part of a file follows this one: what the kernel may hold stays as it is until then.
        more: bool,
    },
    /// After what was asked to be sent, end our direction (FIN); the peer's stays open.
    Shutdown {
        /// The socket.
        socket: SocketId,
    },
    /// After what was asked to be sent, close. Nothing more is delivered, and the id is gone at once.
    Close {
        /// The socket.
        socket: SocketId,
    },
    /// Close now and drop what was not sent; the peer sees a reset where anything was lost.
    Abort {
        /// The socket.
        socket: SocketId,
    },
    /// Stop receiving. What the kernel has already handed over may still be delivered.
    PauseRecv {
        /// The socket.
        socket: SocketId,
    },
    /// Receive again.
    ResumeRecv {
        /// The socket.
        socket: SocketId,
    },
    /// Open a connection. [`Completion::Connected`] or [`Completion::ConnectFailed`] follows.
    Connect {
        /// The loop's own number for this attempt. If another attempt in progress has it, this one fails with
        /// [`io::ErrorKind::AlreadyExists`], and the other goes on.
        token: u64,
        /// The peer's address; not [`Address::Inherited`].
        address: Address,
    },
    /// Give up a connection attempt: from the moment in which this is queued, no completion of it is reported. A token that
    /// names no attempt in progress is ignored; its completion may have been reported already.
    CancelConnect {
        /// The attempt's token.
        token: u64,
    },
    /// Stop accepting: connections wait in the kernel's backlog.
    PauseAccept {
        /// The listener.
        listener: ListenerId,
    },
    /// Accept again.
    ResumeAccept {
        /// The listener.
        listener: ListenerId,
    },
    /// Close the listener for good.
    CloseListener {
        /// The listener.
        listener: ListenerId,
    },
}

/// What happened.
#[derive(Debug)]
pub enum Completion<'a> {
    /// A connection came. It receives from now on.
    Accepted {
        /// On which listener.
        listener: ListenerId,
        /// Its socket.
        socket: SocketId,
        /// Who is at the other end.
        peer: Peer,
    },
    /// Accepting failed for want of descriptors or memory. The listener is paused: resume it when there is hope.
    AcceptFailed {
        /// On which listener.
        listener: ListenerId,
        /// Why.
        error: io::Error,
    },
    /// An attempt of [`Op::Connect`] has succeeded. The socket receives from now on.
    Connected {
        /// The attempt's token.
        token: u64,
        /// The connection's socket.
        socket: SocketId,
    },
    /// An attempt of [`Op::Connect`] has failed: the peer refuses, does not answer, or cannot be reached.
    ConnectFailed {
        /// The attempt's token.
        token: u64,
        /// Why.
        error: io::Error,
    },
    /// Bytes came, at least one; they are valid during the call only.
    Received {
        /// The socket.
        socket: SocketId,
        /// What came.
        bytes: &'a [u8],
    },
    /// The peer ended its direction. Ours is still open.
    Ended {
        /// The socket.
        socket: SocketId,
    },
    /// Bytes wait to be sent because the peer does not read them fast enough. `Drained` follows when all are sent.
    Blocked {
        /// The socket.
        socket: SocketId,
        /// Bytes of the arena that the driver copied for it, and holds: the loop accounts for them.
        held: usize,
    },
    /// All bytes that were asked to be sent are with the kernel, after `Blocked`, [`Op::SendBytes`] or
    /// [`Op::SendFile`].
    Drained {
        /// The socket.
        socket: SocketId,
    },
    /// A part of the bytes that wait was sent: the peer is slow, not dead.
    Progress {
        /// The socket.
        socket: SocketId,
    },
    /// The connection is broken, or what was to be sent on it cannot be had. Only [`Op::Abort`] makes sense now.
    Failed {
        /// The socket.
        socket: SocketId,
        /// Why.
        error: io::Error,
    },
    /// Someone called [`crate::wake::Notifier::notify`].
    Woken,
}

/// Operations that wait for the next turn, with the bytes that they send.
#[derive(Debug, Default)]
pub struct Queue {
    /// Operations, in the order in which they take effect.
    pub ops: Vec<Op>,
    /// The arena that [`Op::Send`] names ranges of. A driver clears it once nothing refers to it.
    pub output: Vec<u8>,
}

impl Queue {
    /// An empty queue.
    pub fn new() -> Queue {
        Queue { ops: Vec::with_capacity(256), output: Vec::with_capacity(64 * 1024) }
    }

    /// Returns true if a queued operation gives up the connection attempt with this token.
    pub(crate) fn cancels(&self, attempt: u64) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::CancelConnect { token } if *token == attempt))
    }

    /// Adds an operation.
    #[inline]
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }
}
