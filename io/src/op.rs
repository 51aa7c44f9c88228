//! The interface between a loop and its driver: operations and completions.

use crate::file::File;
use crate::sys::Waitable;
use crate::{Address, limit};
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
/// There is no variant for an unknown peer: programs may trust local peers, and must not take an unknown peer for one.
/// A driver drops a connection whose peer it cannot identify.
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
        /// The index of the first byte in [`Queue::output`].
        start: u32,
        /// The index after the last byte.
        end: u32,
        /// True if another operation that sends, a `Shutdown` or a `Close` follows immediately for the same socket. The
        /// kernel may hold these bytes back until then, to send them in one packet with the following ones.
        more: bool,
    },
    /// Send shared bytes, which the driver does not copy. Unless the loop closes the socket first,
    /// [`Completion::Drained`] follows when all bytes of the socket are sent, or [`Completion::Failed`] if the
    /// connection breaks.
    SendBytes {
        /// The socket.
        socket: SocketId,
        /// The bytes to send.
        bytes: Bytes,
    },
    /// Send a part of an open file. Unless the loop closes the socket first, [`Completion::Drained`] follows when all
    /// bytes of the socket are sent, or [`Completion::Failed`] if the connection breaks, or if the file ends before the
    /// part does or cannot be read.
    SendFile {
        /// The socket.
        socket: SocketId,
        /// The file. The driver's thread waits for bytes that are not in memory.
        file: Arc<dyn File>,
        /// The offset of the part's first byte in the file.
        offset: u64,
        /// The part's length in bytes. For a part of at least
        /// [`limit::UNBOUNDED_FILE_BYTES`], the kernel may hold many unsent bytes
        /// at once, so use such parts only for fast peers.
        length: u64,
        /// True if another part of a file follows on this socket. If the driver has lifted the bound on unsent bytes
        /// for this part, it may then leave the bound lifted for the next one.
        more: bool,
    },
    /// End our sending direction (FIN) after the bytes queued so far. The peer's direction stays open.
    Shutdown {
        /// The socket.
        socket: SocketId,
    },
    /// Close after the bytes queued so far are sent. The id becomes invalid when the operation starts, and no
    /// completion names the socket afterwards.
    Close {
        /// The socket.
        socket: SocketId,
    },
    /// Close immediately and drop the unsent bytes. A TCP connection is reset, so that the peer can see that bytes are
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
    /// Report once, by [`Completion::EndArrived`], that the peer has ended its direction, even while receiving is paused and
    /// bytes before the end are not received. The driver ignores this for a socket whose end it has reported.
    WatchEnd {
        /// The socket.
        socket: SocketId,
    },
    /// Receive once into a buffer of the loop instead of the driver's own memory. When bytes have arrived,
    /// [`Completion::ReceivedInto`] gives the buffer back, and receiving is paused. Receiving need not be resumed
    /// before. The driver drops the buffer if the connection ends or fails first, if the loop closes the socket, or if it
    /// resumes receiving.
    ReceiveInto {
        /// The socket.
        socket: SocketId,
        /// The buffer, whose spare capacity gets the bytes.
        buffer: Vec<u8>,
        /// The most bytes to receive. At least one.
        room: usize,
    },
    /// Open a connection. Unless the loop cancels the attempt, [`Completion::Connected`] or
    /// [`Completion::ConnectFailed`] follows.
    Connect {
        /// A number that the loop chooses. If another attempt in progress has the same number, this attempt fails with
        /// [`io::ErrorKind::AlreadyExists`], and the other attempt continues.
        token: u64,
        /// The peer's address. An attempt with [`Address::Inherited`] fails.
        address: Address,
    },
    /// Cancel a connection attempt. Once this is queued, no completion of the attempt is reported. The driver ignores a
    /// token without an attempt in progress, because it may have already reported the attempt's completion.
    CancelConnect {
        /// The attempt's token.
        token: u64,
    },
    /// Report once, by [`Completion::Watched`], that a descriptor is ready which the driver does not own, such as one of
    /// another event loop. The loop repeats the operation to learn of the next time. A descriptor for which the system cannot
    /// wait, such as a regular file or a closed one, counts as ready. The loop must end the watch before it closes the
    /// descriptor, and must not watch a descriptor twice at a time. Unix only; elsewhere, every descriptor counts as ready.
    Watch {
        /// A number that the loop chooses. A watch in progress with the same number is replaced.
        token: u64,
        /// The descriptor.
        descriptor: Waitable,
        /// The events to wait for.
        interest: Interest,
    },
    /// End a watch. Once this is queued, the watch is not reported. The driver ignores a token without a watch in progress.
    Unwatch {
        /// The watch's token.
        token: u64,
    },
    /// Stop accepting. New connections wait in the kernel's backlog. Connections that the kernel has already accepted
    /// may still be reported.
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

