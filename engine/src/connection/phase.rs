//! The phases of a connection.

/// What a connection waits for. Each phase has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The header of the PROXY protocol.
    Proxy,
    /// Its first byte.
    Fresh,
    /// Another request.
    Idle,
    /// The rest of a head.
    Head,
    /// More of a body.
    Body,
    /// A handler's answer.
    Handler,
    /// The peer, to take bytes.
    Write,
    /// Bytes of another protocol, in either direction.
    Tunnel,
    /// The HTTP/2 stream with the earliest deadline.
    Streams,
    /// The driver, to send its last bytes and our end. Nothing more is read or answered.
    Closing,
    /// The peer's end, after ours.
    Linger,
    /// Nothing: the worker will forget it.
    Gone,
}
