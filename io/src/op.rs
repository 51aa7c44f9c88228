//! The interface between a loop and its driver: operations and completions.

use crate::Address;
use crate::file::File;
use bytes::Bytes;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The id of a driver's socket. The generation distinguishes the socket from earlier ones in the same slot, so the
/// driver can ignore operations on a socket that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    /// The slot. Slots are small numbers and are used again; a loop may use them as indices of its own vector.
    pub index: u32,
    /// The generation of the slot, 24 bits.
    pub generation: u32,
}

/// The id of a driver's listener: its number, from 0 in the order in which the listeners were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

/// The other end of a connection.
///
/// There is no value for an unknown peer, because programs may trust local peers. A driver drops a connection whose
/// peer it cannot identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process on this machine, connected through a unix socket.
    Local,
    /// An internet address and a port.
    Internet(IpAddr, u16),
}

/// Formats as `192.0.2.1:80`, `[2001:db8::1]:80` or `unix`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Local => f.write_str("unix"),
            Peer::Internet(ip, port) => SocketAddr::new(*ip, *port).fmt(f),
        }
    }
}

/// An operation that a loop requests. The driver ignores operations on a socket that is gone.
#[derive(Clone, Debug)]
pub enum Op {
    /// Send a range of the queue's output.
    Send {
        /// The socket.
        socket: SocketId,
        /// The first byte in [`Queue::output`].
        start: u32,
        /// One past the last byte.
        end: u32,
        /// True if another operation that sends, a `Shutdown` or a `Close` follows immediately for the same socket. The
        /// kernel may hold the bytes back until then, so that both leave in one packet.
        more: bool,
    },
    /// Send shared bytes without copying them. [`Completion::Drained`] follows when all bytes of the socket are sent.
    SendBytes {
        /// The socket.
        socket: SocketId,
        /// The bytes to send.
        bytes: Bytes,
    },
    /// Send a part of an open file. [`Completion::Drained`] follows when all bytes of the socket are sent, or
    /// [`Completion::Failed`] if the file ends before the part does or cannot be read.
    SendFile {
        /// The socket.
        socket: SocketId,
        /// The file. The driver's thread waits for bytes that are not in memory.
        file: Arc<dyn File>,
        /// The part's first byte in the file.
        offset: u64,
        /// The part's length in bytes. For a part of at least
        /// [`limit::UNBOUNDED_FILE_BYTES`](crate::limit::UNBOUNDED_FILE_BYTES), the kernel may hold many unsent bytes
        /// at once, so use such parts only for fast peers.
        length: u64,
        /// True if another part of a file follows on this socket. A bound on unsent bytes that was lifted for this part
        /// then stays lifted for the next one.
        more: bool,
    },
    /// End our direction (FIN) after the bytes queued so far. The peer's direction stays open.
    Shutdown {
        /// The socket.
        socket: SocketId,
    },
    /// Close after the bytes queued so far. The id becomes invalid immediately, and no completion follows.
    Close {
        /// The socket.
        socket: SocketId,
    },
    /// Close immediately and drop the unsent bytes. A TCP connection is reset, so that the peer sees that bytes are
    /// missing.
    Abort {
        /// The socket.
        socket: SocketId,
    },
    /// Stop receiving. Bytes that the kernel has already passed to the driver may still be reported.
    PauseRecv {
        /// The socket.
        socket: SocketId,
    },
    /// Resume receiving.
    ResumeRecv {
        /// The socket.
        socket: SocketId,
    },
    /// Open a connection. [`Completion::Connected`] or [`Completion::ConnectFailed`] follows.
    Connect {
        /// A number that the loop chooses. If another attempt in progress has it, this attempt fails with
        /// [`io::ErrorKind::AlreadyExists`], and the other continues.
        token: u64,
        /// The peer's address. With [`Address::Inherited`] the attempt fails.
        address: Address,
    },
    /// Cancel a connection attempt. Once this is queued, no completion of the attempt is reported. The driver ignores a
    /// token without an attempt in progress, because it may have reported the completion already.
    CancelConnect {
        /// The attempt's token.
        token: u64,
    },
    /// Stop accepting. New connections wait in the kernel's backlog.
    PauseAccept {
        /// The listener.
        listener: ListenerId,
    },
    /// Resume accepting.
    ResumeAccept {
        /// The listener.
        listener: ListenerId,
    },
    /// Close the listener permanently.
    CloseListener {
        /// The listener.
        listener: ListenerId,
    },
}

/// An event that the driver reports to the loop.
#[derive(Debug)]
pub enum Completion<'a> {
    /// A connection was accepted. The driver has begun to receive from it.
    Accepted {
        /// The listener.
        listener: ListenerId,
        /// The connection's socket.
        socket: SocketId,
        /// The other end.
        peer: Peer,
    },
    /// Accepting failed because descriptors or memory are lacking. The listener is paused; the loop should resume it
    /// later.
    AcceptFailed {
        /// The listener.
        listener: ListenerId,
        /// The cause.
        error: io::Error,
    },
    /// An attempt of [`Op::Connect`] has succeeded. The driver has begun to receive from the socket.
    Connected {
        /// The attempt's token.
        token: u64,
        /// The connection's socket.
        socket: SocketId,
    },
    /// An attempt of [`Op::Connect`] has failed, for example because the peer refuses, does not answer or is
    /// unreachable.
    ConnectFailed {
        /// The attempt's token.
        token: u64,
        /// The cause.
        error: io::Error,
    },
    /// At least one byte was received.
    Received {
        /// The socket.
        socket: SocketId,
        /// The received bytes, valid only during the call.
        bytes: &'a [u8],
    },
    /// The peer has ended its direction. Ours is still open.
    Ended {
        /// The socket.
        socket: SocketId,
    },
    /// The peer does not read fast enough, so bytes wait to be sent. `Drained` follows when all are sent.
    Blocked {
        /// The socket.
        socket: SocketId,
        /// Bytes that the driver has copied out of the arena for this socket, for the loop's memory account.
        held: usize,
    },
    /// The kernel has taken all bytes of the socket, after `Blocked`, [`Op::SendBytes`] or [`Op::SendFile`].
    Drained {
        /// The socket.
        socket: SocketId,
    },
    /// The kernel has taken some of the waiting bytes: the peer is slow, not dead.
    Progress {
        /// The socket.
        socket: SocketId,
    },
    /// The connection is broken, or bytes to send on it cannot be read. The loop should abort or close the socket.
    Failed {
        /// The socket.
        socket: SocketId,
        /// The cause.
        error: io::Error,
    },
    /// A thread has called [`crate::wake::Notifier::notify`].
    Woken,
}

/// Operations that wait for the next turn, and the bytes that they send.
#[derive(Debug, Default)]
pub struct Queue {
    /// The operations, in the order in which they start.
    pub ops: Vec<Op>,
    /// The arena: [`Op::Send`] names a range of it. The driver clears it once no operation refers to it.
    pub output: Vec<u8>,
}

impl Queue {
    /// Creates an empty queue.
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
