//! The OpenAPI document of an app, made from its routes and from the types of their handlers, with a page to read it and to try it.
//!
//! No second list of routes or types exists that could differ from what the app does:
//!
//! - a route is in the document because the app has it, with the parameters of its path;
//! - [`operation`] marks a handler as described. Its arguments are [`OperationInput`]: parameters, bodies, what extractors refuse, the
//!   security schemes that they demand. Its result is [`OperationOutput`]: statuses, media types and schemas;
//! - schemas come from `schemars::JsonSchema`, which a type derives beside serde's traits, and say what serde reads and writes.
//!   They are JSON Schema 2020-12, with doc comments as descriptions. A type that is read otherwise than it is written has two;
//! - a route that is neither an [`operation`] nor [`hidden`] is an error at start, as is one whose description is ambiguous.
//!
//! ```
//! use highwire::openapi::{OpenApi, operation};
//! use highwire::testing::Client;
//! use highwire::{App, Json, Problem, Query, Status};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// A note on the board.
//! #[derive(Deserialize, JsonSchema, Serialize)]
//! struct Note {
//!     /// What it says.
//!     #[schemars(length(max = 140))]
//!     text: String,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Page {
//!     #[serde(default)]
//!     page: u32,
//! }
//!
//! let list = |Query(Page { page }): Query<Page>| Json(vec![Note { text: format!("page {page}") }]);
//! let add = |Json(note): Json<Note>| Status::<201, _>(Json(note));
//! let app = App::new()
//!     .get("/notes", operation(list).summary("Lists the notes"))
//!     .post("/notes", operation(add).summary("Adds a note").response::<409, Problem>("The note is there already."))
//!     .openapi(OpenApi::new("Board", "1.0").page("/docs"));
//! let mut client = Client::new(app)?;
//! assert!(client.get("/openapi.json").send().text().contains("A note on the board."));
//! assert!(client.get("/docs").send().text().contains("Adds a note"));
//! # Ok::<(), highwire::Error>(())
//! ```
//!
//! A result of `(StatusCode, R)` does not tell its status, so its response is the document's `default`; [`Status`](crate::Status) tells
//! it. See also docs/openapi.md.

mod description;
mod document;
pub(crate) mod documented;
mod handlers;
mod inputs;
mod operation;
mod outputs;
mod page;
mod schemas;

pub use crate::__operation as operation;
pub use description::{Description, OperationInput, OperationOutput, SecurityScheme};
pub use handlers::DescribedHandler;
pub use highwire_macros::docs;
pub use operation::{Hidden, Operation, hidden, operation};
/// The crate whose `JsonSchema` the types of handlers derive.
pub use schemars;

use crate::{Error, Problem, Response, Result};
use bytes::Bytes;
pub(crate) use document::Described;
use http::{HeaderValue, header};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// The settings of an app's OpenAPI document, for [`App::openapi`](crate::App::openapi).
///
/// ```
/// use highwire::App;
/// use highwire::openapi::{OpenApi, SecurityScheme, operation};
///
/// let settings = OpenApi::new("Board", "1.0")
///     .description("Notes for all.")
///     .server("https://board.example.com")
///     .tag("notes", "What people have written")
///     .security_scheme("session", SecurityScheme::Cookie("session"))
///     .document("/api/openapi.json")
///     .page("/api");
/// let app = App::new().delete("/notes", operation(|| ()).security("session").tag("notes")).openapi(settings);
/// assert!(app.server().is_ok());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenApi {
    title: String,
    version: String,
    description: Option<String>,
    servers: Vec<String>,
    tags: Vec<(String, String)>,
    schemes: Vec<(String, SecurityScheme)>,
    document: String,
    page: Option<String>,
}

impl OpenApi {
    /// Creates the settings of a document with the API's title and version. The app serves the document at `/openapi.json`, and no
    /// page.
    pub fn new(title: impl Into<String>, version: impl Into<String>) -> OpenApi {
        OpenApi {
            title: title.into(),
            version: version.into(),
            description: None,
            servers: Vec::new(),
            tags: Vec::new(),
            schemes: Vec::new(),
            document: "/openapi.json".to_string(),
            page: None,
        }
    }

