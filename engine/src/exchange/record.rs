//! What the access log and the service's observer learn of an exchange.
//!
//! They learn it when the carrier has sent the whole response, or when the exchange ends before.

use crate::message::caller::Tls;
use crate::message::request::Caller;
use crate::message::response::{Content, Response};
use crate::runtime::context;
use crate::runtime::rate_limited::guarded;
use crate::service::{Finished, Observer, Service};
use crate::worker::context::WorkerContext;
use highwire_io::{Instant, Peer};
use highwire_proto::{Head, Method, Version};
use std::rc::Rc;

/// The parts of a request that are known when it begins and that an observer gets.
#[derive(Clone, Copy)]
pub(crate) struct Observed {
    pub(crate) since: Instant,
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) is_secure: bool,
    /// The route, once it is known.
    pub(crate) route: Option<u32>,
}

impl Observed {
    /// Tells an observer that the request has ended.
    pub(crate) fn end(self, observer: &dyn Observer, now: Instant, status: u16, bytes: u64, end: End) {
        let End { is_cut, ended } = end;
        let Observed { since, method, version, is_secure, route } = self;
        let duration = now.since(since);
        let finished = Finished { route, method, version, is_secure, status, duration, bytes, is_cut, ended };
        guarded(|| observer.finished(&finished));
    }
}

/// How an exchange has ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct End {
    /// True if no complete response was sent.
    is_cut: bool,
    /// Why it has ended early, if it has.
    ended: Option<&'static str>,
}

/// What is known of an exchange whose end is recorded. If the response has begun, dropping the value records the end.
pub(super) struct Record {
    request: Observed,
    observer: Option<Rc<dyn Observer>>,
    /// The other parts of a line in the access log, if there will be one.
    line: Option<Line>,
    begun: Option<Begun>,
    /// The reason why the exchange ends early.
    ended: Option<&'static str>,
}

/// The parts of a request that only the access log needs.
struct Line {
    method: String,
    target: String,
    peer: Peer,
}

/// A response whose head is sent.
struct Begun {
    status: u16,
    /// The number of bytes that the body has, if it is known.
    length: Option<u64>,
    sent: u64,
    is_over: bool,
    /// True if the exchange has ended early, and this is the response that says why.
    is_reason: bool,
    /// True if there was no response.
    is_lost: bool,
    tls: Option<Tls>,
}

/// The status in the access log of a request whose client has left, as other servers write it.
pub(super) const CLIENT_LEFT: u16 = 499;

/// Why such a request has ended.
const LEFT: &str = "the client has left before the answer";

/// Why a request has ended without an answer, if its body was not complete: its client has left, or has broken the protocol.
const INCOMPLETE: &str = "the request ended before it was complete";

/// Why a request has ended without an answer, if the server no longer waits for it.
const STOPPED: &str = "the server has stopped before the answer";

impl Record {
    pub(super) fn new(request: Observed, observer: Option<Rc<dyn Observer>>) -> Record {
        Record { request, observer, line: None, begun: None, ended: None }
    }

    /// Adds the parts of a line in the access log from a request's head.
    pub(super) fn with_line(mut self, head: &Head, window: &[u8], peer: Peer) -> Record {
        let words = |span: highwire_proto::Span| String::from_utf8_lossy(span.of(window)).into_owned();
        self.line = Some(Line { method: words(head.method_span), target: words(head.target.whole), peer });
        self
    }

    pub(super) fn set_route(&mut self, route: u32) {
        self.request.route = Some(route);
    }

