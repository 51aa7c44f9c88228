//! Requests' bodies: collected whole, handed on in parts, or read and dropped.

use super::connection::Connection;
use super::dispatch::Kit;
use super::exchange::Collect;
use super::out::Out;
use super::work;
use crate::request::{BodyUse, Ready};
use crate::trailers::is_allowed_trailer;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use proto::{Event, Head, Length};

impl Connection {
    #[expect(clippy::too_many_arguments, reason = "the cold half of `request`, with what it already has in hand")]
    pub(super) fn request_with_body(
        &mut self,
        route: u32,
        length: Length,
        head: &mut Head,
        seen: &[u8],
        behind: &[u8],
        kit: &mut Kit,
        out: &mut Out<'_>,
    ) -> usize {
        let body_use = match kit.body_use(route) {
            // Another protocol's bytes begin behind the body: it is read first (RFC 9110 section 7.8).
            BodyUse::None if head.upgrade => BodyUse::Whole,
            body_use => body_use,
        };
        let announced = if let Length::Exact(length) = length { length } else { 0 };
        if let Some(mut response) = kit.announces_too_much(route, body_use, announced) {
            self.http.close_after();
            self.respond(&mut response, kit, out);
            return 0;
        }
        if body_use != BodyUse::None && head.expects_continue && behind.is_empty() {
            // The state table permits it here, and there is no field that could be refused.
            let _ = self.http.send_interim(100, &mut out.queue.output, |_| {});
        }
        match body_use {
            BodyUse::None => {
                self.leave_body(length, head, kit);
                self.call(route, (head, seen), Ready::Nothing, kit, out);
                0
            }
            BodyUse::Whole => {
                if let Some(body) = self.whole_body(length, behind, head, kit) {
                    let body = Bytes::copy_from_slice(body);
                    let used = body.len();
                    self.call(route, (head, seen), Ready::Whole(body), kit, out);
                    if self.exchange.as_ref().is_some_and(|exchange| exchange.awaits_answer()) {
                        self.lend(used, kit, out);
                    }
                    return used;
                }
                self.exchange(kit).begin_to_collect(route, head, seen);
                if !self.recharge(kit) {
                    self.no_memory(kit, out);
                }
                0
            }
            BodyUse::Parts => {
                let connection = kit.context.inbox.waker(self.task().number());
                let body = self.exchange(kit).begin_parts(connection);
                self.call(route, (head, seen), Ready::Parts(body), kit, out);
                0
            }
        }
    }

