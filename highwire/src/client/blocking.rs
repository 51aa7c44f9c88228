//! A blocking client: its methods run the requests on the calling thread.
//!
//! ```no_run
//! use highwire::client::blocking::Client;
//!
//! let text = Client::new()?.get("https://www.example.com/").send()?.error_for_status()?.text()?;
//! println!("{text}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The client keeps its connections between its calls, but serves them only during a call. It must not be used in a
//! handler or a task of a worker, because its calls block the worker's thread: use [`Client`](super::Client) there.

use super::error::{Error, Kind};
use super::multipart::Form;
use super::{Body, Stats};
use crate::app::runtime;
use crate::server::{Runtime, Worker};
use crate::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use http::Uri;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// A client whose methods block until they have a result. Clones share its connections. It is not `Send`.
#[derive(Clone)]
pub struct Client {
    client: super::Client,
    worker: Rc<RefCell<Worker<Runtime>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("blocking::Client")
    }
}

impl Client {
    /// Creates a client with the default settings.
    ///
    /// # Errors
    /// Returns an error if the event loop cannot start.
    pub fn new() -> Result<Client, Error> {
        Client::of(super::Client::new())
    }

    /// Creates a client with the settings of another one.
    ///
    /// # Errors
    /// Returns an error if the event loop cannot start.
    pub fn of(client: super::Client) -> Result<Client, Error> {
        let worker = runtime::worker(client.settings.engine).map_err(|error| Error::builder(error.to_string()))?;
        Ok(Client { client, worker: Rc::new(RefCell::new(worker)) })
    }

    /// Creates a client whose requests the app answers in this process; see [`Client::to`](super::Client::to).
    ///
    /// # Errors
    /// Returns an error if the app's routes or settings are wrong, or if an event loop cannot start.
    #[cfg(feature = "tower")]
    pub fn to(app: crate::App) -> Result<Client, Error> {
        Client::of(super::Client::to(app)?)
    }

    /// Begins a GET request.
    pub fn get(&self, url: &str) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Begins a HEAD request.
    pub fn head(&self, url: &str) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Begins a POST request.
    pub fn post(&self, url: &str) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Begins a PUT request.
    pub fn put(&self, url: &str) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Begins a PATCH request.
    pub fn patch(&self, url: &str) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Begins a DELETE request.
    pub fn delete(&self, url: &str) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Begins a request with any method.
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        RequestBuilder { worker: self.worker.clone(), request: self.client.request(method, url) }
    }
}

/// Runs a future to its end.
fn wait<T>(worker: &RefCell<Worker<Runtime>>, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut worker = worker.try_borrow_mut().map_err(|_| {
        Error::new(Kind::Builder("a blocking client is used inside one of its own requests".to_string()), None)
    })?;
    worker.block_on(future).unwrap_or_else(|error| Err(Error::builder(error.to_string())))
}

/// A builder of a request; see [`RequestBuilder`](super::RequestBuilder).
#[derive(Debug)]
#[must_use = "it is sent by `send`"]
pub struct RequestBuilder {
    worker: Rc<RefCell<Worker<Runtime>>>,
    request: super::RequestBuilder,
}

impl RequestBuilder {
    fn with(self, change: impl FnOnce(super::RequestBuilder) -> super::RequestBuilder) -> RequestBuilder {
        RequestBuilder { request: change(self.request), ..self }
    }

    /// See [`RequestBuilder::header`](super::RequestBuilder::header).
    pub fn header<N, V>(self, name: N, value: V) -> RequestBuilder
    where
        HeaderName: TryFrom<N>,
        HeaderValue: TryFrom<V>,
    {
        self.with(|request| request.header(name, value))
    }

    /// See [`RequestBuilder::headers`](super::RequestBuilder::headers).
    pub fn headers(self, headers: HeaderMap) -> RequestBuilder {
        self.with(|request| request.headers(headers))
    }

    /// See [`RequestBuilder::basic_auth`](super::RequestBuilder::basic_auth).
    pub fn basic_auth(self, user: &str, password: Option<&str>) -> RequestBuilder {
        self.with(|request| request.basic_auth(user, password))
    }

    /// See [`RequestBuilder::bearer`](super::RequestBuilder::bearer).
    pub fn bearer(self, token: &str) -> RequestBuilder {
        self.with(|request| request.bearer(token))
    }

    /// See [`RequestBuilder::query`](super::RequestBuilder::query).
    #[cfg(feature = "json")]
    pub fn query(self, pairs: &(impl serde::Serialize + ?Sized)) -> RequestBuilder {
        self.with(|request| request.query(pairs))
    }

