//! A connection that speaks HTTP/1. It serves one request at a time.

mod body;
mod carrier;
mod client;
mod lent_buffer;
mod send;

pub(super) use self::body::trailer_fields;
pub(super) use self::carrier::H1;

use super::Connection;
use super::out::{BATCH_BYTES, Out};
use super::phase::Phase;
use super::work::{self, Timing};
use crate::deadline::TICKS_A_SECOND;
use crate::exchange::lifecycle::Lifecycle;
use crate::exchange::{Exchange, Intake};
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::{Event, Head, Length, Method, h1, h2};

impl Connection {
    /// Parses as much of `window` as possible. Returns the number of bytes used.
    #[inline]
    pub(super) fn advance_http1(
        &mut self,
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
        self.transport.work.begin(worker.turn, worker.allowance);
        let mut timing = Timing::new(window.len(), &self.transport.work, worker.stopwatch);
        if self.http.theirs() == h1::state::State::SendsBody {
            self.http.set_second(worker.tick / TICKS_A_SECOND);
        }
        while self.may_read() {
            let rest = &window[at..];
            let is_due = !rest.is_empty() || self.http.end_is_due();
            if timing.event(&mut self.transport.work, &mut worker.reserve, is_due, worker.stopwatch) {
                self.transport.leave_unread(worker);
                break;
            }
            // The end of a fully received body is parsed at once, even if the handler has not taken all bytes.
            if !self.http.end_is_due() && self.incoming_is_full() {
                if std::mem::take(&mut fed) {
                    self.body_fed(worker, out);
                    continue;
                }
                self.transport.pause(out.queue);
                break;
            }
            if self.transport.served == 0 && rest.first() == Some(&h2::PREFACE[0]) && self.transport.link.is_none() {
                match self.begins_http2(rest, worker, out) {
                    Some(true) => {
                        self.begin_http2(worker, out);
                        return at + self.advance_http2(rest, worker, head, out);
                    }
                    Some(false) => {}
                    None => break,
                }
            }
            let limits = &worker.rules.parser;
            let received = match self.http.receive(rest, head, limits) {
                Ok(received) => received,
                Err(error) => {
                    self.refuse(error, worker, head, rest, out);
                    return window.len();
                }
            };
            at += received.consumed;
            match received.event {
                Event::NeedMore => {
                    if self.http.announced() > 0 {
                        self.chunk_announced(worker, out);
                    }
                    break;
                }
                Event::Paused | Event::Closed => break,
                Event::Head(length) => {
                    let (seen, behind) = rest.split_at(received.consumed);
                    self.transport.work.spend(work::scanned_head(seen.len(), head.fields.len()));
                    at += match self.transport.link {
                        None => self.request(length, head, seen, behind, worker, out),
                        Some(_) => self.response(length, head, seen, behind, worker, out),
                    };
                    if self.is_tunnel() {
                        self.received_raw(&window[at..], worker, out);
                        return window.len();
                    }
                    if out.waiting() > BATCH_BYTES {
                        self.send_and_hear(worker, out);
                    }
                }
                Event::Data(data) => {
                    self.transport.work.spend(work::CHUNK + work::bytes(data.len()));
                    fed |= self.body_came(data, worker, out);
                }
                Event::End { trailers } => {
                    self.transport.work.spend(work::CHUNK + work::POLL);
                    if std::mem::take(&mut fed) && !self.recharge(worker) {
                        self.no_memory(worker, out);
                        continue;
                    }
                    let fields = if trailers { trailer_fields(head, rest) } else { Vec::new() };
                    H1::new(self, out).end(fields, worker);
                    if self.is_tunnel() {
                        self.received_raw(&window[at..], worker, out);
                        return window.len();
                    }
                }
                // Only clients receive folded lines and interim responses.
                Event::Folded => {
                    self.transport.work.spend(work::CHUNK + work::bytes(window.len()));
                    let mut copy = window.to_vec();
                    h1::unfold(&mut copy[at..]);
                    unfolded = copy;
                    window = &unfolded;
                }
                Event::Interim => {
                    self.transport.work.spend(work::scanned_head(received.consumed, head.fields.len()));
                    self.interim_response(head, rest, worker, out);
                }
            }
        }
        timing.end(&mut self.transport.work, worker.stopwatch);
        if fed && !self.transport.is_ending() {
            self.body_fed(worker, out);
        }
        at
    }

    /// Begins the exchange of a parsed head. `seen` has the bytes of the head, and `behind` the bytes after it. Returns
    /// how many bytes of `behind` were used as the request's body.
    #[inline]
    fn request(
        &mut self,
        length: Length,
        head: &mut Head,
        seen: &[u8],
        behind: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> usize {
        self.transport.served += 1;
        worker.requests += 1;
        self.intake = Intake::default();
        // The previous exchange may have ended in this turn.
        self.recycle_exchange();
        if self.transport.account.lent() != 0 {
            self.transport.account.set_lent(0);
            self.recharge(worker);
        }
        self.transport.body_refused = false;
        // Changes the phase, so that the deadline of this exchange starts anew.
        self.transport.phase = Phase::Fresh;
        if head.method == Method::Connect {
            // The bytes after a CONNECT are not another request.
            self.http.close_after();
        }
        let config = worker.shared.config();
        let last = config.limits.requests_a_connection;
        if worker.draining || (last != 0 && self.transport.served >= last) {
            self.http.close_after();
        }
        let mut exchange = H1::new(self, out).with_behind(behind);
        exchange.begin(length, head, seen, worker);
        exchange.used()
    }

    /// Returns the exchange; creates it if there is none.
    pub(super) fn exchange(&mut self) -> &mut Exchange {
        self.exchange.get_or_insert_with(Exchange::boxed)
    }

    pub(super) fn recycle_exchange(&mut self) {
        if let Some(exchange) = self.exchange.take_if(|exchange| exchange.is_over()) {
            exchange.recycle();
        }
    }
}