/// The events of a watched descriptor. At least one of them is true in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Bytes, connections, an end or an error wait to be received.
    pub readable: bool,
    /// There is room for bytes to send, or an error waits.
    pub writable: bool,
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
    /// Accepting failed, for example for lack of descriptors or memory. The listener is paused; the loop should resume
    /// it later.
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
    /// A descriptor of [`Op::Watch`] is ready, and no longer watched.
    Watched {
        /// The watch's token.
        token: u64,
        /// The events, which are among those that the loop waits for.
        ready: Interest,
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
    /// Bytes were received into the buffer of [`Op::ReceiveInto`]. Receiving is paused now.
    ReceivedInto {
        /// The socket.
        socket: SocketId,
        /// The buffer with the received bytes at its end.
        buffer: Vec<u8>,
        /// The number of received bytes, at least 1.
        count: usize,
    },
    /// The peer has ended its sending direction, or has reset the connection, as [`Op::WatchEnd`] has asked for. Bytes that
    /// came before, and then `Ended` or `Failed`, follow once the loop receives.
    EndArrived {
        /// The socket.
        socket: SocketId,
    },
    /// The peer has ended its sending direction. This does not end our sending direction.
    Ended {
        /// The socket.
        socket: SocketId,
    },
    /// The kernel does not take all bytes now, usually because the peer does not read fast enough, so bytes wait to be
    /// sent. `Drained` follows when all are sent, unless the connection fails or the loop closes it first.
    Blocked {
        /// The socket.
        socket: SocketId,
        /// The number of bytes that the driver has copied out of the arena for this socket, for the loop's memory
        /// account.
        held: usize,
    },
    /// The kernel has taken all bytes of the socket, after `Blocked`, [`Op::SendBytes`] or [`Op::SendFile`].
    Drained {
        /// The socket.
        socket: SocketId,
    },
    /// The kernel has taken some of the waiting bytes, which usually means that the peer still reads.
    Progress {
        /// The socket.
        socket: SocketId,
    },
    /// The connection is broken, or bytes to send on it cannot be read from their file. The loop should abort or close
    /// the socket.
    Failed {
        /// The socket.
        socket: SocketId,
        /// The cause.
        error: io::Error,
    },
    /// The driver's [`Notifier`](crate::wake::Notifier) was notified, by a thread or by a signal handler.
    Woken,
}

/// Operations that wait for the next turn, and the bytes that they send.
#[derive(Debug, Default)]
pub struct Queue {
    /// The operations, in the order in which they start.
    pub ops: Vec<Op>,
    /// The arena: [`Op::Send`] names a range of it. The driver clears it once no operation refers to it.
    pub output: Vec<u8>,
    use_of_turns: Use,
}

/// The most that recent turns have used of a queue.
#[derive(Debug, Default)]
struct Use {
    turns: u32,
    ops: usize,
    output: usize,
}

/// The capacity of a new queue, which it also keeps after a burst.
const OPS: usize = 256;
const OUTPUT: usize = 64 * 1024;

/// The number of turns after which the memory of a burst is freed. A busy worker makes thousands of turns per second, so
/// it reallocates seldom; a quiet one makes some, because of its timers.
const TURNS_REMEMBERED: u32 = 32;

impl Queue {
    /// Creates an empty queue.
    pub fn new() -> Queue {
        Queue { ops: Vec::with_capacity(OPS), output: Vec::with_capacity(OUTPUT), use_of_turns: Use::default() }
    }

    /// Records how much a turn uses, before a driver takes the operations.
    #[inline]
    pub(crate) fn note_use(&mut self) {
        let last = &mut self.use_of_turns;
        last.turns += 1;
        last.ops = last.ops.max(self.ops.len());
        last.output = last.output.max(self.output.len());
    }

    /// Clears the arena after a driver has sent it. Frees the memory of a burst that recent turns have not needed.
    #[inline]
    pub(crate) fn clear_output(&mut self) {
        self.output.clear();
        if self.output.capacity() > limit::OUTPUT_BYTES {
            self.output.shrink_to(limit::OUTPUT_BYTES);
        }
        if self.use_of_turns.turns >= TURNS_REMEMBERED {
            let last = std::mem::take(&mut self.use_of_turns);
            if self.ops.capacity() > OPS.max(4 * last.ops) {
                self.ops.shrink_to(OPS.max(2 * last.ops));
            }
            if self.output.capacity() > OUTPUT.max(4 * last.output) {
                self.output.shrink_to(OUTPUT.max(2 * last.output));
            }
        }
    }

    /// Returns true if a queued operation cancels the connection attempt with this token.
    pub(crate) fn cancels(&self, attempt: u64) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::CancelConnect { token } if *token == attempt))
    }

    /// Returns true if a queued operation ends the watch with this token.
    pub(crate) fn unwatches(&self, watch: u64) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Unwatch { token } if *token == watch))
    }

    /// Takes back the buffer of a queued [`Op::ReceiveInto`] for a socket, if the driver has not started it.
    pub fn take_back(&mut self, socket: SocketId) -> Option<Vec<u8>> {
        let of_socket = |op: &Op| matches!(op, Op::ReceiveInto { socket: of, .. } if *of == socket);
        let Op::ReceiveInto { buffer, .. } = self.ops.remove(self.ops.iter().rposition(of_socket)?) else {
            return None;
        };
        Some(buffer)
    }

    /// Adds an operation.
    #[inline]
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses this many operations and bytes in a turn.
    fn turn(queue: &mut Queue, count: usize) {
        for _ in 0..count {
            queue.push(Op::PauseAccept { listener: ListenerId(0) });
            queue.output.extend_from_slice(&[0; 100]);
        }
        queue.note_use();
        queue.ops.clear();
        queue.clear_output();
    }

    #[test]
    fn the_memory_of_a_burst_is_freed_and_that_of_every_turn_is_kept() {
        let mut queue = Queue::new();
        turn(&mut queue, 8_000);
        assert!(queue.ops.capacity() >= 8_000 && queue.output.capacity() >= 800_000);
        for _ in 0..2 * TURNS_REMEMBERED {
            turn(&mut queue, 2_000);
        }
        assert!((2_000..=8_000).contains(&queue.ops.capacity()), "{}", queue.ops.capacity());
        for _ in 0..2 * TURNS_REMEMBERED {
            turn(&mut queue, 1);
        }
        assert_eq!((queue.ops.capacity(), queue.output.capacity()), (OPS, OUTPUT));
    }
}
