//! The sending half of a connection: sends heads, bodies as far as the windows allow, resets, and GOAWAY.

use super::connection::{Connection, Phase};
use super::frame::{self, Code, FRAME_BYTES, FrameHead, HEAD_BYTES, flag, kind};
use super::schedule::Priority;
use super::state::{State, Step};
use super::streams::{End, StreamRef};
use crate::hpack::{self, Indexing};
use crate::{Error, Length, Method, Role};
use alloc::vec::Vec;

/// The last stream number in a GOAWAY that only announces another GOAWAY.
const EVERY_STREAM: u32 = 0x7fff_ffff;

/// Writes the fields of a head or of a trailer section.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    encoder: &'a mut hpack::Encoder,
    out: &'a mut Vec<u8>,
}

impl FieldWriter<'_> {
    /// Writes a field. The name must be in lower case, and name and value must be valid. White space around the value, which
    /// is not a part of it and is malformed over HTTP/2 (RFC 9113 section 8.2.1), is left out.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let value = value.trim_ascii();
        let indexing = if hpack::sensitive(name, value) { Indexing::Never } else { Indexing::Incremental };
        self.encoder.field(name, value, indexing, self.out);
    }

    /// Writes a field whose value is a number.
    #[inline]
    pub fn number(&mut self, name: &[u8], value: u64) {
        self.field(name, itoa::Buffer::new().format(value).as_bytes());
    }

    /// Writes a field whose value hardly ever repeats, such as a length, without adding it to the compression table.
    #[inline]
    pub fn changing(&mut self, name: &[u8], value: &[u8]) {
        self.encoder.field(name, value, Indexing::Without, self.out);
    }
}

/// A request's head, as a client sends it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method's token.
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The authority.
    pub authority: &'a str,
    /// The path with its query; empty for a CONNECT without a protocol.
    pub path: &'a str,
    /// The protocol of an extended CONNECT (RFC 8441).
    pub protocol: Option<&'a str>,
    /// True if no body follows.
    pub ends: bool,
}

impl Connection {
    /// Returns true if a response with this status has no body on this stream, even if its head announces one, because
    /// the request was HEAD or the status is 204 or 304.
    pub fn withholds_body(&mut self, stream: StreamRef, status: u16) -> bool {
        self.streams.get(stream).map_or(matches!(status, 204 | 304), |found| found.withholds(status))
    }

    /// Returns true if a stream is a tunnel: its request was a CONNECT, and the response is 2xx. From then on
    /// [`send_data`](Self::send_data) and [`Event::Data`](super::Event::Data) carry the tunnel's bytes, and the end of
    /// a direction of the stream ends that direction of the tunnel. If the tunnel's other side fails, reset the stream
    /// with [`Code::Connect`].
    pub fn is_tunnel(&mut self, stream: StreamRef) -> bool {
        self.streams.get(stream).is_some_and(|found| found.is_tunnel)
    }

    /// Returns true if the peer accepts a CONNECT with a protocol (RFC 8441 section 3; client role). Returns false
    /// until the peer's settings have arrived, which [`Event::AllOpened`](super::Event::AllOpened) reports.
    pub fn takes_protocols(&self) -> bool {
        self.peer.connect_protocol
    }

