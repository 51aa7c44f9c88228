//! Heads as spans: where the parts of a start line and its fields lie in the caller's window.
//!
//! Nothing is copied and nothing is allocated for each message: a caller lends one [`Head`] for all its connections.

use crate::{Length, Target};
use alloc::vec::Vec;

/// A range of the window that a head was parsed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u16,
    /// One past the last byte.
    pub end: u16,
}

impl Span {
    pub(crate) const fn new(start: usize, end: usize) -> Span {
        Span { start: start as u16, end: end as u16 }
    }

    /// The bytes that the span names, in the window that the head was parsed from; empty if it does not reach there.
    #[inline]
    pub fn of(self, window: &[u8]) -> &[u8] {
        window.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Whether the span has no bytes.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A request method (RFC 9110 section 9, RFC 5789).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Method {
    /// GET
    #[default]
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// OPTIONS
    Options,
    /// TRACE
    Trace,
    /// PATCH
    Patch,
    /// Any other token: [`Head::method_span`] has it.
    Extension,
}

impl Method {
    /// The method of a token; methods are case-sensitive.
    pub fn from_token(token: &[u8]) -> Method {
        match token {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Extension,
        }
    }
}

/// The version of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, and any later minor version, which is read as 1.1 (RFC 9110 section 2.5)
    #[default]
    Http11,
    /// HTTP/2
    Http2,
}

/// Fields that the protocol itself reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Known {
    /// Any field that only applications read.
    #[default]
    Other,
    /// Host
    Host,
    /// Connection
    Connection,
    /// Content-Length
    ContentLength,
    /// Transfer-Encoding
    TransferEncoding,
    /// Expect
    Expect,
    /// Upgrade
    Upgrade,
}

impl Known {
    /// Which known field a name is, in any case. The length tells most names apart, so few are compared.
    #[inline(always)]
    pub fn from_name(name: &[u8]) -> Known {
        let (wanted, known): (&[u8], Known) = match name.len() {
            4 => {
                let word = name.try_into().map(u32::from_le_bytes).unwrap_or_default() | 0x2020_2020;
                return if word == u32::from_le_bytes(*b"host") { Known::Host } else { Known::Other };
            }
            6 => (b"expect", Known::Expect),
            7 => (b"upgrade", Known::Upgrade),
            10 => (b"connection", Known::Connection),
            14 => (b"content-length", Known::ContentLength),
            17 => (b"transfer-encoding", Known::TransferEncoding),
            _ => return Known::Other,
        };
        if name[0] | 0x20 == wanted[0] && name.eq_ignore_ascii_case(wanted) { known } else { Known::Other }
    }

    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// One field line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// The name, in the case that was sent.
    pub name: Span,
    /// The value without the white space around it.
    pub value: Span,
    /// Which of the fields that the protocol reads it is.
    pub known: Known,
}

/// A request's or response's head, or a trailer section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// A request's method.
    pub method: Method,
    /// The method as it was sent.
    pub method_span: Span,
    /// A request's target.
    pub target: Target,
    /// The message's version.
    pub version: Version,
    /// A response's status.
    pub status: u16,
    /// A response's reason phrase.
    pub reason: Span,
    /// The fields in the order in which they came.
    pub fields: Vec<Field>,
    /// How long the body is.
    pub length: Length,
    /// Whether the connection may carry another message after this one.
    pub keep_alive: bool,
    /// Whether the request asks for an interim 100 before it sends its body.
    pub expects_continue: bool,
    /// Whether the message proposes or accepts another protocol: `Upgrade` named by `Connection`, or CONNECT.
    pub upgrade: bool,
    /// Whether the Host field that came named another authority than the target. Its value is the target's here: see
    /// [`Target::authority`].
    pub host_differs: bool,
    /// The protocol that an extended CONNECT wants (RFC 8441); HTTP/2 only.
    pub protocol: Span,
    /// Which known fields came.
    pub(crate) seen: u8,
    /// Which of them came more than once.
    pub(crate) repeated: u8,
    /// The last Host that was found valid, in whichever request; an empty one never is.
    pub(crate) last_host: Vec<u8>,
}

impl Head {
    /// The value of the first field of that name, in any case.
    pub fn field<'w>(&self, window: &'w [u8], name: &[u8]) -> Option<&'w [u8]> {
        self.named(window, name).next()
    }

    /// The values of all fields of that name, in the order in which they came.
    pub fn named<'w>(&self, window: &'w [u8], name: &[u8]) -> impl Iterator<Item = &'w [u8]> {
        self.fields
            .iter()
            .filter(move |field| field.name.of(window).eq_ignore_ascii_case(name))
            .map(move |field| field.value.of(window))
    }

    /// A copy to keep: with what the message says, and without what only the lent head remembers from one to the next.
    pub fn to_kept(&self) -> Head {
        let mut kept = self.clone();
        kept.last_host = Vec::new();
        kept.fields.shrink_to_fit();
        kept
    }

    /// The first field that the protocol knows as `known`.
    pub fn known(&self, known: Known) -> Option<Field> {
        if self.seen & known.bit() == 0 {
            return None;
        }
        self.fields.iter().copied().find(|field| field.known == known)
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.fields.clear();
        self.seen = 0;
        self.repeated = 0;
        self.length = Length::Empty;
        self.keep_alive = false;
        self.expects_continue = false;
        self.upgrade = false;
        self.host_differs = false;
        self.protocol = Span::default();
    }
}
