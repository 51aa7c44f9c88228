//! The vocabulary between protocols and their callers.

/// Which side of a connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We send requests.
    Client,
    /// We send responses.
    Server,
}

/// How long a body is, as far as its head tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// No body: no [`Event::End`] follows the head.
    #[default]
    Empty,
    /// Exactly this many bytes (possibly 0 when sending).
    Exact(u64),
    /// The end shows later: chunked, or at the end of the connection.
    Unknown,
}

/// What a peer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// The window holds no whole event: receive more, append it and call again.
    NeedMore,
    /// Nothing is read until our own side has acted: a server answers, or a switched protocol takes over the bytes.
    Paused,
    /// A head; its spans are in the [`Head`](crate::Head) that the caller lent, and point into the window that was passed.
    Head(Length),
    /// An interim response (1xx but 101), client role only. Its head is in the lent `Head`; another head follows.
    Interim,
    /// Bytes of the body. They lie in the window and count as consumed.
    Data(&'b [u8]),
    /// A body ended; where `trailers` is set, the lent `Head` holds the trailer fields, with spans into the window.
    End {
        /// Whether trailer fields were received.
        trailers: bool,
    },
    /// The peer closed its side between messages: nothing is lost, and nothing more comes.
    Closed,
}

/// An event and how many bytes of the window it used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'b> {
    /// Bytes at the front of the window that are not needed any more, once the event has been acted on.
    pub consumed: usize,
    /// What happened.
    pub event: Event<'b>,
}
