//! Responses that are sent later, from any thread, and interim responses before the final one.

use crate::message::request::{FromRequest, Request};
use crate::message::response::Overloaded;
use crate::templates::{self, Templates};
use crate::{IntoResponse, Response};
use highwire_engine::Shared;
use highwire_engine::reply::Replier;
use http::StatusCode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// An extractor to answer a request later, from any thread. The handler's own return value is then ignored. If the
/// `Reply` is dropped without an answer, the client gets 500.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Reply};
///
/// let app = App::new().get("/later", |reply: Reply| {
///     std::thread::spawn(move || reply.send("from another thread"));
/// });
/// assert_eq!(Client::new(app)?.get("/later").send().text(), "from another thread");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Debug)]
pub struct Reply {
    replier: Replier,
    /// The app's templates, because the response is made outside of the handler.
    templates: Option<Templates>,
}

impl Reply {
    /// Sends the response.
    pub fn send(self, answer: impl IntoResponse + Send + 'static) {
        let Reply { replier, templates } = self;
        replier.send(move || {
            let _templates = templates::enter(&templates.map(Rc::new));
            answer.into_response()
        });
    }

    /// Returns true if the client still waits for the response, and false after a time limit or a disconnect.
    pub fn is_wanted(&self) -> bool {
        self.replier.is_wanted()
    }

    /// Runs a function on the blocking pool and answers with its result, with 500 if the function panics, or with 503
    /// if the pool is full. If the request is cut before the function has begun, the function does not run.
    pub(crate) fn offload<R: IntoResponse + Send + 'static>(
        self,
        shared: &Shared,
        function: impl FnOnce() -> R + Send + 'static,
    ) {
        let Reply { replier, templates } = self;
        replier.leave(move || {
            let answer = catch_unwind(AssertUnwindSafe(function)).map_err(|_| {
                highwire_engine::log!(Panic, error, "a blocking handler panicked");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
            });
            move || {
                let _templates = templates::enter(&templates.map(Rc::new));
                answer.into_response()
            }
        });
        if let Err(replier) = shared.offer(replier, Box::new(Replier::work)) {
            replier.send(|| Overloaded.into_response());
        }
    }
}

impl FromRequest for Reply {
    fn from_request(request: &mut Request<'_>) -> Result<Reply, Response> {
        let waker = request.waker();
        let templates = request.values().templates();
        Ok(Reply { replier: request.hooks.reply_later(waker), templates })
    }
}

/// An extractor to send interim responses (1xx) before the final one.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, HeaderValue, Html, InterimResponses, StatusCode, header};
///
/// let app = App::new().get("/", |interim: InterimResponses| {
///     let link = HeaderValue::from_static("</style.css>; rel=preload; as=style");
///     interim.send(StatusCode::EARLY_HINTS, [(header::LINK, link)]);
///     Html("<link rel=stylesheet href=/style.css>")
/// });
/// let answer = Client::new(app)?.get("/").send();
/// assert_eq!((answer.status().as_u16(), answer.interim()[0].0.as_u16()), (200, 103));
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::reply::InterimResponses;

/// An extractor that tells a handler that its client has left, and lets the handler choose what happens then. By default an
/// async handler is cancelled if it has not answered a second later ([`Timeouts::disconnect`](crate::server::Timeouts)).
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Disconnect, OnDisconnect};
///
/// async fn transfer(disconnect: Disconnect) -> &'static str {
///     // What has begun must be completed.
///     disconnect.set(OnDisconnect::GoOn);
///     "done"
/// }
///
/// assert_eq!(Client::new(App::new().post("/", transfer))?.post("/").send().text(), "done");
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::{Disconnect, OnDisconnect};

impl FromRequest for Disconnect {
    fn from_request(request: &mut Request<'_>) -> Result<Disconnect, Response> {
        Ok(request.hooks.disconnect())
    }
}

impl FromRequest for InterimResponses {
    fn from_request(request: &mut Request<'_>) -> Result<InterimResponses, Response> {
        let waker = request.waker();
        Ok(request.hooks.interim(waker))
    }
}
