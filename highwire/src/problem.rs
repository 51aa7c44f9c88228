//! Problem details: what was wrong with a request, for programs to read (RFC 9457).
//!
//! The extractors of this crate refuse with these. Their JSON is written here and not by serde: a refusal must not
//! depend on a feature, and its members are text and numbers.

use crate::{IntoResponse, Response};
use http::StatusCode;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The media type of a problem.
const MEDIA_TYPE: &str = "application/problem+json";

/// Bytes of words that a peer has a part in: it must not choose how long an answer is.
const MOST_WORDS: usize = 400;

/// Words that are short enough for an answer.
pub(crate) fn shortened(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(MOST_WORDS));
    words
}

/// The members that RFC 9457 section 3.1 defines.
const DEFINED: [&str; 5] = ["type", "title", "status", "detail", "instance"];

/// What was wrong, as `application/problem+json`: an answer, and the error of the extractors that read a body, a query or
/// a path.
///
/// Theirs have members that name the place: `in` (`path`, `query`, `body` or a field's name), `field` (`user.age`), `line`
/// and `column` of JSON, `offset` in bytes of a form.
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

/// Boxed: what is refused is rare, and results that may hold a problem are common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Members {
    status: StatusCode,
    kind: Option<Cow<'static, str>>,
    title: Option<Cow<'static, str>>,
    detail: Cow<'static, str>,
    instance: Option<String>,
    /// Names and what stands behind them, as JSON.
    others: Vec<(Cow<'static, str>, String)>,
}

impl Problem {
    /// A problem with a status and words for it. Its title is the status's reason phrase, and it has no type: RFC 9457
    /// section 4.2.1 says that these belong together.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Problem {
        let (detail, others) = (detail.into(), Vec::new());
        Problem(Box::new(Members { status, kind: None, title: None, detail, instance: None, others }))
    }

    /// Names the problem's type, a URI, and gives it a title that does not change from one occurrence to the next.
    pub fn with_type(mut self, uri: impl Into<Cow<'static, str>>, title: impl Into<Cow<'static, str>>) -> Problem {
        (self.0.kind, self.0.title) = (Some(uri.into()), Some(title.into()));
        self
    }

    /// Names this occurrence: a URI.
    pub fn with_instance(mut self, uri: impl Into<String>) -> Problem {
        self.0.instance = Some(uri.into());
        self
    }

    /// Adds a member with a text. The last one of a name stays; the names that RFC 9457 defines have methods of their own,
    /// and are not taken here.
    pub fn with(self, name: impl Into<Cow<'static, str>>, text: &str) -> Problem {
        let mut json = String::with_capacity(text.len() + 2);
        write_text(&mut json, text);
        self.with_written(name.into(), json)
    }

    /// Adds a member with a number, as [`with`](Self::with) does.
    pub fn with_number(self, name: impl Into<Cow<'static, str>>, number: u64) -> Problem {
        self.with_written(name.into(), number.to_string())
    }

    /// Adds a member with any value, as [`with`](Self::with) does. One that cannot be written as JSON is left out, and
    /// logged.
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

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// What was wrong, in words.
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
        let reason = status.canonical_reason().unwrap_or("Unknown");
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

/// A text as JSON (RFC 8259 section 7).
fn write_text(json: &mut String, text: &str) {
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
        Response::bytes(MEDIA_TYPE, self.to_json()).with_status(self.0.status)
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
