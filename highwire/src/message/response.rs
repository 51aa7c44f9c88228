//! The response, and the trait of types that convert into one.

use bytes::Bytes;
use highwire_engine::response::{BINARY, TEXT};
use http::{HeaderName, HeaderValue, StatusCode};
use std::borrow::Cow;

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

impl<R: IntoResponse> IntoResponse for (StatusCode, R) {
    fn into_response(self) -> Response {
        self.1.into_response().with_status(self.0)
    }
}

impl<R: IntoResponse, const N: usize> IntoResponse for ([(HeaderName, HeaderValue); N], R) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        self.0.into_iter().for_each(|(name, value)| response.add_header(name, value));
        response
    }
}

impl<R: IntoResponse, const N: usize> IntoResponse for (StatusCode, [(HeaderName, HeaderValue); N], R) {
    fn into_response(self) -> Response {
        (self.1, self.2).into_response().with_status(self.0)
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
