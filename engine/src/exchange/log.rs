//! The line of an exchange in the access log.

use crate::request::Caller;
use crate::response::Content;
use crate::response::Response;
use crate::service::Service;
use crate::worker::WorkerContext;
use highwire_proto::Head;

/// The parts of a request that the access log needs.
pub(super) struct LogLine {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) protocol: &'static str,
    pub(super) since: highwire_io::Instant,
    peer: highwire_io::Peer,
}

/// The status in the access log of a request whose client has left, as other servers write it.
pub(super) const CLIENT_LEFT: u16 = 499;

impl LogLine {
    /// Copies these parts from a request's head, which was received at `since`.
    pub(super) fn new(head: &Head, window: &[u8], since: highwire_io::Instant, peer: highwire_io::Peer) -> LogLine {
        let words = |span: highwire_proto::Span| String::from_utf8_lossy(span.of(window)).into_owned();
        let protocol = match head.version {
            highwire_proto::Version::Http10 => "HTTP/1.0",
            highwire_proto::Version::Http11 => "HTTP/1.1",
            highwire_proto::Version::Http2 => "HTTP/2",
        };
        LogLine { method: words(head.method_span), target: words(head.target.whole), protocol, since, peer }
    }
}

/// Writes the access log's line for a request that was not answered, because its client has left.
#[cold]
pub(super) fn log_lost(line: &LogLine, worker: &WorkerContext<impl Service>) {
    tracing::info!(
        target: "highwire::access",
        peer = %line.peer,
        method = line.method.as_str(),
        target = line.target.as_str(),
        protocol = line.protocol,
        status = CLIENT_LEFT,
        microseconds = worker.now.since(line.since).as_micros() as u64,
        "the client has left before the answer"
    );
}

/// Writes the access log's line for an answered request.
#[cold]
pub(super) fn log_answer(
    line: &LogLine,
    caller: Caller<'_>,
    response: &Response,
    worker: &WorkerContext<impl Service>,
) {
    let bytes = match &response.content {
        Content::Bytes(bytes) => Some(bytes.len() as u64),
        Content::Stream(streamed) => streamed.length,
        Content::Switch(_) => None,
    };
    let tls = caller.tls();
    let tls = tls.as_ref();
    tracing::info!(
        target: "highwire::access",
        peer = %caller.peer,
        method = line.method.as_str(),
        target = line.target.as_str(),
        protocol = line.protocol,
        status = response.status.as_u16(),
        bytes,
        microseconds = worker.now.since(line.since).as_micros() as u64,
        tls = tls.map(|tls| tls.version),
        cipher = tls.map(|tls| tls.cipher),
        server_name = tls.and_then(|tls| tls.server_name.as_deref()),
        alpn = tls.and_then(|tls| tls.alpn.as_deref()),
        subject = tls.and_then(|tls| tls.client.as_ref()?.subject.as_deref()),
    );
}