    /// The whole body, where it stands behind its head already: nothing is copied into the connection then.
    pub(super) fn whole_body<'w>(
        &mut self,
        length: Length,
        behind: &'w [u8],
        head: &mut Head,
        kit: &Kit,
    ) -> Option<&'w [u8]> {
        let Length::Exact(length) = length else { return None };
        let body = behind.get(..usize::try_from(length).ok()?)?;
        let limits = &kit.shared.setup.config.limits;
        // A body of known length that lies in the window whole is one part and an end.
        let data = self.http.receive(body, head, limits).ok()?;
        let end = self.http.receive(&[], head, limits).ok()?;
        debug_assert!(data.event == Event::Data(body) && end.event == Event::End { trailers: false });
        Some(body)
    }

    /// Prepares for a body that no handler takes: it is read and dropped, or the connection closes where it is too large
    /// or the peer waits to be told to send it.
    pub(super) fn leave_body(&mut self, length: Length, head: &Head, kit: &Kit) {
        let limit = kit.shared.setup.config.caps.unread_body_bytes;
        let too_large = matches!(length, Length::Exact(length) if length > limit);
        if too_large || (head.expects_continue && length != Length::Empty) {
            self.http.close_after();
        }
    }

    /// A part of a request's body came: returns true if it is kept, so that [`body_fed`](Self::body_fed) has to follow.
    pub(super) fn body_came(&mut self, data: &[u8], kit: &mut Kit, out: &mut Out<'_>) -> bool {
        self.body_bytes += data.len() as u64;
        self.arrived = self.arrived.saturating_add(data.len() as u32);
        let body_use = self.exchange.as_mut().map_or(BodyUse::None, |exchange| exchange.receive(data));
        let incoming = self.exchange.as_ref().and_then(|exchange| exchange.incoming.as_ref());
        if let (BodyUse::None, Some(incoming)) = (body_use, incoming) {
            // What the handler took before it let go is no longer counted.
            let had_let_go = std::mem::replace(&mut incoming.borrow_mut().let_go, true);
            self.body_bytes = if had_let_go { self.body_bytes } else { data.len() as u64 };
        }
        let is_kept = body_use != BodyUse::None || incoming.is_some();
        if self.body_bytes.saturating_add(self.http.announced()) > kit.body_limit(self.route, body_use) {
            self.body_too_large(body_use, kit, out);
            return false;
        }
        is_kept
    }

    /// Parts of a request's body came: charges them, and tells a handler that takes it in parts.
    pub(super) fn body_fed(&mut self, kit: &mut Kit, out: &mut Out<'_>) {
        if !self.recharge(kit) {
            return self.no_memory(kit, out);
        }
        if self.exchange.as_ref().is_some_and(|exchange| exchange.incoming.is_some()) {
            let begun = (kit.stopwatch)();
            self.work.spend(work::POLL);
            self.poll_answer(kit, out);
            self.pump(kit, out);
            self.work.spend_since(begun, kit.stopwatch);
        }
    }

    /// A chunk was announced whose bytes are still to come: one that is too large is refused before they do.
    pub(super) fn chunk_announced(&mut self, kit: &mut Kit, out: &mut Out<'_>) {
        let body_use = match &self.exchange {
            Some(exchange) if exchange.collect.is_some() => BodyUse::Whole,
            // A handler that has let go of it is seen when the chunk's bytes come.
            Some(exchange) if exchange.incoming.is_some() => BodyUse::Parts,
            _ => BodyUse::None,
        };
        if self.body_bytes.saturating_add(self.http.announced()) > kit.body_limit(self.route, body_use) {
            self.body_too_large(body_use, kit, out);
        }
    }

    pub(super) fn body_ended(
        &mut self,
        trailers: Vec<(HeaderName, HeaderValue)>,
        kit: &mut Kit,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        let Some(exchange) = &mut self.exchange else { return };
        if let Some(incoming) = exchange.incoming.take() {
            let trailer_bytes: usize = trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
            incoming.borrow_mut().finish(Ok(()), trailers);
            self.poll_answer(kit, out);
            if self.exchange.as_ref().is_some_and(|exchange| exchange.awaits_answer()) {
                // Whatever the handler has not taken yet stays, and nothing tells when it does.
                let held = incoming.borrow().held;
                self.lend(held + trailer_bytes, kit, out);
            }
            self.pump(kit, out);
        } else if let Some(collect) = exchange.collect.take() {
            let Collect { route, head: own_head, window, body } = collect;
            // The handler has it from now on; it is given back when the answer is out.
            self.lent = u32::try_from(body.capacity()).unwrap_or(u32::MAX);
            // The look-up left the path's parameters for the last head that was seen: this one's are found again.
            match kit.route(&own_head, &window, self.caller(out)) {
                Ok(_) => self.call(route, (&own_head, &window), Ready::Whole(body.into()), kit, out),
                Err(mut response) => self.respond(&mut response, kit, out),
            }
            self.recharge(kit);
            let _ = head;
        }
        self.recycle_exchange(kit);
    }

    /// A handler that has still to answer holds bytes of the request's body.
    fn lend(&mut self, bytes: usize, kit: &mut Kit, out: &mut Out<'_>) {
        self.lent = u32::try_from(bytes).unwrap_or(u32::MAX);
        if !self.recharge(kit) {
            self.no_memory(kit, out);
        }
    }

    /// A handler that has still to answer may hold a whole body that was decoded since the connection was charged last.
    pub(super) fn charge_unfolded(&mut self, kit: &mut Kit, out: &mut Out<'_>) {
        let lent = self.lent as usize;
        if self.exchange.as_ref().is_some_and(|exchange| exchange.lent(lent) > lent) && !self.recharge(kit) {
            self.no_memory(kit, out);
        }
    }

    pub(super) fn incoming_is_full(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.is_full())
    }
}

/// Returns the trailer fields that handlers may see.
pub(super) fn trailer_fields(head: &Head, window: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
    let fields = head.fields.iter().filter_map(|field| {
        let name = HeaderName::from_bytes(field.name.of(window)).ok()?;
        let value = HeaderValue::from_bytes(field.value.of(window)).ok()?;
        is_allowed_trailer(&name).then_some((name, value))
    });
    fields.collect()
}
