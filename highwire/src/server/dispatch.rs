//! Which handler answers a request, and calling it. Knows heads and responses, not sockets.

use super::budget::Share;
use super::connection::work::WORK_A_TURN;
use super::context::{Context, TaskKind};
use super::date::CommonLines;
use super::deadline::{self, DeadlineTable};
use super::exchange::Exchange;
use super::quiet;
use super::remote::Remote;
use super::shared::Shared;
use crate::handler::{Endpoint, Outcome};
use crate::request::{BodyUse, Caller, Hooks, Locals, Ready, Request, TaskWaker};
use crate::response::Content;
use crate::router::{Captures, Found};
use crate::{Params, Response, StatusCode};
use http::{HeaderValue, header};
use io::{Instant, SocketId};
use proto::{Form, Head, Method};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};

/// What all connections of a worker work with.
pub(crate) struct WorkerContext {
    pub(crate) shared: Arc<Shared>,
    pub(crate) context: Rc<Context>,
    pub(crate) lines: CommonLines,
    pub(crate) deadlines: DeadlineTable,
    pub(crate) timeouts: Timeouts,
    pub(crate) now: Instant,
    pub(crate) tick: u32,
    /// The number of the worker's turn, and what each connection may cause in it.
    pub(crate) turn: u32,
    pub(crate) allowance: u32,
    /// Tells nanoseconds: see [`Driver::stopwatch`](io::Driver::stopwatch).
    pub(crate) stopwatch: fn() -> u64,
    /// Connections that used up their allowance and go on in the next turn.
    pub(crate) unfinished: VecDeque<SocketId>,
    pub(crate) share: Share,
    pub(crate) draining: bool,
    /// Bytes of answers that wait for HTTP/2 windows, on all connections.
    pub(crate) stalled: Rc<Cell<usize>>,
    /// Requests in the clear are told to come again under TLS.
    redirects: bool,
    /// Said in answers under TLS.
    pub(crate) hsts: Option<HeaderValue>,
    /// Requests, and streams, since they were last added to what all workers count.
    pub(crate) requests: u64,
    pub(crate) streams: u64,
    /// See [`Remote::beat`](super::remote::Remote).
    pub(crate) beat: Arc<AtomicU64>,
    calls: u32,
    endpoints: Vec<Box<dyn Endpoint>>,
    locals: Rc<Locals>,
    captures: Captures,
    /// The answer to the present request, for which there is no route.
    missed: Option<Box<Response>>,
    /// The path of the present request, where it had dot segments to resolve.
    resolved: Vec<u8>,
    /// Lent to HTTP/2 connections: the decoded fields of the present request.
    pub(crate) fields: Vec<u8>,
    /// Lent to TLS sessions: plaintext, what they send by themselves, ciphertext.
    pub(crate) plain: Vec<u8>,
    pub(crate) raw: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    /// Connections whose handshakes wait for their turn, the first one first.
    pub(crate) waiting: VecDeque<SocketId>,
    /// Flights of handshakes that this turn still has time for.
    pub(crate) handshakes: u32,
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again: a connection holds one, 8 bytes wide")]
    exchanges: Vec<Box<Exchange>>,
}

/// The deadlines in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) head: u32,
    pub(crate) body: u32,
    pub(crate) idle: u32,
    pub(crate) write: u32,
    pub(crate) handler: u32,
    pub(crate) linger: u32,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS has handshakes"))]
    pub(crate) handshake: u32,
}

/// Flights of TLS handshakes that one turn works on, each some tenths of a millisecond: a flood of new connections must not
/// keep those that stand waiting.
const HANDSHAKES_A_TURN: u32 = 8;

/// Exchanges that a worker keeps for the next requests.
const SPARE_EXCHANGES: usize = 64;

/// What a look at the routes says.
enum Routed {
    Route(u32),
    /// In a box: it is seldom, and what most looks give is a number.
    Answer(Box<Response>),
    /// There is nothing at this path.
    Nothing,
}

