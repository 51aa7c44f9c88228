//! Media types, such as `text/html; charset=utf-8`, and the parameters of media types and of other header values (RFC
//! 9110 sections 5.6.6 and 8.3.1).

use crate::{IntoResponse, Problem, Request, Response};
use http::{HeaderValue, StatusCode, header};
use std::borrow::Cow;

/// A parsed media type, which borrows from a header value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MediaType<'v> {
    kind: &'v str,
    subtype: &'v str,
    parameters: &'v str,
}

/// How many parameters a media type may have. Clients send few, and each name is compared with all previous ones.
const MOST_PARAMETERS: usize = 16;

impl<'v> MediaType<'v> {
    /// Parses a media type. Returns `None` if it is malformed or has too many parameters, or if a parameter occurs
    /// twice, because two parties could use different ones.
    pub(crate) fn parse(value: &'v str) -> Option<MediaType<'v>> {
        let end = value.find(';').unwrap_or(value.len());
        let (kind, subtype) = trim(&value[..end]).split_once('/')?;
        if !is_token(kind) || !is_token(subtype) {
            return None;
        }
        let media_type = MediaType { kind, subtype, parameters: &value[end..] };
        let mut names = Vec::new();
        for parameter in media_type.parameters() {
            let (name, _) = parameter?;
            if names.len() == MOST_PARAMETERS || names.iter().any(|known: &&str| known.eq_ignore_ascii_case(name)) {
                return None;
            }
            names.push(name);
        }
        Some(media_type)
    }

    /// Returns true if this is the given type, such as `text/html`, with any parameters. Ignores case.
    pub(crate) fn is(&self, essence: &str) -> bool {
        essence.split_once('/').is_some_and(|(kind, subtype)| {
            self.kind.eq_ignore_ascii_case(kind) && self.subtype.eq_ignore_ascii_case(subtype)
        })
    }

    /// Returns true if this is `application/json` or has the suffix `+json` (RFC 6839).
    #[cfg_attr(not(feature = "json"), expect(dead_code, reason = "asked by Json"))]
    pub(crate) fn is_json(&self) -> bool {
        let suffix = self.subtype.rsplit_once('+').map(|(_, suffix)| suffix);
        self.is("application/json") || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case("json"))
    }

    pub(crate) fn kind(&self) -> &'v str {
        self.kind
    }

    pub(crate) fn subtype(&self) -> &'v str {
        self.subtype
    }

    /// Returns the parameters in order. A malformed parameter is returned as `None` and is the last item.
    pub(crate) fn parameters(&self) -> Parameters<'v> {
        Parameters { rest: self.parameters }
    }

    /// Returns the value of a parameter. Ignores the case of the name.
    pub(crate) fn parameter(&self, name: &str) -> Option<Cow<'v, str>> {
        let mut found = self.parameters().flatten().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.text())
    }
}

/// Returns the media type of a request's body, or `None` if `Content-Type` is missing, malformed or repeated. A
/// repeated field is refused because two parties could use different ones.
pub(crate) fn of_body<'r>(request: &Request<'r>) -> Option<MediaType<'r>> {
    let mut fields = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let (Some((_, value)), None) = (fields.next(), fields.next()) else { return None };
    MediaType::parse(std::str::from_utf8(value).ok()?)
}

/// Returns a 415 whose `Accept` field names the expected media types (RFC 9110 section 15.5.16).
pub(crate) fn unsupported(expected: &'static str) -> Response {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the body is not {expected}"))
        .with("in", "content-type")
        .into_response()
        .with_header(header::ACCEPT, HeaderValue::from_static(expected))
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'v> {
    Token(&'v str),
    /// The text between the quotes, with its backslashes.
    Quoted(&'v str),
}

impl<'v> Value<'v> {
    /// Returns the text without the backslashes that escape a character (RFC 9110 section 5.6.4).
    pub(crate) fn text(self) -> Cow<'v, str> {
        match self {
            Value::Token(text) => Cow::Borrowed(text),
            Value::Quoted(text) => unescape(text, |_| true),
        }
    }
}

/// Removes the backslashes before those characters for which `escapable` returns true.
pub(crate) fn unescape(text: &str, escapable: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(&next)) if escapable(next) => {
                plain.push(next);
                characters.next();
            }
            _ => plain.push(character),
        }
    }
    Cow::Owned(plain)
}

/// An iterator over parameters, each preceded by a semicolon. A malformed parameter is returned as `None` and is the
/// last item.
#[derive(Clone, Debug)]
pub(crate) struct Parameters<'v> {
    rest: &'v str,
}

impl<'v> Parameters<'v> {
    /// Iterates over the parameters of a text that begins with a semicolon or is empty.
    pub(crate) fn of(text: &'v str) -> Parameters<'v> {
        Parameters { rest: text }
    }
}

impl<'v> Iterator for Parameters<'v> {
    type Item = Option<(&'v str, Value<'v>)>;

