//! One end of a WebSocket connection, and how it receives.

use super::frame::{CONTROL_BYTES, Header, Opcode};
use super::state::{State, Step};
use super::{Failure, Kind, Utf8, apply_mask, code, is_close_code};
use crate::Role;

/// The limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most bytes of a received message, before it is inflated.
    pub message_bytes: u64,
    /// The most frames of a received message that have fewer than 16 bytes. A frame of a message that is a
    /// single frame does not count.
    pub small_frames: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { message_bytes: 1024 * 1024, small_frames: 1024 }
    }
}

/// A frame of a fragmented message is small if it has fewer bytes than this, about as many as its header.
const SMALL_BYTES: u64 = 16;

/// The number of bytes that are unmasked and then checked as text. They stay in the first-level cache in between.
const CHECKED_BYTES: usize = 8 * 1024;

/// The result of reading from the window: a part of a message, a control frame, or nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'w> {
    /// The window holds no whole event. The caller must append more bytes and call again. After a Close frame, no other
    /// event follows.
    NeedMore,
    /// Bytes of a message. They may be empty, if the message is empty or its end arrives alone.
    Data {
        /// The kind of the message.
        kind: Kind,
        /// True if the message is compressed. The caller must then inflate it and check text with [`Utf8`]. The bytes
        /// of other text are checked, except for a character that the next bytes may complete.
        compressed: bool,
        /// The bytes.
        bytes: &'w [u8],
        /// True if the message ends here.
        is_last: bool,
    },
    /// A Ping frame. A Pong frame with the same bytes must answer it, or a later one.
    Ping(&'w [u8]),
    /// A Pong frame.
    Pong(&'w [u8]),
    /// A Close frame. Unless one was sent before, a Close frame must answer it.
    Close {
        /// The status code, if the frame has one.
        code: Option<u16>,
        /// The reason, which may be empty.
        reason: &'w str,
    },
}

/// An event and the number of window bytes that it used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'w> {
    /// The number of bytes at the front of the window that the caller can drop after it has acted on the event. It may
    /// be positive for [`Event::NeedMore`], too.
    pub consumed: usize,
    /// The event.
    pub event: Event<'w>,
}

/// The frame of which some payload bytes have not arrived, and its message.
#[derive(Clone, Copy, Debug)]
struct Frame {
    left: u64,
    mask: Option<[u8; 4]>,
    ends_message: bool,
}

/// The message that is being received.
#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    compressed: bool,
    bytes: u64,
    small_frames: u32,
}

/// One end of a WebSocket connection after the handshake.
#[derive(Debug)]
pub struct Connection {
    /// Returns the key of each frame that a client sends; `None` on the server's end.
    pub(super) mask: Option<fn() -> [u8; 4]>,
    /// True if the peers have agreed on permessage-deflate.
    pub(super) has_deflate: bool,
    pub(super) outgoing: State,
    /// Checks the message that is sent in parts, if it is text.
    pub(super) sent_text: Option<Utf8>,
    /// The [`Bounds`]. They are apart, because together they need more memory.
    message_bytes: u64,
    small_frames: u32,
    incoming: State,
    frame: Option<Frame>,
    message: Message,
    received_text: Utf8,
}

impl Connection {
    /// Creates the server's end. `has_deflate` is true if the handshake has agreed on permessage-deflate.
    pub fn server(bounds: Bounds, has_deflate: bool) -> Connection {
        Connection {
            mask: None,
            has_deflate,
            outgoing: State::Between,
            sent_text: None,
            message_bytes: bounds.message_bytes,
            small_frames: bounds.small_frames,
            incoming: State::Between,
            frame: None,
            message: Message { kind: Kind::Binary, compressed: false, bytes: 0, small_frames: 0 },
            received_text: Utf8::default(),
        }
    }

    /// Creates the client's end. `mask` must return a key that a peer cannot predict, a new one at each call (RFC 6455
    /// section 10.3).
    pub fn client(bounds: Bounds, has_deflate: bool, mask: fn() -> [u8; 4]) -> Connection {
        Connection { mask: Some(mask), ..Connection::server(bounds, has_deflate) }
    }

    fn role(&self) -> Role {
        if self.is_server() { Role::Server } else { Role::Client }
    }

    /// Returns true if this is the server's end.
    pub fn is_server(&self) -> bool {
        self.mask.is_none()
    }

    /// Returns the state of the received frames.
    pub fn incoming(&self) -> State {
        self.incoming
    }

    /// Returns the state of the sent frames.
    pub fn outgoing(&self) -> State {
        self.outgoing
    }

    /// Returns true if a part of a message has arrived, but not its end.
    pub fn is_within_message(&self) -> bool {
        self.frame.is_some() || self.incoming == State::InMessage
    }

    /// Returns the number of payload bytes of the current frame that have not arrived.
    pub fn frame_left(&self) -> u64 {
        self.frame.map_or(0, |frame| frame.left)
    }

