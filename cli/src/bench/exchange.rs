//! One connection's protocol: the requests that wait for a response, and the responses that arrive.

use super::record::{Fault, Record, note_many};
use super::target::{Http, Target};
use bytes::Bytes;
use highwire_io::Instant;
use highwire_proto::h2::{self, StreamRef};
use highwire_proto::{Event, Head, Length, Limits, Role, h1};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// The times of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) intended: Instant,
    pub(super) sent: Instant,
}

/// What all connections of a worker share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) target: Target,
    /// The bytes of a whole request of HTTP/1, and the state of a connection that has sent it.
    pub(super) request: Bytes,
    pub(super) template: h1::Connection,
    /// The fields as HTTP/2 sends them.
    pub(super) lower: Vec<(String, String)>,
    pub(super) expected: RangeInclusive<u16>,
    pub(super) limits: Limits,
    pub(super) head: Head,
    pub(super) fields: Vec<u8>,
    pub(super) now: Instant,
    /// True from the end of the run: responses that arrive now have a latency, but are no part of the rate.
    pub(super) is_over: bool,
    /// The planned end of the run.
    pub(super) end: Option<Instant>,
    /// The whole responses of any status.
    pub(super) answers: u64,
    pub(super) record: Record,
    /// Responses that are not in the histograms yet: their request's times, their own, and their number.
    pub(super) equal: (Times, Instant, u64),
    /// The last head of a response of HTTP/1. All requests are the same, so an equal head has the same effect.
    pub(super) known: Option<KnownHead>,
}

/// A response's head, and its effect on a connection that has sent the request.
#[derive(Debug)]
pub(super) struct KnownHead {
    bytes: Vec<u8>,
    after: h1::Connection,
    status: u16,
    length: Length,
}

/// The longest head that is remembered, in bytes.
const KNOWN_BYTES: usize = 4096;

impl Shared {
    /// Records the latencies of the responses in `equal`.
    pub(super) fn note_equal(&mut self) {
        let (times, now, count) = self.equal;
        self.equal.2 = 0;
        note_many(&mut self.record.intended, now.since(times.intended), count);
        note_many(&mut self.record.sent, now.since(times.sent), count);
    }

    fn complete(&mut self, times: Times, status: u16) {
        self.answers += 1;
        self.record.count_status(status);
        if !self.expected.contains(&status) {
            return self.record.fault(Fault::Status, 1, || format!("status {status}"));
        }
        if self.is_over || self.end.is_some_and(|end| self.now > end) {
            self.record.late += 1;
        } else {
            self.record.responses += 1;
        }
        // Neighbours in a pipeline, and streams of a turn, have the same times.
        if self.equal.0 == times && self.equal.1 == self.now {
            self.equal.2 += 1;
        } else {
            self.note_equal();
            self.equal = (times, self.now, 1);
        }
    }
}

/// An error that ends a connection.
pub(super) type Broken = (Fault, String);

/// The state of a connection's protocol.
#[derive(Debug)]
pub(super) enum Exchange {
    One(One),
    Two(Box<Two>),
}

/// HTTP/1: responses come in the order of the requests.
#[derive(Debug)]
pub(super) struct One {
    http: h1::Connection,
    waiting: VecDeque<Times>,
    /// Received bytes of an incomplete part.
    window: Vec<u8>,
    /// The status of the response that has begun; 0 if none has.
    status: u16,
    /// True if nothing of the next response was handled.
    is_fresh: bool,
}