    /// Returns the number of bytes of the request that are kept.
    pub(super) fn held(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.method.capacity() + line.target.capacity())
    }

    /// Records the response, before its head is sent.
    #[cold]
    pub(super) fn begins(&mut self, caller: Caller<'_>, response: &Response, has_tunnel: bool) {
        let status = response.status.as_u16();
        let has_body = self.request.method != Method::Head && !matches!(status, 204 | 304);
        let (length, is_over) = match &response.content {
            // The bytes of another protocol are none of the response.
            _ if has_tunnel => (None, true),
            Content::Bytes(bytes) if has_body => (Some(bytes.len() as u64), false),
            Content::Stream(streamed) if has_body => (streamed.length, false),
            Content::Bytes(_) | Content::Stream(_) => (Some(0), false),
            Content::Switch(_) => (None, true),
        };
        let is_reason = self.ended.is_some();
        let tls = self.line.as_ref().and_then(|_| caller.tls());
        self.begun = Some(Begun { status, length, sent: 0, is_over, is_reason, is_lost: false, tls });
    }

    /// Records the end of a request that was not answered, because its client has left or, if `has_stopped` is true, because
    /// the server cuts what is left. If another reason is recorded, the server has ended the request itself. `is_received` is true
    /// if the request was complete.
    #[cold]
    pub(super) fn lose(mut self, has_stopped: bool, is_received: bool) {
        let (status, why) = match (self.ended, has_stopped, is_received) {
            (Some(why), ..) => (503, why),
            (None, true, _) => (503, STOPPED),
            (None, false, true) => (CLIENT_LEFT, LEFT),
            (None, false, false) => (CLIENT_LEFT, INCOMPLETE),
        };
        self.ended = Some(why);
        self.begun =
            Some(Begun { status, length: Some(0), sent: 0, is_over: true, is_reason: true, is_lost: true, tls: None });
    }

    /// Counts bytes of the body that the carrier has sent.
    #[cold]
    pub(super) fn count(&mut self, bytes: u64) {
        if let Some(begun) = &mut self.begun {
            begun.sent += bytes;
        }
    }

    /// Records that an empty response with this status is sent instead.
    pub(super) fn is_replaced(&mut self, status: u16) {
        self.begun.iter_mut().for_each(|begun| (begun.status, begun.length, begun.sent) = (status, Some(0), 0));
    }

    /// Records that the body has ended.
    pub(super) fn is_over(&mut self) {
        self.begun.iter_mut().for_each(|begun| begun.is_over = true);
    }

    /// Records why the exchange ends early.
    pub(super) fn ends(&mut self, why: &'static str) {
        self.ended = self.ended.or(Some(why));
    }

    /// Returns true if the whole response is sent.
    pub(super) fn is_complete(&self) -> bool {
        self.begun.as_ref().is_some_and(Begun::is_complete)
    }
}

impl Begun {
    fn is_complete(&self) -> bool {
        self.length.map_or(self.is_over, |length| self.sent >= length)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let ended = match begun.is_complete() {
            true => self.ended.filter(|_| begun.is_reason),
            false => self.ended.or(Some("the exchange ended early")),
        };
        // A thread that ends by a panic may have left its worker.
        let now = context::precise_now_if_any().unwrap_or(self.request.since);
        // A body that is withheld is not sent.
        let bytes = begun.length.map_or(begun.sent, |length| begun.sent.min(length));
        if let Some(observer) = &self.observer {
            let is_cut = begun.is_lost || begun.status == CLIENT_LEFT || !begun.is_complete();
            self.request.end(&**observer, now, begun.status, bytes, End { is_cut, ended });
        }
        let Some(line) = &self.line else { return };
        let tls = begun.tls.as_ref();
        let protocol = match self.request.version {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
        };
        guarded(|| {
            tracing::info!(
                target: "highwire::access",
                peer = %line.peer,
                method = line.method.as_str(),
                target = line.target.as_str(),
                protocol,
                status = begun.status,
                bytes,
                microseconds = now.since(self.request.since).as_micros() as u64,
                ended,
                tls = tls.map(|tls| tls.version),
                cipher = tls.map(|tls| tls.cipher),
                server_name = tls.and_then(|tls| tls.server_name.as_deref()),
                alpn = tls.and_then(|tls| tls.alpn.as_deref()),
                subject = tls.and_then(|tls| tls.client.as_ref()?.subject.as_deref()),
            );
        });
    }
}

/// Returns true if the access log is on and a subscriber takes its lines.
#[inline]
pub(super) fn writes_lines(worker: &WorkerContext<impl Service>) -> bool {
    worker.shared.config().access_log && is_subscribed()
}

fn is_subscribed() -> bool {
    let mut is_subscribed = false;
    guarded(|| is_subscribed = tracing::event_enabled!(target: "highwire::access", tracing::Level::INFO));
    is_subscribed
}

/// Writes a line for bytes that were refused before they were a request, if the access log is on. `status` is that of the
/// response, if there is one.
#[cold]
pub(crate) fn log_refused(peer: Peer, status: Option<u16>, why: &str, worker: &WorkerContext<impl Service>) {
    if worker.shared.config().access_log {
        guarded(|| tracing::info!(target: "highwire::access", peer = %peer, status, refused = why));
    }
}
