//! The app as a service, which finds the route of each request and calls its handler. The service gets heads and
//! returns responses; the engine handles connections.

use crate::app::built_app::BuiltApp;
use crate::app::shared::Shared;
use crate::handler::Endpoint;
use crate::message::dot_segments::{has_dot_segment, resolve_dot_segments};
use crate::message::problem;
use crate::message::request::{Locals, Request};
use crate::middleware::wrap;
use crate::router::{Captures, Found};
use crate::templates::{self, Templates};
use crate::{Params, Response, StatusCode};
use highwire_engine::request::{BodyUse, Caller, Hooks, Ready, TaskWaker};
use highwire_engine::{Begin, Cause, Engine, Hook, MakeService, Observer, Outcome, Service};
use highwire_proto::{Form, Head, Method};
use http::{HeaderValue, header};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The result of routing a request.
enum Routed {
    Route(u32),
    /// A response of the router, such as 405 or a redirect. It is boxed to keep the enum small, because it is rare.
    Answer(Box<Response>),
    /// No route has this path.
    Nothing,
}

/// Makes the service of an app for each worker.
pub struct AppFactory {
    app: Arc<BuiltApp>,
}

impl AppFactory {
    pub(crate) fn new(app: BuiltApp) -> AppFactory {
        AppFactory { app: Arc::new(app) }
    }
}

impl MakeService for AppFactory {
    type Service = Dispatcher;

    fn make(&self, shared: &Arc<highwire_engine::Shared>) -> Dispatcher {
        Dispatcher::new(self.app.clone(), shared.clone())
    }

    fn on_start(&self) -> Option<Hook> {
        self.app.hooks.start()
    }

    fn on_stop(&self) -> Option<Hook> {
        self.app.hooks.stop()
    }

    fn describe(&self, route: u32) -> (&str, bool) {
        self.app.route(route)
    }
}

/// The service of an app on one worker.
pub struct Dispatcher {
    app: Arc<BuiltApp>,
    shared: Arc<Shared>,
    endpoints: Vec<Box<dyn Endpoint>>,
    /// The worker's values of the app, and of each nested app, and their templates.
    locals: Vec<Rc<Locals>>,
    captures: Captures,
    /// The router's response to the current request, which the route [`Missed`](crate::middleware::Missed) takes.
    missed: Option<Box<Response>>,
    /// The path of the current request after its dot segments were resolved. Empty if the path cannot have dot
    /// segments.
    resolved: Vec<u8>,
    /// True if requests without TLS are redirected to https.
    redirects: bool,
    templates: Vec<Option<Rc<Templates>>>,
}

impl Service for Dispatcher {
    #[inline]
    fn route(&mut self, head: &Head, window: &[u8], caller: Caller<'_>) -> std::result::Result<u32, Box<Response>> {
        match (self.find(head, window, caller.is_secure()), self.app.missed) {
            (Routed::Route(route), _) | (Routed::Nothing, Some(route)) => Ok(route),
            (Routed::Answer(response), Some(route)) => {
                self.missed = Some(response);
                Ok(route)
            }
            (Routed::Answer(response), None) => Err(response),
            (Routed::Nothing, None) => Err(Box::new(self.not_found(head, window, caller))),
        }
    }

    fn body_use(&self, route: u32) -> BodyUse {
        self.app.body_uses[route as usize]
    }

    fn body_limit(&self, route: u32, body_use: BodyUse) -> Option<u64> {
        self.shared.app.body_limit(route, body_use)
    }

    #[inline]
    fn begin(&mut self, request: Begin<'_>, answer: &mut Option<Response>) -> Outcome {
        let Begin { route, head, window, caller, body, hooks, task } = request;
        let scope = self.shared.app.scope(route);
        let _templates = templates::enter(&self.templates[scope]);
        let path = if self.resolved.is_empty() { head.target.path.of(window) } else { &self.resolved };
        let mut request = Request {
            head,
            window,
            params: Params { names: &self.shared.app.names[route as usize], captures: &self.captures, path },
            route,
            caller,
            shared: &self.shared,
            locals: &self.locals[scope],
            body,
            hooks,
            missed: &mut self.missed,
            task,
        };
        let outcome = self.endpoints[route as usize].call(&mut request, answer);
        self.log_caught(Some(route));
        outcome
    }

    fn poll(&mut self, (route, place): (u32, u32), cx: &mut Context<'_>) -> Poll<Response> {
        let _templates = templates::enter(&self.templates[self.shared.app.scope(route)]);
        let polled = self.endpoints[route as usize].poll(place, cx);
        self.log_caught(Some(route));
        polled
    }

    fn cancel(&mut self, (route, place): (u32, u32)) {
        self.endpoints[route as usize].cancel(place);
    }

    fn strict_transport_security(&self) -> Option<HeaderValue> {
        self.app.https.strict_transport_security()
    }

    fn observer(&self) -> Option<Rc<dyn Observer>> {
        let metrics = self.app.metrics.as_ref()?;
        let is_numbered = self.shared.engine().config().engine != Engine::Threads;
        Some(Rc::new(metrics.add_worker(self.app.routes.len(), is_numbered)))
    }

    fn before_wait(&mut self) {
        if let Some(hooks) = &self.app.on_wait {
            (hooks.before)();
        }
    }

