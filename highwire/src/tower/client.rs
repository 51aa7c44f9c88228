//! A client whose requests an app of this process answers, without sockets.

use super::bodies::{receive, send_across};
use super::{AppService, into_service};
use crate::client::local::{Answering, Local};
use crate::client::{Client, ClientBuilder, Error, Request};
use crate::{App, HeaderMap};
use bytes::Bytes;
use highwire_engine::body::BoxError;
use highwire_engine::call::Reader;
use highwire_engine::client::{Answer, AnswerBody, Failure};
use highwire_engine::response::Content;
use http::{Method, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// The base of the URLs of a client of an app, unless it has another one. It is `https:`, so that a cookie jar keeps
/// `Secure` cookies.
const BASE: &str = "https://app/";

impl Client {
    /// Creates a client whose requests the app answers in this process, without sockets; see [`ClientBuilder::to`].
    ///
    /// ```
    /// use highwire::client::{Client, block_on};
    /// use highwire::{App, Path};
    ///
    /// let app = App::new().get("/users/{id}", |Path(id): Path<u64>| format!("user {id}"));
    /// let client = Client::to(app)?;
    /// let text = block_on(async { client.get("/users/7").send().await?.text().await })??;
    /// assert_eq!(text, "user 7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the app's routes or settings are wrong, or if its workers cannot start.
    pub fn to(app: App) -> Result<Client, Error> {
        Client::builder().to(app).build()
    }
}

impl ClientBuilder {
    /// Lets an app answer the requests to every host in this process, without sockets. It runs on one worker of its own,
    /// or on `Config::workers`, until the last clone of the client is dropped. The URLs may be paths.
    ///
    /// The settings of connections, proxies, TLS and further attempts have no effect; all others apply. Interim responses
    /// are dropped, `Upgrade` and CONNECT fail, and the handler's
    /// [`Peer`](crate::Peer) is 0.0.0.0. In the handlers of an app under [`testing::Client`](crate::testing::Client), set no
    /// time limit: the virtual clock jumps over it while this app works in real time.
    pub fn to(self, app: App) -> ClientBuilder {
        let service = into_service(app).map_err(|error| Error::builder(error.to_string()));
        self.local(service.map(|service| Arc::new(service) as Arc<dyn Local>), BASE)
    }
}

impl Local for AppService {
    fn answer<'a>(&'a self, request: &'a Request, content: Content) -> Answering<'a> {
        Box::pin(send(self, request, content))
    }
}

async fn send(app: &AppService, request: &Request, content: Content) -> Result<Box<Answer>, Failure> {
    if request.proposes_upgrade() || request.method() == Method::CONNECT {
        return Err(Failure::Unsupported("a request within a process cannot change the protocol"));
    }
    let mut sent = http::Request::new(Sent::of(content));
    *sent.method_mut() = request.method().clone();
    *sent.uri_mut() = request.uri().clone();
    for (name, value) in request.all_headers().filter(|(name, _)| *name != header::HOST) {
        sent.headers_mut().append(name.clone(), value.clone());
    }
    let Ok(response) = app.clone().call(sent).await;
    let (parts, body) = response.into_parts();
    let is_empty = request.method() == Method::HEAD || body.is_end_stream();
    let body = if is_empty { AnswerBody::Empty } else { AnswerBody::Parts(receive(body, u64::MAX)) };
    Ok(Box::new(Answer::of(&parts, body)?))
}

/// The body of a request on its way to the app's worker.
enum Sent {
    Whole(Bytes),
    Parts { reader: Reader<BoxError>, length: Option<u64> },
}

impl Sent {
    fn of(content: Content) -> Sent {
        match content {
            Content::Bytes(bytes) => Sent::Whole(bytes),
            Content::Stream(mut streamed) => {
                let (length, trailers) = (streamed.length, streamed.trailers.take());
                let make = |_: &_| trailers.map(|make| make().into_iter().collect::<HeaderMap>()).unwrap_or_default();
                Sent::Parts { reader: send_across(streamed.body, |body, cx| body.poll(cx), make), length }
            }
            Content::Switch(_) => Sent::Whole(Bytes::new()),
        }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Sent::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Sent::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Sent::Parts { reader, .. } => Pin::new(reader).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sent::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Sent::Parts { length: Some(length), .. } => SizeHint::with_exact(*length),
            Sent::Parts { length: None, .. } => SizeHint::default(),
        }
    }
}
