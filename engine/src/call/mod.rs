//! A request of this process, on the worker that answers it. It is routed, limited and timed as a request from a
//! connection is, but has no socket.
//!
//! The worker polls the request's body as fast as the handler takes it. The answer's body goes through a channel to the
//! caller's thread, as fast as the caller takes it. A wake of the request's one task calls `Call::drive`, which
//! advances everything that can make progress. The module `answer` sends the answer.

mod answer;
mod carrier;
mod crossing;
mod head;
pub(crate) mod inbox;
mod reply;

pub use self::crossing::{CROSSING_BYTES, Reader, ReaderGone, Writer, crossing};
pub use self::head::CallHead;
pub(crate) use self::inbox::Job;
pub use self::inbox::RequestBody;
pub(crate) use self::reply::{Answerer, answer};
pub use self::reply::{ResponseBody, ResponseFuture};

use crate::body::{BodyError, BoxError};
use crate::exchange::abort::Abort;
use crate::exchange::carrier::Carrier;
use crate::exchange::lifecycle::Lifecycle;
use crate::exchange::{Exchange, Intake, Waits};
use crate::message::caller::Tls;
use crate::message::request::BodyUse;
use crate::message::trailers::is_allowed_trailer;
use crate::runtime::context::TaskKind;
use crate::runtime::panics::drop_safely;
use crate::runtime::rate_limited;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::Peer;
use highwire_proto::Length;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

/// The memory charge in bytes for a request besides its bodies: its slot, its exchange, and its `http` types.
const CALL_BYTES: usize = 2 * 1024;

/// The most parts of a body that are moved before other tasks get their turn.
pub(super) const PARTS_A_TURN: usize = 64;

/// A request in progress.
pub(super) struct Call {
    pub(super) task: TaskKind,
    pub(super) request: request::Parts,
    pub(super) peer: Peer,
    pub(super) tls: Option<Tls>,
    pub(super) exchange: Exchange,
    /// The rest of the request's body, and the announced length of the whole body in bytes.
    body: Option<RequestBody>,
    announced: Option<u64>,
    pub(super) intake: Intake,
    /// The number of bytes of a whole request body that the handler holds until it answers.
    pub(super) lent: usize,
    /// The sender of the answer's head; `None` once it has been sent.
    pub(super) answerer: Option<Answerer>,
    /// The writing end of the answer's body, and the number of bytes left of the body's announced length.
    pub(super) writer: Option<Writer<BoxError>>,
    pub(super) left: Option<u64>,
    /// The program's own error, if its response's body has failed.
    pub(super) error: Option<BoxError>,
    charged: usize,
    /// True if the memory budget had no room for the request. The error answer is still sent, although there is no room
    /// for it, because the program makes it and it is usually small.
    pub(super) is_refused: bool,
    pub(super) waits: Waits,
    due: u32,
    pub(super) is_cancelled: bool,
}

