//! The builder of a request, which sends it.

use super::Client;
use super::body::Body;
use super::error::Error;
use super::request::{Request, basic};
use super::response::Response;
use crate::{HeaderMap, HeaderName, HeaderValue};
use http::header;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// A builder of a request. [`send`](Self::send) sends the request, and returns the first error of the other methods.
#[must_use = "it is sent by `send`"]
pub struct RequestBuilder {
    client: Client,
    request: Result<Box<Request>, Error>,
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBuilder").field("request", &self.request).finish_non_exhaustive()
    }
}

impl RequestBuilder {
    pub(super) fn new(client: Client, request: Result<Request, Error>) -> RequestBuilder {
        RequestBuilder { client, request: request.map(Box::new) }
    }

    /// Returns a builder whose request cannot be sent.
    #[cfg(feature = "json")]
    pub(super) fn failed(client: &Client, why: &str) -> RequestBuilder {
        RequestBuilder::new(client.clone(), Err(Error::builder(why)))
    }

    /// Changes the request, unless there was an error before.
    fn with(mut self, change: impl FnOnce(&mut Request) -> Result<(), Error>) -> RequestBuilder {
        if let Ok(request) = &mut self.request
            && let Err(error) = change(request)
        {
            self.request = Err(error);
        }
        self
    }

    /// Adds a header field.
    pub fn header<N, V>(self, name: N, value: V) -> RequestBuilder
    where
        HeaderName: TryFrom<N>,
        HeaderValue: TryFrom<V>,
    {
        self.with(|request| {
            let name =
                HeaderName::try_from(name).map_err(|_| Error::builder("the name of a header field is invalid"))?;
            let value = HeaderValue::try_from(value)
                .map_err(|_| Error::builder(format!("the value of the header field {name} is invalid")))?;
            request.add_header(name, value);
            Ok(())
        })
    }

    /// Adds header fields. Those of the same names are replaced.
    pub fn headers(self, headers: HeaderMap) -> RequestBuilder {
        self.with(|request| {
            headers.keys().for_each(|name| request.remove_header(name));
            request.fields.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
            Ok(())
        })
    }

    /// Adds `Authorization` with a user and a password (RFC 7617).
    pub fn basic_auth(self, user: &str, password: Option<&str>) -> RequestBuilder {
        self.with(|request| {
            request.set_header(header::AUTHORIZATION, basic(user, password));
            Ok(())
        })
    }

    /// Adds `Authorization` with a token (RFC 6750).
    #[doc(alias = "bearer_auth")]
    pub fn bearer(self, token: &str) -> RequestBuilder {
        self.with(|request| {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| Error::builder("the token has bytes that a header field cannot have"))?;
            value.set_sensitive(true);
            request.set_header(header::AUTHORIZATION, value);
            Ok(())
        })
    }

    /// Adds pairs to the query of the URL.
    #[cfg(feature = "json")]
    pub fn query(self, pairs: &(impl serde::Serialize + ?Sized)) -> RequestBuilder {
        self.with(|request| {
            let more = serde_urlencoded::to_string(pairs)
                .map_err(|error| Error::builder(format!("the query cannot be encoded: {error}")))?;
            if more.is_empty() {
                return Ok(());
            }
            request.url = Rc::new(request.url.with_query(&more)?);
            Ok(())
        })
    }

    /// Sets the body.
    pub fn body(self, body: impl Into<Body>) -> RequestBuilder {
        self.with(|request| {
            request.body = body.into();
            Ok(())
        })
    }

    /// Sets the body to a value as JSON, and `Content-Type` to `application/json` unless it is set.
    #[cfg(feature = "json")]
    pub fn json(self, value: &(impl serde::Serialize + ?Sized)) -> RequestBuilder {
        self.with(|request| {
            let body = serde_json::to_vec(value)
                .map_err(|error| Error::builder(format!("the body cannot be written as JSON: {error}")))?;
            request.set_content(body, "application/json");
            Ok(())
        })
    }

    /// Sets the body to a form, and `Content-Type` to `application/x-www-form-urlencoded` unless it is set.
    #[cfg(feature = "json")]
    pub fn form(self, value: &(impl serde::Serialize + ?Sized)) -> RequestBuilder {
        self.with(|request| {
            let body = serde_urlencoded::to_string(value)
                .map_err(|error| Error::builder(format!("the body cannot be written as a form: {error}")))?;
            request.set_content(body, "application/x-www-form-urlencoded");
            Ok(())
        })
    }

    /// Sets the body to a form with files, and `Content-Type` to `multipart/form-data` with its boundary.
    pub fn multipart(self, form: super::multipart::Form) -> RequestBuilder {
        self.with(|request| {
            let (content_type, body) = form.into_body();
            request.set_header(header::CONTENT_TYPE, content_type);
            request.body = body;
            Ok(())
        })
    }

    /// Sets the time limit for the whole request, from [`send`](Self::send) to the end of the response's body. It replaces
    /// that of the client.
    pub fn timeout(self, timeout: Duration) -> RequestBuilder {
        self.with(|request| {
            request.timeout = Some(timeout);
            Ok(())
        })
    }

    /// Sends `Expect: 100-continue`, and the body only after the server has asked for it, or after one second without a
    /// response (RFC 9110 section 10.1.1). This avoids sending a large body to a server that refuses it.
    pub fn expect_continue(self) -> RequestBuilder {
        self.with(|request| {
            request.expects_continue = true;
            Ok(())
        })
    }

    /// Proposes another protocol: by `Upgrade` over HTTP/1.1, or by an extended CONNECT over HTTP/2 (RFC 8441). If the
    /// server accepts it, [`Response::upgrade`](super::Response::upgrade) returns the stream.
    pub fn upgrade(self, protocol: &str) -> RequestBuilder {
        self.with(|request| {
            let protocol = HeaderValue::from_str(protocol);
            request.upgrade = Some(protocol.map_err(|_| Error::builder("the name of the protocol is invalid"))?);
            Ok(())
        })
    }

    /// Calls `on_interim` with each interim response, such as 103 (Early Hints).
    pub fn on_interim(
        self,
        on_interim: impl Fn(crate::StatusCode, &[(HeaderName, HeaderValue)]) + 'static,
    ) -> RequestBuilder {
        self.with(|request| {
            request.on_interim = Some(Rc::new(on_interim));
            Ok(())
        })
    }

    /// Returns the request without sending it.
    ///
    /// # Errors
    /// Returns the first error of the methods that were called before.
    pub fn build(self) -> Result<Request, Error> {
        self.request.map(|request| *request)
    }

    /// Sends the request, and waits for the head of the response. If the future is dropped, the request is cancelled.
    ///
    /// # Errors
    /// Returns an error if the request is invalid, or if there is no response. A response with an error status is not
    /// an error here.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread. Call it in handlers, in tasks of [`spawn`](crate::spawn), and in futures
    /// of [`block_on`](super::block_on).
    pub async fn send(self) -> Result<Response, Error> {
        self.client.execute_boxed(self.request?).await
    }
}
