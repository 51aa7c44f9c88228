//! What a proxy changes in the requests for its upstreams, and in their responses.

use super::head::Incoming;
use crate::{HeaderName, HeaderValue, Method, Response};
use highwire_engine::client::Request;
use http::header;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// A field to set, or to remove if it has no value.
type Edit = (HeaderName, Option<HeaderValue>);

type OnRequest = Arc<dyn Fn(&mut UpstreamRequest<'_>) -> Result<(), Response> + Send + Sync>;
type OnResponse = Arc<dyn Fn(&mut Response) + Send + Sync>;

/// The changes of a proxy: first the fields, in the order in which they were given, then the functions.
#[derive(Clone, Default)]
pub(super) struct Edits {
    pub(super) of_requests: Vec<Edit>,
    pub(super) of_responses: Vec<Edit>,
    pub(super) on_request: Option<OnRequest>,
    pub(super) on_response: Option<OnResponse>,
}

impl Edits {
    /// Changes a request. Returns the response to the client if it must not be sent.
    pub(super) fn request(&self, request: &mut Request, incoming: &Incoming) -> Result<(), Response> {
        if self.of_requests.is_empty() && self.on_request.is_none() {
            return Ok(());
        }
        let mut request = UpstreamRequest { request, incoming };
        for (name, value) in &self.of_requests {
            match value {
                Some(value) => request.set_header(name.clone(), value.clone()),
                None => request.remove_header(name),
            }
        }
        self.on_request.as_ref().map_or(Ok(()), |on_request| on_request(&mut request))
    }

    /// Changes a response.
    pub(super) fn response(&self, response: &mut Response) {
        for (name, value) in &self.of_responses {
            match value {
                Some(value) => response.set_header(name.clone(), value.clone()),
                None => response.remove_header(name),
            }
        }
        if let Some(on_response) = &self.on_response {
            on_response(response);
        }
    }
}

/// A request for an upstream, which [`Proxy::on_request`](super::Proxy::on_request) may change.
pub struct UpstreamRequest<'r> {
    request: &'r mut Request,
    incoming: &'r Incoming,
}

impl UpstreamRequest<'_> {
    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.request.method
    }

    /// Returns the path and the query, as the upstream gets them.
    pub fn path_and_query(&self) -> &str {
        &self.request.target
    }

    /// Replaces the path and the query, which are written as they are in a request: with a slash at the beginning and
    /// percent-encoded. The client gets 400 if they are malformed.
    pub fn set_path_and_query(&mut self, path_and_query: impl Into<String>) {
        self.request.target = path_and_query.into();
    }

    /// Returns the host and the port that the upstream gets as `Host`.
    pub fn host(&self) -> &str {
        &self.request.authority
    }

    /// Returns the address of the client's connection; `None` on a unix socket.
    pub fn client(&self) -> Option<IpAddr> {
        self.incoming.peer()
    }

    /// Returns the path of the client's request as it was sent. It may be encoded in several ways (`/%61` is `/a`); to decide
    /// what a client may reach, use [`decoded_client_path`](Self::decoded_client_path).
    pub fn client_path(&self) -> &str {
        self.incoming.whole_path()
    }

    /// Returns the path of the client's request, percent-decoded. Bytes that are not UTF-8 are replaced.
    pub fn decoded_client_path(&self) -> Cow<'_, str> {
        percent_encoding::percent_decode_str(self.client_path()).decode_utf8_lossy()
    }

    /// Returns the header fields, without `Host` and those of the connection.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.request.fields
    }

    /// Returns the value of the first field of this name.
    pub fn header(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.request.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Sets a field, in place of all of this name. `Host` replaces the host. Fields that frame the message, such as
    /// `Content-Length` and `Connection`, have no effect.
    pub fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        if name == header::HOST {
            if let Ok(host) = value.to_str() {
                self.request.authority = host.into();
            }
            return;
        }
        self.remove_header(&name);
        self.add_header(name, value);
    }

    /// Adds a field. `Host` has no effect.
    pub fn add_header(&mut self, name: HeaderName, value: HeaderValue) {
        if name != header::HOST {
            self.request.fields.push((name, value));
        }
    }

    /// Removes all fields of a name.
    pub fn remove_header(&mut self, name: &HeaderName) {
        self.request.fields.retain(|(known, _)| known != name);
    }
}
