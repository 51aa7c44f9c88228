//! Cross-origin requests from browsers (Fetch standard, section 3.2).

use super::Middleware;
use crate::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use std::time::Duration;

/// Allows pages of other origins to use this app, and answers their preflight requests. By default, no origin is
/// allowed; [`origin`](Self::origin) and [`any_origin`](Self::any_origin) change that.
///
/// ```
/// use highwire::middleware::Cors;
/// use highwire::{App, Method};
///
/// let cors = Cors::new().origin("https://app.example").methods([Method::GET, Method::PUT]).credentials();
/// let app = App::new().get("/", || "hello").with(cors);
/// # let _ = app;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Cors {
    origins: Vec<String>,
    any_origin: bool,
    methods: Vec<Method>,
    fields: Vec<HeaderName>,
    exposed: Vec<HeaderName>,
    credentials: bool,
    max_age: Option<Duration>,
}

impl Cors {
    /// Creates rules that allow no origin.
    pub fn new() -> Cors {
        Cors::default()
    }

    /// Allows an origin, spelled as browsers send it: `https://app.example`, with a port unless it is the scheme's
    /// default.
    pub fn origin(mut self, origin: impl Into<String>) -> Cors {
        self.origins.push(origin.into());
        self
    }

    /// Allows every origin, but without credentials: [`credentials`](Self::credentials) affects only origins added with
    /// [`origin`](Self::origin).
    pub fn any_origin(mut self) -> Cors {
        self.any_origin = true;
        self
    }

    /// Allows these methods in addition to GET, HEAD and POST, which need no permission.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Cors {
        self.methods.extend(methods);
        self
    }

    /// Allows these header fields in requests, in addition to those that need no permission.
    #[doc(alias = "fields")]
    pub fn allow_headers(mut self, fields: impl IntoIterator<Item = HeaderName>) -> Cors {
        self.fields.extend(fields);
        self
    }

    /// Allows pages to read these fields of responses, in addition to those that browsers always let them read.
    pub fn expose(mut self, fields: impl IntoIterator<Item = HeaderName>) -> Cors {
        self.exposed.extend(fields);
        self
    }

    /// Allows cookies and other credentials in requests from origins added with [`origin`](Self::origin).
    pub fn credentials(mut self) -> Cors {
        self.credentials = true;
        self
    }

    /// Sets how long browsers may cache the response to a preflight request.
    pub fn max_age(mut self, max_age: Duration) -> Cors {
        self.max_age = Some(max_age);
        self
    }

    /// Returns the permission that an origin has.
    fn judge(&self, origin: &[u8]) -> Allowed {
        if self.origins.iter().any(|known| known.as_bytes() == origin) {
            return match HeaderValue::from_bytes(origin) {
                Ok(value) => Allowed::This(value),
                Err(_) => Allowed::No,
            };
        }
        if self.any_origin { Allowed::Every } else { Allowed::No }
    }

    fn write(&self, allowed: Allowed, response: &mut Response) {
        let value = match allowed {
            Allowed::No => return,
            Allowed::Every => HeaderValue::from_static("*"),
            Allowed::This(origin) => {
                if self.credentials {
                    response.add_header(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
                }
                origin
            }
        };
        response.add_header(header::ACCESS_CONTROL_ALLOW_ORIGIN, value);
    }

    fn preflight(&self, allowed: Allowed) -> Response {
        if matches!(allowed, Allowed::No) {
            return Response::error(StatusCode::FORBIDDEN, "this origin may not use this\n");
        }
        let mut response = Response::new(StatusCode::NO_CONTENT);
        self.write(allowed, &mut response);
        let methods = self.methods.iter().map(Method::as_str);
        let fields = self.fields.iter().map(HeaderName::as_str);
        add_list(&mut response, header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        add_list(&mut response, header::ACCESS_CONTROL_ALLOW_HEADERS, fields);
        if let Some(max_age) = self.max_age {
            response.add_header(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(max_age.as_secs()));
        }
        response
    }

    /// Returns true if responses depend on the request's origin, and therefore need `Vary: origin`.
    fn varies(&self) -> bool {
        !self.origins.is_empty()
    }
}

/// The permission of an origin.
#[derive(Clone, Debug)]
enum Allowed {
    No,
    Every,
    This(HeaderValue),
}

/// The state that [`Cors`] keeps for a request: the permission of its origin.
#[derive(Debug)]
pub struct Origin(Option<Allowed>);

impl Middleware for Cors {
    type State = Origin;

    fn before(&self, request: &mut Request<'_>) -> Result<Origin, Response> {
        let Some(origin) = request.header("origin") else {
            // If only `any_origin` allows origins, responses to requests without an origin get
            // `Access-Control-Allow-Origin`, too, because a cache may serve them to pages of other origins.
            return Ok(Origin((self.any_origin && !self.varies()).then_some(Allowed::Every)));
        };
        let allowed = self.judge(origin);
        if request.method() == "OPTIONS" && request.header("access-control-request-method").is_some() {
            let mut response = self.preflight(allowed);
            let vary = "origin, access-control-request-method, access-control-request-headers";
            response.add_header(header::VARY, HeaderValue::from_static(vary));
            return Err(response);
        }
        Ok(Origin(Some(allowed)))
    }

    fn after(&self, Origin(allowed): Origin, response: &mut Response) {
        if self.varies() {
            response.add_header(header::VARY, HeaderValue::from_static("origin"));
        }
        let Some(allowed) = allowed else { return };
        let is_allowed = !matches!(allowed, Allowed::No);
        self.write(allowed, response);
        if is_allowed {
            let exposed = self.exposed.iter().map(HeaderName::as_str);
            add_list(response, header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }
}

fn add_list<'n>(response: &mut Response, name: HeaderName, names: impl Iterator<Item = &'n str>) {
    let list = names.collect::<Vec<_>>().join(", ");
    if let Some(value) = HeaderValue::try_from(list).ok().filter(|value| !value.is_empty()) {
        response.add_header(name, value);
    }
}
