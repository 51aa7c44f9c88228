//! An HTTP/2 client for tests on real sockets. It sends one request at a time, and as much of a request's body as the
//! server's flow-control windows allow.

use highwire_proto::h2::{Bounds, Connection, Event, Lent, Request, StreamRef};
use highwire_proto::{Head, Length, Limits, Role};
use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

/// A response: its status and its body.
pub type Answer = (u16, Vec<u8>);

/// A client connection.
pub struct Http2<S> {
    stream: S,
    scheme: &'static str,
    http: Connection,
    limits: Limits,
    head: Head,
    fields: Vec<u8>,
    /// Bytes to send.
    out: Vec<u8>,
    /// Received bytes of an incomplete frame.
    unread: Vec<u8>,
    buffer: Vec<u8>,
    begun: Instant,
}

impl<S: Read + Write> Http2<S> {
    /// Creates a client on a connected stream. The preface is sent with the first request.
    pub fn new(stream: S, scheme: &'static str) -> Http2<S> {
        let (limits, mut out) = (Limits::default(), Vec::new());
        let http = Connection::new(Role::Client, Bounds::default(), &limits, &mut out);
        Http2 {
            stream,
            scheme,
            http,
            limits,
            head: Head::default(),
            fields: Vec::new(),
            out,
            unread: Vec::new(),
            buffer: vec![0; 64 * 1024],
            begun: Instant::now(),
        }
    }

    /// Sends a request and waits for the whole response.
    ///
    /// # Errors
    /// Returns an error if the connection ends, or if the server resets the stream, breaks the protocol, or answers
    /// before it has the whole body.
    pub fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Result<Answer, String> {
        let request = Request {
            method,
            scheme: self.scheme,
            authority: "a.example",
            path,
            protocol: None,
            ends: body.is_empty(),
        };
        let begun = self.http.send_request(request, &mut self.out, |writer| {
            fields.iter().for_each(|(name, value)| writer.field(name.as_bytes(), value.as_bytes()));
        });
        let stream = begun.map_err(|error| format!("the request cannot be sent: {error:?}"))?;
        let (mut rest, mut answer) = (body, (0, Vec::new()));
        loop {
            if !rest.is_empty() {
                let sent = self.http.send_data(stream, rest, true, &mut self.out);
                rest = &rest[sent.map_err(|error| format!("the body cannot be sent: {error:?}"))?..];
            }
            self.flush()?;
            if self.receive(stream, &mut answer)? {
                return match rest.len() {
                    0 => Ok(answer),
                    left => Err(format!("status {} arrived before the last {left} body bytes were sent", answer.0)),
                };
            }
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        let sent = self.stream.write_all(&self.out).and_then(|()| self.stream.flush());
        self.out.clear();
        sent.map_err(|error| format!("cannot write to the server: {error}"))
    }

    /// Reads once and handles the complete frames. Returns true if the response is complete.
    fn receive(&mut self, stream: StreamRef, answer: &mut Answer) -> Result<bool, String> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => return Err("the server closed the connection".to_string()),
            Ok(count) => self.unread.extend_from_slice(&self.buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(format!("cannot read from the server: {error}")),
        }
        self.http.set_second(self.begun.elapsed().as_secs() as u32);
        let (mut at, mut complete) = (0, false);
        loop {
            let mut lent =
                Lent { head: &mut self.head, fields: &mut self.fields, out: &mut self.out, limits: &self.limits };
            let received = self.http.receive(&self.unread[at..], &mut lent);
            let received = received.map_err(|failure| format!("the server broke the protocol: {failure:?}"))?;
            at += received.consumed;
            match received.event {
                Event::NeedMore => break,
                Event::Head(of, length) if of == stream => {
                    answer.0 = self.head.status;
                    complete |= length == Length::Empty;
                }
                Event::Data(of, bytes) => {
                    if of == stream {
                        answer.1.extend_from_slice(bytes);
                    }
                    self.http.used(of, bytes.len(), &mut self.out);
                }
                Event::End(of, _) if of == stream => complete = true,
                Event::Reset(of, code) if of == stream && !complete => {
                    return Err(format!("the server reset the stream: {code:?}"));
                }
                _ => {}
            }
        }
        self.unread.drain(..at);
        Ok(complete)
    }
}
