//! Every bound of the drivers in one table.

use std::time::Duration;

/// How long a closed socket may take to send what it was asked to before it is reset. A peer that reads at all takes
/// a full socket buffer within this time on any line above 14,400 bit/s.
pub const LINGER: Duration = Duration::from_secs(30);

/// Bytes that closed sockets together may still have to send; beyond, those that have had the most time are reset. What
/// they hold is on nobody's account any more.
pub const LINGER_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of the readiness driver's one receive buffer: large enough that an upload needs few calls, small enough to
/// stay in a second-level cache with everything else.
pub const RECEIVE_BYTES: usize = 64 * 1024;

/// Receives of one socket in one turn, so that one fast peer does not keep the others waiting.
pub const RECEIVES_A_TURN: usize = 4;

/// Sends of one socket in one turn of the readiness driver, for the same reason.
pub const SENDS_A_TURN: usize = 16;

/// Descriptors for which a server makes room at its start: half a megabyte of the kernel's memory.
pub const TABLE_DESCRIPTORS: usize = 64 * 1024;

/// Connections accepted from one listener in one turn. The bound keeps a flood of new connections from delaying the existing
/// ones.
pub const ACCEPTS_A_TURN: usize = 64;

/// Readiness events taken from the system at once.
pub const EVENTS_A_TURN: usize = 1024;

/// Buffers of the io_uring driver's receive ring, and the bytes of each. 1 MiB in all stays in a second-level cache.
/// A receive that finds none waits for the next turn.
pub const RING_BUFFERS: u16 = 256;

/// Bytes of one buffer of the io_uring receive ring: nearly every request fits.
pub const RING_BUFFER_BYTES: usize = 4096;

/// Submission entries of a ring. More operations than this in one turn are submitted in parts.
pub const RING_ENTRIES: u32 = 1024;

/// Completion entries of a ring: room for each submission to complete and for multishot operations beside them. The
/// kernel keeps what does not fit, so this bounds no correctness.
pub const RING_COMPLETIONS: u32 = 8192;

/// Bytes handed to one asynchronous send, so that progress shows and a deadline can judge it.
pub const SEND_BYTES: usize = 256 * 1024;

/// Bytes of a file that are sent in one call, for the same reason; and so that other sockets have their turn. On a fast line
/// a tenth of a millisecond's work.
pub const SEND_FILE_BYTES: usize = 2 * 1024 * 1024;

/// Bytes of a part of a file from which on the kernel may hold what it has room for, beyond what it may hold unsent of all
/// else. A loop asks for so much at once where the peer is fast: a slow one would show no progress for long.
pub const UNBOUNDED_FILE_BYTES: u64 = 1024 * 1024;

/// Bytes in the output arena from which on what it holds is sent before another completion is looked at; and the capacity
/// that it keeps after a turn that needed more.
pub const OUTPUT_BYTES: usize = 1024 * 1024;

/// Threads that look up host names at the same time. A lookup waits for name servers, up to half a minute if none answers.
pub const RESOLVER_THREADS: usize = 8;

/// Names that wait for a thread to look them up; further ones are refused.
pub const RESOLVER_QUEUE: usize = 1024;

/// Callers that wait for lookups, of all names together; further ones are refused.
pub const RESOLVER_CALLERS: usize = 65_536;

/// Addresses of one name that are used; the rest of a longer list is dropped.
pub const RESOLVED_ADDRESSES: usize = 64;

/// Bytes of a host name: 253 characters (RFC 1035, section 2.3.4) and the dot of an absolute one.
pub const HOST_NAME_BYTES: usize = 254;

/// How long a thread that looks up names waits for another one before it ends.
pub const RESOLVER_IDLE: Duration = Duration::from_secs(10);
