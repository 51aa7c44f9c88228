//! Requests on HTTP/2 that are kept before their handlers are called: until their bodies are whole, and until the peer goes on
//! taking the answers that it has asked for. A peer that opens no window must not have all its answers kept.

use super::connection::Connection;
use super::dispatch::Kit;
use super::exchange::Collect;
use super::out::Out;
use super::streams::{Http2, STALLED_BYTES, Waits};
use super::work;
use crate::request::Ready;
use proto::h2::StreamRef;

impl Connection {
    /// Calls the handler of a request that was kept: its body is whole, or it has none.
    pub(super) fn call_collected(&mut self, http2: &mut Http2, stream: StreamRef, kit: &mut Kit, out: &mut Out<'_>) {
        let Some(collect) = http2.get(stream).and_then(|active| active.exchange.collect.take()) else { return };
        let Collect { route, head, window, body } = collect;
        if let Some(active) = http2.get(stream) {
            active.lent = body.capacity();
        }
        http2.end_collecting(stream);
        match kit.route(&head, &window, self.caller(out)) {
            Ok(_) => self.call_http2(http2, stream, route, (&head, &window), Ready::Whole(body.into()), kit, out),
            Err(mut response) => self.respond_http2(http2, stream, &mut response, kit, out),
        }
    }

    /// Keeps a request until the peer goes on taking the answers that it has asked for.
    #[cold]
    pub(super) fn postpone(&mut self, http2: &mut Http2, stream: StreamRef, kit: &mut Kit, out: &mut Out<'_>) {
        let (write_due, all) = (kit.tick.saturating_add(kit.timeouts.write), http2.sent);
        let Some(active) = http2.get(stream) else { return };
        let kept = active.exchange.collect.as_ref().map_or(0, |collect| collect.window.capacity());
        (active.postponed, active.waits, active.due, active.sent_before) = (Some(kept), Waits::Window, write_due, all);
        http2.postponed_bytes += kept;
        http2.postponed.push_back(stream);
        self.charge_http2(http2, stream, kit, out);
    }

    /// Begins with requests that waited until the peer took answers, as far as it has.
    pub(super) fn begin_postponed(&mut self, http2: &mut Http2, kit: &mut Kit, out: &mut Out<'_>) {
        // What they answer may be sent at once, which comes back here: that finds none, and the loop goes on.
        if http2.postponed.is_empty() {
            return;
        }
        let mut postponed = std::mem::take(&mut http2.postponed);
        while !self.blocked && !self.is_ending() && http2.stalled() <= STALLED_BYTES {
            let Some(stream) = postponed.pop_front() else { break };
            let Some(active) = http2.get(stream) else { continue };
            let Some(kept) = active.postponed.take() else { continue };
            if !active.answered {
                (active.due, active.waits) = (kit.tick.saturating_add(kit.timeouts.handler), Waits::Handler);
            }
            http2.postponed_bytes -= kept;
            self.work.spend(work::REQUEST);
            self.call_collected(http2, stream, kit, out);
        }
        postponed.append(&mut http2.postponed);
        http2.postponed = postponed;
    }
}