#[derive(Debug)]
pub(super) struct Two {
    http: h2::Connection,
    /// The requests, by the places of their streams.
    waiting: Vec<Option<Stream>>,
    open: usize,
    window: Vec<u8>,
    out: Vec<u8>,
    begun: Instant,
    /// Streams with a rest of a body that waits for room in the windows.
    held: VecDeque<(StreamRef, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    times: Times,
    number: u32,
    status: u16,
}

impl Exchange {
    pub(super) fn new(http: Http, shared: &Shared, streams: usize) -> Exchange {
        match http {
            Http::Two => {
                let bounds =
                    h2::Bounds { connection_window: 16 << 20, stream_window: 1 << 20, ..h2::Bounds::default() };
                let mut out = Vec::new();
                let http = h2::Connection::new(Role::Client, bounds, &shared.limits, &mut out);
                let waiting = Vec::with_capacity(streams);
                let (window, held) = (Vec::new(), VecDeque::new());
                Exchange::Two(Box::new(Two { http, waiting, open: 0, window, out, begun: shared.now, held }))
            }
            Http::One0 | Http::One1 => Exchange::One(One {
                http: shared.template.clone(),
                waiting: VecDeque::new(),
                window: Vec::new(),
                status: 0,
                is_fresh: true,
            }),
        }
    }

    /// The requests without a whole response.
    pub(super) fn waiting(&self) -> usize {
        match self {
            Exchange::One(one) => one.waiting.len(),
            Exchange::Two(two) => two.open,
        }
    }

    /// The requests without a whole response. With HTTP/1, in the order of sending.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = Times> + '_ {
        let (one, two) = match self {
            Exchange::One(one) => (Some(one.waiting.iter().copied()), None),
            Exchange::Two(two) => (None, Some(two.waiting.iter().flatten().map(|stream| stream.times))),
        };
        one.into_iter().flatten().chain(two.into_iter().flatten())
    }

    /// Returns true if a request was sent before this time and has no whole response.
    pub(super) fn has_older(&self, than: Instant) -> bool {
        match self {
            Exchange::One(one) => one.waiting.front().is_some_and(|times| times.sent < than),
            Exchange::Two(_) => self.unanswered().any(|times| times.sent < than),
        }
    }

    /// How many more requests may be sent now, of at most `most` at a time.
    pub(super) fn room(&self, most: usize) -> usize {
        match self {
            Exchange::One(one) => most - one.waiting.len().min(most),
            Exchange::Two(two) if two.http.peer_goes_away().is_some() || !two.held.is_empty() => 0,
            Exchange::Two(two) => most.min(two.http.most_requests()).saturating_sub(two.open),
        }
    }

    /// Appends a request. The body of a request of HTTP/1 is a part of `Shared::request`.
    pub(super) fn send(&mut self, shared: &Shared, times: Times, out: &mut Vec<u8>) -> Result<(), Broken> {
        match self {
            Exchange::One(one) => {
                out.extend_from_slice(&shared.request);
                one.waiting.push_back(times);
                Ok(())
            }
            Exchange::Two(two) => two.send(shared, times, out),
        }
    }

    /// Notes a request whose bytes the caller sends itself. HTTP/1 only.
    pub(super) fn note_sent(&mut self, times: Times) {
        if let Exchange::One(one) = self {
            one.waiting.push_back(times);
        }
    }

    /// Appends what the protocol itself has to say, such as the preface.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        if let Exchange::Two(two) = self {
            out.append(&mut two.out);
        }
    }

    /// Handles received bytes. Returns false if the connection must close, because the server or the version of HTTP says so.
    pub(super) fn receive(&mut self, bytes: &[u8], shared: &mut Shared) -> Result<bool, Broken> {
        match self {
            Exchange::One(one) => one.receive(bytes, shared),
            Exchange::Two(two) => two.receive(bytes, shared),
        }
    }

    /// Handles the end of the server's bytes. A response whose body ends with the connection is complete now.
    pub(super) fn end(&mut self, shared: &mut Shared) -> Option<Broken> {
        match self {
            Exchange::One(one) => one.end(shared),
            Exchange::Two(two) if two.open > 0 => Some((Fault::Closed, "the server closed a connection in use".into())),
            Exchange::Two(_) => None,
        }
    }
}