    /// Reads the next event from the window, and unmasks its bytes in place. Bytes after a Close frame or a failure are
    /// dropped.
    ///
    /// # Errors
    /// Returns an error if the peer breaks the protocol or a bound. No more bytes are read then.
    #[inline]
    pub fn receive<'w>(&mut self, window: &'w mut [u8]) -> Result<Received<'w>, Failure> {
        if matches!(self.incoming, State::Closed | State::Failed) {
            return Ok(Received { consumed: window.len(), event: Event::NeedMore });
        }
        let received = self.receive_next(window);
        if received.is_err() {
            self.incoming = self.incoming.after(Step::Fail).unwrap_or(State::Failed);
        }
        received
    }

    fn receive_next<'w>(&mut self, window: &'w mut [u8]) -> Result<Received<'w>, Failure> {
        let mut at = 0;
        loop {
            if self.frame.is_none() {
                let Some(header) = Header::parse(&window[at..], self.role(), self.has_deflate)? else {
                    return Ok(Received { consumed: at, event: Event::NeedMore });
                };
                let Some(next) = self.incoming.after(step_of(&header)) else {
                    return Err(Failure::protocol(if header.opcode == Opcode::Continuation {
                        "a frame continues a message, but none has begun"
                    } else {
                        "a message begins before the previous one has ended"
                    }));
                };
                if header.opcode.is_control() {
                    return self.receive_control(&header, next, at, window);
                }
                self.begin_frame(&header)?;
                self.incoming = next;
                at += header.size;
            }
            let Some(frame) = &mut self.frame else { continue };
            let count = usize::try_from(frame.left).unwrap_or(usize::MAX).min(window.len() - at);
            let Message { kind, compressed, .. } = self.message;
            let text = (kind == Kind::Text && !compressed).then_some(&mut self.received_text);
            unmask(&mut window[at..at + count], &mut frame.mask, text)?;
            frame.left -= count as u64;
            let is_whole = frame.left == 0;
            let is_last = is_whole && frame.ends_message;
            if is_whole {
                self.frame = None;
            }
            if is_last && !self.received_text.is_whole() {
                return Err(NOT_UTF8);
            }
            if count > 0 || is_last {
                let bytes = &window[at..at + count];
                return Ok(Received { consumed: at + count, event: Event::Data { kind, compressed, bytes, is_last } });
            }
            if !is_whole {
                return Ok(Received { consumed: at, event: Event::NeedMore });
            }
        }
    }

    /// Begins to receive a data frame.
    fn begin_frame(&mut self, header: &Header) -> Result<(), Failure> {
        let kind = match header.opcode {
            Opcode::Text => Some(Kind::Text),
            Opcode::Binary => Some(Kind::Binary),
            _ => None,
        };
        if let Some(kind) = kind {
            self.message = Message { kind, compressed: header.compressed, bytes: 0, small_frames: 0 };
            self.received_text = Utf8::default();
        }
        let is_fragment = kind.is_none() || !header.is_last;
        if is_fragment && header.length < SMALL_BYTES {
            self.message.small_frames += 1;
            if self.message.small_frames > self.small_frames {
                return Err(Failure { code: code::POLICY, text: "a message has too many small frames" });
            }
        }
        self.message.bytes = self.message.bytes.saturating_add(header.length);
        if self.message.bytes > self.message_bytes {
            return Err(Failure { code: code::TOO_LARGE, text: "a message is too large" });
        }
        self.frame = Some(Frame { left: header.length, mask: header.mask, ends_message: header.is_last });
        Ok(())
    }

    fn receive_control<'w>(
        &mut self,
        header: &Header,
        next: State,
        from: usize,
        window: &'w mut [u8],
    ) -> Result<Received<'w>, Failure> {
        let start = from + header.size;
        let end = start + (header.length as usize).min(CONTROL_BYTES);
        let Some(payload) = window.get_mut(start..end) else {
            return Ok(Received { consumed: from, event: Event::NeedMore });
        };
        unmask(payload, &mut header.mask.clone(), None)?;
        let event = match header.opcode {
            Opcode::Ping => Event::Ping(payload),
            Opcode::Pong => Event::Pong(payload),
            _ => closing(payload)?,
        };
        self.incoming = next;
        Ok(Received { consumed: end, event })
    }
}

const NOT_UTF8: Failure = Failure { code: code::NOT_UTF8, text: "a text is not UTF-8" };

fn step_of(header: &Header) -> Step {
    match (header.opcode, header.is_last) {
        (Opcode::Text | Opcode::Binary, true) => Step::Whole,
        (Opcode::Text | Opcode::Binary, false) => Step::First,
        (Opcode::Continuation, false) => Step::Middle,
        (Opcode::Continuation, true) => Step::Last,
        (Opcode::Ping | Opcode::Pong, _) => Step::Control,
        (Opcode::Close, _) => Step::Close,
    }
}

/// Unmasks bytes in place, and checks them if they are text.
#[inline]
fn unmask(bytes: &mut [u8], mask: &mut Option<[u8; 4]>, mut text: Option<&mut Utf8>) -> Result<(), Failure> {
    for part in bytes.chunks_mut(CHECKED_BYTES) {
        let mut is_ascii = false;
        if let Some(key) = mask {
            (*key, is_ascii) = apply_mask(part, *key);
        }
        if let Some(utf8) = &mut text
            && !(is_ascii && utf8.is_whole())
        {
            utf8.check(part).map_err(|_| NOT_UTF8)?;
        }
    }
    Ok(())
}

/// Parses the payload of a Close frame.
fn closing(payload: &[u8]) -> Result<Event<'_>, Failure> {
    let Some((bytes, reason)) = payload.split_first_chunk::<2>() else {
        return match payload {
            [] => Ok(Event::Close { code: None, reason: "" }),
            _ => Err(Failure::protocol("a Close frame has a single byte")),
        };
    };
    let code = u16::from_be_bytes(*bytes);
    if !is_close_code(code) {
        return Err(Failure::protocol("a Close frame has a code that must not be sent"));
    }
    let reason = core::str::from_utf8(reason)
        .map_err(|_| Failure { code: code::NOT_UTF8, text: "the reason in a Close frame is not UTF-8" })?;
    Ok(Event::Close { code: Some(code), reason })
}
