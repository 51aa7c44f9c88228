//! The part of a connection that only HTTP/1 has. It serves one request at a time.

mod body;
mod carrier;
mod client;
mod close;
mod lent_buffer;
mod send;
mod settle;
mod tunnel;

pub(super) use self::body::trailer_fields;
pub(super) use self::carrier::H1;
pub(super) use self::send::INLINE_BYTES;

use self::lent_buffer::LentBuffer;
use super::out::{BATCH_BYTES, Out};
use super::transport::Transport;
use super::work::{self, Timing};
use crate::exchange::lifecycle::Lifecycle;
use crate::exchange::{Exchange, Intake, Tunnel};
use crate::runtime::deadline::TICKS_A_SECOND;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::{Event, Head, Length, Method, Role, h1, h2};

/// A parsed head, its bytes, and the bytes behind it.
struct Parsed<'p> {
    head: &'p mut Head,
    seen: &'p [u8],
    behind: &'p [u8],
}

/// The state of HTTP/1, and its exchange.
pub(super) struct Http1 {
    http: h1::Connection,
    /// The pending exchange.
    exchange: Option<Box<Exchange>>,
    /// The tunnel that takes the place of HTTP/1 after this event.
    accepted: Option<Tunnel>,
    /// The byte counts of the request's body.
    intake: Intake,
    lent_buffer: LentBuffer,
    /// True if the last response was received into the memory of its reader.
    was_lent: bool,
    /// True if the reader of the response's body may be slow, so that little of it is received before the reader asks.
    is_sparing: bool,
    /// True if the end of the peer's direction was reported to the state machine.
    end_seen: bool,
    /// True if the connection has stopped reading a body that no handler takes, because the body is too large. The
    /// connection closes after the response.
    body_refused: bool,
    /// True if the unread bytes begin with the preface of HTTP/2, which the connection is to speak.
    is_http2: bool,
}

impl Http1 {
    pub(super) fn new(role: Role) -> Http1 {
        Http1 {
            http: h1::Connection::new(role),
            exchange: None,
            accepted: None,
            intake: Intake::default(),
            lent_buffer: LentBuffer::None,
            was_lent: false,
            is_sparing: false,
            end_seen: false,
            body_refused: false,
            is_http2: false,
        }
    }

    /// Returns true if unread bytes begin with the preface of HTTP/2, which the connection is to speak.
    #[inline]
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Returns true if a message has an end that the parser has not reported yet, for which it needs no bytes.
    pub(super) fn end_is_due(&self) -> bool {
        self.http.end_is_due()
    }

    /// Returns true if an exchange is pending.
    pub(super) fn has_exchange(&self) -> bool {
        self.exchange.is_some()
    }

    /// Returns true if a handler takes the request's body in parts.
    pub(super) fn has_reader(&self) -> bool {
        self.exchange.as_deref().is_some_and(|exchange| exchange.incoming.has_reader())
    }

    /// Returns true if the connection is not held up, no body was refused, and the connection is not ending, so parsing
    /// may continue.
    fn may_read(&self, transport: &Transport) -> bool {
        !transport.is_held_up() && !self.body_refused && !transport.is_ending()
    }

