//! The context that a worker lends to its connections: the server's shared state, the clock, deadlines, scratch
//! buffers, and the service that answers requests.

use crate::connection::work::{RESERVE_A_TURN, WORK_A_TURN};
use crate::exchange::{End, Observed};
use crate::message::date::CommonLines;
use crate::message::request::{BodyUse, Caller, Hooks, Ready, TaskWaker};
use crate::message::response::{Content, Response};
use crate::runtime::context::{Context, TaskKind};
use crate::runtime::deadline::{self, DeadlineTable};
use crate::runtime::panics::Cause;
use crate::runtime::rate_limited;
use crate::runtime::remote::Remote;
use crate::server::budget::Share;
use crate::server::rules::Rules;
use crate::server::shared::Shared;
use crate::service::{Begin, MakeService, Observer, Outcome, Service};
use highwire_io::{Instant, SocketId};
use highwire_proto::{Head, Method};
use http::{HeaderValue, StatusCode, header};
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};

/// The context that a worker lends to each of its connections in turn.
pub(crate) struct WorkerContext<S> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) context: Rc<Context>,
    pub(crate) lines: CommonLines,
    pub(crate) deadlines: DeadlineTable,
    /// The timeouts and limits of the connection that handles an event now: the server's, or those of a client.
    pub(crate) rules: Rc<Rules>,
    /// The server's timeouts and limits.
    server_rules: Rc<Rules>,
    pub(super) now: Instant,
    pub(super) tick: u32,
    /// The number of the worker's current turn.
    pub(super) turn: u32,
    /// The work in nanoseconds that each connection may cause in one turn; see [`WORK_A_TURN`].
    pub(super) allowance: u32,
    /// The rest of this turn's reserve; see [`RESERVE_A_TURN`].
    pub(crate) reserve: u32,
    /// Returns nanoseconds, to measure durations within a turn; see
    /// [`Driver::stopwatch`](highwire_io::Driver::stopwatch).
    pub(super) stopwatch: fn() -> u64,
    /// Connections that have used up their allowance and continue in a later turn.
    pub(crate) unfinished: VecDeque<SocketId>,
    pub(crate) share: Share,
    draining: bool,
    /// True once the server no longer waits for its requests and cuts them.
    cuts: bool,
    /// The number of response bytes that wait for HTTP/2 windows, on all connections of the worker.
    pub(crate) stalled: Rc<Cell<usize>>,
    /// The number of bytes that HTTP/2 peers may send of bodies that are collected whole.
    pub(crate) granted: Rc<Cell<usize>>,
    /// The number of bytes by which the windows of HTTP/2 connections are wider than usual.
    pub(crate) ahead: Rc<Cell<usize>>,
    /// The number of streams for which they are.
    pub(crate) streams_ahead: Rc<Cell<usize>>,
    /// The value of `Strict-Transport-Security` in answers under TLS.
    pub(crate) hsts: Option<HeaderValue>,
    /// The number of requests that are not yet added to the server's counters.
    pub(super) requests: u64,
    /// The number of those requests that arrived on HTTP/2 streams.
    pub(super) streams: u64,
    /// See [`Remote::beat`](crate::runtime::remote::Remote).
    pub(crate) beat: Arc<AtomicU64>,
    calls: u32,
    records: bool,
    /// Learns of each request that has ended.
    pub(crate) observer: Option<Rc<dyn Observer>>,
    /// The request that begins now, if an observer will learn of it and no exchange records it yet.
    pub(crate) observed: Option<Observed>,
    /// The service that answers requests.
    service: S,
    /// A scratch buffer for HTTP/2 connections, which holds the decoded fields of the current request.
    pub(crate) fields: Vec<u8>,
    /// Scratch buffers for TLS sessions: `plain` for received plaintext, `raw` for records that the session itself
    /// sends, `scratch` for encrypted responses.
    pub(crate) plain: Vec<u8>,
    pub(crate) raw: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    /// Connections whose TLS handshakes wait for a turn, the oldest first.
    pub(crate) waiting: VecDeque<SocketId>,
    /// The number of TLS handshake flights that this turn may still process.
    pub(crate) handshakes: u32,
}

/// The most TLS handshake flights that a worker processes per turn. Each takes some tenths of a millisecond. The bound
/// limits how long a flood of new connections delays the existing ones.
const HANDSHAKES_A_TURN: u32 = 8;