impl One {
    fn receive(&mut self, bytes: &[u8], shared: &mut Shared) -> Result<bool, Broken> {
        if self.window.is_empty() {
            let (used, stays) = self.parse(bytes, shared)?;
            self.window.extend_from_slice(&bytes[used..]);
            return Ok(stays);
        }
        let mut window = std::mem::take(&mut self.window);
        window.extend_from_slice(bytes);
        let (used, stays) = self.parse(&window, shared)?;
        window.drain(..used);
        self.window = window;
        Ok(stays)
    }

    /// Handles the whole parts in the window. Returns the number of their bytes, and whether the connection stays open.
    fn parse(&mut self, window: &[u8], shared: &mut Shared) -> Result<(usize, bool), Broken> {
        let mut at = 0;
        let mut unfolded = None::<Vec<u8>>;
        loop {
            let Some(&times) = self.waiting.front() else {
                if at < window.len() {
                    return Err((Fault::Protocol, "bytes that answer no request".into()));
                }
                return Ok((at, true));
            };
            let rest = unfolded.as_deref().unwrap_or(window);
            let begun = at;
            if self.is_fresh
                && let Some(known) = &shared.known
                && rest[at..].starts_with(&known.bytes)
            {
                (self.http, self.status, self.is_fresh) = (known.after.clone(), known.status, false);
                at += known.bytes.len();
                if known.length == Length::Empty && !self.complete(times, shared) {
                    return Ok((at, false));
                }
                continue;
            }
            let received = self.http.receive(&rest[at..], &mut shared.head, &shared.limits);
            let received = received.map_err(|error| (Fault::Protocol, error.to_string()))?;
            at += received.consumed;
            let ends = match received.event {
                Event::NeedMore | Event::Paused | Event::Closed => return Ok((at, true)),
                Event::Folded => {
                    let mut copy = rest.to_vec();
                    h1::unfold(&mut copy[at..]);
                    unfolded = Some(copy);
                    false
                }
                Event::Head(length) => {
                    self.status = shared.head.status;
                    if self.is_fresh && at - begun <= KNOWN_BYTES {
                        let (bytes, after, status) = (rest[begun..at].to_vec(), self.http.clone(), self.status);
                        shared.known = Some(KnownHead { bytes, after, status, length });
                    }
                    self.is_fresh = false;
                    length == Length::Empty
                }
                Event::Interim => {
                    self.is_fresh = false;
                    false
                }
                Event::Data(_) => false,
                Event::End { .. } => true,
            };
            if ends && !self.complete(times, shared) {
                return Ok((at, false));
            }
        }
    }

    /// A response is complete. Returns false if the connection cannot carry another one.
    fn complete(&mut self, times: Times, shared: &mut Shared) -> bool {
        self.waiting.pop_front();
        shared.complete(times, std::mem::take(&mut self.status));
        let stays = self.http.keeps_alive();
        self.http = shared.template.clone();
        self.is_fresh = true;
        stays
    }

    fn end(&mut self, shared: &mut Shared) -> Option<Broken> {
        let times = *self.waiting.front()?;
        match self.http.receive_end(&self.window) {
            Ok(Event::End { .. }) => {
                self.complete(times, shared);
                let is_last = self.waiting.is_empty();
                (!is_last).then(|| (Fault::Closed, "the server closes a connection that has more requests".into()))
            }
            _ if self.status != 0 || !self.window.is_empty() => {
                Some((Fault::ShortBody, "the server closed the connection within a response".into()))
            }
            _ => Some((Fault::Closed, "the server closed the connection before it answered".into())),
        }
    }
}

impl Two {
    fn send(&mut self, shared: &Shared, times: Times, out: &mut Vec<u8>) -> Result<(), Broken> {
        let target = &shared.target;
        let request = h2::Request {
            method: &target.method,
            scheme: if target.is_secure { "https" } else { "http" },
            authority: &target.authority,
            path: &target.path,
            protocol: None,
            ends: target.body.is_empty(),
        };
        out.append(&mut self.out);
        let stream = self.http.send_request(request, out, |writer| {
            for (name, value) in &shared.lower {
                writer.field(name.as_bytes(), value.as_bytes());
            }
            if !target.body.is_empty() {
                writer.number(b"content-length", target.body.len() as u64);
            }
        });
        let stream = stream.map_err(|error| (Fault::Stream, format!("no stream can be opened: {error:?}")))?;
        let place = stream.place as usize;
        if place >= self.waiting.len() {
            self.waiting.resize(place + 1, None);
        }
        self.waiting[place] = Some(Stream { times, number: stream.number, status: 0 });
        self.open += 1;
        if !target.body.is_empty() {
            self.held.push_back((stream, 0));
            self.send_bodies(&target.body, out)?;
        }
        Ok(())
    }

