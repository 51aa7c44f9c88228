//! Bodies in parts: request bodies while they are received, and response bodies while they are made.

use crate::Response;
use crate::message::request::{BodyUse, FromRequest, Request};

/// An extractor of the body of a request, part by part.
///
/// ```
/// use highwire::body::BodyError;
/// use highwire::testing::Client;
/// use highwire::{App, Body};
///
/// let count = async |mut body: Body| {
///     let mut lines = 0;
///     while let Some(part) = body.next().await {
///         lines += part?.iter().filter(|&&byte| byte == b'\n').count();
///     }
///     Ok::<_, BodyError>(format!("{lines} lines"))
/// };
/// let mut client = Client::new(App::new().post("/lines", count))?;
/// assert_eq!(client.post("/lines").body("one\ntwo\n".repeat(100_000)).send().text(), "200000 lines");
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::body::Body;

/// Makes a response body that a task writes.
///
/// ```
/// use highwire::{App, Response, body};
///
/// let app = App::new().get("/count", || {
///     let (mut sender, receiver) = body::channel();
///     highwire::spawn(async move {
///         for number in 0..1000 {
///             if sender.send(format!("{number}\n")).await.is_err() {
///                 return;
///             }
///         }
///         sender.finish();
///     });
///     Response::stream(receiver)
/// });
/// # let _ = app;
/// ```
#[doc(inline)]
pub use highwire_engine::body::channel;

pub use highwire_engine::body::{BodyError, CHANNEL_BYTES, PeerGone, Receiver, Sender};

impl FromRequest for Body {
    const BODY: BodyUse = BodyUse::Parts;
    fn from_request(request: &mut Request<'_>) -> Result<Body, Response> {
        request.take_parts()
    }
}
