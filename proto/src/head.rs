//! Message heads as spans: positions of the start line's parts and of the fields in the caller's window.
//!
//! A head refers to the names and values in the window and does not copy them. A caller can lend one [`Head`] to all
//! its connections, so that it is allocated once.

use crate::{Length, Target};
use alloc::vec::Vec;

/// A range of the window that a head was parsed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The index of the first byte.
    pub start: u16,
    /// The index after the last byte.
    pub end: u16,
}

impl Span {
    pub(crate) const fn new(start: usize, end: usize) -> Span {
        Span { start: start as u16, end: end as u16 }
    }

    /// Returns the span's bytes. `window` is the window that the head was parsed from; if it is too short, returns no
    /// bytes.
    #[inline]
    pub fn of(self, window: &[u8]) -> &[u8] {
        window.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Returns true if the span has no bytes.
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
    /// Any other token; [`Head::method_span`] holds it.
    Extension,
}

impl Method {
    /// Returns the method that a token names. Methods are case-sensitive.
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

    /// Returns the token of a method, or `None` for [`Method::Extension`].
    pub fn token(self) -> Option<&'static str> {
        Some(match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Extension => return None,
        })
    }
}

/// The version of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, or a later minor version, which is read as 1.1 (RFC 9110 section 2.5)
    #[default]
    Http11,
    /// HTTP/2
    Http2,
}

/// Fields that the protocol code itself interprets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Known {
    /// Any field that only applications interpret.
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
    /// Returns the known field with this name, ignoring case, or [`Known::Other`]. The length rules out most names, so
    /// few are compared.
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
    /// The name, in the case in which it was sent.
    pub name: Span,
    /// The value without the white space around it.
    pub value: Span,
    /// The kind of the field; [`Known::Other`] if only applications interpret it.
    pub known: Known,
}

/// A request's or response's head, or a trailer section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// A request's method.
    pub method: Method,
    /// The method as sent.
    pub method_span: Span,
    /// A request's target.
    pub target: Target,
    /// The message's version.
    pub version: Version,
    /// A response's status code.
    pub status: u16,
    /// A response's reason phrase.
    pub reason: Span,
    /// The fields in the order of arrival.
    pub fields: Vec<Field>,
    /// The length of the body.
    pub length: Length,
    /// True if the connection may carry another message after this one.
    pub keep_alive: bool,
    /// True if the client expects an interim 100 response before it sends the body.
    pub expects_continue: bool,
    /// True if a request proposes another protocol (by an `Upgrade` field that `Connection` lists, or by CONNECT), or
    /// if a response accepts one (by 101, or by a 2xx to CONNECT).
    pub upgrade: bool,
    /// True if the received Host field named another authority than the target. The Host field in `fields` then has the
    /// target's authority as its value; see [`Target::authority`].
    pub host_differs: bool,
    /// The value of `:protocol` in an extended CONNECT (RFC 8441); HTTP/2 only.
    pub protocol: Span,
    /// The known fields in this head, as [`Known::bit`]s.
    pub(crate) seen: u8,
    /// The known fields that this head contains more than once, as [`Known::bit`]s.
    pub(crate) repeated: u8,
    /// The Host value that was last found valid in a request read into this head. Empty if there was none.
    pub(crate) last_host: Vec<u8>,
}

impl Head {
    /// Returns the value of the first field with this name, ignoring case.
    pub fn field<'w>(&self, window: &'w [u8], name: &[u8]) -> Option<&'w [u8]> {
        self.named(window, name).next()
    }

    /// Returns the values of all fields with this name, ignoring case, in the order of arrival.
    pub fn named<'w>(&self, window: &'w [u8], name: &[u8]) -> impl Iterator<Item = &'w [u8]> {
        self.fields
            .iter()
            .filter(move |field| field.name.of(window).eq_ignore_ascii_case(name))
            .map(move |field| field.value.of(window))
    }

    /// Returns a copy of the message for the caller to keep, without the state that the lent head carries from one
    /// message to the next.
    pub fn to_kept(&self) -> Head {
        Head { fields: self.fields.clone(), last_host: Vec::new(), ..*self }
    }

    /// Returns the first field of this kind.
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
