//! The clients of `exchanges.rs`, one for each [`Carrier`]. A client sends a case's request and reads the response.
//! This module also contains a collector for the access log.

use super::{Carrier, Case, Ends, PATIENCE, noted};
use crate::asked::{Sent, next, request, run};
use bytes::Bytes;
use highwire::tower::{AppService, ResponseBody};
use highwire::{HeaderMap, HeaderName, HeaderValue};
use highwire_proto::{Event, Head, Length, Limits, Role, h1, h2};
use http_body::Frame;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use testkit::http1::connect_within;
use tower_service::Service;
use tracing::field::{Field, Visit};
use tracing::span;

/// The parts of a response that a client has read so far.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) status: u16,
    pub(crate) interim: Vec<u16>,
    pub(crate) fields: Vec<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<String>,
}

/// The reason why a client has no complete response.
pub(crate) enum Failure {
    /// The server ended the response early, and the client noticed.
    Cut,
    /// The client did not wait for the response.
    Unseen,
    /// The server broke the protocol, or went silent.
    Broken(String),
}

fn lines_of_head(head: &Head, window: &[u8]) -> Vec<String> {
    let words = |span: highwire_proto::Span| span.of(window).escape_ascii().to_string();
    head.fields.iter().map(|field| format!("{}: {}", words(field.name).to_lowercase(), words(field.value))).collect()
}

fn lines_of_map(fields: &HeaderMap) -> Vec<String> {
    fields.iter().map(|(name, value)| format!("{name}: {}", value.as_bytes().escape_ascii())).collect()
}

/// Sends `out` and clears it. Ignores errors, because the server may already have ended the connection. A later read
/// then reports that.
fn send(socket: &mut TcpStream, out: &mut Vec<u8>) {
    let _ = socket.write_all(out);
    out.clear();
}

/// Waits for bytes and appends them to `unread`. Returns an error if the connection ends or stays silent.
fn receive(socket: &mut TcpStream, unread: &mut Vec<u8>) -> Result<(), Failure> {
    let mut buffer = [0; 16 * 1024];
    match socket.read(&mut buffer) {
        Ok(0) => return Err(Failure::Cut),
        Ok(count) => unread.extend_from_slice(&buffer[..count]),
        Err(error) if error.kind() == ErrorKind::Interrupted => {}
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return Err(Failure::Broken("the server goes silent".to_string()));
        }
        Err(_) => return Err(Failure::Cut),
    }
    Ok(())
}

pub(crate) fn over_http1(address: &str, case: &Case, tag: &str, reading: &mut Reading) -> Result<(), Failure> {
    let (mut http, mut socket, mut out) =
        (h1::Connection::new(Role::Client), connect_within(address, PATIENCE), Vec::new());
    let length = match (case.ends, case.announced) {
        (Ends::Bodiless, _) => Length::Empty,
        (_, Some(length)) => Length::Exact(length),
        (_, None) => Length::Unknown,
    };
    let target = format!("{}?{tag}", case.path);
    let version = highwire_proto::Version::Http11;
    let request =
        h1::Request { method: case.method, target: &target, version, length, keep_alive: true, upgrade: false };
    http.send_request(request, &mut out, |writer| writer.field(b"Host", b"a.example")).expect("a request");
    send(&mut socket, &mut out);
    for part in case.bytes() {
        http.send_data(&part, &mut out).expect("a part");
        send(&mut socket, &mut out);
    }
    match case.ends {
        Ends::Bodiless | Ends::Whole => http.send_end(&mut out, |_| {}).expect("an end"),
        Ends::Trailers => http.send_end(&mut out, |writer| writer.field(b"X-Sum", b"1")).expect("an end"),
        // May fail, because the server may already have refused the request and closed the connection.
        Ends::Short => _ = socket.shutdown(Shutdown::Write),
        Ends::Never => {}
        Ends::Gone => {
            noted(tag, 1);
            return Err(Failure::Unseen);
        }
    }
    send(&mut socket, &mut out);
    let (mut head, mut unread, mut at) = (Head::default(), Vec::<u8>::new(), 0);
    loop {
        let window = &unread[at..];
        let received = http.receive(window, &mut head, &Limits::default());
        let received = received.map_err(|error| Failure::Broken(error.to_string()))?;
        at += received.consumed;
        match received.event {
            Event::NeedMore => {
                unread.drain(..at);
                at = 0;
                receive(&mut socket, &mut unread)?;
            }
            Event::Folded => panic!("the server sends no folded lines"),
            Event::Interim => reading.interim.push(head.status),
            Event::Head(length) => {
                (reading.status, reading.fields) = (head.status, lines_of_head(&head, window));
                if length == Length::Empty {
                    return Ok(());
                }
            }
            Event::Data(bytes) => reading.body.extend_from_slice(bytes),
            Event::End { trailers } => {
                reading.trailers = if trailers { lines_of_head(&head, window) } else { Vec::new() };
                return Ok(());
            }
            Event::Paused | Event::Closed => return Err(Failure::Broken("the response has ended already".to_string())),
        }
    }
}

