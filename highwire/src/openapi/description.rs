//! What the OpenAPI document says of one operation, as its handler's types describe it.

use super::schemas::Schemas;
use crate::{Problem, StatusCode};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// An argument of a handler as the OpenAPI document describes it: parameters, the body, what the extractor refuses. The extractors
/// of this crate have it, and a program's own extractors need it for [`operation`](super::operation). The method's default describes
/// an argument that concerns no client.
///
/// ```
/// use highwire::openapi::{Description, OperationInput};
/// use highwire::{FromRequest, Request, Response, StatusCode};
///
/// /// The customer whose key a request has.
/// struct Customer(u32);
///
/// impl FromRequest for Customer {
///     fn from_request(request: &mut Request<'_>) -> Result<Customer, Response> {
///         let key = request.header("x-key").and_then(|key| std::str::from_utf8(key).ok()?.parse().ok());
///         key.map(Customer).ok_or_else(|| Response::error(StatusCode::UNAUTHORIZED, "a key is needed"))
///     }
/// }
///
/// impl OperationInput for Customer {
///     fn describe_input(description: &mut Description<'_>) {
///         description.header("x-key", "The customer's key.");
///         description.response::<String>(StatusCode::UNAUTHORIZED, "text/plain", "The key is missing or wrong.");
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what it takes from a request, so the OpenAPI document cannot describe the handler",
    note = "for `Json<T>`, `Query<T>`, `Path<T>` and `Form<T>` derive `schemars::JsonSchema` for `T`; an extractor of your own needs `impl OperationInput`; `openapi::hidden(handler)` leaves a route out of the document"
)]
pub trait OperationInput {
    /// Adds what the argument means for clients to an operation.
    fn describe_input(description: &mut Description<'_>) {
        let _ = description;
    }
}

/// A handler's result as the OpenAPI document describes it: statuses, media types and schemas. The responses of this crate have it,
/// and a program's own need it for [`operation`](super::operation).
///
/// ```
/// use highwire::openapi::{Description, OperationOutput};
/// use highwire::{IntoResponse, Problem, Response, StatusCode};
///
/// enum Refusal {
///     Unknown,
///     SoldOut,
/// }
///
/// impl IntoResponse for Refusal {
///     fn into_response(self) -> Response {
///         match self {
///             Refusal::Unknown => Problem::new(StatusCode::NOT_FOUND, "there is no such show").into_response(),
///             Refusal::SoldOut => Problem::new(StatusCode::CONFLICT, "no seat is left").into_response(),
///         }
///     }
/// }
///
/// impl OperationOutput for Refusal {
///     fn describe_output(description: &mut Description<'_>) {
///         description.problem(StatusCode::NOT_FOUND, "There is no such show.");
///         description.problem(StatusCode::CONFLICT, "No seat is left.");
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what it answers, so the OpenAPI document cannot describe the handler",
    note = "for `Json<T>` derive `schemars::JsonSchema` for `T`; a response of your own needs `impl OperationOutput`; `openapi::hidden(handler)` leaves a route out of the document"
)]
pub trait OperationOutput {
    /// Adds the possible responses to an operation.
    fn describe_output(description: &mut Description<'_>);
}

/// How clients authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecurityScheme {
    /// A name and a password (RFC 7617).
    Basic,
    /// A token (RFC 6750).
    Bearer,
    /// A key in a header field of this name.
    Header(&'static str),
    /// A key, such as that of a session, in a cookie of this name.
    Cookie(&'static str),
}

/// The status of a response: a single one, one of a hundred, or any that is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Code(u16),
    /// The first digit.
    Range(u8),
    Other,
}

impl Status {
    fn key(self) -> String {
        match self {
            Status::Code(code) => code.to_string(),
            Status::Range(first) => format!("{first}XX"),
            Status::Other => "default".to_string(),
        }
    }
}

#[derive(Debug, Default)]
struct Answer {
    description: String,
    /// The schemas of each media type; `None` for one without.
    content: BTreeMap<String, Vec<Value>>,
}

#[derive(Debug, Default)]
pub(super) struct Draft {
    parameters: Vec<Value>,
    body: Option<(bool, BTreeMap<String, Vec<Value>>)>,
    answers: BTreeMap<Status, Answer>,
    /// The names of the security schemes, and true if a request without them is also served.
    security: Vec<(String, bool)>,
}

/// What the OpenAPI document says of one operation. [`OperationInput`] and [`OperationOutput`] add to it.
pub struct Description<'d> {
    schemas: &'d mut Schemas,
    /// The names of the parameters of the route's path.
    path: &'d [&'d str],
    schemes: &'d mut BTreeMap<String, SecurityScheme>,
    /// What is wrong with the description.
    pub(super) faults: Vec<String>,
    draft: Draft,
    /// True while an argument is described that may be absent.
    is_optional: bool,
    /// False while an argument is described whose refusals the handler gets.
    has_refusals: bool,
    /// The status of the responses that are described next, if another type sets it.
    forced: Option<Status>,
    /// The description of the responses that are described next, if it is known.
    text: Option<&'static str>,
}