    /// Sends as much of the waiting bodies as the windows allow.
    fn send_bodies(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        while let Some((stream, sent)) = self.held.pop_front() {
            let is_open = self.waiting[stream.place as usize].is_some_and(|open| open.number == stream.number);
            if !is_open {
                continue;
            }
            let count = self.http.send_data(stream, &body[sent..], true, out);
            let sent = sent + count.map_err(|error| (Fault::Stream, format!("a body cannot be sent: {error:?}")))?;
            if sent < body.len() {
                self.held.push_front((stream, sent));
                break;
            }
        }
        Ok(())
    }

    fn close(&mut self, stream: StreamRef) -> Option<Stream> {
        let place = self.waiting.get_mut(stream.place as usize)?;
        let closed = place.take_if(|open| open.number == stream.number)?;
        self.open -= 1;
        Some(closed)
    }

    fn receive(&mut self, bytes: &[u8], shared: &mut Shared) -> Result<bool, Broken> {
        let mut window = std::mem::take(&mut self.window);
        let is_joined = !window.is_empty();
        if is_joined {
            window.extend_from_slice(bytes);
        }
        self.http.set_second(shared.now.since(self.begun).as_secs() as u32);
        let used = self.parse(if is_joined { &window } else { bytes }, shared)?;
        if is_joined {
            window.drain(..used);
        } else {
            window.extend_from_slice(&bytes[used..]);
        }
        self.window = window;
        let goes = self.http.peer_goes_away().is_some() || (self.http.knows_peer() && self.http.most_requests() == 0);
        Ok(!(goes && self.open == 0))
    }

    fn parse(&mut self, window: &[u8], shared: &mut Shared) -> Result<usize, Broken> {
        let mut at = 0;
        loop {
            let (head, fields, limits) = (&mut shared.head, &mut shared.fields, &shared.limits);
            let mut lent = h2::Lent { head, fields, out: &mut self.out, limits };
            let received = self.http.receive(&window[at..], &mut lent);
            let received = received.map_err(|failure| (Fault::Protocol, failure.text.to_owned()))?;
            at += received.consumed;
            match received.event {
                h2::Event::NeedMore => return Ok(at),
                h2::Event::Head(stream, length) => {
                    if let Some(Some(open)) = self.waiting.get_mut(stream.place as usize) {
                        open.status = shared.head.status;
                    }
                    if length == Length::Empty {
                        self.complete(stream, shared);
                    }
                }
                h2::Event::End(stream, _) => self.complete(stream, shared),
                h2::Event::Data(stream, bytes) => self.http.used(stream, bytes.len(), &mut self.out),
                h2::Event::Reset(stream, code) => {
                    if self.close(stream).is_some() {
                        shared.record.fault(Fault::Stream, 1, || format!("RST_STREAM or GOAWAY with {code:?}"));
                    }
                }
                h2::Event::Opened(_) | h2::Event::AllOpened => {
                    let mut out = std::mem::take(&mut self.out);
                    self.send_bodies(&shared.target.body, &mut out)?;
                    self.out = out;
                }
                h2::Event::Refused(..) | h2::Event::Interim(_) | h2::Event::GoingAway => {}
            }
        }
    }

    fn complete(&mut self, stream: StreamRef, shared: &mut Shared) {
        if let Some(closed) = self.close(stream) {
            shared.complete(closed.times, closed.status);
        }
    }
}
