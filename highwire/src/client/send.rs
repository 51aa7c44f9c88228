//! Sends a request: follows redirects, and sends it again after lost connections.

use super::body::Body;
use super::connect::Place;
use super::error::{Error, Kind};
use super::redirect;
use super::request::{OnInterim, Request};
use super::response::{Figures, Response};
use super::url::Url;
use super::{Client, Running};
use crate::{HeaderValue, Method, StatusCode};
use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::body::{BodyStream, BoxError};
use highwire_engine::client::{self as engine, Answer, Asked, Failure, Stage};
use highwire_engine::context;
use highwire_engine::response::{Content, Streamed};
use highwire_engine::time::{Sleep, sleep};
use http::header;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The time after which a body is sent although the server has not asked for it.
const CONTINUE: Duration = Duration::from_secs(1);

impl Client {
    /// Sends a request, and follows redirects.
    pub(super) async fn follow(&self, request: &mut Request, running: &Running) -> Result<Response, Error> {
        let mut figures = Figures::new();
        loop {
            #[cfg(feature = "cookie-jar")]
            if let Some(jar) = &self.settings.cookies {
                let has_own = request.header(&header::COOKIE).is_some();
                request.cookies = if has_own { None } else { jar.cookies(&request.url) };
            }
            let answer = self.send(request, &mut figures).await.map_err(|error| match error {
                Attempt::Error(error) => error,
                Attempt::Failure(failure) => Error::new(Kind::Failure(failure), Some(&request.url)),
            })?;
            let (max, redirects) = (self.settings.max_body_bytes, figures.redirects as usize);
            #[cfg_attr(not(feature = "compress"), expect(unused_mut, reason = "only decoding changes the response"))]
            let mut response = Response::new(answer, request.url.clone(), max, running.due, figures);
            #[cfg(feature = "cookie-jar")]
            if let Some(jar) = &self.settings.cookies {
                jar.keep_all(response.all("set-cookie"), &request.url);
            }
            let location = response.location();
            let location = location.as_deref();
            let status = response.status();
            if status == StatusCode::EXPECTATION_FAILED && request.expects_continue && !request.has_sent_stream {
                // RFC 9110 section 10.1.1: the request without the expectation may succeed.
                request.expects_continue = false;
                figures = response.into_figures();
                figures.retries += 1;
                continue;
            }
            // A request for another protocol follows no redirect, as in browsers: it could lead from TLS to a server
            // without.
            if request.upgrade.is_none()
                && let Some(next) = self.settings.redirects.next(request, status, location, redirects)?
                && redirect::follow(request, status, next)
            {
                figures = response.into_figures();
                figures.redirects += 1;
                continue;
            }
            #[cfg(feature = "compress")]
            if self.settings.decodes && request.method != Method::HEAD {
                super::decode::decode(&mut response, max)?;
            }
            return Ok(response);
        }
    }

    /// Sends a request of the engine's type to the origin of a URL, without retries. `on_interim` gets the interim
    /// responses, if the request wants them. Returns the response, or the failure and the request; its body in parts is
    /// missing if a connection has begun to send it.
    pub(crate) async fn send_to(
        &self,
        url: &Rc<Url>,
        mut request: engine::Request,
        on_interim: Option<&OnInterim>,
    ) -> Result<Box<Answer>, (Failure, Option<engine::Request>)> {
        let here = self.here();
        let place = match here.place(url, &self.settings, false) {
            Ok(place) => place,
            Err(_) => return Err((Failure::Unsupported("the upstream's URL cannot be used"), Some(request))),
        };
        if let Some(via) = &place.proxy
            && request.target.starts_with('/')
        {
            request.target = format!("{}{}", url.origin(), request.target);
            request.fields.extend(via.authorization().map(|value| (header::PROXY_AUTHORIZATION, value)));
        }
        let mut asked = place.origin.send(request);
        match self.wait(&mut asked, on_interim, None).await {
            Ok(answer) => Ok(answer),
            Err(failure) => Err((failure, asked.into_request())),
        }
    }

