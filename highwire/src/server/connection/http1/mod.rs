//! A connection that speaks HTTP/1: what is received becomes requests, one after the other.

mod body;
mod carrier;
mod send;

pub(super) use self::body::trailer_fields;
pub(super) use self::carrier::H1;

use super::Connection;
use super::Phase;
use super::out::Out;
use super::work::{self, Timing};
use crate::server::deadline::TICKS_A_SECOND;
use crate::server::dispatch::Kit;
use crate::server::exchange::lifecycle::Lifecycle;
use crate::server::exchange::{Exchange, Intake};
use proto::{Event, Head, Length, Method, h1, h2};

/// Bytes of answers that pipelined requests may put into one batch before the peer has to take some.
const BATCH_BYTES: usize = 256 * 1024;

impl Connection {
    /// Reads events from the window until it holds no more, or something has to be waited for. Returns how many bytes were used.
    #[inline]
    pub(super) fn advance_http1(&mut self, window: &[u8], kit: &mut Kit, head: &mut Head, out: &mut Out<'_>) -> usize {
        let mut at = 0;
        // Some of a body has come that nobody has been told of: handlers are asked once for all of it.
        let mut fed = false;
        self.transport.work.begin(kit.turn, kit.allowance);
        let mut timing = Timing::new(window.len(), &self.transport.work, kit.stopwatch);
        if self.http.client() == h1::state::State::SendsBody {
            self.http.set_second(kit.tick / TICKS_A_SECOND);
        }
        while self.may_read() {
            let rest = &window[at..];
            timing.event(&mut self.transport.work, kit.stopwatch);
            if self.transport.is_spent(kit) {
                break;
            }
            // A body that has come whole ends at once, however much of it waits for its handler.
            if !self.http.end_is_due() && self.incoming_is_full() {
                if std::mem::take(&mut fed) {
                    self.body_fed(kit, out);
                    continue;
                }
                self.transport.pause(out.queue);
                break;
            }
            if self.transport.served == 0 && rest.first() == Some(&h2::PREFACE[0]) {
                match self.begins_http2(rest, kit, out) {
                    Some(true) => {
                        self.begin_http2(kit, out);
                        return at + self.advance_http2(rest, kit, head, out);
                    }
                    Some(false) => {}
                    None => break,
                }
            }
            let limits = &kit.shared.setup.config.limits;
            let received = match self.http.receive(rest, head, limits) {
                Ok(received) => received,
                Err(error) => {
                    self.refuse(error, kit, head, rest, out);
                    return window.len();
                }
            };
            at += received.consumed;
            match received.event {
                Event::NeedMore => {
                    if self.http.announced() > 0 {
                        self.chunk_announced(kit, out);
                    }
                    break;
                }
                Event::Paused | Event::Closed => break,
                Event::Head(length) => {
                    let (seen, behind) = rest.split_at(received.consumed);
                    self.transport.work.spend(work::scanned_head(seen.len(), head.fields.len()));
                    at += self.request(length, head, seen, behind, kit, out);
                    if self.is_tunnel() {
                        self.received_raw(&window[at..], kit, out);
                        return window.len();
                    }
                    if out.waiting() > BATCH_BYTES {
                        self.send_and_hear(kit, out);
                    }
                }
                Event::Data(data) => {
                    self.transport.work.spend(work::CHUNK + work::bytes(data.len()));
                    fed |= self.body_came(data, kit, out);
                }
                Event::End { trailers } => {
                    self.transport.work.spend(work::CHUNK + work::POLL);
                    if std::mem::take(&mut fed) && !self.recharge(kit) {
                        self.no_memory(kit, out);
                        continue;
                    }
                    let fields = if trailers { trailer_fields(head, rest) } else { Vec::new() };
                    H1::new(self, out).end(fields, kit);
                    if self.is_tunnel() {
                        self.received_raw(&window[at..], kit, out);
                        return window.len();
                    }
                }
                // Only clients receive interim responses.
                Event::Interim => {}
            }
        }
        timing.end(&mut self.transport.work, kit.stopwatch);
        if fed && !self.transport.is_ending() {
            self.body_fed(kit, out);
        }
        at
    }

    /// A request's head came. Answers how many bytes of its body, which stand behind it, were used at once.
    #[inline]
    fn request(
        &mut self,
        length: Length,
        head: &mut Head,
        seen: &[u8],
        behind: &[u8],
        kit: &mut Kit,
        out: &mut Out<'_>,
    ) -> usize {
        self.transport.served += 1;
        kit.requests += 1;
        self.intake = Intake::default();
        // The one before may have ended in this turn.
        self.recycle_exchange(kit);
        if self.transport.account.lent() != 0 {
            self.transport.account.set_lent(0);
            self.recharge(kit);
        }
        self.body_refused = false;
        // Each exchange has its own time, whatever the one before left of its.
        self.transport.phase = Phase::Fresh;
        if head.method == Method::Connect {
            // What follows is no request, unless a tunnel is made of it.
            self.http.close_after();
        }
        let config = &kit.shared.setup.config;
        let last = config.caps.requests_a_connection;
        if kit.draining || (last != 0 && self.transport.served >= last) {
            self.http.close_after();
        }
        let mut exchange = H1::new(self, out).with_behind(behind);
        exchange.begin(length, head, seen, kit);
        exchange.used()
    }

    /// Takes an exchange, or the one that is there.
    pub(super) fn exchange(&mut self, kit: &mut Kit) -> &mut Exchange {
        self.exchange.get_or_insert_with(|| kit.new_exchange())
    }

    pub(super) fn recycle_exchange(&mut self, kit: &mut Kit) {
        if let Some(exchange) = self.exchange.take_if(|exchange| exchange.is_over()) {
            kit.recycle(exchange);
        }
    }
}
