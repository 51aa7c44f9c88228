//! The extractor that reads a form into a type.

use super::head::Head;
use super::multipart::{Fault, MultipartError, boundary_of, malformed, parser, read_head, too_large};
use super::parser::Event;
use super::urlencoded::{self, Fault as FormFault};
use crate::message::fields::{Fields, Pair};
use crate::message::media;
use crate::message::request::{BodyUse, FromRequest, OptionalFromRequest, Request};
use crate::message::typed::unfit;
use crate::{IntoResponse, Problem, Response};
use bytes::Bytes;
use http::StatusCode;
use serde::de::DeserializeOwned;

const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";
const BOTH: &str = "application/x-www-form-urlencoded, multipart/form-data";

/// An extractor that reads a form into a struct, a map or a sequence of pairs. The names of fields select the members;
/// a member whose name may occur several times needs a `Vec`.
///
/// The body is `application/x-www-form-urlencoded` in UTF-8, or `multipart/form-data` with text fields only; use
/// [`Multipart`](crate::Multipart) for files. The response is 415 for another media type, 400 for a malformed body
/// (with the position), 422 for a body that does not fit the type (with the field) or that has a file or a field that
/// is not UTF-8, and 413 for more than [`MOST_FIELDS`](super::MOST_FIELDS) fields or a multipart body that exceeds
/// [`Limits`](super::Limits).
///
/// ```
/// use highwire::{App, Form, testing::Client};
///
/// #[derive(serde::Deserialize)]
/// struct Booking {
///     name: String,
///     seats: u8,
///     #[serde(default)]
///     meal: Vec<String>,
/// }
///
/// let book = |Form(Booking { name, seats, meal }): Form<Booking>| format!("{name} {seats} {}", meal.join(" and "));
/// let mut client = Client::new(App::new().post("/book", book))?;
/// let answer = client.post("/book").form(&[("name", "Ada"), ("seats", "2"), ("meal", "soup"), ("meal", "fish")]).send();
/// assert_eq!(answer.text(), "Ada 2 soup and fish");
/// let answer = client.post("/book").form(&[("name", "Ada"), ("seats", "many")]).send();
/// assert_eq!((answer.status().as_u16(), answer.header("content-type")), (422, "application/problem+json"));
/// assert!(answer.text().contains(r#""field":"seats""#));
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Form<T> {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request(request: &mut Request<'_>) -> Result<Form<T>, Response> {
        let Some(media_type) = media::of_body(request) else { return Err(media::unsupported(BOTH)) };
        let body;
        let pairs = if media_type.is(MEDIA_TYPE) {
            if media_type.parameter("charset").is_some_and(|charset| !charset.eq_ignore_ascii_case("utf-8")) {
                return Err(media::unsupported("application/x-www-form-urlencoded; charset=utf-8"));
            }
            body = request.take_body()?;
            fields(&body).map_err(IntoResponse::into_response)?
        } else if media_type.is("multipart/form-data") {
            let boundary = boundary_of(&media_type)?;
            let mut parser = parser(request, &boundary)?;
            parser.push(request.take_body()?);
            parts(&mut parser).map_err(IntoResponse::into_response)?
        } else {
            return Err(media::unsupported(BOTH));
        };
        T::deserialize(Fields::of_form(pairs))
            .map(Form)
            .map_err(|misfit| unfit(StatusCode::UNPROCESSABLE_ENTITY, "form", misfit).into_response())
    }
}

/// `None` if the request has no `Content-Type`.
impl<T: DeserializeOwned> OptionalFromRequest for Form<T> {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<Form<T>>, Response> {
        request.header("content-type").is_some().then(|| Form::from_request(request)).transpose()
    }
}

fn fields(body: &[u8]) -> Result<Vec<Pair<'_>>, Problem> {
    urlencoded::pairs(body).map_err(|malformed| {
        let status = match malformed.fault {
            FormFault::TooMany => StatusCode::PAYLOAD_TOO_LARGE,
            FormFault::Percent | FormFault::Utf8 => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, format!("the form is malformed: {malformed}"))
            .with("in", "body")
            .with_number("offset", malformed.offset as u64)
    })
}

/// Reads the text parts of a whole multipart body.
fn parts(parser: &mut super::parser::Parser) -> Result<Vec<Pair<'static>>, MultipartError> {
    let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
    loop {
        let event = match parser.next() {
            Ok(Event::NeedMore) => parser.finish().map(|()| Event::End),
            event => event,
        };
        match event.map_err(|fault| malformed(parser, fault))? {
            Event::Head(lines) => pairs.push((field_name(parser, &lines)?, Vec::new())),
            Event::Data(data) => {
                let Some((name, value)) = pairs.last_mut() else { continue };
                let limit = parser.limits().part_bytes;
                if (value.len() + data.len()) as u64 > limit {
                    let part = Some(name.clone());
                    return Err(MultipartError { fault: too_large(limit), part, offset: parser.offset() });
                }
                value.extend_from_slice(&data);
            }
            Event::PartEnd => {}
            Event::End | Event::NeedMore => break,
        }
    }
    let text = |(name, value): (String, Vec<u8>)| match String::from_utf8(value) {
        Ok(value) => Ok((name.into(), value.into())),
        Err(_) => Err(MultipartError { fault: Fault::NotText, part: Some(name), offset: parser.offset() }),
    };
    pairs.into_iter().map(text).collect()
}

fn field_name(parser: &super::parser::Parser, lines: &Bytes) -> Result<String, MultipartError> {
    let Head { name, file_name, .. } = read_head(parser, lines)?;
    match file_name {
        None => Ok(name),
        Some(_) => Err(MultipartError { fault: Fault::File, part: Some(name), offset: parser.offset() }),
    }
}
