//! The response, and the trait of types that convert into one.

use bytes::Bytes;
use highwire_engine::response::{BINARY, TEXT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;

/// A response. Handlers return it, and middleware can change it.
///
/// ```
/// use highwire::middleware::after;
/// use highwire::testing::Client;
/// use highwire::{App, HeaderValue, Response, StatusCode, header};
///
/// let page = || {
///     let language = HeaderValue::from_static("en");
///     Response::html("<p>gone</p>").with_status(StatusCode::NOT_FOUND).with_header(header::CONTENT_LANGUAGE, language)
/// };
/// let app = App::new().get("/old", page).with(after(|response: &mut Response| {
///     if response.status() == StatusCode::NOT_FOUND {
///         response.set_status(StatusCode::GONE);
///         response.set_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
///         response.remove_header(&header::CONTENT_LANGUAGE);
///     }
/// }));
/// let answer = Client::new(app)?.get("/old").send();
/// assert_eq!((answer.status(), answer.text()), (StatusCode::GONE, "<p>gone</p>"));
/// assert_eq!((answer.header("cache-control"), answer.header("content-language")), ("no-store", ""));
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::Response;

/// A type that a handler can return.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, IntoResponse, Path, Response, StatusCode};
///
/// enum Error {
///     SoldOut,
///     NoSuchSeat(u32),
/// }
///
/// impl IntoResponse for Error {
///     fn into_response(self) -> Response {
///         match self {
///             Error::SoldOut => (StatusCode::CONFLICT, "no seat is left\n").into_response(),
///             Error::NoSuchSeat(seat) => (StatusCode::NOT_FOUND, format!("there is no seat {seat}\n")).into_response(),
///         }
///     }
/// }
///
/// let book = |Path(seat): Path<u32>| match seat {
///     0 => Err(Error::SoldOut),
///     1..100 => Ok((StatusCode::CREATED, format!("seat {seat}\n"))),
///     _ => Err(Error::NoSuchSeat(seat)),
/// };
/// let mut client = Client::new(App::new().post("/seats/{seat}", book))?;
/// assert_eq!(client.post("/seats/7").send().status(), 201);
/// assert_eq!(client.post("/seats/700").send().text(), "there is no seat 700\n");
/// # Ok::<(), highwire::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent as a response",
    note = "return text, bytes, a `StatusCode`, a `Json`, a `Response`, a tuple of a status and one of them, or a `Result` of two of them"
)]
pub trait IntoResponse {
    /// Converts the value into a response.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    #[inline]
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new(StatusCode::OK)
    }
}

impl IntoResponse for &'static str {
    #[inline]
    fn into_response(self) -> Response {
        Response::bytes(TEXT, Bytes::from_static(self.as_bytes()))
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        Response::bytes(TEXT, self)
    }
}

impl IntoResponse for Cow<'static, str> {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> Response {
        Response::bytes(BINARY, self)
    }
}

impl IntoResponse for Vec<u8> {
    fn into_response(self) -> Response {
        Response::bytes(BINARY, self)
    }
}

impl IntoResponse for &'static [u8] {
    fn into_response(self) -> Response {
        Response::bytes(BINARY, Bytes::from_static(self))
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

/// What a handler adds to a response, as the first parts of a tuple whose last part is the response: header fields, as arrays of names
/// and values or as a `HeaderMap`, [cookies](crate::cookie::Cookies) or a session. A status may come before all of them. The first
/// part adds its fields last.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, HeaderMap, HeaderValue, StatusCode, header};
///
/// let created = || (StatusCode::CREATED, [("location", "/orders/7"), ("x-queue", "3")], "order 7\n");
/// let css = || ([(header::CONTENT_TYPE, "text/css")], "p { color: teal }");
/// let listed = || {
///     let mut fields = HeaderMap::new();
///     fields.insert("x-total", HeaderValue::from(12));
///     (fields, "twelve")
/// };
/// let mut client = Client::new(App::new().post("/orders", created).get("/style.css", css).get("/", listed))?;
/// assert_eq!(client.post("/orders").send().header("location"), "/orders/7");
/// assert_eq!(client.get("/style.css").send().header("content-type"), "text/css");
/// assert_eq!(client.get("/").send().header("x-total"), "12");
/// # Ok::<(), highwire::Error>(())
/// ```
///
/// A name or a value that no header field can have, such as one with a line break, makes the response a 500, and is logged.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a response",
    note = "a tuple has a `StatusCode`, then header fields (`[(\"name\", \"value\")]` or a `HeaderMap`), and last what is sent"
)]
pub trait IntoResponseParts {
    /// Adds it to a response, and returns the response.
    ///
    /// # Errors
    /// Returns the response that is sent in its place if it cannot be added. Nothing is added to that one.
    fn add_to(self, response: Response) -> Result<Response, Response>;
}