    /// Parses as much of `window` as possible. Returns the number of bytes used.
    #[inline]
    pub(super) fn advance(
        &mut self,
        transport: &mut Transport,
        window: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) -> usize {
        let (mut at, mut window) = (0, window);
        let mut unfolded: Vec<u8>;
        // True if body bytes were received since the last call of `body_fed`, which polls the handler once for many
        // parts.
        let mut fed = false;
        transport.work.begin(worker.turn(), worker.allowance());
        let mut timing = Timing::new(window.len(), &transport.work, worker.stopwatch());
        if self.http.theirs() == h1::state::State::SendsBody {
            self.http.set_second(worker.tick() / TICKS_A_SECOND);
        }
        while self.may_read(transport) {
            let rest = &window[at..];
            let is_due = !rest.is_empty() || self.http.end_is_due();
            let stopwatch = worker.stopwatch();
            if timing.event(&mut transport.work, &mut worker.reserve, is_due, stopwatch) {
                transport.leave_unread(worker);
                break;
            }
            // The end of a fully received body is parsed at once, even if the handler has not taken all bytes.
            if !self.http.end_is_due() && self.incoming_is_full() {
                if std::mem::take(&mut fed) {
                    self.body_fed(transport, worker, out);
                    continue;
                }
                transport.pause(out.queue);
                break;
            }
            if transport.served() == 0 && rest.first() == Some(&h2::PREFACE[0]) && !transport.is_client() {
                match begins_http2(rest, worker, out) {
                    Some(true) => {
                        self.is_http2 = true;
                        return at;
                    }
                    Some(false) => {}
                    None => break,
                }
            }
            let limits = &worker.rules.parser;
            let received = match self.http.receive(rest, head, limits) {
                Ok(received) => received,
                Err(error) => {
                    self.refuse(transport, error, worker, out);
                    return window.len();
                }
            };
            at += received.consumed;
            match received.event {
                Event::NeedMore => {
                    if self.http.announced() > 0 {
                        self.chunk_announced(transport, worker, out);
                    }
                    break;
                }
                Event::Paused | Event::Closed => break,
                Event::Head(length) => {
                    let (seen, behind) = rest.split_at(received.consumed);
                    transport.work.spend(work::scanned_head(seen.len(), head.fields.len()));
                    let parsed = Parsed { head, seen, behind };
                    at += if transport.is_client() {
                        self.response(transport, length, parsed, worker, out)
                    } else {
                        self.request(transport, length, parsed, worker, out)
                    };
                    if self.becomes_tunnel() {
                        return at;
                    }
                    if out.waiting() > BATCH_BYTES {
                        self.send_and_hear(transport, worker, out);
                    }
                }
                Event::Data(data) => {
                    transport.work.spend(work::CHUNK + work::bytes(data.len()));
                    fed |= self.body_came(transport, data, worker, out);
                }
                Event::End { trailers } => {
                    transport.work.spend(work::CHUNK + work::POLL);
                    if std::mem::take(&mut fed) && !self.recharge(transport, worker) {
                        self.no_memory(transport, worker, out);
                        continue;
                    }
                    let fields = if trailers { trailer_fields(head, rest) } else { Vec::new() };
                    H1::new(self, transport, out).end(fields, worker);
                    if self.becomes_tunnel() {
                        return at;
                    }
                }
                // Only clients receive folded lines and interim responses.
                Event::Folded => {
                    transport.work.spend(work::CHUNK + work::bytes(window.len()));
                    let mut copy = window.to_vec();
                    h1::unfold(&mut copy[at..]);
                    unfolded = copy;
                    window = &unfolded;
                }
                Event::Interim => {
                    transport.work.spend(work::scanned_head(received.consumed, head.fields.len()));
                    self.interim_response(transport, head, rest, worker, out);
                }
            }
        }
        timing.end(&mut transport.work, worker.stopwatch());
        if fed && !transport.is_ending() {
            self.body_fed(transport, worker, out);
        }
        at
    }

    /// Advances the handler and the response's body.
    pub(super) fn drive(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if self.exchange.is_some() {
            H1::new(self, transport, out).poll_answer(worker);
            self.pump(transport, worker, out);
        }
    }

    /// Begins the exchange of a parsed head. Returns how many bytes behind it were used as the request's body.
    #[inline]
    fn request(
        &mut self,
        transport: &mut Transport,
        length: Length,
        parsed: Parsed<'_>,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> usize {
        let Parsed { head, seen, behind } = parsed;
        transport.count_request();
        worker.count_request(false);
        self.intake = Intake::default();
        // The previous exchange may have ended in this turn.
        self.recycle_exchange();
        if transport.account.lent() != 0 {
            transport.account.set_lent(0);
            self.recharge(transport, worker);
        }
        self.body_refused = false;
        // Changes the phase, so that the deadline of this exchange starts anew.
        transport.restart();
        if head.method == Method::Connect {
            // The bytes after a CONNECT are not another request.
            self.http.close_after();
        }
        let config = worker.shared.config();
        let last = config.limits.requests_a_connection;
        if worker.draining() || (last != 0 && transport.served() >= last) {
            self.http.close_after();
        }
        let mut exchange = H1::new(self, transport, out).with_behind(behind);
        exchange.begin(length, head, seen, worker);
        exchange.used()
    }

    /// Returns the exchange; creates it if there is none.
    fn exchange(&mut self) -> &mut Exchange {
        self.exchange.get_or_insert_with(Exchange::boxed)
    }

    fn recycle_exchange(&mut self) {
        if let Some(exchange) = self.exchange.take_if(|exchange| exchange.is_over()) {
            exchange.recycle();
        }
    }
}

/// Returns `Some(true)` if the first bytes are the HTTP/2 preface and the settings allow HTTP/2 here, and `None` if
/// more bytes are needed. Under TLS, `http2_tls` and `http2_without_alpn` must be on, and no protocol may have been
/// negotiated by ALPN. (RFC 9113 section 3.2 demands ALPN.)
#[cold]
fn begins_http2(window: &[u8], worker: &WorkerContext<impl Service>, out: &Out<'_>) -> Option<bool> {
    let known = window.len().min(h2::PREFACE.len());
    let config = worker.shared.config();
    let may = match &out.tls {
        None => config.http2_cleartext,
        Some(tls) => config.http2_tls && config.http2_without_alpn && tls.negotiated_nothing(),
    };
    let begins = may && window[..known] == h2::PREFACE[..known];
    if begins && known < h2::PREFACE.len() { None } else { Some(begins) }
}
