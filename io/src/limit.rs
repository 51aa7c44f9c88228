//! Limits of the drivers, of the descriptor table and of host name lookups.

use std::time::Duration;

/// The longest time for which a closed socket may still send. If bytes are left after it, the driver resets the
/// connection. Even over a line of 14,400 bit/s, a peer that reads receives about 50 KB in this time.
pub const LINGER: Duration = Duration::from_secs(30);

/// The most bytes in memory that all closed sockets of a driver together may still have to send. Above it, the sockets
/// that the loop closed first are reset. No memory budget counts these bytes.
pub const LINGER_BYTES: usize = 4 * 1024 * 1024;

/// The size in bytes of the readiness driver's only receive buffer. It is large enough that an upload needs few calls,
/// and small enough to stay in a second-level cache beside other data.
pub const RECEIVE_BYTES: usize = 64 * 1024;

/// The most receives from one socket before the readiness driver continues with the next one, so that a fast peer does
/// not delay the others.
pub const RECEIVES_A_TURN: usize = 4;

/// The most sends of one socket's waiting bytes before the readiness driver continues with the next socket, so that a
/// fast peer does not delay the others.
pub const SENDS_A_TURN: usize = 16;

/// The most descriptors for which the process's table is enlarged in advance. Their entries take half a megabyte of
/// kernel memory.
pub const TABLE_DESCRIPTORS: usize = 64 * 1024;

/// The most connections that the readiness driver accepts from one listener before it continues with other sockets, so
/// that a flood of new connections does not delay the existing ones.
pub const ACCEPTS_A_TURN: usize = 64;

/// The most connections that the io_uring driver accepts in a turn from a listener from which other workers or processes accept,
/// too. It begins with one, so that an idle one gets the next.
pub const SHARED_ACCEPTS_A_TURN: usize = 16;

/// The longest time for which the io_uring driver lets operations wait while handlers run. A turn with many completions would
/// otherwise send the first response after the last handler.
pub const MOST_DELAY: Duration = Duration::from_millis(1);

/// The most readiness events that one system call returns.
pub const EVENTS_A_TURN: usize = 1024;

/// The most buffers in the io_uring driver's receive ring. All of them take 1 MiB, which can stay in a second-level
/// cache. If no buffer is free, a receive waits until the next turn.
pub const RING_BUFFERS: u16 = 256;

/// The number of buffers with which a receive ring begins. The kernel uses the buffers in turn, so each of them soon
/// takes physical memory. If no buffer is free, the driver doubles the number.
pub const RING_BUFFERS_AT_FIRST: u16 = 32;

/// The size in bytes of one buffer of the io_uring driver's receive ring. Nearly every request without a body fits into
/// one.
pub const RING_BUFFER_BYTES: usize = 4096;

/// The number of submission entries of a ring. If a turn needs more, they are submitted in parts.
pub const RING_ENTRIES: u32 = 1024;

/// The number of completion entries of a ring. It leaves room for one completion per submission entry and for those of
/// multishot operations. The kernel keeps completions that do not fit, so none is lost.
pub const RING_COMPLETIONS: u32 = 8192;

/// The most waiting bytes that one call sends, so that the driver reports progress often enough for a write deadline.
pub const SEND_BYTES: usize = 256 * 1024;

/// The most bytes of a file that one call sends, so that the driver can report progress and serve other sockets in
/// between. On a fast line, such a call takes about 0.1 ms.
pub const SEND_FILE_BYTES: usize = 2 * 1024 * 1024;

/// The least length of a file range to which [`Options::unsent_bytes`](crate::Options::unsent_bytes) does not apply.
/// The kernel may hold as many bytes of such a range as it has room for. A loop should send such ranges only to fast
/// peers, because a slow peer would show no progress for a long time.
pub const UNBOUNDED_FILE_BYTES: u64 = 1024 * 1024;

/// The size in bytes at which the io_uring driver sends the output arena before it reports the next completion. It is
/// also the most capacity that the arena of a real driver keeps after it was sent.
pub const OUTPUT_BYTES: usize = 1024 * 1024;

/// The most threads that look up host names at the same time. A lookup may wait for name servers, typically up to half
/// a minute if none answers.
pub const RESOLVER_THREADS: usize = 8;

/// The most names that wait for a resolver thread. Further names are refused.
pub const RESOLVER_QUEUE: usize = 1024;

/// The most callers that wait for lookups, of all names together. Further callers are refused.
pub const RESOLVER_CALLERS: usize = 65_536;

/// The most addresses of one name that are used. Further addresses are dropped.
pub const RESOLVED_ADDRESSES: usize = 64;

/// The longest host name in bytes: 253 (RFC 1035, section 2.3.4), plus the final dot of an absolute name.
pub const HOST_NAME_BYTES: usize = 254;

/// The time for which an idle resolver thread waits for another name before it ends.
pub const RESOLVER_IDLE: Duration = Duration::from_secs(10);
