//! The phases of a connection.

use crate::runtime::deadline::TICKS_A_SECOND;

/// The number of ticks that a graceful shutdown waits for the next request of an idle connection.
pub(super) const DRAIN_TICKS: u32 = 2;

/// The number of ticks that a graceful shutdown waits for the rest of a head.
pub(super) const DRAIN_HEAD_TICKS: u32 = 2 * TICKS_A_SECOND;

/// The states of a connection, named for the events that the connection waits for. Each state except `Gone` has a
/// deadline, unless its timeout is turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The header of the PROXY protocol.
    Proxy,
    /// The TLS handshake, or the first byte of the first request. Also set briefly before another phase, so that the
    /// deadline of that phase starts anew.
    Fresh,
    /// The first byte of the next request.
    Idle,
    /// The rest of a request's head or, over HTTP/2, of a frame.
    Head,
    /// More of a request's body.
    Body,
    /// The handler's answer, or the next part of the answer's body.
    Handler,
    /// The same as in [`Handler`](Phase::Handler), for a client that has ended its direction and has probably left.
    Disconnected,
    /// Room in the socket, because the peer has not taken all sent bytes.
    Write,
    /// Bytes of another protocol, in either direction.
    Tunnel,
    /// An event of any HTTP/2 stream. The deadline is the earliest one of all streams, or earlier.
    Streams,
    /// The driver's report that the last bytes were sent. The connection parses and answers nothing more.
    Closing,
    /// The end of the peer's direction, after the end of ours. Received bytes are dropped.
    Linger,
    /// Nothing. The worker removes the connection.
    Gone,
}