    /// Sets a text about the API, in CommonMark.
    pub fn description(mut self, text: impl Into<String>) -> OpenApi {
        self.description = Some(text.into());
        self
    }

    /// Adds the URL of a server. Without one, clients use the host that the document comes from.
    pub fn server(mut self, url: impl Into<String>) -> OpenApi {
        self.servers.push(url.into());
        self
    }

    /// Adds a text about a tag. Tools show the tags in this order, and then the others.
    pub fn tag(mut self, name: impl Into<String>, description: impl Into<String>) -> OpenApi {
        self.tags.push((name.into(), description.into()));
        self
    }

    /// Declares a security scheme, for [`Operation::security`].
    pub fn security_scheme(mut self, name: impl Into<String>, scheme: SecurityScheme) -> OpenApi {
        self.schemes.push((name.into(), scheme));
        self
    }

    /// Sets the path at which the app serves the document.
    pub fn document(mut self, path: impl Into<String>) -> OpenApi {
        self.document = path.into();
        self
    }

    /// Sets the path at which the app serves a page for people: the operations, their schemas, and a form to try each. It loads
    /// nothing from elsewhere. If the app is reached below a prefix that a proxy removes, [`server`](Self::server) says so.
    pub fn page(mut self, path: impl Into<String>) -> OpenApi {
        self.page = Some(path.into());
        self
    }
}

/// The settings of an app's document, and what its handlers serve once the app is built.
#[derive(Clone)]
pub(crate) struct Publication {
    settings: OpenApi,
    document: Arc<OnceLock<Bytes>>,
    page: Arc<OnceLock<Bytes>>,
}

impl Publication {
    pub(crate) fn new(settings: OpenApi) -> Publication {
        Publication { settings, document: Arc::default(), page: Arc::default() }
    }

    /// Makes the document and the page.
    pub(crate) fn publish(&self, routes: &[Described], words_refusals: bool) -> Result<()> {
        let document = document::document(&self.settings, routes, words_refusals).map_err(Error::Setting)?;
        if self.settings.page.is_some() {
            _ = self.page.set(page::page(&document, &self.settings.document).into());
        }
        _ = self.document.set(document.to_string().into());
        Ok(())
    }

    pub(crate) fn document_path(&self) -> &str {
        &self.settings.document
    }

    /// Returns the handler that serves the document.
    pub(crate) fn document(&self) -> impl Fn() -> Response + Send + Sync + 'static {
        let publication = self.clone();
        move || Response::bytes("application/json", publication.written())
    }

    /// Returns the document as JSON; empty before the app is built.
    pub(crate) fn written(&self) -> Bytes {
        self.document.get().cloned().unwrap_or_default()
    }

    /// Returns the path of the page and the handler that serves it.
    pub(crate) fn page(&self) -> Option<(&str, impl Fn() -> Response + Send + Sync + use<>)> {
        let page = self.page.clone();
        let handler = move || {
            let page = Response::bytes("text/html; charset=utf-8", page.get().cloned().unwrap_or_default());
            page.with_header(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY))
        };
        self.settings.page.as_deref().map(|path| (path, handler))
    }
}

/// A problem's members; see RFC 9457 section 3.1.
impl JsonSchema for Problem {
    fn schema_name() -> Cow<'static, str> {
        "Problem".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "What is wrong (RFC 9457). Further members may name the place.",
            "properties": {
                "type": {"type": "string", "description": "A URI of the kind of problem."},
                "title": {"type": "string", "description": "What is wrong with all problems of this kind."},
                "status": {"type": "integer", "description": "The response's status.", "minimum": 200, "maximum": 599},
                "detail": {"type": "string", "description": "What is wrong with this request."},
                "instance": {"type": "string", "description": "A URI of this occurrence."}
            },
            "required": ["title", "status", "detail"]
        })
    }
}