impl std::fmt::Debug for Description<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Description").field("draft", &self.draft).finish_non_exhaustive()
    }
}

impl<'d> Description<'d> {
    pub(super) fn new(
        schemas: &'d mut Schemas,
        path: &'d [&'d str],
        schemes: &'d mut BTreeMap<String, SecurityScheme>,
    ) -> Description<'d> {
        Description {
            schemas,
            path,
            schemes,
            faults: Vec::new(),
            draft: Draft::default(),
            is_optional: false,
            has_refusals: true,
            forced: None,
            text: None,
        }
    }

    /// Adds a header field that requests must have, or may have inside of an `Option`.
    pub fn header(&mut self, name: &str, description: &str) {
        let parameter =
            json!({"name": name, "in": "header", "schema": {"type": "string"}, "required": !self.is_optional});
        self.add_parameter(parameter, Some(description));
    }

    fn add_parameter(&mut self, mut parameter: Value, description: Option<&str>) {
        if let Some(text) = description.filter(|text| !text.is_empty()) {
            parameter["description"] = text.into();
        }
        let known = |other: &Value| other["name"] == parameter["name"] && other["in"] == parameter["in"];
        if !self.draft.parameters.iter().any(known) {
            self.draft.parameters.push(parameter);
        }
    }

    /// Adds the members of `T` as parameters of the path, or its elements in the path's order.
    pub(super) fn path_parameters<T: JsonSchema>(&mut self) {
        let (whole, members) = self.schemas.members::<T>();
        let elements = whole.get("prefixItems").and_then(Value::as_array).cloned().unwrap_or_default();
        for (at, &name) in self.path.iter().enumerate() {
            let schema = match members.iter().find(|member| member.name == name) {
                Some(member) => member.schema.clone(),
                None => {
                    match elements.get(at).or_else(|| whole.get("additionalProperties").filter(|of| of.is_object())) {
                        Some(element) => element.clone(),
                        None if self.path.len() == 1 && whole.get("properties").is_none() => whole.clone(),
                        None => json!({"type": "string"}),
                    }
                }
            };
            self.schema_parameter(name, "path", true, schema);
        }
    }

    /// Adds the members of `T` as parameters of the query.
    pub fn query_parameters<T: JsonSchema>(&mut self) {
        let (whole, members) = self.schemas.members::<T>();
        if members.is_empty() && whole.get("properties").is_none() {
            // A map: any names.
            self.schema_parameter("query", "query", false, whole);
            return;
        }
        for member in members {
            self.schema_parameter(&member.name, "query", member.is_required && !self.is_optional, member.schema);
        }
    }

    fn schema_parameter(&mut self, name: &str, place: &str, required: bool, mut schema: Value) {
        // A description beside a reference is about this place; otherwise it moves to the parameter.
        let text = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let parameter = json!({"name": name, "in": place, "required": required, "schema": schema});
        self.add_parameter(parameter, text.as_ref().and_then(Value::as_str));
    }

    /// Adds a body of a media type with the schema of `T`.
    pub fn body<T: JsonSchema>(&mut self, media_type: &str) {
        let schema = self.schemas.of_request::<T>();
        self.add_body(media_type, Some(schema));
    }

    /// Adds a body of a media type, such as `application/octet-stream`, without a schema.
    pub fn bytes_body(&mut self, media_type: &str) {
        self.add_body(media_type, None);
    }

    fn add_body(&mut self, media_type: &str, schema: Option<Value>) {
        let (required, content) = self.draft.body.get_or_insert_default();
        *required |= !self.is_optional;
        content.entry(media_type.to_string()).or_default().extend(schema);
    }

    /// Adds a response of a media type with the schema of `T`, such as `String`.
    pub fn response<T: JsonSchema>(&mut self, status: StatusCode, media_type: &str, description: &str) {
        let schema = self.schemas.of_response::<T>();
        self.add_answer(Status::Code(status.as_u16()), description, Some((media_type, Some(schema))));
    }

    /// Adds a response of which the document says only the status.
    pub fn status(&mut self, status: StatusCode, description: &str) {
        self.add_answer(Status::Code(status.as_u16()), description, None);
    }

    /// Adds a response of the handler that is a [`Problem`].
    pub fn problem(&mut self, status: StatusCode, description: &str) {
        let content = self.schemas.of_response::<Problem>();
        let content = Some(("application/problem+json", Some(content)));
        self.add_answer(Status::Code(status.as_u16()), description, content);
    }

    /// Adds a response with which an extractor refuses a request, a [`Problem`]. If the app words rejections itself
    /// ([`App::on_rejection`](crate::App::on_rejection)), it has no schema.
    pub fn refusal(&mut self, status: StatusCode, description: &str) {
        if !self.has_refusals {
            return;
        }
        match self.schemas.words_refusals {
            true => self.add_answer(Status::Code(status.as_u16()), description, None),
            false => self.problem(status, description),
        }
    }

    /// Adds what the result is, with a status that a type around it may set.
    pub(super) fn result(&mut self, usual: Status, content: Option<(&str, Option<Value>)>) {
        self.add_answer(usual, "", content);
    }

    pub(super) fn schema_of_result<T: JsonSchema>(&mut self) -> Value {
        self.schemas.of_response::<T>()
    }

    fn add_answer(&mut self, status: Status, description: &str, content: Option<(&str, Option<Value>)>) {
        let answer = self.draft.answers.entry(self.forced.unwrap_or(status)).or_default();
        let description = self.text.unwrap_or(description);
        if !description.is_empty() && !answer.description.contains(description) {
            let space = if answer.description.is_empty() { "" } else { " " };
            answer.description = format!("{}{space}{description}", answer.description);
        }
        if let Some((media_type, schema)) = content {
            let known = answer.content.entry(media_type.to_string()).or_default();
            known.extend(schema.filter(|schema| !known.contains(schema)));
        }
    }

    /// Adds a security scheme that requests must fulfil, or may inside of an `Option`. Its name is that in the document.
    pub fn security(&mut self, name: &str, scheme: SecurityScheme) {
        if *self.schemes.entry(name.to_string()).or_insert(scheme.clone()) != scheme {
            self.faults.push(format!("the security scheme `{name}` has two definitions"));
        }
        self.require(name);
    }

    pub(super) fn require(&mut self, name: &str) {
        match self.draft.security.iter_mut().find(|(known, _)| known == name) {
            Some((_, is_optional)) => *is_optional &= self.is_optional,
            None => self.draft.security.push((name.to_string(), self.is_optional)),
        }
    }

    /// Returns true while an argument is described that may be absent.
    pub(super) fn is_optional(&self) -> bool {
        self.is_optional
    }

    /// Describes an argument that may be absent.
    pub(super) fn optional(&mut self, describe: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.is_optional, true);
        describe(self);
        self.is_optional = before;
    }

    /// Adds the status of a refusal that is no [`Problem`].
    pub(super) fn refusal_status(&mut self, status: StatusCode, description: &str) {
        if self.has_refusals {
            self.status(status, description);
        }
    }

    /// Describes an argument that may be absent, and whose refusals the handler gets.
    pub(super) fn without_refusals(&mut self, describe: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.has_refusals, false);
        self.optional(describe);
        self.has_refusals = before;
    }

    /// Describes responses whose status, and perhaps description, another type sets.
    pub(super) fn with_status(&mut self, status: Status, text: Option<&'static str>, describe: impl FnOnce(&mut Self)) {
        // The outermost status is the one that is sent.
        let status = self.forced.unwrap_or(status);
        let before = (self.forced, self.text);
        (self.forced, self.text) = (Some(status), text.or(self.text));
        describe(self);
        (self.forced, self.text) = before;
    }

    /// Returns the operation as an object of the document. The draft has at least one response.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        for &name in self.path {
            self.add_parameter(
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
                None,
            );
        }
        let Draft { parameters, body, answers, security } = self.draft;
        let mut operation = Map::new();
        if !parameters.is_empty() {
            operation.insert("parameters".to_string(), parameters.into());
        }
        if let Some((required, content)) = body {
            operation.insert("requestBody".to_string(), json!({"required": required, "content": media(content)}));
        }
        let answers = answers.into_iter().map(|(status, answer)| {
            let Answer { mut description, content } = answer;
            if description.is_empty() {
                description = match status {
                    Status::Code(code) => highwire_proto::h1::reason_phrase(code).to_string(),
                    Status::Range(_) => "A redirect.".to_string(),
                    Status::Other => "Any other status.".to_string(),
                };
            }
            let mut answer = json!({"description": description});
            if !content.is_empty() {
                answer["content"] = media(content).into();
            }
            (status.key(), answer)
        });
        operation.insert("responses".to_string(), Value::Object(answers.collect()));
        if !security.is_empty() {
            // The schemes of one object are needed together; an empty object stands for none. Each optional scheme is one way, because
            // credentials of two do not fit into one `Authorization`.
            let needed = security.iter().filter(|(_, is_optional)| !is_optional);
            let needed: Map<String, Value> = needed.map(|(name, _)| (name.clone(), json!([]))).collect();
            let optional = security.iter().filter(|(_, is_optional)| *is_optional).map(|(name, _)| {
                let mut set = needed.clone();
                set.insert(name.clone(), json!([]));
                set
            });
            let mut sets: Vec<_> = optional.collect();
            sets.push(needed);
            let sets = json!(sets);
            operation.insert("security".to_string(), sets);
        }
        operation
    }
}

fn media(content: BTreeMap<String, Vec<Value>>) -> Map<String, Value> {
    let schema = |mut schemas: Vec<Value>| match schemas.len() {
        0 => json!({}),
        1 => json!({"schema": schemas.remove(0)}),
        _ => json!({"schema": {"anyOf": schemas}}),
    };
    content.into_iter().map(|(media_type, schemas)| (media_type, schema(schemas))).collect()
}