/// A client's HTTP/2 connection with one stream.
struct Http2 {
    http: h2::Connection,
    stream: h2::StreamRef,
    rest: VecDeque<Vec<u8>>,
    has_ended: bool,
    out: Vec<u8>,
    unread: Vec<u8>,
    head: Head,
    fields: Vec<u8>,
    limits: Limits,
}

impl Http2 {
    fn begin(case: &Case, tag: &str) -> Http2 {
        let (limits, mut out) = (Limits::default(), Vec::new());
        let mut http = h2::Connection::new(Role::Client, h2::Bounds::default(), &limits, &mut out);
        let (path, ends) = (format!("{}?{tag}", case.path), case.ends == Ends::Bodiless);
        let (scheme, authority) = ("http", "a.example");
        let request = h2::Request { method: case.method, scheme, authority, path: &path, protocol: None, ends };
        let begun = http.send_request(request, &mut out, |writer| {
            case.announced.iter().for_each(|length| writer.number(b"content-length", *length));
        });
        let (stream, rest, unread) = (begun.expect("a request"), case.bytes(), Vec::new());
        let (head, fields) = (Head::default(), Vec::new());
        Http2 { http, stream, rest, has_ended: ends, out, unread, head, fields, limits }
    }

    /// Writes as much of the body as the windows allow, and then the end that `ends` specifies.
    fn write_body(&mut self, ends: Ends) {
        while let Some(part) = self.rest.front_mut() {
            let sent = self.http.send_data(self.stream, part, false, &mut self.out).expect("an open stream");
            part.drain(..sent);
            if !part.is_empty() {
                return;
            }
            self.rest.pop_front();
        }
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        match ends {
            Ends::Whole | Ends::Short => {
                self.http.send_data(self.stream, &[], true, &mut self.out).expect("an end");
            }
            Ends::Trailers => {
                let sent = self.http.send_trailers(self.stream, &mut self.out, |writer| writer.field(b"x-sum", b"1"));
                sent.expect("an end");
            }
            Ends::Bodiless | Ends::Never | Ends::Gone => {}
        }
    }

    /// Handles the frames that are complete. Returns true if the response is complete.
    fn read(&mut self, reading: &mut Reading) -> Result<bool, Failure> {
        let (mut at, mut complete) = (0, false);
        loop {
            let (head, fields, out) = (&mut self.head, &mut self.fields, &mut self.out);
            let mut lent = h2::Lent { head, fields, out, limits: &self.limits };
            let received = self.http.receive(&self.unread[at..], &mut lent);
            let received = received.map_err(|failure| Failure::Broken(failure.text.to_string()))?;
            at += received.consumed;
            match received.event {
                h2::Event::NeedMore => break,
                h2::Event::Interim(_) => reading.interim.push(self.head.status),
                h2::Event::Head(_, length) => {
                    (reading.status, reading.fields) = (self.head.status, lines_of_head(&self.head, &self.fields));
                    complete |= length == Length::Empty;
                }
                h2::Event::Data(of, bytes) => {
                    reading.body.extend_from_slice(bytes);
                    self.http.used(of, bytes.len(), &mut self.out);
                }
                h2::Event::End(_, trailers) => {
                    reading.trailers = if trailers { lines_of_head(&self.head, &self.fields) } else { Vec::new() };
                    complete = true;
                }
                h2::Event::Reset(..) if !complete => return Err(Failure::Cut),
                _ => {}
            }
        }
        self.unread.drain(..at);
        Ok(complete)
    }
}

