//! Problem details: errors in a form that programs can read (RFC 9457).
//!
//! Many extractors respond with problems. The JSON is written without serde, because a refusal must not depend on the
//! feature `json`, and the members of a refusal are only texts and numbers.

use crate::{IntoResponse, Response};
use bytes::Bytes;
use highwire_engine::response::Content;
use http::StatusCode;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Write};

/// The media type of a problem.
const MEDIA_TYPE: &str = "application/problem+json";

/// The number of bytes to which [`shortened`] cuts a text with a client's input, so that the client cannot choose the
/// length of the response.
const MOST_WORDS: usize = 400;

/// Cuts a text to [`MOST_WORDS`] bytes.
pub(crate) fn shortened(mut words: String) -> String {
    highwire_engine::truncate(&mut words, MOST_WORDS);
    words
}

thread_local! {
    /// True if an app of this thread words refusals itself ([`App::on_rejection`](crate::App::on_rejection)).
    static IS_KEPT: Cell<bool> = const { Cell::new(false) };
    /// The last problem that has become a response, with the response's bytes.
    static LAST: Cell<Option<(Bytes, Problem)>> = const { Cell::new(None) };
}

/// Keeps the last problem of this thread from now on, for [`take_problem`].
pub(crate) fn keep_problems() {
    IS_KEPT.set(true);
}

/// Returns the problem that has become this response, if it was the last one.
pub(crate) fn take_problem(response: &Response) -> Option<Problem> {
    let (json, problem) = LAST.take()?;
    // The bytes are shared, so the same address is the same problem.
    let Content::Bytes(bytes) = response.content() else { return None };
    (bytes.as_ptr() == json.as_ptr()).then_some(problem)
}

/// The members that RFC 9457 section 3.1 defines.
const DEFINED: [&str; 5] = ["type", "title", "status", "detail", "instance"];

/// An error as `application/problem+json`. Handlers can return it, and extractors such as those of JSON, queries and
/// path parameters respond with it.
///
/// The errors of extractors may have further members that name the place: `in` (`path`, `query`, `body` or a header
/// field's name), `field` (such as `user.age`), `line` and `column` in JSON, `offset` in bytes of a query or form.
///
/// ```
/// use highwire::{App, Problem, StatusCode, testing::Client};
///
/// let sold_out = || Err::<(), _>(Problem::new(StatusCode::CONFLICT, "no seat is left").with("seat", "12 C"));
/// let answer = Client::new(App::new().post("/seats", sold_out))?.post("/seats").send();
/// assert_eq!(answer.header("content-type"), "application/problem+json");
/// assert_eq!(
///     answer.text(),
///     r#"{"title":"Conflict","status":409,"detail":"no seat is left","seat":"12 C"}"#
/// );
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Problem(Box<Members>);

/// The content of a [`Problem`]. It is boxed because problems are rare, and a `Result` with a problem then stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Members {
    status: StatusCode,
    kind: Option<Cow<'static, str>>,
    title: Option<Cow<'static, str>>,
    detail: Cow<'static, str>,
    instance: Option<String>,
    /// Further members: names, and values as JSON.
    others: Vec<(Cow<'static, str>, String)>,
}

impl Problem {
    /// Creates a problem with a status and a description. It has no type, and its title is the status's reason phrase,
    /// as RFC 9457 section 4.2.1 recommends for problems without a type.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Problem {
        let (detail, others) = (detail.into(), Vec::new());
        Problem(Box::new(Members { status, kind: None, title: None, detail, instance: None, others }))
    }

    /// Sets the problem's type, a URI, and its title, which should be the same in all problems of that type.
    pub fn with_type(mut self, uri: impl Into<Cow<'static, str>>, title: impl Into<Cow<'static, str>>) -> Problem {
        (self.0.kind, self.0.title) = (Some(uri.into()), Some(title.into()));
        self
    }

    /// Sets `instance`, a URI that identifies this occurrence.
    pub fn with_instance(mut self, uri: impl Into<String>) -> Problem {
        self.0.instance = Some(uri.into());
        self
    }

    /// Adds a member with a text. It replaces an earlier member of the same name. Names that RFC 9457 defines are
    /// ignored, because other methods set those members.
    pub fn with(self, name: impl Into<Cow<'static, str>>, text: &str) -> Problem {
        let mut json = String::with_capacity(text.len() + 2);
        write_text(&mut json, text);
        self.with_written(name.into(), json)
    }

    /// Adds a member with a number, under the rules of [`with`](Self::with).
    pub fn with_number(self, name: impl Into<Cow<'static, str>>, number: u64) -> Problem {
        self.with_written(name.into(), number.to_string())
    }

    /// Adds a member with any value, under the rules of [`with`](Self::with). A value that cannot be written as JSON is
    /// logged and left out.
    #[cfg(feature = "json")]
    pub fn with_json(self, name: impl Into<Cow<'static, str>>, value: &impl serde::Serialize) -> Problem {
        match serde_json::to_string(value) {
            Ok(json) => self.with_written(name.into(), json),
            Err(error) => {
                highwire_engine::log!(Mistake, error, %error, "a member of a problem cannot be written as JSON");
                self
            }
        }
    }

    fn with_written(mut self, name: Cow<'static, str>, json: String) -> Problem {
        if !DEFINED.contains(&&*name) {
            self.0.others.retain(|(known, _)| *known != name);
            self.0.others.push((name, json));
        }
        self
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Returns the description.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    fn to_json(&self) -> String {
        let Members { status, kind, title, detail, instance, others } = &*self.0;
        let mut json = String::from("{");
        if let Some(kind) = kind {
            json.push_str("\"type\":");
            write_text(&mut json, kind);
            json.push(',');
        }
        json.push_str("\"title\":");
        // The engine's phrases, as in status lines; `http` has old ones.
        let known = highwire_proto::h1::reason_phrase(status.as_u16());
        let reason = Some(known).filter(|known| !known.is_empty()).or(status.canonical_reason()).unwrap_or("Unknown");
        write_text(&mut json, title.as_deref().unwrap_or(reason));
        // Writing to a string cannot fail.
        let _ = write!(json, ",\"status\":{},\"detail\":", status.as_u16());
        write_text(&mut json, detail);
        if let Some(instance) = instance {
            json.push_str(",\"instance\":");
            write_text(&mut json, instance);
        }
        for (name, value) in others {
            json.push(',');
            write_text(&mut json, name);
            json.push(':');
            json.push_str(value);
        }
        json.push('}');
        json
    }
}

/// Writes a text as a JSON string (RFC 8259 section 7).
pub(crate) fn write_text(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.detail)
    }
}

impl std::error::Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, json) = (self.0.status, Bytes::from(self.to_json()));
        if IS_KEPT.get() {
            LAST.set(Some((json.clone(), self)));
        }
        Response::bytes(MEDIA_TYPE, json).with_status(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_written_and_escaped() {
        let problem = Problem::new(StatusCode::IM_A_TEAPOT, "\"\\\n\u{1f}é")
            .with_type("https://example.org/tea", "No coffee")
            .with_instance("/pots/1")
            .with("pot\"", "a")
            .with("leaves", "old")
            .with_number("leaves", 3)
            .with("status", "not this way");
        let json = concat!(
            r#"{"type":"https://example.org/tea","title":"No coffee","status":418,"detail":"\"\\\u000a\u001fé","#,
            r#""instance":"/pots/1","pot\"":"a","leaves":3}"#
        );
        assert_eq!(problem.to_json(), json);
        assert_eq!(problem.to_string(), problem.detail());
    }
}