    fn next(&mut self) -> Option<Self::Item> {
        // Semicolons without a parameter are allowed (RFC 9110 section 5.6.6).
        let rest = self.rest.trim_start_matches(WHITE_SPACE);
        let begun = rest.trim_start_matches(|character| character == ';' || WHITE_SPACE.contains(&character));
        if begun.is_empty() {
            self.rest = "";
            return None;
        }
        let parsed = if rest.starts_with(';') { one(begun) } else { None };
        self.rest = parsed.map_or("", |(_, rest)| rest);
        Some(parsed.map(|(parameter, _)| parameter))
    }
}

/// Parses the first parameter. Returns it and the rest of the text.
fn one(text: &str) -> Option<((&str, Value<'_>), &str)> {
    let (name, value) = text.split_once('=')?;
    if !is_token(name) {
        return None;
    }
    if let Some(quoted) = value.strip_prefix('"') {
        let end = quoted_end(quoted)?;
        return Some(((name, Value::Quoted(&quoted[..end])), &quoted[end + 1..]));
    }
    let end = value.find(';').unwrap_or(value.len());
    let token = value[..end].trim_end_matches(WHITE_SPACE);
    is_token(token).then_some(((name, Value::Token(token)), &value[end..]))
}

/// Returns the position of the closing quote, or `None` if there is no such quote or a control byte precedes it.
fn quoted_end(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at),
            b'\\' => drop(bytes.next().filter(|&(_, escaped)| !is_control(escaped))?),
            _ if is_control(byte) => return None,
            _ => {}
        }
    }
    None
}

fn is_control(byte: u8) -> bool {
    byte != b'\t' && byte.is_ascii_control()
}

/// Splits a list at the commas outside of quotes (RFC 9110 section 5.6.1). Skips empty elements.
pub(crate) fn elements(list: &str) -> impl Iterator<Item = &str> {
    let mut state = (false, false);
    let split = list.split(move |character: char| {
        let (quoted, escaped) = state;
        state = match character {
            _ if escaped => (quoted, false),
            '\\' if quoted => (true, true),
            '"' => (!quoted, false),
            _ => (quoted, false),
        };
        character == ',' && !quoted
    });
    split.map(trim).filter(|element| !element.is_empty())
}

/// Parses two hex digits as a byte.
pub(crate) fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match digits {
        &[high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    }
}

const WHITE_SPACE: [char; 2] = [' ', '\t'];

pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(WHITE_SPACE)
}

/// Returns true if a text is a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types() {
        let parameters = |text| {
            let media_type = MediaType::parse(text)?;
            let written: Vec<String> =
                media_type.parameters().flatten().map(|(name, value)| format!("{name}={}", value.text())).collect();
            Some(format!("{}/{} {}", media_type.kind, media_type.subtype, written.join(" ")))
        };
        for (text, expected) in [
            ("text/html", Some("text/html ")),
            (" Text/HTML ; Charset=UTF-8", Some("Text/HTML Charset=UTF-8")),
            ("a/b;c=\"d;\\\"e\\f\" ; g=h;", Some("a/b c=d;\"ef g=h")),
            ("a/b;;; c=d", Some("a/b c=d")),
            ("a/b;c=\"\"", Some("a/b c=")),
            ("", None),
            ("text", None),
            ("/b", None),
            ("a/", None),
            ("a /b", None),
            ("a/b/c", None),
            ("a/b c", None),
            ("a/b;c", None),
            ("a/b;c=", None),
            ("a/b;c =d", None),
            ("a/b;c= d", None),
            ("a/b;c=\"d", None),
            ("a/b;c=\"d\\", None),
            ("a/b;c=\"d\"e", None),
            ("a/b;c=\"\u{1}\"", None),
            ("a/b;c=d;C=e", None),
        ] {
            assert_eq!(parameters(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn parameters_have_a_bound() {
        let with = |count| (0..count).fold("a/b".to_string(), |text, number| format!("{text};p{number}=1"));
        assert!(MediaType::parse(&with(MOST_PARAMETERS)).is_some());
        assert_eq!(MediaType::parse(&with(MOST_PARAMETERS + 1)), None);
    }

    #[test]
    fn kinds_of_json() {
        for (text, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/geo+json", true),
            ("application/json+xml", false),
            ("application/jsonp", false),
        ] {
            assert_eq!(MediaType::parse(text).is_some_and(|media_type| media_type.is_json()), expected, "{text}");
        }
    }

    #[test]
    fn commas_within_quotes_part_nothing() {
        let list = " a , b;c=\"d,\\\"e\" ,, f,";
        assert_eq!(elements(list).collect::<Vec<_>>(), ["a", "b;c=\"d,\\\"e\"", "f"]);
    }
}