impl WorkerContext {
    pub(crate) fn new(shared: Arc<Shared>, context: Rc<Context>) -> WorkerContext {
        let setup = &shared.setup;
        let deadlines = &setup.config.deadlines;
        let timeouts = Timeouts {
            head: deadline::ticks(deadlines.head),
            body: deadline::ticks(deadlines.body),
            idle: deadline::ticks(deadlines.idle),
            write: deadline::ticks(deadlines.write),
            handler: deadline::ticks(deadlines.handler),
            linger: deadline::ticks(deadlines.linger),
            handshake: deadline::ticks(deadlines.handshake),
        };
        let endpoints = setup.routes.iter().map(|route| route.clone().endpoint()).collect();
        let lines = CommonLines::new(setup.config.server_name.clone());
        let locals = Rc::new(shared.make_locals());
        let share = Share::new(shared.budget.clone());
        let (redirects, hsts) = (setup.https.redirects(), setup.https.strict_transport_security());
        WorkerContext {
            shared,
            context,
            lines,
            deadlines: DeadlineTable::new(),
            timeouts,
            now: Instant::default(),
            tick: 0,
            turn: 0,
            allowance: WORK_A_TURN,
            stopwatch: || 0,
            unfinished: VecDeque::new(),
            share,
            draining: false,
            stalled: Rc::default(),
            redirects,
            hsts,
            requests: 0,
            streams: 0,
            beat: Arc::default(),
            calls: 0,
            endpoints,
            locals,
            captures: Captures::default(),
            missed: None,
            resolved: Vec::new(),
            fields: Vec::new(),
            plain: Vec::new(),
            raw: Vec::new(),
            scratch: Vec::new(),
            waiting: VecDeque::new(),
            handshakes: HANDSHAKES_A_TURN,
            exchanges: Vec::new(),
        }
    }

