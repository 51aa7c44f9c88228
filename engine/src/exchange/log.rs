//! The line of an exchange in the access log.
//!
//! It is written when the carrier has sent the whole response, or when the exchange ends before.

use crate::message::caller::Tls;
use crate::message::request::Caller;
use crate::message::response::{Content, Response};
use crate::runtime::context;
use crate::runtime::rate_limited::guarded;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::{Instant, Peer};
use highwire_proto::Head;

/// The parts of an exchange that the access log needs. If the response has begun, dropping the value writes the line.
pub(super) struct LogLine {
    method: String,
    target: String,
    protocol: &'static str,
    since: Instant,
    peer: Peer,
    begun: Option<Begun>,
    /// The reason why the exchange ends early.
    ended: Option<&'static str>,
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

impl LogLine {
    /// Copies these parts from a request's head, which was received at `since`.
    pub(super) fn new(head: &Head, window: &[u8], since: Instant, peer: Peer) -> LogLine {
        let words = |span: highwire_proto::Span| String::from_utf8_lossy(span.of(window)).into_owned();
        let protocol = match head.version {
            highwire_proto::Version::Http10 => "HTTP/1.0",
            highwire_proto::Version::Http11 => "HTTP/1.1",
            highwire_proto::Version::Http2 => "HTTP/2",
        };
        let (method, target) = (words(head.method_span), words(head.target.whole));
        LogLine { method, target, protocol, since, peer, begun: None, ended: None }
    }

    /// Returns the number of bytes of the request that are kept.
    pub(super) fn held(&self) -> usize {
        self.method.capacity() + self.target.capacity()
    }

    /// Records the response, before its head is sent.
    #[cold]
    pub(super) fn begins(&mut self, caller: Caller<'_>, response: &Response) {
        let status = response.status.as_u16();
        let has_body = self.method != "HEAD" && !matches!(status, 204 | 304);
        let (length, is_over) = match &response.content {
            Content::Bytes(bytes) if has_body => (Some(bytes.len() as u64), false),
            Content::Stream(streamed) if has_body => (streamed.length, false),
            Content::Bytes(_) | Content::Stream(_) => (Some(0), false),
            // The bytes of another protocol are none of the response.
            Content::Switch(_) => (None, true),
        };
        let is_reason = self.ended.is_some();
        self.begun = Some(Begun { status, length, sent: 0, is_over, is_reason, tls: caller.tls() });
    }

    /// Writes the line of a request that was not answered, because its client has left or, if `has_stopped` is true, because
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
        self.begun = Some(Begun { status, length: Some(0), sent: 0, is_over: true, is_reason: true, tls: None });
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

impl Drop for LogLine {
    fn drop(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let tls = begun.tls.as_ref();
        let ended = match begun.is_complete() {
            true => self.ended.filter(|_| begun.is_reason),
            false => self.ended.or(Some("the exchange ended early")),
        };
        guarded(|| {
            tracing::info!(
                target: "highwire::access",
                peer = %self.peer,
                method = self.method.as_str(),
                target = self.target.as_str(),
                protocol = self.protocol,
                status = begun.status,
                // A body that is withheld is not sent.
                bytes = begun.length.map_or(begun.sent, |length| begun.sent.min(length)),
                microseconds = context::now().since(self.since).as_micros() as u64,
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

/// Writes a line for bytes that were refused before they were a request, if the access log is on. `status` is that of the
/// response, if there is one.
#[cold]
pub(crate) fn log_refused(peer: Peer, status: Option<u16>, why: &str, worker: &WorkerContext<impl Service>) {
    if worker.shared.config().access_log {
        guarded(|| tracing::info!(target: "highwire::access", peer = %peer, status, refused = why));
    }
}
