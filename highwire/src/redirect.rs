//! Answers that send the client elsewhere.

use crate::{IntoResponse, Response, StatusCode};
use http::{HeaderValue, header};

/// An answer that sends the client elsewhere.
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
/// The target goes into the answer as it is. One that comes from outside must be checked by the program: `//host` is
/// another host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Redirect {
    status: StatusCode,
    target: String,
}

impl Redirect {
    /// 303: what was asked for is done, and its result is there; the client asks for it with GET.
    pub fn see_other(target: impl Into<String>) -> Redirect {
        Redirect { status: StatusCode::SEE_OTHER, target: target.into() }
    }

    /// 307: there, this time; with the same method and body.
    pub fn temporary(target: impl Into<String>) -> Redirect {
        Redirect { status: StatusCode::TEMPORARY_REDIRECT, target: target.into() }
    }

    /// 308: there, from now on; with the same method and body.
    pub fn permanent(target: impl Into<String>) -> Redirect {
        Redirect { status: StatusCode::PERMANENT_REDIRECT, target: target.into() }
    }
}

/// 500 where the target has bytes that no field may hold.
impl IntoResponse for Redirect {
    fn into_response(self) -> Response {
        match HeaderValue::try_from(self.target) {
            Ok(target) => Response::new(self.status).with_header(header::LOCATION, target),
            Err(_) => {
                highwire_engine::log!(Mistake, error, "a redirect's target is no field's value");
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
            }
        }
    }
}

/// HTML in UTF-8.
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