    /// A round of completions begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.now = now;
        let tick = deadline::tick(now);
        if tick != self.tick {
            quiet::tell(now);
        }
        self.tick = tick;
        self.context.now.set(now);
        self.handshakes = HANDSHAKES_A_TURN;
        if self.requests > 0 {
            self.count();
        }
    }

    /// Adds what was counted here to what all workers count.
    fn count(&mut self) {
        let counters = &self.shared.counters;
        counters.requests.fetch_add(std::mem::take(&mut self.requests), Ordering::Relaxed);
        counters.streams.fetch_add(std::mem::take(&mut self.streams), Ordering::Relaxed);
    }

    /// Counts an exchange, or a connection, that is ended before its time.
    pub(crate) fn count_cut(&self) {
        self.shared.counters.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if connections wait for the next turn to go on with what they have received.
    pub(crate) fn has_unfinished(&self) -> bool {
        !(self.waiting.is_empty() && self.unfinished.is_empty())
    }

    pub(crate) fn new_exchange(&mut self) -> Box<Exchange> {
        self.exchanges.pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self, mut exchange: Box<Exchange>) {
        if self.exchanges.len() < SPARE_EXCHANGES {
            *exchange = Exchange::default();
            self.exchanges.push(exchange);
        }
    }

    /// The engine's own answer to an error.
    pub(crate) fn error(&self, status: StatusCode, text: &str) -> Response {
        self.shared.error(status, text)
    }

    /// Makes a final response what every carrier expects: with a final status, without content that its status forbids, with a
    /// length that leaves room for its trailers, and under TLS with the field that tells browsers to stay there, if the program
    /// asks for that. What the access log says of it is known after this.
    #[inline]
    pub(crate) fn prepare(&self, response: &mut Response, is_secure: bool) {
        if response.status != StatusCode::OK || !matches!(response.content, Content::Bytes(_)) {
            prepare_at_length(response);
        }
        if is_secure
            && let Some(value) = &self.hsts
            && response.field(&header::STRICT_TRANSPORT_SECURITY).is_none()
        {
            response.add_field(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
    }

    /// 503 with Retry-After: there is no room, or no time.
    pub(crate) fn overloaded(&self, text: &str) -> Response {
        let response = self.error(StatusCode::SERVICE_UNAVAILABLE, text);
        response.with_field(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Bytes of the largest body that the route takes in this way.
    pub(crate) fn body_limit(&self, route: u32, body_use: BodyUse) -> u64 {
        self.shared.body_limit(route, body_use)
    }

    /// What a body gets that is longer than its route takes.
    pub(crate) fn too_large(&self, route: u32, body_use: BodyUse) -> Response {
        self.error(StatusCode::PAYLOAD_TOO_LARGE, &self.shared.too_large(route, body_use))
    }

    /// The same where the announced length says so, before any of it is read.
    pub(crate) fn announces_too_much(&self, route: u32, body_use: BodyUse, announced: u64) -> Option<Response> {
        if body_use != BodyUse::None && announced > self.body_limit(route, body_use) {
            return Some(self.too_large(route, body_use));
        }
        let fits = body_use != BodyUse::Whole || announced <= self.shared.budget.limit() as u64 / 2;
        let text = "the body is larger than this server can hold";
        (!fits).then(|| self.error(StatusCode::PAYLOAD_TOO_LARGE, text))
    }

    pub(crate) fn body_use(&self, route: u32) -> BodyUse {
        self.shared.body_uses[route as usize]
    }

    /// Takes a POST as what it says it stands for, where the program wants that.
    #[inline]
    pub(crate) fn override_method(&self, head: &mut Head, window: &[u8]) {
        if self.shared.setup.config.method_override && head.method == Method::Post {
            override_method(head, window);
        }
    }

    /// Finds the route for a request. If there is none, returns what to answer; or, if the app has middleware, a route that
    /// passes the request through it and answers inside.
    #[inline]
    pub(crate) fn route(
        &mut self,
        head: &Head,
        window: &[u8],
        caller: Caller<'_>,
    ) -> std::result::Result<u32, Box<Response>> {
        match (self.find(head, window, caller.is_secure()), self.shared.setup.missed) {
            (Routed::Route(route), _) | (Routed::Nothing, Some(route)) => Ok(route),
            (Routed::Answer(response), Some(route)) => {
                self.missed = Some(response);
                Ok(route)
            }
            (Routed::Answer(response), None) => Err(response),
            (Routed::Nothing, None) => Err(Box::new(self.not_found(head, window, caller))),
        }
    }

    #[inline]
    fn find(&mut self, head: &Head, window: &[u8], is_secure: bool) -> Routed {
        self.resolved.clear();
        // A request that was to get it may have got something else.
        self.missed = None;
        if !is_secure
            && self.redirects
            && let Some(response) = self.shared.setup.https.redirected(head, window)
        {
            return Routed::Answer(Box::new(response));
        }
        if head.target.form == Form::Origin
            && let Some(route) = self.shared.setup.router.find_whole(head.method, head.target.path.of(window))
        {
            return Routed::Route(route);
        }
        self.route_slowly(head, window)
    }

    #[inline(never)]
    fn route_slowly(&mut self, head: &Head, window: &[u8]) -> Routed {
        let shared = &self.shared;
        if head.host_differs && shared.setup.config.refuse_other_host {
            let text = "the target and the Host field name different hosts";
            return Routed::Answer(Box::new(and_close(self.error(StatusCode::BAD_REQUEST, text), head)));
        }
        let router = &shared.setup.router;
        // A CONNECT with a protocol is in HTTP/2 what a GET with Upgrade is in HTTP/1 (RFC 8441 section 5).
        let (method, token) = match head.protocol.is_empty() {
            true => (head.method, head.method_span.of(window)),
            false => (Method::Get, &b"GET"[..]),
        };
        let mut path = head.target.path.of(window);
        if head.target.form != Form::Origin {
            match head.target.form {
                Form::Absolute | Form::Authority if path.is_empty() && head.method != Method::Options => path = b"/",
                Form::Absolute if !path.is_empty() => {}
                Form::Authority => path = b"/",
                // `*`, and an absolute form without a path, are about the server (RFC 9112 section 3.2.4).
                _ if head.method == Method::Options => {
                    return Routed::Answer(Box::new(allow(router.all_methods().value())));
                }
                _ => path = b"/",
            }
        }
        if has_dot_segment(path, head.target.encoded) {
            if !resolve_dot_segments(path, &mut self.resolved) {
                let text = "the path climbs above its root";
                return Routed::Answer(Box::new(and_close(self.error(StatusCode::BAD_REQUEST, text), head)));
            }
            path = &self.resolved;
        }
        match router.find(head.authority(window), method, token, path, &mut self.captures) {
            Found::Route(route) | Found::HeadOfGet(route) => Routed::Route(route),
            Found::Nothing | Found::Allowed(_) if !router.knows(method, token) && shared.setup.fallback.is_none() => {
                let response = self.error(StatusCode::NOT_IMPLEMENTED, "this method is not implemented here");
                // What follows a CONNECT is not HTTP.
                let is_connect = head.method == Method::Connect;
                Routed::Answer(Box::new(if is_connect { and_close(response, head) } else { response }))
            }
            Found::Allowed(methods) => {
                let response = match head.method {
                    Method::Options => allow(methods.value()),
                    _ => self.not_allowed(methods.value()),
                };
                let response = Box::new(response);
                let Some(route) = methods.missed else { return Routed::Answer(response) };
                self.missed = Some(response);
                Routed::Route(route)
            }
            Found::Nothing => match shared.setup.fallback {
                Some(route) => Routed::Route(route),
                None => Routed::Nothing,
            },
        }
    }

    fn not_allowed(&self, allowed: String) -> Response {
        let mut response = self.error(StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed here");
        if let Ok(value) = HeaderValue::try_from(allowed) {
            response.add_field(header::ALLOW, value);
        }
        response
    }

    #[inline(never)]
    fn not_found(&self, head: &Head, window: &[u8], caller: Caller<'_>) -> Response {
        let nobody = TaskWaker::Known(std::task::Waker::noop().clone());
        let request = Request {
            head,
            window,
            params: Params { names: &[], captures: &self.captures, path: b"" },
            route: 0,
            caller,
            shared: &self.shared,
            locals: &self.locals,
            body: &mut Ready::Nothing,
            hooks: &mut Hooks::default(),
            task: &nobody,
        };
        match catch_unwind(AssertUnwindSafe(|| request.not_found())) {
            Ok(response) => response,
            Err(_) => self.panicked(),
        }
    }

    pub(crate) fn panicked(&self) -> Response {
        crate::server::quiet::log!(Panic, error, "a handler panicked");
        self.error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error")
    }

    /// Calls the handler of the route that [`route`](Self::route) found for the same head just before.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "all of them are on their way to the handler; a struct would copy them"
    )]
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
        if self.missed.is_some() {
            hooks.missed = self.missed.take();
        }
        let path = if self.resolved.is_empty() { head.target.path.of(window) } else { &self.resolved };
        let make = || self.context.inbox.waker(task.number());
        let waker = TaskWaker::Maker(&make);
        let mut request = Request {
            head,
            window,
            params: Params { names: &self.shared.setup.names[route as usize], captures: &self.captures, path },
            route,
            caller,
            shared: &self.shared,
            locals: &self.locals,
            body: &mut body,
            hooks,
            task: &waker,
        };
        let endpoint = &self.endpoints[route as usize];
        self.calls = self.calls.wrapping_add(1);
        self.beat.store(Remote::beat_of(self.calls, route), Ordering::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| endpoint.call(&mut request, answer)));
        self.beat.store(0, Ordering::Relaxed);
        match outcome {
            Ok(outcome) => outcome,
            Err(_) => {
                hooks.reply = None;
                *answer = Some(self.panicked());
                Outcome::Ready
            }
        }
    }

    /// Polls a pending handler.
    pub(crate) fn poll(&mut self, (route, place): (u32, u32), task: TaskKind) -> Poll<Response> {
        let waker = self.context.inbox.waker(task.number());
        let endpoint = &self.endpoints[route as usize];
        self.calls = self.calls.wrapping_add(1);
        self.beat.store(Remote::beat_of(self.calls, route), Ordering::Relaxed);
        let poll = || endpoint.poll(place, &mut TaskContext::from_waker(&waker));
        let polled = catch_unwind(AssertUnwindSafe(poll));
        self.beat.store(0, Ordering::Relaxed);
        polled.unwrap_or_else(|_| Poll::Ready(self.panicked()))
    }

    /// Drops a pending handler's future.
    pub(crate) fn cancel(&mut self, (route, place): (u32, u32)) {
        let endpoint = &self.endpoints[route as usize];
        if catch_unwind(AssertUnwindSafe(|| endpoint.cancel(place))).is_err() {
            crate::server::quiet::log!(Panic, error, "a handler panicked when it was cancelled");
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

/// Closes the connection after an answer, where it has no other streams.
fn and_close(response: Response, head: &Head) -> Response {
    if head.version == proto::Version::Http2 { response } else { response.and_close() }
}

#[cold]
fn span(head: &Head, window: &[u8]) -> tracing::Span {
    let words = |span: proto::Span| String::from_utf8_lossy(span.of(window)).into_owned();
    tracing::debug_span!("request", method = words(head.method_span), path = words(head.target.path))
}

fn allow(methods: String) -> Response {
    let mut response = Response::new(StatusCode::NO_CONTENT);
    if let Ok(value) = HeaderValue::try_from(methods) {
        response.add_field(header::ALLOW, value);
    }
    response
}

/// Whether a path may have a segment `.` or `..`, also in an encoded spelling.
#[inline]
pub(crate) fn has_dot_segment(path: &[u8], encoded: bool) -> bool {
    encoded || path.windows(2).any(|pair| pair == b"/.")
}

/// Whether a segment is `.` (1) or `..` (2), each dot plain or encoded: how many dots, or 0.
fn dots(segment: &[u8]) -> u8 {
    let mut rest = segment;
    let mut count = 0;
    while !rest.is_empty() {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return 0,
        };
        count += 1;
    }
    if count <= 2 { count } else { 0 }
}

/// RFC 3986 section 5.2.4, but climbing above the root is an error and not ignored: whether it stayed below.
fn resolve_dot_segments(path: &[u8], resolved: &mut Vec<u8>) -> bool {
    let mut segments = path.split(|&byte| byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match dots(segment) {
            0 => {
                resolved.push(b'/');
                resolved.extend_from_slice(segment);
            }
            1 if last => resolved.push(b'/'),
            1 => {}
            _ => {
                let Some(parent) = resolved.iter().rposition(|&byte| byte == b'/') else { return false };
                resolved.truncate(parent);
                if last {
                    resolved.push(b'/');
                }
            }
        }
    }
    true
}

/// See [`WorkerContext::prepare`]: what a 200 of bytes has no need of.
#[inline(never)]
fn prepare_at_length(response: &mut Response) {
    if response.status.is_informational() && !matches!(response.content, Content::Switch(_)) {
        quiet::log!(Mistake, error, status = %response.status, "a handler's final answer has an interim status");
        response.status = StatusCode::INTERNAL_SERVER_ERROR;
    }
    response.drop_forbidden_content();
    response.make_room_for_trailers();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_resolved_and_may_not_climb_out() {
        for (path, expected) in [
            ("/a/./b", Some("/a/b")),
            ("/a/../b", Some("/b")),
            ("/a/..", Some("/")),
            ("/a/.", Some("/a/")),
            ("/a/%2e%2E/b", Some("/b")),
            ("/.a/..b", Some("/.a/..b")),
            ("/a/.../b", Some("/a/.../b")),
            ("/..", None),
            ("/a/../../b", None),
            ("/%2e%2e/x", None),
            ("/a//../b", Some("/a/b")),
        ] {
            let mut resolved = Vec::new();
            let stayed = resolve_dot_segments(path.as_bytes(), &mut resolved);
            let got = stayed.then(|| String::from_utf8_lossy(&resolved).into_owned());
            assert_eq!(got.as_deref(), expected, "{path}");
        }
    }
}
