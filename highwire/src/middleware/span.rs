//! A span of the crate `tracing` for each request.

use super::{Middleware, TraceContext, TraceParent, client_address};
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
/// | `trace_id`, `parent_span_id`, `span_id` | the request's place in its trace; see [`TraceContext`], which this middleware includes |
/// | `http.response.status_code`, `microseconds` | recorded when the response is ready: the status, and the time since the request came |
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
pub struct Open(Option<(Span, highwire_io::Instant)>);

impl Middleware for RequestSpan {
    type State = Open;

    #[inline]
    fn before(&self, request: &mut Request<'_>) -> Result<Open, Response> {
        let is_wanted = tracing::enabled!(target: "highwire::request", tracing::Level::INFO);
        Ok(Open(if is_wanted { open(request)? } else { None }))
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
            span.record("microseconds", context::now().since(began).as_micros() as u64);
        }
    }
}

#[cold]
fn open(request: &mut Request<'_>) -> Result<Option<(Span, highwire_io::Instant)>, Response> {
    TraceContext.before(request)?;
    let trace = request.extension::<TraceParent>().copied();
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
        trace_id = trace.map(|trace| display(format!("{:032x}", trace.trace))),
        parent_span_id = trace.filter(|trace| trace.parent != 0).map(|trace| display(format!("{:016x}", trace.parent))),
        span_id = trace.map(|trace| display(format!("{:016x}", trace.span))),
        http.response.status_code = Empty,
        microseconds = Empty,
    );
    Ok((!span.is_disabled()).then(|| (span, context::now())))
}
