//! The phases of a connection.

/// The states of a connection, by the event that it waits for. Each one except `Gone` has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The header of the PROXY protocol.
    Proxy,
    /// The first byte of the first request. Also set briefly before another phase, to restart its deadline.
    Fresh,
    /// The first byte of the next request.
    Idle,
    /// The rest of a request's head.
    Head,
    /// More of a request's body.
    Body,
    /// The handler's answer, or the next part of its body.
    Handler,
    /// Room in the socket, because the peer has not taken the sent bytes.
    Write,
    /// Bytes of another protocol, in either direction.
    Tunnel,
    /// An event of any HTTP/2 stream. The deadline is the earliest one of all streams.
    Streams,
    /// The driver's report that the last bytes were sent. The connection parses and answers nothing more.
    Closing,
    /// The end of the peer's direction, after the end of ours. Received bytes are dropped.
    Linger,
    /// Nothing. The worker removes the connection.
    Gone,
}
