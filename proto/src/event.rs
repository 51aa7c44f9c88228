//! The types at the interface between a connection and its caller: roles, body lengths, and the events of HTTP/1.

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that sends requests.
    Client,
    /// The side that sends responses.
    Server,
}

/// The length of a body, as its head announces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// No body. No [`Event::End`] follows the head.
    #[default]
    Empty,
    /// Exactly this many bytes. The number may be 0 in a head to send, and in a received head of HTTP/2.
    Exact(u64),
    /// Not announced: the body ends with its last chunk, with its HTTP/2 stream, or with the connection.
    Unknown,
}

/// The result of reading from the window: a part of a message, or the reason why nothing more can be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// The window holds no whole event. The caller must append more bytes and call again.
    NeedMore,
    /// Nothing is read now. Either our side must act first (a server must respond), or the peer's side is finished, or
    /// another protocol owns the bytes.
    Paused,
    /// A request's or final response's head, with the length of its body. The head's spans are in the
    /// [`Head`](crate::Head) that the caller lent, and point into the window of this call.
    Head(Length),
    /// An interim response (1xx except 101), client role only. Its head is in the lent `Head`; another head follows.
    Interim,
    /// The response's head or trailer section behind the consumed bytes is complete and has folded lines, client role only. The caller must join them
    /// by [`unfold`](crate::h1::unfold) in a copy of the rest of the window and call again with it.
    Folded,
    /// Bytes of the body. They lie in the window and count as consumed.
    Data(&'b [u8]),
    /// The end of a body. If `trailers` is true, the lent `Head` holds the trailer fields, with spans into the window.
    End {
        /// True if trailer fields were received.
        trailers: bool,
    },
    /// The peer closed its side, and no message was cut short. No more bytes arrive.
    Closed,
}

/// An event and the number of window bytes that it used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'b> {
    /// The number of bytes at the front of the window that the caller can drop after it has acted on the event.
    pub consumed: usize,
    /// The event.
    pub event: Event<'b>,
}
