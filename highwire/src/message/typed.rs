//! Extractors and responses through serde: path parameters, queries, JSON. Requests that do not fit the type are
//! refused with a [`Problem`] that names the part of the request and, if a single one is wrong, the field.

use crate::app::shape;
use crate::form::urlencoded;
use crate::message::fields::{Fields, Misfit};
use crate::message::media;
use crate::message::problem::shortened;
use crate::message::provided::{Provided, name_of};
use crate::message::request::{BodyUse, FromRequest, OptionalFromRequest, Request};
use crate::{IntoResponse, Problem, Response};
use http::StatusCode;
use serde::de::DeserializeOwned;

/// Extracts the parameters of the path: one value, a tuple in the template's order, or a struct or map by name.
///
/// Responds with 404 if the parameters do not fit the type, because such a path names nothing that exists.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Path};
///
/// #[derive(serde::Deserialize)]
/// struct Place {
///     row: u32,
///     seat: char,
/// }
///
/// let app = App::new()
///     .get("/users/{id}", |Path(id): Path<u64>| format!("user {id}"))
///     .get("/from/{a}/to/{b}", |Path((a, b)): Path<(String, String)>| format!("{a} - {b}"))
///     .get("/rows/{row}/{seat}", |Path(Place { row, seat }): Path<Place>| format!("{row}{seat}"));
/// let mut client = Client::new(app)?;
/// assert_eq!(client.get("/users/7").send().text(), "user 7");
/// assert_eq!(client.get("/users/x").send().status(), 404);
/// assert_eq!(client.get("/from/here/to/th%65re").send().text(), "here - there");
/// assert_eq!(client.get("/rows/12/C").send().text(), "12C");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Path<T> {
    fn from_request(request: &mut Request<'_>) -> Result<Path<T>, Response> {
        let params = request.params();
        let pairs = params.iter().map(|(name, value)| (name.into(), value.into())).collect();
        T::deserialize(Fields::of_path(pairs))
            .map(Path)
            .map_err(|misfit| unfit(StatusCode::NOT_FOUND, "path", misfit).into_response())
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        shape::check::<T>(provided.parameters).map_err(|text| format!("Path<{}> {text}", name_of::<T>()))
    }
}

/// Extracts the query: a struct or map by name, or a sequence of pairs. A name that occurs several times fits a `Vec`.
///
/// Responds with 400 if the query is malformed or does not fit the type. The response names the field, if a single one
/// is wrong.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Query};
///
/// #[derive(serde::Deserialize)]
/// struct Search {
///     q: String,
///     #[serde(default)]
///     page: u32,
/// }
///
/// let search = |Query(Search { q, page }): Query<Search>| format!("{q:?}, page {page}");
/// let mut client = Client::new(App::new().get("/search", search))?;
/// assert_eq!(client.get("/search?q=a+b&page=2").send().text(), "\"a b\", page 2");
/// let refused = client.get("/search?q=a&page=two").send();
/// assert_eq!(refused.status(), 400);
/// assert!(refused.text().contains(r#""field":"page""#));
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    fn from_request(request: &mut Request<'_>) -> Result<Query<T>, Response> {
        let query = request.query().unwrap_or_default();
        let pairs = urlencoded::pairs(query.as_bytes()).map_err(|malformed| {
            Problem::new(StatusCode::BAD_REQUEST, format!("the query is malformed: {malformed}"))
                .with("in", "query")
                .with_number("offset", malformed.offset as u64)
                .into_response()
        })?;
        T::deserialize(Fields::of_form(pairs))
            .map(Query)
            .map_err(|misfit| unfit(StatusCode::BAD_REQUEST, "query", misfit).into_response())
    }
}

/// `None` if the request has no query.
impl<T: DeserializeOwned> OptionalFromRequest for Query<T> {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<Query<T>>, Response> {
        request.query().is_some().then(|| Query::from_request(request)).transpose()
    }
}

/// Returns the problem for fields that do not fit a type.
pub(crate) fn unfit(status: StatusCode, place: &str, misfit: Misfit) -> Problem {
    let problem = Problem::new(status, format!("the {place} does not fit: {misfit}")).with("in", place);
    match &misfit.field {
        Some(field) => problem.with("field", &shortened(field.clone())),
        None => problem,
    }
}

/// JSON, as an extractor of the body or as a response.
///
/// Responds with 415 if the media type is missing or not JSON, with 400 to malformed JSON, and with 422 to JSON that
/// does not fit the type. 400 and 422 report the line and column, and 422 usually also the field, such as
/// `items[2].price`. JSON that is nested more than 127 levels deep counts as malformed.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Json};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize)]
/// struct Order {
///     item: String,
///     count: u32,
/// }
///
/// #[derive(Serialize)]
/// struct Receipt {
///     said: String,
/// }
///
/// let order = |Json(Order { item, count }): Json<Order>| Json(Receipt { said: format!("{count} of {item}") });
/// let mut client = Client::new(App::new().post("/orders", order))?;
/// let call = client.post("/orders").header("content-type", "application/json");
/// let answer = call.body(r#"{"item":"tea","count":2}"#).send();
/// assert_eq!(answer.text(), r#"{"said":"2 of tea"}"#);
/// assert_eq!(client.post("/orders").json(&["tea"]).send().status(), 422);
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Json<T> {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request(request: &mut Request<'_>) -> Result<Json<T>, Response> {
        if !media::of_body(request).is_some_and(|media_type| media_type.is_json()) {
            return Err(media::unsupported("application/json"));
        }
        let body = request.take_body()?;
        serde_json::from_slice(&body).map(Json).map_err(|error| wrong_json::<T>(&body, &error).into_response())
    }
}

/// `None` if the request has no `Content-Type`.
impl<T: DeserializeOwned> OptionalFromRequest for Json<T> {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<Json<T>>, Response> {
        request.header("content-type").is_some().then(|| Json::from_request(request)).transpose()
    }
}

fn wrong_json<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> Problem {
    let data = error.classify() == serde_json::error::Category::Data;
    let (status, fault) = match data {
        true => (StatusCode::UNPROCESSABLE_ENTITY, "does not fit"),
        false => (StatusCode::BAD_REQUEST, "is malformed"),
    };
    let detail = match body.is_empty() {
        true => "JSON is expected, and the body is empty".to_string(),
        false => shortened(format!("the JSON {fault}: {error}")),
    };
    let problem = Problem::new(status, detail)
        .with("in", "body")
        .with_number("line", error.line() as u64)
        .with_number("column", error.column() as u64);
    match data.then(|| field::<T>(body)).flatten() {
        Some(field) => problem.with("field", &shortened(field)),
        None => problem,
    }
}

/// Returns the field that does not fit the type. Parses the body again to find the field, so that bodies that fit the
/// type do not pay for the search.
fn field<T: DeserializeOwned>(body: &[u8]) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let path = serde_path_to_error::deserialize::<_, T>(&mut reader).err()?.path().to_string();
    // `.` is the path of the value as a whole.
    (path != ".").then_some(path)
}

impl<T: serde::Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => Response::bytes("application/json", bytes),
            Err(error) => {
                highwire_engine::log!(Mistake, error, %error, "a response cannot be serialized as JSON");
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
            }
        }
    }
}
