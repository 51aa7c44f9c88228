//! Redirects, and responses with HTML.

use crate::{IntoResponse, Response, StatusCode};
use http::{HeaderValue, header};

/// A response that redirects the client to another URL.
///
/// ```
/// use highwire::{App, Redirect};
///
/// let app = App::new()
///     .get("/old", || Redirect::permanent("/new"))
///     .post("/orders", || Redirect::see_other("/orders/17"));
/// # let _ = app;
/// ```
///
/// The target is sent in `Location` unchanged. If a target contains a client's input, the program must check it,
/// because `//host` leads to another host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Redirect {
    status: StatusCode,
    target: String,
}

impl Redirect {
    /// Redirects with 303, which means that the request is done, and that the client gets the result from the target
    /// with GET.
    pub fn see_other(target: impl Into<String>) -> Redirect {
        Redirect { status: StatusCode::SEE_OTHER, target: target.into() }
    }

    /// Redirects with 307, for this request only. The client repeats the request at the target with the same method and
    /// body.
    pub fn temporary(target: impl Into<String>) -> Redirect {
        Redirect { status: StatusCode::TEMPORARY_REDIRECT, target: target.into() }
    }

    /// Redirects with 308, permanently. The client repeats the request at the target with the same method and body.
    pub fn permanent(target: impl Into<String>) -> Redirect {
        Redirect { status: StatusCode::PERMANENT_REDIRECT, target: target.into() }
    }
}

/// Responds with 500 if the target contains bytes that a header field may not contain.
impl IntoResponse for Redirect {
    fn into_response(self) -> Response {
        match HeaderValue::try_from(self.target) {
            Ok(target) => Response::new(self.status).with_header(header::LOCATION, target),
            Err(_) => {
                highwire_engine::log!(Mistake, error, "a redirect's target is not valid in a header field");
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
            }
        }
    }
}

/// A response with HTML in UTF-8.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Html};
///
/// let answer = Client::new(App::new().get("/", || Html("<h1>Hello</h1>")))?.get("/").send();
/// assert_eq!((answer.text(), answer.header("content-type")), ("<h1>Hello</h1>", "text/html; charset=utf-8"));
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Html<T>(pub T);

impl<T: Into<std::borrow::Cow<'static, str>>> IntoResponse for Html<T> {
    fn into_response(self) -> Response {
        Response::html(self.0)
    }
}