impl<K, V, const N: usize> IntoResponseParts for [(K, V); N]
where
    K: TryInto<HeaderName>,
    K::Error: fmt::Display,
    V: TryInto<HeaderValue>,
    V::Error: fmt::Display,
{
    fn add_to(self, mut response: Response) -> Result<Response, Response> {
        for (name, value) in self {
            let field = name.try_into().map_err(|error| error.to_string());
            let field = field.and_then(|name| Ok((name, value.try_into().map_err(|error| error.to_string())?)));
            match field {
                Ok((name, value)) => response.add_header(name, value),
                Err(error) => {
                    highwire_engine::log!(Mistake, error, %error, "a handler returns a header field that cannot be sent");
                    return Err(Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"));
                }
            }
        }
        Ok(response)
    }
}

impl IntoResponseParts for HeaderMap {
    fn add_to(self, mut response: Response) -> Result<Response, Response> {
        let mut last = None;
        for (name, value) in self {
            // A further value of a name comes without it.
            last = name.or(last);
            if let Some(name) = &last {
                response.add_header(name.clone(), value);
            }
        }
        Ok(response)
    }
}

/// Adds nothing if there is no value.
impl<P: IntoResponseParts> IntoResponseParts for Option<P> {
    fn add_to(self, response: Response) -> Result<Response, Response> {
        match self {
            Some(parts) => parts.add_to(response),
            None => Ok(response),
        }
    }
}

impl IntoResponse for HeaderMap {
    fn into_response(self) -> Response {
        self.add_to(Response::new(StatusCode::OK)).unwrap_or_else(|response| response)
    }
}

impl<R: IntoResponse> IntoResponse for (StatusCode, R) {
    fn into_response(self) -> Response {
        self.1.into_response().with_status(self.0)
    }
}

/// A response with a status that its type tells, so that an OpenAPI document knows it: `Status<201, Json<User>>`. A status below
/// 200 or above 599 does not compile.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Status};
///
/// let app = App::new().post("/users", |name: String| Status::<201, _>(format!("hello, {name}")));
/// assert_eq!(Client::new(app)?.post("/users").body("ann").send().status(), 201);
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status<const CODE: u16, R>(pub R);

/// Returns true if a final response may have this status.
pub(crate) const fn is_final_status(code: u16) -> bool {
    200 <= code && code <= 599
}

impl<const CODE: u16, R: IntoResponse> IntoResponse for Status<CODE, R> {
    fn into_response(self) -> Response {
        const { assert!(is_final_status(CODE), "a response has a status from 200 to 599") };
        let status = StatusCode::from_u16(CODE).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.0.into_response().with_status(status)
    }
}

macro_rules! tuples {
    ($(($($part:ident)*))*) => {$(
        impl<$($part: IntoResponseParts,)* R: IntoResponse> IntoResponse for ($($part,)* R,) {
            #[allow(non_snake_case, reason = "one macro for every number of parts")]
            fn into_response(self) -> Response {
                let ($($part,)* response,) = self;
                add!(Ok(response.into_response()), $($part)*).unwrap_or_else(|response| response)
            }
        }

        impl<$($part: IntoResponseParts,)* R: IntoResponse> IntoResponse for (StatusCode, $($part,)* R,) {
            #[allow(non_snake_case, reason = "one macro for every number of parts")]
            fn into_response(self) -> Response {
                let (status, $($part,)* response,) = self;
                // The status comes first, so that parts that cannot be sent make the response a 500.
                let response = Ok(response.into_response().with_status(status));
                add!(response, $($part)*).unwrap_or_else(|response| response)
            }
        }
    )*};
}

macro_rules! add {
    ($response:expr,) => { $response };
    ($response:expr, $first:ident $($rest:ident)*) => { add!($response, $($rest)*).and_then(|response| $first.add_to(response)) };
}

tuples!((A) (A B) (A B C));

/// Can never be sent.
impl IntoResponse for Infallible {
    fn into_response(self) -> Response {
        match self {}
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    #[inline]
    fn into_response(self) -> Response {
        match self {
            Ok(answer) => answer.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

/// Responds with 404 if there is no value.
impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        self.map_or_else(|| Response::error(StatusCode::NOT_FOUND, "not found\n"), T::into_response)
    }
}

/// Responds with 400, 408, 413 or 503, and the reason.
impl IntoResponse for highwire_engine::body::BodyError {
    fn into_response(self) -> Response {
        self.into()
    }
}

/// A response with status 503 and `Retry-After: 1`.
pub(crate) struct Overloaded;

impl IntoResponse for Overloaded {
    fn into_response(self) -> Response {
        Response::error(StatusCode::SERVICE_UNAVAILABLE, "the server is overloaded\n")
            .with_header(http::header::RETRY_AFTER, HeaderValue::from_static("1"))
    }
}