pub(crate) fn over_http2(address: &str, case: &Case, tag: &str, reading: &mut Reading) -> Result<(), Failure> {
    let (mut client, mut socket) = (Http2::begin(case, tag), connect_within(address, PATIENCE));
    loop {
        client.write_body(case.ends);
        send(&mut socket, &mut client.out);
        if case.ends == Ends::Gone {
            noted(tag, 1);
            client.http.reset(client.stream, h2::Code::Cancel, &mut client.out);
            send(&mut socket, &mut client.out);
            return Err(Failure::Unseen);
        }
        receive(&mut socket, &mut client.unread)?;
        if client.read(reading)? {
            return Ok(());
        }
    }
}

pub(crate) fn by_call(service: &AppService, case: &Case, tag: &str, reading: &mut Reading) -> Result<(), Failure> {
    let mut frames: VecDeque<_> = case.bytes().into_iter().map(|part| Ok(Frame::data(Bytes::from(part)))).collect();
    if case.ends == Ends::Trailers {
        let sum = (HeaderName::from_static("x-sum"), HeaderValue::from_static("1"));
        frames.push_back(Ok(Frame::trailers([sum].into_iter().collect())));
    }
    let ends = !matches!(case.ends, Ends::Never | Ends::Gone);
    let body = Sent { frames, ends, length: case.announced, told: None };
    let asked = request(case.method, &format!("{}?{tag}", case.path)).header("host", "a.example").body(body);
    let future = service.clone().call(asked.expect("a request"));
    if case.ends == Ends::Gone {
        noted(tag, 1);
        drop(future);
        return Err(Failure::Unseen);
    }
    let answer = async {
        let Ok(answer) = future.await;
        read_answer(answer, reading).await
    };
    let silent = |_| Err(Failure::Broken("the app goes silent".to_string()));
    run(async { tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(silent) })
}

async fn read_answer(answer: http::Response<ResponseBody>, reading: &mut Reading) -> Result<(), Failure> {
    let (head, mut body) = answer.into_parts();
    (reading.status, reading.fields) = (head.status.as_u16(), lines_of_map(&head.headers));
    while let Some(frame) = next(&mut body).await {
        match frame.map_err(|_| Failure::Cut)?.into_data() {
            Ok(data) => reading.body.extend_from_slice(&data),
            Err(frame) => reading.trailers.extend(lines_of_map(&frame.into_trailers().expect("trailers"))),
        }
    }
    Ok(())
}

/// Compares the fields of a response with those of the response over HTTP/1.
pub(crate) fn check_fields(carrier: Carrier, fields: &[String], by_http1: &[String]) -> Result<(), String> {
    let named = |line: &&String, names: &[&str]| names.iter().any(|name| line.split(": ").next() == Some(*name));
    // The response to a call has no `Server` and `Date`, because the outer server adds them.
    let stamps = fields.iter().filter(|line| named(line, &["date", "server"])).count();
    let expected = if carrier == Carrier::Call { 0 } else { 2 };
    if stamps != expected {
        return Err(format!("{stamps} fields are Date or Server, expected {expected}: {fields:?}"));
    }
    if fields.iter().any(|line| named(&line, &["strict-transport-security"])) {
        return Err(format!("HSTS in the clear: {fields:?}"));
    }
    let framing = ["connection", "date", "server", "transfer-encoding"];
    let kept = |fields: &[String]| fields.iter().filter(|line| !named(line, &framing)).cloned().collect::<Vec<_>>();
    let (kept, expected) = (kept(fields), kept(by_http1));
    if kept == expected { Ok(()) } else { Err(format!("fields {kept:?}, over HTTP/1 {expected:?}")) }
}

/// Targets and statuses in the access log.
static LINES: Mutex<Vec<(String, u16)>> = Mutex::new(Vec::new());

/// Collects the access log.
pub(crate) struct Log;

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "highwire::access"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        #[derive(Default)]
        struct Line(String, u16);
        impl Visit for Line {
            fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
            fn record_str(&mut self, field: &Field, value: &str) {
                if field.name() == "target" {
                    self.0 = value.to_string();
                }
            }
            fn record_u64(&mut self, field: &Field, value: u64) {
                if field.name() == "status" {
                    self.1 = value as u16;
                }
            }
        }
        let mut line = Line::default();
        event.record(&mut line);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push((line.0, line.1));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Returns the statuses in the access log for a request.
pub(crate) fn logged(tag: &str) -> Vec<u16> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_request = lines.iter().filter(|(target, _)| target.ends_with(&format!("?{tag}")));
    of_request.map(|(_, status)| *status).collect()
}
