//! The sending half of a connection: writes heads and bodies, and takes their steps in the state table.

use super::connection::{Connection, Outgoing};
use super::encode::{self, FieldWriter};
use super::state::{State, Step};
use crate::{Error, Length, Method, Role, Version, scan};
use alloc::vec::Vec;

/// A response's head, as a server sends it.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status, from 200 to 999. [`Connection::send_interim`] sends interim responses.
    pub status: u16,
    /// The reason phrase; `None` for that of [`reason_phrase`](super::reason_phrase).
    pub reason: Option<&'a str>,
    /// The length of the body.
    pub length: Length,
}

/// A request's head, as a client sends it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method's token.
    pub method: &'a str,
    /// The target, in any form.
    pub target: &'a str,
    /// The version: HTTP/1.1, or HTTP/1.0, which has no chunked bodies.
    pub version: Version,
    /// The length of the body.
    pub length: Length,
    /// True if the connection shall stay open after the exchange.
    pub keep_alive: bool,
    /// True if the request proposes another protocol, by an `Upgrade` field that the caller adds or by the method
    /// CONNECT.
    pub upgrade: bool,
}

impl Connection {
    /// Sends an interim response. Its status is 1xx, but not 101, which [`accept`](Self::accept) sends.
    ///
    /// Sends nothing to an HTTP/1.0 client, which would not understand the response (RFC 9110 section 15.2).
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if no response is due or the status is not interim; [`Error::InvalidField`] or
    /// [`Error::ReservedField`] if a field is invalid.
    pub fn send_interim(
        &mut self,
        status: u16,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        if !(100..200).contains(&status) || status == 101 {
            return Err(Error::NotNow);
        }
        self.step(Role::Server, Step::Interim)?;
        if self.version == Version::Http10 {
            return Ok(());
        }
        write_head(out, |out| {
            write_status(status, None, out)?;
            write_fields(out, fields).map(drop)
        })
    }

    /// Accepts the protocol that the request proposed. `status` must be 2xx for CONNECT and 101 for Upgrade. A 101 gets
    /// `Connection: upgrade`. From then on the bytes of both directions belong to the other protocol.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if the request proposed no protocol or is incomplete, or if the status does not fit;
    /// [`Error::InvalidField`] or [`Error::ReservedField`] if a field is invalid. Nothing is sent then.
    pub fn accept(
        &mut self,
        status: u16,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        let tunnel = self.method == Method::Connect;
        let fits = if tunnel { (200..300).contains(&status) } else { status == 101 };
        if self.client != State::MaySwitch || self.server != State::AwaitsResponse || !fits {
            return Err(Error::NotNow);
        }
        write_head(out, |out| {
            write_status(status, None, out)?;
            if !tunnel {
                out.extend_from_slice(b"Connection: upgrade\r\n");
            }
            write_fields(out, fields).map(drop)
        })?;
        self.step(Role::Client, Step::Accept)?;
        self.step(Role::Server, Step::Accept)
    }

    /// Sends a final response's head: status line, the given fields, then the fields that frame the message. The caller
    /// then sends the body by [`send_data`](Self::send_data), and must call [`send_end`](Self::send_end) even if there
    /// is no body.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if no response is due or the status is below 200; [`Error::InvalidReason`],
    /// [`Error::InvalidField`] or [`Error::ReservedField`] if that part of the head is invalid. Nothing is sent then.
    #[inline]
    pub fn send_response(
        &mut self,
        response: Response<'_>,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        if self.server.after(Role::Server, Step::Response).is_none() || response.status < 200 {
            return Err(Error::NotNow);
        }
        let bodiless = matches!(response.status, 204 | 304);
        let outgoing = match response.length {
            _ if self.method == Method::Head || bodiless => Outgoing::Withheld,
            Length::Empty => Outgoing::Exact(0),
            Length::Exact(length) => Outgoing::Exact(length),
            Length::Unknown if self.version == Version::Http11 => Outgoing::Chunked,
            Length::Unknown => Outgoing::UntilClose,
        };
        let (keep_alive, version) = (self.keep_alive && outgoing != Outgoing::UntilClose, self.version);
        write_head(out, |out| {
            write_status(response.status, response.reason, out)?;
            let (upgrade, _) = write_fields(out, fields)?;
            match response.length {
                _ if response.status == 204 => {}
                Length::Empty if bodiless => {}
                Length::Empty => out.extend_from_slice(b"Content-Length: 0\r\n"),
                Length::Exact(length) => encode::number_field(b"Content-Length: ", length, out),
                Length::Unknown if version == Version::Http11 && !bodiless => {
                    out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                }
                Length::Unknown => {}
            }
            match (keep_alive, version) {
                (false, _) if upgrade => out.extend_from_slice(b"Connection: close, upgrade\r\n"),
                (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
                (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
                (true, Version::Http11) if upgrade => out.extend_from_slice(b"Connection: upgrade\r\n"),
                (true, Version::Http11 | Version::Http2) => {}
            }
            Ok(())
        })?;
        (self.outgoing, self.keep_alive) = (outgoing, keep_alive);
        if self.client == State::MaySwitch {
            self.step(Role::Client, Step::Decline)?;
        }
        self.step(Role::Server, Step::Response)
    }

    /// Returns true if the request is HTTP/1.1 and not HEAD, and the connection stays open. Two responses to such
    /// requests have the same head if their status, reason, fields and length are the same, so a caller may keep a head
    /// for [`send_rendered`](Self::send_rendered).
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.keep_alive && self.version == Version::Http11 && self.method != Method::Head
    }