impl<S: Service> WorkerContext<S> {
    /// Returns the time of this turn.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Returns the tick of this turn, in which deadlines count.
    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.tick
    }

    /// Returns the number of this turn.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.turn
    }

    /// Returns the work in nanoseconds that each connection may cause in one turn.
    #[inline]
    pub(crate) fn allowance(&self) -> u32 {
        self.allowance
    }

    /// Returns true if the server is stopping, and finishes the requests in progress.
    #[inline]
    pub(crate) fn draining(&self) -> bool {
        self.draining
    }

    /// Returns true once the server no longer waits for its requests and cuts them.
    #[inline]
    pub(crate) fn cuts(&self) -> bool {
        self.cuts
    }

    /// Returns a function that returns nanoseconds, to measure durations within a turn.
    #[inline]
    pub(crate) fn stopwatch(&self) -> fn() -> u64 {
        self.stopwatch
    }

    /// Returns true if the access log or an observer learns of each request.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        self.records
    }

    /// Tells the observer that a request has ended that was answered at once.
    pub(crate) fn observe(&self, request: Observed, status: u16, bytes: u64) {
        if let Some(observer) = &self.observer {
            request.end(&**observer, self.context.precise_now(), status, bytes, End::default());
        }
    }

    /// Counts a request. `is_stream` is true if it has come on a stream of HTTP/2.
    #[inline]
    pub(crate) fn count_request(&mut self, is_stream: bool) {
        self.requests += 1;
        self.streams += u64::from(is_stream);
    }

    /// Sets the clock that measures durations within a turn.
    pub(crate) fn measure_by(&mut self, stopwatch: fn() -> u64) {
        self.stopwatch = stopwatch;
        self.context.stopwatch.set(stopwatch);
    }

    /// Lets each connection cause any amount of work in a turn, because it has a thread of its own.
    pub(crate) fn lift_allowance(&mut self) {
        self.allowance = u32::MAX;
    }

    /// Begins to stop: the connections finish their requests.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Cuts what is still in progress.
    pub(crate) fn cut(&mut self) {
        self.cuts = true;
    }

    pub(crate) fn new(
        make: &impl MakeService<Service = S>,
        shared: Arc<Shared>,
        context: Rc<Context>,
    ) -> WorkerContext<S> {
        let config = shared.config();
        let rules = Rc::new(Rules::of_server(config));
        let lines = CommonLines::new(config.server_name.clone());
        let share = Share::new(shared.budget.clone());
        let service = make.make(&shared);
        let hsts = service.strict_transport_security();
        let observer = service.observer();
        WorkerContext {
            context,
            lines,
            deadlines: DeadlineTable::new(),
            server_rules: rules.clone(),
            rules,
            now: Instant::default(),
            // Not a real tick, so that the first turn begins a new one.
            tick: u32::MAX,
            turn: 0,
            allowance: WORK_A_TURN,
            reserve: RESERVE_A_TURN,
            stopwatch: || 0,
            unfinished: VecDeque::new(),
            share,
            draining: false,
            cuts: false,
            stalled: Rc::default(),
            granted: Rc::default(),
            ahead: crate::body::ahead_in_all(),
            streams_ahead: crate::body::streams_ahead(),
            hsts,
            requests: 0,
            streams: 0,
            beat: Arc::default(),
            calls: 0,
            records: observer.is_some() || shared.config().access_log,
            observer,
            observed: None,
            service,
            fields: Vec::new(),
            plain: Vec::new(),
            raw: Vec::new(),
            scratch: Vec::new(),
            waiting: VecDeque::new(),
            handshakes: HANDSHAKES_A_TURN,
            shared,
        }
    }

    /// Lends the server's rules again after an event of a client's connection.
    #[inline]
    pub(crate) fn lend_server_rules(&mut self) {
        if !Rc::ptr_eq(&self.rules, &self.server_rules) {
            self.rules = self.server_rules.clone();
        }
    }

    /// Begins a turn, in which each connection has a new allowance of work.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        self.reserve = RESERVE_A_TURN;
        self.context.begin_turn(self.turn);
    }

    /// Sets the clock to `now`, allows the TLS handshakes of a turn, and adds the counted requests to the server's
    /// counters.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.now = now;
        let tick = deadline::tick(now);
        if tick != self.tick {
            rate_limited::tell(now);
        }
        self.tick = tick;
        self.context.set_now(now, self.observer.is_some());
        self.handshakes = HANDSHAKES_A_TURN;
        if self.requests > 0 {
            self.count();
        }
    }

    /// Adds this worker's counts of requests to the server's counters.
    fn count(&mut self) {
        let counters = &self.shared.counters;
        counters.requests.fetch_add(std::mem::take(&mut self.requests), Ordering::Relaxed);
        counters.streams.fetch_add(std::mem::take(&mut self.streams), Ordering::Relaxed);
    }

    /// Counts an exchange, or a connection, that the server ends early.
    pub(crate) fn count_cut(&self) {
        if self.rules.is_client() {
            return;
        }
        self.shared.counters.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if TLS handshakes or other work of connections wait for the next turn.
    pub(crate) fn has_unfinished(&self) -> bool {
        !(self.waiting.is_empty() && self.unfinished.is_empty())
    }

    /// Prepares a final response for any carrier: replaces an interim status with 500 unless the response switches
    /// protocols, drops content that the status forbids, removes a length of 0 that leaves no room for trailers, and
    /// adds the service's `Strict-Transport-Security` under TLS. The access log is written after this.
    #[inline]
    pub(crate) fn prepare(&self, response: &mut Response, is_secure: bool) {
        if response.status != StatusCode::OK || !matches!(response.content, Content::Bytes(_)) {
            prepare_at_length(response);
        }
        if is_secure
            && let Some(value) = &self.hsts
            && response.header(&header::STRICT_TRANSPORT_SECURITY).is_none()
        {
            response.add_header(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
    }

    /// Returns a 503 with Retry-After.
    pub(crate) fn overloaded(&self, text: &str) -> Response {
        let response = self.error(StatusCode::SERVICE_UNAVAILABLE, text);
        response.with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Returns the answer to a body that is longer than its route allows.
    pub(crate) fn too_large(&self, route: u32, body_use: BodyUse) -> Response {
        self.error(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body is larger than the {} bytes that are taken here", self.body_limit(route, body_use)),
        )
    }

    /// Returns a 413 if a handler takes the body and the announced length is more than the route allows, or if the body
    /// is taken whole and is longer than half of the memory budget. Called before any of the body is read.
    pub(crate) fn announces_too_much(&self, route: u32, body_use: BodyUse, announced: u64) -> Option<Response> {
        if body_use != BodyUse::None && announced > self.body_limit(route, body_use) {
            return Some(self.too_large(route, body_use));
        }
        let fits = body_use != BodyUse::Whole || announced <= self.shared.budget.limit() as u64 / 2;
        let text = "the body is larger than this server can hold";
        (!fits).then(|| self.error(StatusCode::PAYLOAD_TOO_LARGE, text))
    }

    /// Applies `X-HTTP-Method-Override` to a POST, if the settings allow it.
    #[inline]
    pub(crate) fn override_method(&self, head: &mut Head, window: &[u8]) {
        if head.method == Method::Post && self.shared.config().method_override {
            override_method(head, window);
        }
    }

    /// Finds the route as [`Service::route`] does. First refuses a request whose target and Host field name different
    /// hosts, if the setting `refuse_other_host` is on.
    #[inline]
    pub(crate) fn route(&mut self, head: &Head, window: &[u8], caller: Caller<'_>) -> Result<u32, Box<Response>> {
        if head.host_differs && self.shared.config().refuse_other_host {
            return Err(Box::new(self.other_host(head)));
        }
        self.service.route(head, window, caller)
    }

    /// Returns the answer to a request whose target and Host field name different hosts. Over HTTP/1 it also closes the
    /// connection.
    #[cold]
    fn other_host(&self, head: &Head) -> Response {
        let text = "the target and the Host field name different hosts";
        self.error(StatusCode::BAD_REQUEST, text).and_close_http1(head.version)
    }

    /// See [`Service::body_use`].
    pub(crate) fn body_use(&self, route: u32) -> BodyUse {
        self.service.body_use(route)
    }

    /// Returns the limit of a body in bytes, from [`Service::body_limit`] or, if that returns `None`, from the
    /// settings. A client's program limits the bodies that it takes itself.
    pub(crate) fn body_limit(&self, route: u32, body_use: BodyUse) -> u64 {
        if let Some(unread) = self.rules.unread_body_bytes {
            return if body_use == BodyUse::None { unread } else { u64::MAX };
        }
        self.service.body_limit(route, body_use).unwrap_or_else(|| body_use.limit(&self.shared.config().limits))
    }

    /// Returns the service's answer to an error.
    pub(crate) fn error(&self, status: StatusCode, text: &str) -> Response {
        self.service.error(status, text)
    }

    /// Calls [`Service::end`]. Catches and logs a panic.
    pub(crate) fn end_service(&mut self) {
        let service = &mut self.service;
        if catch_unwind(AssertUnwindSafe(|| service.end())).is_err() {
            rate_limited::log!(Panic, error, "a service panicked when its worker ended");
        }
    }

    #[inline]
    pub(super) fn host_has_work(&self) -> bool {
        self.service.has_work()
    }

    #[inline]
    pub(super) fn before_wait(&mut self) {
        self.service.before_wait();
    }

    #[inline]
    pub(super) fn after_wait(&mut self) {
        self.service.after_wait();
    }

    /// Returns the service's answer to a request whose handler has panicked with this payload.
    #[cold]
    pub(crate) fn panicked(&self, route: Option<u32>, payload: Box<dyn Any + Send>) -> Response {
        self.service.panicked(route, &Cause::of(payload))
    }

    /// Calls the handler of the route that [`route`](Self::route) found for the same head just before.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all of them are passed on to the handler; a struct would copy them")]
    pub(crate) fn call(
        &mut self,
        route: u32,
        (head, window): (&Head, &[u8]),
        caller: Caller<'_>,
        task: TaskKind,
        mut body: Ready,
        hooks: &mut Hooks,
        answer: &mut Option<Response>,
    ) -> Outcome {
        let _entered = tracing::enabled!(tracing::Level::DEBUG).then(|| span(head, window).entered());
        let context = &self.context;
        let make = || context.inbox.waker(task.number());
        let waker = TaskWaker::Maker(&make);
        self.calls = self.calls.wrapping_add(1);
        self.beat.store(Remote::beat_of(self.calls, route), Ordering::Relaxed);
        let service = &mut self.service;
        let begin = Begin { route, head, window, caller, body: &mut body, hooks, task: &waker };
        let call = || service.begin(begin, answer);
        let outcome = catch_unwind(AssertUnwindSafe(call));
        self.beat.store(0, Ordering::Relaxed);
        match outcome {
            Ok(outcome) => outcome,
            Err(payload) => {
                hooks.reply = None;
                *answer = Some(self.panicked(Some(route), payload));
                Outcome::Ready
            }
        }
    }

    /// Polls a pending handler. If the handler panics, returns the answer of [`panicked`](Self::panicked).
    pub(crate) fn poll(&mut self, future: (u32, u32), task: TaskKind) -> Poll<Response> {
        let waker = self.context.inbox.waker(task.number());
        self.calls = self.calls.wrapping_add(1);
        self.beat.store(Remote::beat_of(self.calls, future.0), Ordering::Relaxed);
        let service = &mut self.service;
        let polled = catch_unwind(AssertUnwindSafe(|| service.poll(future, &mut TaskContext::from_waker(&waker))));
        self.beat.store(0, Ordering::Relaxed);
        polled.unwrap_or_else(|payload| Poll::Ready(self.panicked(Some(future.0), payload)))
    }

    /// Drops a pending handler's future. Catches and logs a panic.
    pub(crate) fn cancel(&mut self, future: (u32, u32)) {
        let service = &mut self.service;
        if catch_unwind(AssertUnwindSafe(|| service.cancel(future))).is_err() {
            rate_limited::log!(Panic, error, "a handler panicked when it was cancelled");
        }
    }
}

#[cold]
fn override_method(head: &mut Head, window: &[u8]) {
    let mut named =
        head.fields.iter().filter(|field| field.name.of(window).eq_ignore_ascii_case(b"x-http-method-override"));
    let (Some(field), None) = (named.next(), named.next()) else { return };
    let method = Method::from_token(field.value.of(window));
    if matches!(method, Method::Put | Method::Patch | Method::Delete) {
        (head.method, head.method_span) = (method, field.value);
    }
}

#[cold]
fn span(head: &Head, window: &[u8]) -> tracing::Span {
    let words = |span: highwire_proto::Span| String::from_utf8_lossy(span.of(window)).into_owned();
    tracing::debug_span!("request", method = words(head.method_span), path = words(head.target.path))
}

/// The part of [`WorkerContext::prepare`] that a 200 with bytes does not need.
#[inline(never)]
fn prepare_at_length(response: &mut Response) {
    if response.status.is_informational() && !matches!(response.content, Content::Switch(_)) {
        rate_limited::log!(Mistake, error, status = %response.status, "a final answer has an interim status; 500 is sent");
        response.status = StatusCode::INTERNAL_SERVER_ERROR;
    }
    response.drop_forbidden_content();
    response.make_room_for_trailers();
}