    /// Sends a request, and retries it after lost connections if that is safe.
    async fn send(&self, request: &mut Request, figures: &mut Figures) -> Result<Box<Answer>, Attempt> {
        #[cfg(feature = "tower")]
        if let Some(app) = &self.settings.app {
            let content = take_body(request).into_content();
            request.has_sent_stream |= matches!(content, Content::Stream(_));
            figures.attempt = context::now();
            figures.moments.begun = figures.attempt;
            let answer = app.answer(request, content).await?;
            figures.moments.answered = context::now();
            return Ok(answer);
        }
        let here = self.here();
        // A server that has accepted another protocol may have begun to speak it.
        let is_idempotent = is_idempotent(&request.method) && request.upgrade.is_none();
        let place = here.place(&request.url, &self.settings, request.upgrade.is_some())?;
        let mut ready = self.prepare(request, &place)?;
        // A body of bytes that is held back is sent as a stream, but can be copied for another request.
        let is_once = matches!(ready.content, Content::Stream(_));
        let gate = hold_back(&mut ready, request.expects_continue);
        let mut attempts = 0;
        loop {
            let has_stream = matches!(ready.content, Content::Stream(_));
            figures.attempt = context::now();
            let mut asked = place.origin.send(ready);
            let result = self.wait(&mut asked, request.on_interim.as_deref(), gate.as_ref()).await;
            let failure = match result {
                Ok(answer) => {
                    request.has_sent_stream |= is_once;
                    figures.moments = asked.moments();
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            let Some(again) = asked.into_request() else { return Err(failure.into()) };
            // A body in parts is gone if a connection has begun to send it.
            request.has_sent_stream |= has_stream && !matches!(again.content, Content::Stream(_));
            let may = failure.is_unsent() || (failure.is_lost() && is_idempotent);
            if !may || request.has_sent_stream || attempts >= self.settings.retries {
                return Err(failure.into());
            }
            tracing::debug!(url = ?request.url, %failure, "a request is sent again");
            attempts += 1;
            figures.retries += 1;
            ready = again;
        }
    }

    /// Returns the request for the engine.
    fn prepare(&self, request: &mut Request, place: &Place) -> Result<engine::Request, Attempt> {
        let body = take_body(request);
        // Without a body there is nothing to expect.
        request.expects_continue &= !body.is_empty();
        let target = match (&place.proxy, request.method == Method::CONNECT) {
            (_, true) => connect_target(&request.url),
            (Some(_), false) => request.url.origin().to_string() + request.url.target(),
            (None, false) => request.url.target().to_string(),
        };
        let scheme = if request.url.is_secure() { "https" } else { "http" };
        let mut ready = engine::Request::new(request.method.clone(), scheme, place.host.clone(), target);
        ready.content = body.into_content();
        ready.upgrade = request.upgrade.clone();
        ready.wants_interims = request.on_interim.is_some() || request.expects_continue;
        for (name, value) in request.all_headers() {
            if *name == header::HOST {
                let host = value.to_str().map_err(|_| Error::builder("the value of Host is invalid"))?;
                ready.authority = host.into();
            } else {
                ready.fields.push((name.clone(), value.clone()));
            }
        }
        if request.expects_continue {
            ready.fields.push((header::EXPECT, HeaderValue::from_static("100-continue")));
        }
        if let Some(authorization) = place.proxy.as_ref().and_then(|via| via.authorization()) {
            ready.fields.push((header::PROXY_AUTHORIZATION, authorization));
        }
        #[cfg(feature = "compress")]
        if self.settings.decodes && request.header(&header::ACCEPT_ENCODING).is_none() {
            ready.fields.push((header::ACCEPT_ENCODING, super::decode::ACCEPTED));
        }
        Ok(ready)
    }

    /// Waits for the response, at most `pool_timeout` for a connection if none has room.
    async fn wait(
        &self,
        asked: &mut Asked,
        on_interim: Option<&OnInterim>,
        gate: Option<&Rc<RefCell<Gate>>>,
    ) -> Result<Box<Answer>, Failure> {
        let mut patience: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            loop {
                match asked.poll_interim(cx) {
                    Poll::Ready(Ok(interim)) => {
                        if let Some(gate) = gate.filter(|_| interim.status == StatusCode::CONTINUE) {
                            gate.borrow_mut().open();
                        }
                        if let Some(on_interim) = on_interim {
                            on_interim(interim.status, &interim.fields);
                        }
                    }
                    Poll::Ready(Err(result)) => return Poll::Ready(result),
                    Poll::Pending => break,
                }
            }
            if asked.is_queued() {
                let patience = patience.get_or_insert_with(|| Box::pin(sleep(self.settings.pool_timeout)));
                return patience.as_mut().poll(cx).map(|()| Err(Failure::TimedOut(Stage::Pool)));
            }
            Poll::Pending
        })
        .await
    }
}

/// Takes the body of a request to send it. A copy stays for redirects, if the body is not made in parts.
fn take_body(request: &mut Request) -> Body {
    match request.body.copy() {
        Some(copy) => copy,
        None if request.has_sent_stream => Body::empty(),
        None => std::mem::take(&mut request.body),
    }
}

/// Returns the target of a CONNECT: the host and the port.
fn connect_target(url: &Url) -> String {
    let (host, port) = (url.host(), url.port());
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The end of an attempt without a response.
enum Attempt {
    Error(Error),
    Failure(Failure),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Attempt {
        Attempt::Error(error)
    }
}

impl From<Failure> for Attempt {
    fn from(failure: Failure) -> Attempt {
        Attempt::Failure(failure)
    }
}

/// Returns true if the effect of several equal requests is that of one (RFC 9110 section 9.2.2).
pub(crate) fn is_idempotent(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" | "QUERY")
}

/// Holds the body of a request back until the gate that it returns is open.
fn hold_back(ready: &mut engine::Request, expects_continue: bool) -> Option<Rc<RefCell<Gate>>> {
    if !expects_continue || ready.content.is_empty() {
        return None;
    }
    let gate = Rc::new(RefCell::new(Gate::default()));
    let content = std::mem::replace(&mut ready.content, Content::Bytes(Bytes::new()));
    let (length, body, trailers) = match content {
        Content::Bytes(bytes) => (Some(bytes.len() as u64), BodyStream::of(bytes), None),
        Content::Stream(streamed) => (streamed.length, streamed.body, streamed.trailers),
        Content::Switch(_) => return None,
    };
    let body = BodyStream::new(Held { gate: gate.clone(), wait: None, body });
    ready.content = Content::Stream(Box::new(Streamed { length, body, trailers }));
    Some(gate)
}

/// The gate between a request's head and its body.
#[derive(Default)]
struct Gate {
    is_open: bool,
    waker: Option<Waker>,
}

impl Gate {
    fn open(&mut self) {
        self.is_open = true;
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

/// A body that begins when the gate is open, or after a time.
struct Held {
    gate: Rc<RefCell<Gate>>,
    wait: Option<Pin<Box<Sleep>>>,
    body: BodyStream,
}

impl Stream for Held {
    type Item = Result<Bytes, BoxError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut gate = self.gate.borrow_mut();
        if !gate.is_open {
            gate.waker = Some(cx.waker().clone());
            drop(gate);
            let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(CONTINUE)));
            if wait.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.gate.borrow_mut().is_open = true;
        } else {
            drop(gate);
        }
        self.body.poll(cx)
    }
}