/// The peer of a request that has none: an address that should be in no list of trusted addresses. It must not be
/// [`Peer::Local`], which programs trust, because the request may come from anywhere.
const NOBODY: Peer = Peer::Internet(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Call {
    pub(super) fn new(job: Job, task: TaskKind, worker: &WorkerContext<impl Service>) -> Call {
        let Job { request, body, answerer } = job;
        let extensions = &request.extensions;
        let socket = || extensions.get::<SocketAddr>().map(|socket| Peer::Internet(socket.ip(), socket.port()));
        Call {
            task,
            peer: extensions.get().copied().or_else(socket).unwrap_or(NOBODY),
            tls: extensions.get().cloned(),
            request,
            exchange: Exchange::default(),
            announced: body.as_ref().and_then(|body| body.size_hint().exact()),
            body,
            intake: Intake::default(),
            lent: 0,
            answerer: Some(answerer),
            writer: None,
            left: None,
            error: None,
            charged: 0,
            is_refused: false,
            waits: Waits::Nothing,
            due: worker.tick(),
            is_cancelled: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_cancelled || (self.answerer.is_none() && self.writer.is_none())
    }

    /// Returns the tick of the deadline.
    pub(super) fn due(&self) -> u32 {
        self.due
    }

    pub(super) fn waker(&self, worker: &WorkerContext<impl Service>) -> Waker {
        worker.context.inbox.waker(self.task.number())
    }

    /// Begins the request: calls its handler, or begins to collect the body for the handler.
    pub(super) fn begin(&mut self, call_head: &mut CallHead, worker: &mut WorkerContext<impl Service>) {
        if self.is_unwanted(worker) {
            return self.is_cancelled = true;
        }
        if self.recharge(worker) {
            self.dispatch(call_head, worker);
            if self.receive(worker) {
                self.poll_answer(worker);
            }
        } else {
            self.no_memory(worker);
        }
        self.pump(worker);
        self.settle(worker);
    }

    /// Advances everything that can make progress: the request's body, the handler, the answer's body.
    pub(super) fn drive(&mut self, worker: &mut WorkerContext<impl Service>) {
        if self.is_unwanted(worker) {
            return self.is_cancelled = true;
        }
        self.receive(worker);
        self.poll_answer(worker);
        self.pump(worker);
        self.settle(worker);
    }

    /// Returns true if the head of the answer has not been sent and the caller has stopped waiting for it.
    fn is_unwanted(&self, worker: &WorkerContext<impl Service>) -> bool {
        self.answerer.as_ref().is_some_and(|answerer| !answerer.is_wanted(&self.waker(worker)))
    }

    /// Finds the route and calls its handler, or begins to collect the body for it.
    fn dispatch(&mut self, call_head: &mut CallHead, worker: &mut WorkerContext<impl Service>) {
        worker.count_request(false);
        if self.request.method == Method::CONNECT {
            let mut response = worker.error(StatusCode::NOT_IMPLEMENTED, "there is no tunnel here");
            return self.respond(&mut response, worker);
        }
        let length = match (&self.body, self.announced) {
            (None, _) => Length::Empty,
            (Some(_), Some(length)) => Length::Exact(length),
            (Some(_), None) => Length::Unknown,
        };
        if let Err(error) = call_head.read(&self.request, length, &worker.rules.parser) {
            tracing::debug!(peer = %self.peer, %error, "a request is refused");
            return self.respond(&mut Abort::Malformed(error).response(worker), worker);
        }
        Lifecycle::begin(self, length, &mut call_head.head, &call_head.window, worker);
    }

    /// Takes the parts of the request's body that are ready, as far as the handler has room. Returns true if it took
    /// anything.
    fn receive(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        let waker = self.waker(worker);
        let mut any = false;
        for _ in 0..PARTS_A_TURN {
            if self.body.is_some() && self.exchange.incoming.body_use() == BodyUse::None {
                // The drop shows the sender of the body that no handler reads it.
                drop_safely(self.body.take());
            }
            if self.exchange.incoming.is_full() {
                return any;
            }
            let Some(body) = &mut self.body else { return any };
            let poll = AssertUnwindSafe(|| body.as_mut().poll_frame(&mut Context::from_waker(&waker)));
            let frame = match catch_unwind(poll) {
                Ok(Poll::Pending) => return any,
                Ok(Poll::Ready(frame)) => frame,
                Err(_) => {
                    rate_limited::log!(Panic, error, "a request's body panicked");
                    Some(Err(BodyError::CutShort.into()))
                }
            };
            any = true;
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(data))) => self.body_came(&data, worker),
                Some(Ok(Err(frame))) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.body_ended(trailers, worker);
                    }
                }
                Some(Err(error)) => self.body_failed(body_error(&error), worker),
                None => self.body_ended(HeaderMap::new(), worker),
            }
        }
        waker.wake();
        any
    }

    fn body_came(&mut self, data: &[u8], worker: &mut WorkerContext<impl Service>) {
        if self.announced.is_some_and(|announced| self.intake.bytes + data.len() as u64 > announced) {
            return self.body_failed(BodyError::CutShort, worker);
        }
        self.data(data, worker);
    }

    fn body_ended(&mut self, trailers: HeaderMap, worker: &mut WorkerContext<impl Service>) {
        if self.announced.is_some_and(|announced| self.intake.bytes != announced) {
            return self.body_failed(BodyError::CutShort, worker);
        }
        self.drop_body();
        let trailers = each_named(trailers).filter(|(name, _)| is_allowed_trailer(name));
        Lifecycle::end(self, trailers.collect(), worker);
    }

    /// Drops the rest of the request's body.
    pub(super) fn drop_body(&mut self) {
        drop_safely(self.body.take());
    }

    /// Handles a body that fails, or that is shorter or longer than announced. If the body is being collected, answers
    /// with an error. A handler that takes the body in parts gets the error instead.
    fn body_failed(&mut self, why: BodyError, worker: &mut WorkerContext<impl Service>) {
        drop_safely(self.body.take());
        let is_collecting = self.exchange.incoming.is_collecting();
        self.exchange.incoming.cut(why);
        if is_collecting {
            let mut response = worker.error(why.status(), &why.to_string());
            self.respond(&mut response, worker);
        }
    }

    /// Runs after most events. Charges the memory, and sets a new deadline if the request no longer waits for the same
    /// event.
    fn settle(&mut self, worker: &mut WorkerContext<impl Service>) {
        if !self.is_over() && !self.recharge(worker) && !self.is_refused {
            self.no_memory(worker);
            self.pump(worker);
        }
        let waits = match &self.writer {
            Some(writer) if writer.is_full() => Waits::Write,
            None if self.body.is_some() && !self.exchange.incoming.is_full() => Waits::Body,
            _ => Waits::Handler,
        };
        if waits == self.waits {
            return;
        }
        let after = match waits {
            Waits::Body => worker.rules.body,
            Waits::Write => worker.rules.write,
            Waits::Head | Waits::Handler | Waits::Nothing => worker.rules.handler,
        };
        (self.waits, self.due, self.intake.arrived) = (waits, worker.tick().saturating_add(after), 0);
    }

    /// Handles the passed deadline of the request.
    pub(super) fn expired(&mut self, worker: &mut WorkerContext<impl Service>) {
        let waits = std::mem::replace(&mut self.waits, Waits::Nothing);
        if waits == Waits::Body && self.intake.has_received(worker.rules.least_body) {
            return self.settle(worker);
        }
        self.expire(waits, worker);
        self.pump(worker);
        self.settle(worker);
    }

    /// Cuts the request, because the worker or the server's shutdown must end now.
    pub(super) fn cut(&mut self, worker: &mut WorkerContext<impl Service>) {
        worker.count_cut();
        self.abort(Abort::ShuttingDown, worker);
        self.is_cancelled = true;
    }

    /// Charges the memory that the request holds now. Returns false if the memory budget has no room.
    pub(super) fn recharge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        let away = self.writer.as_ref().map_or(0, Writer::held);
        let held = CALL_BYTES + self.exchange.lent(self.lent) + self.exchange.held() + away;
        if held > self.charged {
            if !worker.share.take(held - self.charged) {
                return false;
            }
        } else {
            worker.share.give(self.charged - held);
        }
        self.charged = held;
        true
    }

    /// Releases everything that the request holds. A caller that still waits for the answer gets 503; a caller that
    /// still reads the answer's body gets an error from it.
    pub(super) fn release(&mut self, worker: &mut WorkerContext<impl Service>) {
        worker.share.give(std::mem::take(&mut self.charged));
        self.exchange.lose(worker);
        (self.answerer, self.writer) = (None, None);
        drop_safely(self.body.take());
        self.exchange.outgoing.cut();
        drop_safely(std::mem::take(&mut self.request.extensions));
    }
}

/// Returns the first [`BodyError`] among `error` and its sources, or [`BodyError::CutShort`] if there is none.
pub fn body_error(error: &BoxError) -> BodyError {
    let mut error: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    while let Some(this) = error {
        if let Some(known) = this.downcast_ref::<BodyError>() {
            return *known;
        }
        error = this.source();
    }
    BodyError::CutShort
}

/// Returns all fields, each with its name.
pub fn each_named(fields: HeaderMap) -> impl Iterator<Item = (header::HeaderName, HeaderValue)> {
    let mut last = None;
    fields.into_iter().filter_map(move |(name, value)| {
        // The iterator gives a name only with its first value.
        last = name.or(last.take());
        Some((last.clone()?, value))
    })
}