    /// Sends a whole response with a head that an earlier [`send_response`](Self::send_response) wrote. The connection
    /// that wrote the head must have been [plain](Self::is_plain), as this connection must be. The head must announce
    /// the length of this `body`, and its status must not be 204 or 304.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if no response is due or the connection is not plain. Nothing is sent then.
    #[inline]
    pub fn send_rendered(&mut self, head: &[u8], body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if !self.is_plain() {
            return Err(Error::NotNow);
        }
        if self.client == State::MaySwitch {
            self.step(Role::Client, Step::Decline)?;
        }
        self.step(Role::Server, Step::Response)?;
        out.reserve(head.len() + body.len());
        out.extend_from_slice(head);
        out.extend_from_slice(body);
        self.step(Role::Server, Step::End)?;
        self.restart();
        Ok(())
    }

    /// Sends a request's head. The caller then sends the body by [`send_data`](Self::send_data), and must call
    /// [`send_end`](Self::send_end) even if there is no body.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if the role is not client, or if the connection is closing or has another exchange in
    /// progress; [`Error::InvalidRequest`] if the version does not allow such a request; [`Error::InvalidField`] or
    /// [`Error::ReservedField`] if the method, the target or a field is invalid. Nothing is sent then.
    pub fn send_request(
        &mut self,
        request: Request<'_>,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        if self.role != Role::Client || self.client != State::Idle || self.server != State::Idle {
            return Err(Error::NotNow);
        }
        let valid_method = !request.method.is_empty() && request.method.bytes().all(|byte| scan::is(scan::NAME, byte));
        let valid_target =
            !request.target.is_empty() && request.target.bytes().all(|byte| (b'!'..0x7f).contains(&byte));
        if !valid_method || !valid_target {
            return Err(Error::InvalidField);
        }
        let is_old = request.version == Version::Http10;
        if is_old && (request.length == Length::Unknown || request.upgrade) {
            return Err(Error::InvalidRequest);
        }
        self.method = Method::from_token(request.method.as_bytes());
        self.keep_alive = request.keep_alive;
        self.proposes = request.upgrade;
        self.outgoing = match request.length {
            Length::Empty => Outgoing::Exact(0),
            Length::Exact(length) => Outgoing::Exact(length),
            Length::Unknown => Outgoing::Chunked,
        };
        write_head(out, |out| {
            out.extend_from_slice(request.method.as_bytes());
            out.push(b' ');
            out.extend_from_slice(request.target.as_bytes());
            out.extend_from_slice(if is_old { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
            let (_, te) = write_fields(out, fields)?;
            match request.length {
                // RFC 9110 section 8.6: a request with one of these methods and no body should have Content-Length: 0.
                Length::Empty if matches!(self.method, Method::Post | Method::Put | Method::Patch) => {
                    out.extend_from_slice(b"Content-Length: 0\r\n");
                }
                Length::Empty => {}
                Length::Exact(length) => encode::number_field(b"Content-Length: ", length, out),
                Length::Unknown => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            }
            if te && !is_old {
                out.extend_from_slice(b"Connection: TE\r\n");
            }
            match (request.upgrade && self.method != Method::Connect, request.keep_alive) {
                (true, _) => out.extend_from_slice(b"Connection: upgrade\r\n"),
                (false, false) => out.extend_from_slice(b"Connection: close\r\n"),
                (false, true) if is_old => out.extend_from_slice(b"Connection: keep-alive\r\n"),
                (false, true) => {}
            }
            Ok(())
        })?;
        self.step(Role::Client, Step::Request)?;
        self.step(Role::Server, Step::Request)
    }

    /// Sends a part of our message's body, or nothing if the body is withheld.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] outside a body; [`Error::LengthMismatch`] if the body is longer than announced.
    #[inline]
    pub fn send_data(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.step(self.role, Step::Data)?;
        match &mut self.outgoing {
            Outgoing::Exact(left) => {
                let Some(rest) = left.checked_sub(data.len() as u64) else { return Err(Error::LengthMismatch) };
                *left = rest;
                out.extend_from_slice(data);
            }
            // An empty chunk would end the body.
            Outgoing::Chunked if !data.is_empty() => {
                encode::chunk_size(data.len(), out);
                out.extend_from_slice(data);
                out.extend_from_slice(b"\r\n");
            }
            Outgoing::UntilClose => out.extend_from_slice(data),
            Outgoing::Chunked | Outgoing::Withheld => {}
        }
        Ok(())
    }

    /// Accounts for a part of our message's body that the caller itself sends, such as a range of a file or shared
    /// bytes. Appends the framing around the part to `before` and `after`. Returns false if the part is empty or the
    /// body is withheld; the caller must not send the part then.
    ///
    /// # Errors
    /// Returns the same errors as [`send_data`](Self::send_data).
    pub fn send_data_apart(&mut self, length: u64, before: &mut Vec<u8>, after: &mut Vec<u8>) -> Result<bool, Error> {
        self.step(self.role, Step::Data)?;
        match &mut self.outgoing {
            Outgoing::Exact(left) => {
                let Some(rest) = left.checked_sub(length) else { return Err(Error::LengthMismatch) };
                *left = rest;
            }
            Outgoing::Chunked if length > 0 => {
                encode::chunk_size(length as usize, before);
                after.extend_from_slice(b"\r\n");
            }
            Outgoing::UntilClose => {}
            Outgoing::Chunked | Outgoing::Withheld => return Ok(false),
        }
        Ok(length > 0)
    }

    /// Ends our message. Sends `trailers` if the body is chunked, and otherwise ignores them.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] outside a body; [`Error::InvalidField`] or [`Error::ReservedField`] if a trailer is
    /// invalid; [`Error::LengthMismatch`] if the body is shorter than announced. A connection whose body is too short
    /// can only be closed.
    #[inline]
    pub fn send_end(&mut self, out: &mut Vec<u8>, trailers: impl FnOnce(&mut FieldWriter<'_>)) -> Result<(), Error> {
        match self.outgoing {
            Outgoing::Exact(left) if left > 0 => return Err(Error::LengthMismatch),
            Outgoing::Chunked => {
                // A body that has ended already must not get a second last chunk.
                let side = if self.role == Role::Client { self.client } else { self.server };
                side.after(self.role, Step::End).ok_or(Error::NotNow)?;
                write_head(out, |out| {
                    out.extend_from_slice(b"0\r\n");
                    write_fields(out, trailers).map(drop)
                })?;
            }
            _ => {}
        }
        let end = match (self.role, self.keep_alive) {
            (Role::Client, _) if self.proposes => Step::EndProposing,
            (_, true) => Step::End,
            (_, false) => Step::EndLast,
        };
        self.step(self.role, end)?;
        self.restart();
        Ok(())
    }
}

/// Writes a head or a trailer section with its empty line, or nothing if a part of it is invalid.
#[inline(always)]
fn write_head(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Result<(), Error> {
    let start = out.len();
    let written = write(out);
    match written {
        Ok(()) => out.extend_from_slice(b"\r\n"),
        Err(_) => out.truncate(start),
    }
    written
}

#[inline(always)]
fn write_status(status: u16, reason: Option<&str>, out: &mut Vec<u8>) -> Result<(), Error> {
    match (reason, encode::status_line(status)) {
        (None, Some(line)) => {
            out.extend_from_slice(line);
            Ok(())
        }
        (reason, _) => encode::custom_status_line(status, reason.unwrap_or(""), out),
    }
}

/// Writes the caller's fields. Returns true for Upgrade and for TE if they are among them.
#[inline(always)]
fn write_fields(out: &mut Vec<u8>, fields: impl FnOnce(&mut FieldWriter<'_>)) -> Result<(bool, bool), Error> {
    let mut writer = FieldWriter { out, error: None, upgrade: false, te: false };
    fields(&mut writer);
    writer.error.map_or(Ok((writer.upgrade, writer.te)), Err)
}
