//! Resources of a REST API as typed values, in JSON or sent as forms.
//!
//! ```
//! # use highwire::{App, Json, Path, StatusCode};
//! use highwire::client::rest::Resource;
//! use highwire::client::{Client, block_on};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Note {
//!     text: String,
//! }
//!
//! # let app = App::new().post("/v1/notes", |Json(note): Json<Note>| (StatusCode::CREATED, Json(note))).get(
//! #     "/v1/notes/{id}",
//! #     |Path(id): Path<String>| Json(Note { text: format!("note {id}") }),
//! # );
//! # let server = app.listen("127.0.0.1:0")?;
//! # let base = format!("http://{}/v1", server.addresses()[0]);
//! # let handle = server.start()?;
//! let notes = Resource::new(Client::new(), &base).bearer("token").at("notes");
//! block_on(async {
//!     let created: Note = notes.post(&Note { text: "milk".to_string() }).await?;
//!     let seventh: Note = notes.at(7).get().await?;
//!     # assert_eq!((&*created.text, &*seventh.text), ("milk", "note 7"));
//!     Ok::<_, highwire::client::Error>(())
//! })??;
//! # handle.abort();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::error::Error;
use super::{Client, RequestBuilder, Response};
use crate::{HeaderValue, Method};
use http::header;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;

/// The characters that are escaped in a segment of a path: all but the unreserved ones of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A resource: a URL, and what all requests to it share. A response with status 4xx or 5xx is an error;
/// [`Error::status`] returns the status.
#[derive(Clone, Debug)]
pub struct Resource {
    client: Client,
    url: String,
    authorization: Authorization,
    query: Vec<(String, String)>,
    as_forms: bool,
    /// True if a segment of the path would lead to another resource.
    is_invalid: bool,
}

#[derive(Clone)]
enum Authorization {
    Nobody,
    Bearer(String),
    Basic(String, Option<String>),
}

/// Writes no secrets.
impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Authorization::Nobody => "none",
            Authorization::Bearer(_) => "bearer",
            Authorization::Basic(..) => "basic",
        })
    }
}

impl Resource {
    /// Returns the resource at a URL without a query, for example the root of an API. If the URL is invalid, each
    /// request returns the error.
    pub fn new(client: Client, url: &str) -> Resource {
        let url = url.trim_end_matches('/').to_string();
        Resource {
            client,
            url,
            authorization: Authorization::Nobody,
            query: Vec::new(),
            as_forms: false,
            is_invalid: false,
        }
    }

    /// Adds a token to all requests (RFC 6750).
    #[must_use]
    pub fn bearer(self, token: &str) -> Resource {
        Resource { authorization: Authorization::Bearer(token.to_string()), ..self }
    }

    /// Adds a user and a password to all requests (RFC 7617).
    #[must_use]
    pub fn basic_auth(self, user: &str, password: Option<&str>) -> Resource {
        Resource { authorization: Authorization::Basic(user.to_string(), password.map(str::to_string)), ..self }
    }

    /// Sends values as forms and not as JSON. Responses are JSON all the same.
    #[must_use]
    pub fn as_forms(self) -> Resource {
        Resource { as_forms: true, ..self }
    }

    /// Adds a pair to the query of all requests to this resource. The resources below it do not have it.
    #[must_use]
    pub fn query(mut self, name: &str, value: impl Display) -> Resource {
        self.query.push((name.to_string(), value.to_string()));
        self
    }

    /// Returns the resource below this one: the next segment of the path, such as the name of a collection or the key of
    /// an item. All characters that have a meaning in a URL are escaped. The segments `""`, `.` and `..`, which would lead to
    /// another resource, make each request to it an error.
    #[must_use]
    pub fn at(&self, segment: impl Display) -> Resource {
        let segment = segment.to_string();
        let mut below = self.clone();
        below.is_invalid |= matches!(&*segment, "" | "." | "..");
        below.url += &format!("/{}", utf8_percent_encode(&segment, SEGMENT));
        below.query.clear();
        below
    }

    /// Returns the URL without the query.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Begins a request with the URL, the query, `Accept` and the credentials of this resource, to set or read header
    /// fields. The status is not checked, and [`as_forms`](Self::as_forms) has no effect.
    pub fn request(&self, method: Method) -> RequestBuilder {
        if self.is_invalid {
            return RequestBuilder::failed(&self.client, "a segment of the path is empty, \".\" or \"..\"");
        }
        let request = self.client.request(method, &self.url).query(&self.query);
        let request = request.header(header::ACCEPT, HeaderValue::from_static("application/json"));
        match &self.authorization {
            Authorization::Nobody => request,
            Authorization::Bearer(token) => request.bearer(token),
            Authorization::Basic(user, password) => request.basic_auth(user, password.as_deref()),
        }
    }

    async fn send(&self, method: Method, value: Option<&(impl Serialize + ?Sized)>) -> Result<Response, Error> {
        let request = self.request(method);
        let request = match value {
            Some(value) if self.as_forms => request.form(value),
            Some(value) => request.json(value),
            None => request,
        };
        request.send().await?.error_for_status()
    }

    /// Returns the resource's value.
    ///
    /// # Errors
    /// Returns an error as [`RequestBuilder::send`] and [`Response::json`] do, or if the status is 4xx or 5xx.
    pub async fn get<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.send(Method::GET, None::<&()>).await?.json().await
    }

    /// Returns the resource's value, or `None` if the status is 404 or 410.
    ///
    /// # Errors
    /// As [`get`](Self::get), for other statuses.
    pub async fn find<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        match self.get().await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.status().is_some_and(|status| matches!(status.as_u16(), 404 | 410)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a value with POST, for example to create an item of a collection, and returns the value in the response,
    /// which must have a body of JSON. For responses without a body, use [`request`](Self::request).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn post<T: DeserializeOwned>(&self, value: &(impl Serialize + ?Sized)) -> Result<T, Error> {
        self.send(Method::POST, Some(value)).await?.json().await
    }

    /// Replaces the resource's value with PUT.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn put(&self, value: &(impl Serialize + ?Sized)) -> Result<Response, Error> {
        self.send(Method::PUT, Some(value)).await
    }

    /// Changes a part of the resource's value with PATCH.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn patch(&self, value: &(impl Serialize + ?Sized)) -> Result<Response, Error> {
        self.send(Method::PATCH, Some(value)).await
    }

    /// Deletes the resource.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn delete(&self) -> Result<Response, Error> {
        self.send(Method::DELETE, None::<&()>).await
    }
}
