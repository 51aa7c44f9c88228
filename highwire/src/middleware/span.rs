//! A span of the crate `tracing` for each request.

use super::{Middleware, RequestId, TraceParent, client_address};
use crate::{Request, Response};
use highwire_engine::context;
use tracing::Span;
use tracing::field::Empty;

/// Opens a span for each request, with the level INFO and the target `highwire::request`. The handler's events are inside of it, also
/// those of an async handler after it has waited. The fields have OpenTelemetry's names:
///
/// | field | content |
/// |---|---|
/// | `otel.name`, `otel.kind` | method and route; `server` |
/// | `http.request.method`, `url.path`, `http.route` | the method, the path without the query, and the template of the route, if one matches |
/// | `network.protocol.version`, `client.address` | `1.0`, `1.1` or `2`; the [client's](super::ClientAddress) address, if it has one |
/// | `trace_id`, `parent_span_id`, `span_id` | the request's place in its trace, as [`TraceParent`] reads it |
/// | `request_id` | the [`RequestId`](super::RequestId), if [`RequestIds`](super::RequestIds) is outside of this middleware |
/// | `http.response.status_code`, `microseconds` | recorded when the response is ready: the status, and the time since the span began, which is after a body was received that the handler takes whole |
///
/// The span of a request that ends without a response, because its client has left, has no status. If no subscriber wants the span,
/// the middleware does nothing.
///
/// A function on the blocking pool, and a task of [`spawn`](crate::spawn), run outside of the span; `tracing::Span::current()` in the
/// handler returns it for them.
///
/// ```
/// use highwire::App;
/// use highwire::middleware::RequestSpan;
/// use highwire::testing::Client;
///
/// let app = App::new()
///     .get("/hello", || {
///         tracing::info!("the handler runs");
///         "hello"
///     })
///     .with(RequestSpan);
/// assert_eq!(Client::new(app)?.get("/hello").send().text(), "hello");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
#[doc(alias = "TraceLayer")]
pub struct RequestSpan;

/// The span of a request; nothing if no subscriber wants it.
#[derive(Debug)]
pub struct Open(Option<(Span, Began)>);

/// When a span has begun.
#[derive(Debug)]
struct Began {
    /// By the worker's clock, which stands still during a turn.
    turn: highwire_io::Instant,
    /// By the clock that goes on within a turn; always 0 in simulations.
    stopwatch: u64,
}

impl Began {
    fn now() -> Began {
        Began { turn: context::now(), stopwatch: context::stopwatch() }
    }

    fn microseconds(&self) -> u64 {
        let now = Began::now();
        let within = now.stopwatch.saturating_sub(self.stopwatch) / 1000;
        within.max(now.turn.since(self.turn).as_micros() as u64)
    }
}

impl Middleware for RequestSpan {
    type State = Open;

    #[inline]
    fn before(&self, request: &mut Request<'_>) -> Result<Open, Response> {
        let is_wanted = tracing::span_enabled!(target: "highwire::request", tracing::Level::INFO);
        Ok(Open(if is_wanted { open(request) } else { None }))
    }

    #[inline]
    fn within(&self, state: &mut Open, step: &mut dyn FnMut()) {
        match &state.0 {
            Some((span, _)) => span.in_scope(step),
            None => step(),
        }
    }

    fn after(&self, state: Open, response: &mut Response) {
        if let Some((span, began)) = state.0 {
            span.record("http.response.status_code", response.status().as_u16());
            span.record("microseconds", began.microseconds());
        }
    }
}

#[cold]
fn open(request: &mut Request<'_>) -> Option<(Span, Began)> {
    let trace = TraceParent::of(request);
    let route = request.matched_path();
    let version = match request.version() {
        http::Version::HTTP_10 => "1.0",
        http::Version::HTTP_2 => "2",
        _ => "1.1",
    };
    let method = request.method();
    let span = tracing::info_span!(
        target: "highwire::request",
        "request",
        otel.name = %format_args!("{method}{}{}", if route.is_some() { " " } else { "" }, route.unwrap_or_default()),
        otel.kind = "server",
        http.request.method = method,
        url.path = request.path(),
        http.route = route,
        network.protocol.version = version,
        client.address = client_address(request).map(display),
        trace_id = %format_args!("{:032x}", trace.trace),
        parent_span_id = (trace.parent != 0).then(|| display(format!("{:016x}", trace.parent))),
        span_id = %format_args!("{:016x}", trace.span),
        request_id = request.extension::<RequestId>().map(display),
        http.response.status_code = Empty,
        microseconds = Empty,
    );
    (!span.is_disabled()).then(|| (span, Began::now()))
}
