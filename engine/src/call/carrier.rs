//! Implements [`Carrier`] for requests of this process. These requests and their responses have the types of the crate
//! `http`.

use super::Call;
use crate::body::{BoxError, Part};
use crate::exchange::abort::Abort;
use crate::exchange::carrier::{Carrier, Sent};
use crate::exchange::lifecycle::Lifecycle;
use crate::exchange::{Exchange, Intake};
use crate::message::request::{BodyUse, Caller};
use crate::message::response::Content;
use crate::message::response::Response;
use crate::runtime::context::TaskKind;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use http::StatusCode;
use http::{Extensions, HeaderName, HeaderValue};

impl Carrier for Call {
    const AT_ONCE: usize = usize::MAX;
    fn task(&self) -> TaskKind {
        self.task
    }

    fn caller(&self) -> Caller<'_> {
        Caller { peer: self.peer, session: None, kept: self.tls.as_ref(), connection: None }
    }

    fn exchange(&mut self) -> Option<&mut Exchange> {
        Some(&mut self.exchange)
    }

    fn make_exchange(&mut self, _: &mut WorkerContext<impl Service>) -> &mut Exchange {
        &mut self.exchange
    }

    fn intake(&mut self) -> Option<&mut Intake> {
        Some(&mut self.intake)
    }

    fn take_extensions(&mut self) -> Option<Extensions> {
        let extensions = std::mem::take(&mut self.request.extensions);
        (!extensions.is_empty()).then_some(extensions)
    }

    fn charge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        self.recharge(worker)
    }

    fn no_memory(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.is_refused = true;
        self.abort(Abort::NoMemory, worker);
    }

    fn lent(&mut self) -> usize {
        self.lent
    }

    fn lend(&mut self, bytes: usize) {
        self.lent = bytes;
    }

    /// Returns false, because the worker polls the request's body, so the sender of the body does not wait for 100
    /// (Continue).
    fn awaits_continue(&self) -> bool {
        false
    }

    fn took(&mut self, _: BodyUse, _: usize, worker: &mut WorkerContext<impl Service>) {
        self.charge_or_abort(worker);
    }

    fn over_limit(&mut self, body_use: BodyUse, _: usize, worker: &mut WorkerContext<impl Service>) {
        if body_use == BodyUse::None {
            return self.drop_body();
        }
        let abort = Abort::BodyTooLarge(self.intake.route, body_use);
        self.abort(abort, worker);
    }

    fn stop_body(&mut self, _: &mut WorkerContext<impl Service>) {
        self.drop_body();
    }

    fn request_ended(&mut self, _: &mut WorkerContext<impl Service>) {}

    fn admit(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>) {
        if let Content::Switch(_) = &response.content {
            *response = worker.error(StatusCode::NOT_IMPLEMENTED, "there is no other protocol here");
        }
    }

    fn may_answer(&mut self) -> bool {
        self.answerer.is_some()
    }

    /// Drops the interim response. The caller gets one `http::Response`, which cannot carry it.
    fn interim(&mut self, _: u16, _: &[(HeaderName, HeaderValue)]) -> Result<(), highwire_proto::Error> {
        Ok(())
    }

    fn send(&mut self, response: &mut Response, _: &mut WorkerContext<impl Service>) {
        if let Some(exchange) = self.exchange() {
            if let Content::Bytes(bytes) = &response.content {
                exchange.count_whole(bytes.len());
            }
            // The caller may be on another thread, and gets the response at once.
            exchange.end_record();
        }
        self.send_response(response);
    }

    fn send_part(&mut self, part: Part, _: &mut WorkerContext<impl Service>) -> Result<Sent, Abort> {
        if let Some(exchange) = self.exchange() {
            exchange.count_sent(part.length() as usize);
        }
        self.write(part)
    }

    fn body_waits(&mut self, _: &mut WorkerContext<impl Service>) {}

    fn send_end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Result<(), Abort> {
        self.end_answer(trailers)
    }

    fn keep_error(&mut self, error: BoxError) {
        self.error = Some(error);
    }

    fn cut(&mut self, abort: Abort, _: &mut WorkerContext<impl Service>) {
        let error = self.error.take().unwrap_or_else(|| abort.text().into());
        self.fail(error);
    }
}
