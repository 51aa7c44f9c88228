//! Bodies of requests: collected whole, passed on in parts, or dropped.

use super::{H1, Http1};
use crate::connection::out::Out;
use crate::connection::transport::Transport;
use crate::connection::work;
use crate::exchange::Exchange;
use crate::exchange::lifecycle::Lifecycle;
use crate::message::request::BodyUse;
use crate::message::trailers::is_allowed_trailer;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::Head;
use highwire_proto::h1::state::State;
use http::{HeaderName, HeaderValue};

impl Http1 {
    /// Handles received bytes of a request body. Returns true if the caller must call [`body_fed`](Self::body_fed)
    /// afterwards.
    pub(super) fn body_came(
        &mut self,
        transport: &mut Transport,
        data: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> bool {
        let body_use = H1::new(self, transport, out).data(data, worker);
        body_use != BodyUse::None || self.has_reader()
    }

    /// Charges the received bytes to the memory budget, and polls a handler that takes the body in parts.
    pub(super) fn body_fed(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if !H1::new(self, transport, out).charge_or_abort(worker) {
            return;
        }
        if self.has_reader() {
            let begun = (worker.stopwatch())();
            transport.work.spend(work::POLL);
            H1::new(self, transport, out).poll_answer(worker);
            self.pump(transport, worker, out);
            transport.work.spend_since(begun, worker.stopwatch());
        }
    }

    /// Refuses a chunk that would exceed the body's limit, as soon as the size of the chunk is announced.
    pub(super) fn chunk_announced(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        H1::new(self, transport, out).data(&[], worker);
    }

    /// Returns true if the reader of the request's body has dropped it, and the rest is too long to drop as it arrives, or of
    /// a length that is not announced. The connection then closes after the response, which must say so.
    pub(super) fn leaves_body(&self, worker: &WorkerContext<impl Service>) -> bool {
        let is_let_go = |exchange: &Exchange| exchange.incoming.is_let_go();
        if self.http.theirs() != State::SendsBody || !self.exchange.as_deref().is_some_and(is_let_go) {
            return false;
        }
        let left = self.http.exact_left();
        let is_unknown = left == 0 && !self.http.end_is_due();
        is_unknown || left > worker.shared.config().limits.unread_body_bytes
    }

    pub(super) fn incoming_is_full(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.incoming.is_full())
    }
}

/// Returns the trailer fields that handlers may see.
pub(in crate::connection) fn trailer_fields(head: &Head, window: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
    let fields = head.fields.iter().filter_map(|field| {
        let name = HeaderName::from_bytes(field.name.of(window)).ok()?;
        let value = HeaderValue::from_bytes(field.value.of(window)).ok()?;
        is_allowed_trailer(&name).then_some((name, value))
    });
    fields.collect()
}
