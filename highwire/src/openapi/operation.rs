//! A handler with its documentation, and one that is left out of the document.

use super::documented::{About, Documentation, Documented, Further};
use super::{DescribedHandler, OperationOutput};
use crate::handler::private::IntoRoute;
use crate::handler::{Handler, Route};
use crate::message::response::is_final_status;
use crate::middleware::Layer;
use std::marker::PhantomData;
use std::sync::Arc;

/// [`operation`](fn@operation) of a function with the attribute [`docs`](macro@super::docs), whose doc comment becomes the summary
/// and the description.
///
/// ```
/// use highwire::openapi::{self, OpenApi, operation};
/// use highwire::testing::Client;
/// use highwire::{App, Path};
///
/// /// Greets someone.
/// ///
/// /// The name is *not* looked up.
/// #[openapi::docs]
/// fn greet(Path(name): Path<String>) -> String {
///     format!("hello, {name}")
/// }
///
/// let app = App::new().get("/hello/{name}", operation!(greet)).openapi(OpenApi::new("Hello", "1.0"));
/// let document = Client::new(app)?.get("/openapi.json").send().text().to_string();
/// assert!(document.contains(r#""summary":"Greets someone""#));
/// assert!(document.contains(r#""description":"The name is *not* looked up.""#));
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __operation {
    ($handler:ident) => {
        $crate::openapi::operation($handler).docs($handler::DOCS)
    };
    ($first:ident :: $($rest:tt)+) => {
        $crate::openapi::operation($first::$($rest)+).docs($first::$($rest)+::DOCS)
    };
}

/// A handler with what the OpenAPI document says of it. [`operation`] makes it.
#[derive(Debug)]
#[must_use]
pub struct Operation<M, H> {
    handler: H,
    about: About,
    kind: PhantomData<fn(M)>,
}

/// The `M` of [`Handler`] for [`Operation`] and [`Hidden`].
#[derive(Debug)]
pub struct Wrapping<M>(PhantomData<M>);

/// Makes a handler that the app's OpenAPI document describes. Parameters, bodies and responses come from the types of its arguments
/// and its result; the methods add what types do not tell. Middleware can be around the handler inside or outside.
///
/// The operation's id is the handler's name, if no other operation has it, or its path.
///
/// ```
/// use highwire::openapi::{OpenApi, operation};
/// use highwire::testing::Client;
/// use highwire::{App, Json, Path, Problem, StatusCode};
///
/// #[derive(schemars::JsonSchema, serde::Serialize)]
/// struct User {
///     /// The name that others see.
///     name: String,
/// }
///
/// fn show(Path(id): Path<u32>) -> Result<Json<User>, Problem> {
///     match id {
///         1 => Ok(Json(User { name: "Ada".to_string() })),
///         _ => Err(Problem::new(StatusCode::NOT_FOUND, "there is no such user")),
///     }
/// }
///
/// let app = App::new()
///     .get("/users/{id}", operation(show).summary("Shows a user").tag("users"))
///     .openapi(OpenApi::new("Users", "1.0"));
/// let document = Client::new(app)?.get("/openapi.json").send().text().to_string();
/// assert!(document.contains(r#""operationId":"show""#));
/// assert!(document.contains("The name that others see."));
/// # Ok::<(), highwire::Error>(())
/// ```
pub fn operation<M, H: DescribedHandler<M>>(handler: H) -> Operation<M, H> {
    Operation { handler, about: About::default(), kind: PhantomData }
}

impl<M, H> Operation<M, H> {
    /// Sets a short text about what the operation does.
    pub fn summary(mut self, text: impl Into<String>) -> Self {
        self.about.summary = Some(text.into());
        self
    }

    /// Sets a longer text, in CommonMark.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.about.description = Some(text.into());
        self
    }

    /// Takes the summary and the description from a doc comment: its first paragraph and the others. [`operation!`](crate::openapi::operation!)
    /// passes that of a function.
    pub fn docs(mut self, comment: &str) -> Self {
        let lines: Vec<&str> = comment.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let comment = lines.join("\n");
        let (summary, rest) = comment.trim().split_once("\n\n").unwrap_or((comment.trim(), ""));
        let summary = summary.replace('\n', " ");
        self.about.summary = Some(summary.trim_end_matches('.').to_string());
        self.about.description = Some(rest.trim().to_string()).filter(|rest| !rest.is_empty());
        self
    }

    /// Sets the operation's id, which is unique in the document.
    pub fn id(mut self, id: &'static str) -> Self {
        self.about.id = Some(id);
        self
    }

    /// Adds a tag, under which tools show the operation.
    pub fn tag(mut self, name: &'static str) -> Self {
        self.about.tags.push(name);
        self
    }

    /// Adds a security scheme that middleware demands. [`OpenApi::security_scheme`](super::OpenApi::security_scheme) declares it. The extractors
    /// [`Basic`](crate::Basic) and [`Bearer`](crate::Bearer) need no such call.
    pub fn security(mut self, scheme: &'static str) -> Self {
        self.about.security.push(scheme);
        self
    }

    /// Marks the operation as one that clients should no longer use.
    pub fn deprecated(mut self) -> Self {
        self.about.is_deprecated = true;
        self
    }

    /// Adds a response with the content of `R` and a text that says when it comes: `.response::<404, Problem>("No user has this id.")`.
    /// A status below 200 or above 599 does not compile.
    pub fn response<const CODE: u16, R: OperationOutput>(mut self, text: &'static str) -> Self {
        const { assert!(is_final_status(CODE), "a response has a status from 200 to 599") };
        self.about.responses.push(Further { status: CODE, describe: R::describe_output, text });
        self
    }
}

impl<M: 'static, H: DescribedHandler<M>> Handler<Wrapping<M>> for Operation<M, H> {}

impl<M: 'static, H: DescribedHandler<M>> IntoRoute<Wrapping<M>> for Operation<M, H> {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route(self) -> Arc<dyn Route> {
        self.handler.into_route()
    }

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route_within(self, layers: Vec<Arc<dyn Layer>>) -> Arc<dyn Route> {
        self.handler.into_route_within(layers)
    }

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn documentation(&self) -> Documentation {
        let documented = Documented { handler: H::name(), describe: H::describe, about: self.about.clone() };
        Documentation::Operation(Box::new(documented))
    }
}

/// A handler that the OpenAPI document does not mention. [`hidden`] makes it.
#[derive(Debug)]
pub struct Hidden<M, H> {
    handler: H,
    kind: PhantomData<fn(M)>,
}

/// Leaves a route out of the app's OpenAPI document: a page for people, or what only the program's own front end uses. Files,
/// WebSockets and proxies are left out without it.
///
/// ```
/// use highwire::App;
/// use highwire::openapi::{OpenApi, hidden};
///
/// let app = App::new().get("/", hidden(|| "see /docs")).openapi(OpenApi::new("Nothing yet", "0.1"));
/// assert!(app.server().is_ok());
/// ```
pub fn hidden<M, H: Handler<M>>(handler: H) -> Hidden<M, H> {
    Hidden { handler, kind: PhantomData }
}

impl<M: 'static, H: Handler<M>> Handler<Wrapping<M>> for Hidden<M, H> {}

impl<M: 'static, H: Handler<M>> IntoRoute<Wrapping<M>> for Hidden<M, H> {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route(self) -> Arc<dyn Route> {
        self.handler.into_route()
    }

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route_within(self, layers: Vec<Arc<dyn Layer>>) -> Arc<dyn Route> {
        self.handler.into_route_within(layers)
    }

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn documentation(&self) -> Documentation {
        Documentation::Hidden
    }
}