    /// See [`RequestBuilder::body`](super::RequestBuilder::body).
    pub fn body(self, body: impl Into<Body>) -> RequestBuilder {
        self.with(|request| request.body(body))
    }

    /// See [`RequestBuilder::json`](super::RequestBuilder::json).
    #[cfg(feature = "json")]
    pub fn json(self, value: &(impl serde::Serialize + ?Sized)) -> RequestBuilder {
        self.with(|request| request.json(value))
    }

    /// See [`RequestBuilder::form`](super::RequestBuilder::form).
    #[cfg(feature = "json")]
    pub fn form(self, value: &(impl serde::Serialize + ?Sized)) -> RequestBuilder {
        self.with(|request| request.form(value))
    }

    /// See [`RequestBuilder::multipart`](super::RequestBuilder::multipart).
    pub fn multipart(self, form: Form) -> RequestBuilder {
        self.with(|request| request.multipart(form))
    }

    /// See [`RequestBuilder::timeout`](super::RequestBuilder::timeout).
    pub fn timeout(self, timeout: Duration) -> RequestBuilder {
        self.with(|request| request.timeout(timeout))
    }

    /// See [`RequestBuilder::on_interim`](super::RequestBuilder::on_interim).
    pub fn on_interim(self, on_interim: impl Fn(StatusCode, &[(HeaderName, HeaderValue)]) + 'static) -> RequestBuilder {
        self.with(|request| request.on_interim(on_interim))
    }

    /// Sends the request and waits for the head of the response.
    ///
    /// # Errors
    /// As [`RequestBuilder::send`](super::RequestBuilder::send).
    pub fn send(self) -> Result<Response, Error> {
        let response = wait(&self.worker, self.request.send())?;
        Ok(Response { worker: self.worker, response, rest: Bytes::new() })
    }
}

/// A response; see [`Response`](super::Response). It implements [`Read`](io::Read) for its body.
#[derive(Debug)]
pub struct Response {
    worker: Rc<RefCell<Worker<Runtime>>>,
    response: super::Response,
    /// Bytes of the body that were received and not read yet.
    rest: Bytes,
}

impl Response {
    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the version of HTTP.
    pub fn version(&self) -> http::Version {
        self.response.version()
    }

    /// Returns the URL of the request, after redirects.
    pub fn uri(&self) -> &Uri {
        self.response.uri()
    }

    /// Returns the header fields.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the value of the first header field of this name, if it is printable ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.header(name)
    }

    /// Returns the announced length of the body in bytes.
    pub fn content_length(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// Returns the figures of the request.
    pub fn stats(&self) -> Stats {
        self.response.stats()
    }

    /// Returns the trailers. There are none before the end of the body.
    pub fn trailers(&self) -> Vec<(HeaderName, HeaderValue)> {
        self.response.trailers()
    }

    /// See [`Response::error_for_status`](super::Response::error_for_status).
    ///
    /// # Errors
    /// Returns an error if the status is 4xx or 5xx.
    pub fn error_for_status(self) -> Result<Response, Error> {
        Ok(Response { response: self.response.error_for_status()?, ..self })
    }

    /// Returns what was not read of the body; see [`Response::bytes`](super::Response::bytes).
    ///
    /// # Errors
    /// Returns an error if the body is too long or is not received completely.
    pub fn bytes(mut self) -> Result<Bytes, Error> {
        self.collect()
    }

    /// Returns what was not read of the body; see [`Response::collect`](super::Response::collect).
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn collect(&mut self) -> Result<Bytes, Error> {
        let whole = wait(&self.worker, self.response.collect())?;
        let read = std::mem::take(&mut self.rest);
        Ok(if read.is_empty() { whole } else { [read, whole].concat().into() })
    }

    /// See [`Response::text`](super::Response::text).
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn text(mut self) -> Result<String, Error> {
        Ok(super::response::text(self.collect()?.into()))
    }

    /// See [`Response::json`](super::Response::json).
    ///
    /// # Errors
    /// Returns an error as [`bytes`](Self::bytes) does, or if the body is not JSON or does not fit the type.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(mut self) -> Result<T, Error> {
        let body = self.collect()?;
        self.response.decode_json(&body)
    }
}

impl io::Read for Response {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && !buffer.is_empty() {
            let response = &mut self.response;
            let next = wait(&self.worker, async { response.next().await.transpose() });
            match next.map_err(io::Error::other)? {
                Some(part) => self.rest = part,
                None => return Ok(0),
            }
        }
        let length = self.rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.rest.split_to(length));
        Ok(length)
    }
}