    /// Returns true if the peer's first settings have arrived.
    pub fn knows_peer(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Returns the stream's priority; the default one if the stream is over.
    pub fn priority(&mut self, stream: StreamRef) -> Priority {
        self.streams.get(stream).map_or_else(Priority::default, |found| found.priority)
    }

    /// Returns true if a stream is in progress.
    pub fn is_open(&mut self, stream: StreamRef) -> bool {
        self.streams.get(stream).is_some()
    }

    /// Returns true if the stream is in progress and the peer has not ended its direction.
    pub fn awaits_body(&mut self, stream: StreamRef) -> bool {
        self.streams.get(stream).is_some_and(|found| found.state.after(Step::ReceiveEnd).is_some())
    }

    /// Sends an interim response.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if the status is not interim, or the stream is over or has its final response.
    pub fn send_interim(
        &mut self,
        stream: StreamRef,
        status: u16,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        let fits = (100..200).contains(&status) && status != 101;
        let may = self.streams.get(stream).is_some_and(|found| !found.has_answer);
        if !fits || !may || !self.streams.step(stream, Step::Send) {
            return Err(Error::NotNow);
        }
        self.write_section(stream.number, false, out, |encoder, out| {
            encoder.status(status, out);
            fields(&mut FieldWriter { encoder, out });
        });
        Ok(())
    }

    /// Sends a final response's head. With [`Length::Empty`] or a length of 0, or if the body is withheld, this
    /// completes the response.
    ///
    /// A 2xx to a CONNECT, with or without a protocol, makes the stream a tunnel. Its length is [`Length::Unknown`],
    /// and no length may be among its fields.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if the status is below 200, or the stream is over or has its final response;
    /// [`Error::LengthMismatch`] if a tunnel is given a length.
    #[inline]
    pub fn send_response(
        &mut self,
        stream: StreamRef,
        status: u16,
        length: Length,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        let Some(found) = self.streams.get(stream).filter(|found| !found.has_answer) else { return Err(Error::NotNow) };
        let (withheld, tunnels) = (found.withholds(status), found.tunnels(status));
        if tunnels && matches!(length, Length::Exact(_)) {
            return Err(Error::LengthMismatch);
        }
        found.promised = if let Length::Exact(length) = length { Some(length) } else { None };
        let ends = withheld || matches!(length, Length::Empty | Length::Exact(0));
        let step = if ends { Step::SendEnd } else { Step::Send };
        if found.state.after(step).is_none() || status < 200 {
            return Err(Error::NotNow);
        }
        (found.has_answer, found.is_tunnel) = (true, tunnels);
        self.write_section(stream.number, ends, out, |encoder, out| {
            encoder.status(status, out);
            fields(&mut FieldWriter { encoder, out });
        });
        self.streams.step(stream, step);
        if ends {
            self.completed(Role::Server);
        }
        Ok(())
    }

    /// Begins a stream with a request (client role). A CONNECT asks for a tunnel and must not have `ends`: either its
    /// authority has a port and its path is empty (RFC 9113 section 8.5), or it has a protocol and a path (RFC 8441). A
    /// 2xx response makes the stream a tunnel ([`is_tunnel`](Self::is_tunnel)); after any other response the request is
    /// like all others.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if the peer allows no more streams, if either side has sent GOAWAY, or if the peer
    /// does not accept the protocol ([`takes_protocols`](Self::takes_protocols)); [`Error::InvalidRequest`] if method,
    /// path and protocol cannot be combined, or a CONNECT has `ends`.
    pub fn send_request(
        &mut self,
        request: Request<'_>,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<StreamRef, Error> {
        let is_tunnel = request.method == "CONNECT" && request.protocol.is_none();
        let is_connect = request.method == "CONNECT";
        if (request.protocol.is_some() && !is_connect)
            || request.path.is_empty() != is_tunnel
            || (is_connect && request.ends)
        {
            return Err(Error::InvalidRequest);
        }
        let full = self.streams.len() >= self.peer.streams as usize || self.next > EVERY_STREAM;
        let unknown = request.protocol.is_some() && !self.peer.connect_protocol;
        if self.role == Role::Server || full || unknown || self.peer_goes_away().is_some() || self.going.is_some() {
            return Err(Error::NotNow);
        }
        let number = self.next;
        self.next += 2;
        let stream = self.begin(number, Method::from_token(request.method.as_bytes()), Priority::default());
        self.write_section(number, request.ends, out, |encoder, out| {
            let mut writer = FieldWriter { encoder, out };
            writer.field(b":method", request.method.as_bytes());
            if let Some(protocol) = request.protocol {
                writer.field(b":protocol", protocol.as_bytes());
            }
            if !request.path.is_empty() {
                writer.field(b":scheme", request.scheme.as_bytes());
                writer.changing(b":path", request.path.as_bytes());
            }
            writer.field(b":authority", request.authority.as_bytes());
            fields(&mut writer);
        });
        self.streams.step(stream, if request.ends { Step::SendEnd } else { Step::Send });
        Ok(stream)
    }

    /// Returns true if the stream's own window is open. The connection's window may still be closed.
    pub fn is_open_by_itself(&mut self, stream: StreamRef) -> bool {
        self.streams.get(stream).is_some_and(|found| found.send.available() > 0)
    }

    /// Returns the number of body bytes that the connection's window allows.
    pub fn window(&self) -> usize {
        self.windows.available()
    }

    /// Returns the number of body bytes that may be sent now.
    #[inline]
    pub fn capacity(&mut self, stream: StreamRef) -> usize {
        let connection = self.windows.available();
        self.streams.get(stream).map_or(0, |found| found.send.available().min(connection))
    }

    /// Returns true if a part of the announced body is left to send, and none of it may be sent now.
    pub fn waits_for_window(&mut self, stream: StreamRef) -> bool {
        let capacity = self.capacity(stream);
        let rest = self.streams.get(stream).and_then(|found| found.promised);
        capacity == 0 && rest.is_some_and(|rest| rest > 0)
    }

    /// Sends as much of a body as the windows allow, in one or more frames, and returns the number of bytes sent. If
    /// `ends` is true, the last of `bytes` ends our direction.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if no body may be sent; [`Error::LengthMismatch`] if the body is longer or shorter
    /// than announced.
    #[inline]
    pub fn send_data(
        &mut self,
        stream: StreamRef,
        bytes: &[u8],
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let capacity = self.capacity(stream);
        let most_frame = self.peer.frame_bytes.min(FRAME_BYTES) as usize;
        let is_client = self.role == Role::Client;
        let Some(found) = self.streams.get(stream).filter(|found| is_client || found.has_answer) else {
            return Err(Error::NotNow);
        };
        if found.state.after(Step::Send).is_none() {
            return Err(Error::NotNow);
        }
        if let Some(promised) = found.promised
            && (bytes.len() as u64 > promised || (ends && bytes.len() as u64 != promised))
        {
            return Err(Error::LengthMismatch);
        }
        let sent = bytes.len().min(capacity);
        let is_all = sent == bytes.len();
        if sent == 0 && !(is_all && ends) {
            return Ok(0);
        }
        found.send.take(sent);
        if let Some(promised) = &mut found.promised {
            *promised -= sent as u64;
        }
        self.windows.sent(sent);
        let mut rest = &bytes[..sent];
        loop {
            let (part, behind) = rest.split_at(rest.len().min(most_frame));
            rest = behind;
            let last = rest.is_empty();
            let flags = if last && is_all && ends { flag::END_STREAM } else { 0 };
            FrameHead { length: part.len() as u32, kind: kind::DATA, flags, stream: stream.number }.write(out);
            out.extend_from_slice(part);
            if last {
                break;
            }
        }
        if sent > 0 {
            self.budget.sent_data(sent, sent == capacity);
        }
        if is_all && ends {
            self.streams.step(stream, Step::SendEnd);
            self.completed(Role::Server);
        }
        Ok(sent)
    }

    /// Sends trailers, which end our direction.
    ///
    /// # Errors
    /// Returns [`Error::NotNow`] if no trailers may be sent; [`Error::LengthMismatch`] if the body is shorter than
    /// announced.
    pub fn send_trailers(
        &mut self,
        stream: StreamRef,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        let is_client = self.role == Role::Client;
        let Some(found) = self.streams.get(stream).filter(|found| is_client || found.has_answer) else {
            return Err(Error::NotNow);
        };
        if found.state.after(Step::SendEnd).is_none() || !found.may_have_trailers(is_client) {
            return Err(Error::NotNow);
        }
        if found.promised.is_some_and(|promised| promised != 0) {
            return Err(Error::LengthMismatch);
        }
        self.write_section(stream.number, true, out, |encoder, out| fields(&mut FieldWriter { encoder, out }));
        self.streams.step(stream, Step::SendEnd);
        self.completed(Role::Server);
        Ok(())
    }

    /// Resets a stream, if it is in progress.
    pub fn reset(&mut self, stream: StreamRef, code: Code, out: &mut Vec<u8>) {
        if self.is_open(stream) {
            self.streams.remove(stream, End::Own);
            frame::write_reset(stream.number, code, out);
        }
    }

    /// Sends GOAWAY. The first call does not limit the streams, because the peer may have begun some already. The
    /// second call names the last stream that the peer has begun; streams up to that one are served. Further calls do
    /// nothing.
    pub fn go_away(&mut self, out: &mut Vec<u8>) {
        match self.going {
            None => {
                self.going = Some(EVERY_STREAM);
                frame::write_goaway(EVERY_STREAM, Code::NoError, "", out);
            }
            Some(EVERY_STREAM) => {
                self.going = Some(self.last);
                frame::write_goaway(self.last, Code::NoError, "", out);
            }
            Some(_) => {}
        }
    }

    /// Sends PING, which a living peer answers soon. Anything that it sends shows that it lives, so the answer is no event.
    pub fn send_ping(&mut self, out: &mut Vec<u8>) {
        frame::write_ping(&[0; 8], false, out);
    }

    /// Returns true if a GOAWAY has named the last stream.
    pub fn is_gone(&self) -> bool {
        self.going.is_some_and(|last| last != EVERY_STREAM)
    }

    /// Returns the streams in progress.
    pub fn streams(&self) -> impl Iterator<Item = StreamRef> {
        self.streams.refs()
    }

    /// Writes a field section: HEADERS, and CONTINUATION if it does not fit one frame.
    #[inline]
    fn write_section(
        &mut self,
        number: u32,
        ends: bool,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut hpack::Encoder, &mut Vec<u8>),
    ) {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        let length = out.len() - start - HEAD_BYTES;
        let end_stream = if ends { flag::END_STREAM } else { 0 };
        if length <= self.peer.frame_bytes as usize {
            let flags = end_stream | flag::END_HEADERS;
            let head = FrameHead { length: length as u32, kind: kind::HEADERS, flags, stream: number };
            out[start..start + HEAD_BYTES].copy_from_slice(&head.bytes());
            return;
        }
        let section = out.split_off(start + HEAD_BYTES);
        out.truncate(start);
        let most = self.peer.frame_bytes as usize;
        let parts = section.len().div_ceil(most);
        for (at, part) in section.chunks(most).enumerate() {
            let kind = if at == 0 { kind::HEADERS } else { kind::CONTINUATION };
            let flags = if at == 0 { end_stream } else { 0 } | if at + 1 == parts { flag::END_HEADERS } else { 0 };
            FrameHead { length: part.len() as u32, kind, flags, stream: number }.write(out);
            out.extend_from_slice(part);
        }
    }
}

const _: () = assert!(State::Open.after(Step::Send).is_some(), "an open stream may send");
