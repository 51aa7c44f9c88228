//! What a connection waits for.

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The header of the PROXY protocol, which says whose connection it is.
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
    /// That the peer takes what is sent.
    Write,
    /// Bytes of another protocol, in either direction.
    Tunnel,
    /// Whatever its HTTP/2 streams wait for: the earliest of their deadlines.
    Streams,
    /// That the driver sends the last of what it has, and our end behind that. Nothing more is read or answered.
    Closing,
    /// The peer's end, after ours.
    Linger,
    /// Nothing: it is to be forgotten.
    Gone,
}