    fn after_wait(&mut self) {
        if let Some(hooks) = &self.app.on_wait {
            (hooks.after)();
        }
    }

    fn end(&mut self) {
        crate::form::remove_dropped();
    }

    fn panicked(&self, route: Option<u32>, cause: &Cause) -> Response {
        // A panic that a middleware has caught before.
        self.log_caught(route);
        self.log_panic(route, cause);
        self.error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error")
    }

    fn error(&self, status: StatusCode, text: &str) -> Response {
        let _templates = templates::enter(&self.templates[0]);
        self.shared.app.error(status, text)
    }
}

impl Dispatcher {
    /// Logs the panic that a middleware of this route has just caught, if there is one.
    #[inline]
    fn log_caught(&self, route: Option<u32>) {
        if let Some(cause) = wrap::take_caught() {
            self.log_panic(route, &cause);
        }
    }

    #[cold]
    fn log_panic(&self, route: Option<u32>, cause: &Cause) {
        let route = route.map(|route| self.app.route(route).0);
        highwire_engine::log!(Panic, error, route, "a handler or middleware panicked: {cause}");
    }

    fn new(app: Arc<BuiltApp>, engine: Arc<highwire_engine::Shared>) -> Dispatcher {
        if app.data.on_rejection.is_some() {
            problem::keep_problems();
        }
        Dispatcher {
            endpoints: app.routes.iter().map(|route| route.clone().endpoint()).collect(),
            locals: app.values.make_locals(),
            captures: Captures::default(),
            missed: None,
            resolved: Vec::new(),
            redirects: app.https.redirects(),
            templates: app.data.states.iter().map(|map| map.templates().map(Rc::new)).collect(),
            shared: Arc::new(Shared::new(app.data.clone(), engine)),
            app,
        }
    }

    #[inline]
    fn find(&mut self, head: &Head, window: &[u8], is_secure: bool) -> Routed {
        self.resolved.clear();
        // A response is left over if the engine did not call the handler of the previous request.
        self.missed = None;
        if !is_secure
            && self.redirects
            && let Some(response) = self.app.https.redirected(head, window)
        {
            return Routed::Answer(Box::new(response));
        }
        if head.target.form == Form::Origin
            && let Some(route) = self.app.router.find_whole(head.method, head.target.path.of(window))
        {
            return Routed::Route(route);
        }
        self.route_slowly(head, window)
    }

    #[inline(never)]
    fn route_slowly(&mut self, head: &Head, window: &[u8]) -> Routed {
        let router = &self.app.router;
        // In HTTP/2, CONNECT with a protocol corresponds to GET with Upgrade in HTTP/1 (RFC 8441 section 5).
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
                // `*`, and an absolute form without a path, mean the whole server (RFC 9112 section 3.2.4).
                _ if head.method == Method::Options => {
                    return Routed::Answer(Box::new(allow(router.all_methods().value())));
                }
                _ => path = b"/",
            }
        }
        if has_dot_segment(path, head.target.encoded) {
            if !resolve_dot_segments(path, &mut self.resolved) {
                let text = "the path climbs above its root";
                return Routed::Answer(Box::new(
                    self.error(StatusCode::BAD_REQUEST, text).and_close_http1(head.version),
                ));
            }
            path = &self.resolved;
        }
        match router.find(head.authority(window), method, token, path, &mut self.captures) {
            Found::Route(route) | Found::HeadOfGet(route) => Routed::Route(route),
            Found::Nothing | Found::Allowed(_) if !router.knows(method, token) && self.app.fallback.is_none() => {
                let response = self.error(StatusCode::NOT_IMPLEMENTED, "this method is not implemented here");
                // The bytes after a CONNECT need not be HTTP.
                let is_connect = head.method == Method::Connect;
                Routed::Answer(Box::new(if is_connect { response.and_close_http1(head.version) } else { response }))
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
            Found::Nothing => match self.app.fallback {
                Some(route) => Routed::Route(route),
                None => Routed::Nothing,
            },
        }
    }

    fn not_allowed(&self, allowed: String) -> Response {
        let mut response = self.error(StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed here");
        if let Ok(value) = HeaderValue::try_from(allowed) {
            response.add_header(header::ALLOW, value);
        }
        response
    }

    #[inline(never)]
    fn not_found(&self, head: &Head, window: &[u8], caller: Caller<'_>) -> Response {
        let _templates = templates::enter(&self.templates[0]);
        let nobody = TaskWaker::Known(std::task::Waker::noop().clone());
        let request = Request {
            head,
            window,
            params: Params { names: &[], captures: &self.captures, path: b"" },
            // None: the values are those of the outermost app.
            route: u32::MAX,
            caller,
            shared: &self.shared,
            locals: &self.locals[0],
            body: &mut Ready::Nothing,
            hooks: &mut Hooks::default(),
            missed: &mut None,
            task: &nobody,
        };
        match catch_unwind(AssertUnwindSafe(|| request.not_found())) {
            Ok(response) => response,
            Err(payload) => self.panicked(None, &Cause::of(payload)),
        }
    }
}

fn allow(methods: String) -> Response {
    let mut response = Response::new(StatusCode::NO_CONTENT);
    if let Ok(value) = HeaderValue::try_from(methods) {
        response.add_header(header::ALLOW, value);
    }
    response
}
