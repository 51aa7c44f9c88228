//! A request to another server.

use super::body::Body;
use super::error::Error;
use super::url::{self, Credentials, Url};
use crate::{HeaderName, HeaderValue, Method};
use http::{Uri, header};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// A function that gets each interim response: its status and its fields.
pub(crate) type OnInterim = dyn Fn(crate::StatusCode, &[(HeaderName, HeaderValue)]);

/// A request, as [middleware](super::Middleware) sees and changes it.
pub struct Request {
    pub(super) method: Method,
    pub(super) url: Rc<Url>,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Body,
    pub(super) timeout: Option<Duration>,
    pub(super) expects_continue: bool,
    pub(super) upgrade: Option<HeaderValue>,
    pub(super) on_interim: Option<Rc<OnInterim>>,
    /// True if a body in parts was sent, at least in part, so that it cannot be sent again.
    pub(super) has_sent_stream: bool,
    /// The cookies of the client's jar for the URL.
    pub(super) cookies: Option<HeaderValue>,
    /// True if the `Authorization` field is that of the URL.
    has_url_credentials: bool,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("method", &self.method).field("url", &self.url).finish_non_exhaustive()
    }
}

impl Request {
    /// Creates a request without fields and body.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid or is neither `http:` nor `https:`.
    pub fn new(method: Method, url: &str) -> Result<Request, Error> {
        Ok(Request::of(method, url::parse(url)?))
    }

    pub(super) fn of(method: Method, (url, credentials): (Url, Credentials)) -> Request {
        let mut request = Request {
            method,
            url: Rc::new(url),
            fields: Vec::new(),
            body: Body::empty(),
            timeout: None,
            expects_continue: false,
            upgrade: None,
            on_interim: None,
            has_sent_stream: false,
            cookies: None,
            has_url_credentials: false,
        };
        if let Some((user, password)) = credentials {
            request.set_header(header::AUTHORIZATION, basic(&user, Some(&password)));
            request.has_url_credentials = true;
        }
        request
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the URL.
    pub fn uri(&self) -> &Uri {
        self.url.uri()
    }

    /// Returns the header fields in their order. The client adds `Host` and the fields that frame the message later.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.fields
    }

    /// Returns the first header field of this name.
    pub fn header(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns true if the request asks for another protocol on its connection.
    #[cfg(feature = "tower")]
    pub(crate) fn proposes_upgrade(&self) -> bool {
        self.upgrade.is_some()
    }

    /// Returns the header fields to send.
    pub(crate) fn all_headers(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let cookies = self.cookies.iter().map(|value| (&header::COOKIE, value));
        self.fields.iter().map(|(name, value)| (name, value)).chain(cookies)
    }

    /// Adds a header field. An `Authorization` takes the place of the credentials in the URL.
    pub fn add_header(&mut self, name: HeaderName, value: HeaderValue) {
        if name == header::AUTHORIZATION && std::mem::take(&mut self.has_url_credentials) {
            self.remove_header(&name);
        }
        self.fields.push((name, value));
    }

    /// Sets a header field in place of all others of this name.
    pub fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.remove_header(&name);
        self.fields.push((name, value));
    }

    /// Removes all header fields of this name.
    pub fn remove_header(&mut self, name: &HeaderName) {
        self.fields.retain(|(known, _)| known != name);
    }

    /// Returns the body.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Sets the body.
    pub fn set_body(&mut self, body: impl Into<Body>) {
        self.body = body.into();
    }

    /// Returns the same request once more, if its body is not made in parts.
    pub fn try_clone(&self) -> Option<Request> {
        Some(Request {
            method: self.method.clone(),
            url: self.url.clone(),
            fields: self.fields.clone(),
            body: self.body.copy().filter(|_| !self.has_sent_stream)?,
            timeout: self.timeout,
            expects_continue: self.expects_continue,
            upgrade: self.upgrade.clone(),
            on_interim: self.on_interim.clone(),
            has_sent_stream: false,
            cookies: None,
            has_url_credentials: self.has_url_credentials,
        })
    }
}

/// Returns the value of `Authorization` for a user.
pub(super) fn basic(user: &str, password: Option<&str>) -> HeaderValue {
    let value =
        format!("Basic {}", crate::message::base64::encode(format!("{user}:{}", password.unwrap_or("")).as_bytes()));
    let mut value = HeaderValue::try_from(value).unwrap_or_else(|_| HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

impl Request {
    #[cfg(feature = "json")]
    pub(super) fn set_content(&mut self, body: impl Into<Body>, content_type: &'static str) {
        self.body = body.into();
        if self.header(&header::CONTENT_TYPE).is_none() {
            self.add_header(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
    }
}
