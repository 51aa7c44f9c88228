//! The header fields of a part: its name, file name and media type (RFC 7578 section 4.2).
//!
//! Browsers write `"`, CR and LF in names as `%22`, `%0D` and `%0A`, and a backslash as itself. Other clients put a
//! backslash before a quote and before a backslash. The parser accepts both. It accepts `filename*` (RFC 8187), which
//! RFC 7578 forbids but some clients send. If a part has both names, as from .NET, `filename` wins: it is what readers
//! that follow RFC 7578, such as a firewall in front, see.

use crate::message::media::{Parameters, Value, hex, is_token, trim, unescape};
use bytes::Bytes;
use std::fmt;

/// An error of a part's header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadFault {
    Line,
    Twice,
    Disposition,
    Name,
    NotUtf8,
    Encoding,
}

impl fmt::Display for HeadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeadFault::Line => "a part has a malformed header field",
            HeadFault::Twice => "a part has a header field twice",
            HeadFault::Disposition => "a part has no well-formed `Content-Disposition: form-data`",
            HeadFault::Name => "a part has no name",
            HeadFault::NotUtf8 => "a part's header fields are not UTF-8",
            HeadFault::Encoding => "a part has a transfer encoding, which forms do not use",
        })
    }
}

/// A part's header fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) file_name: Option<String>,
    pub(crate) content_type: Option<String>,
}

/// Parses the header lines of a part.
pub(crate) fn parse(lines: &Bytes) -> Result<Head, HeadFault> {
    let lines = std::str::from_utf8(lines).map_err(|_| HeadFault::NotUtf8)?;
    let (mut disposition, mut content_type, mut encoding) = (None, None, None);
    for line in lines.split_terminator("\r\n") {
        let (name, value) = line.split_once(':').ok_or(HeadFault::Line)?;
        // This also refuses folded lines, because they begin with white space, so their name is not a token.
        if !is_token(name) || value.chars().any(|character| character != '\t' && character.is_ascii_control()) {
            return Err(HeadFault::Line);
        }
        let place = match () {
            () if name.eq_ignore_ascii_case("content-disposition") => &mut disposition,
            () if name.eq_ignore_ascii_case("content-type") => &mut content_type,
            () if name.eq_ignore_ascii_case("content-transfer-encoding") => &mut encoding,
            // Other fields are ignored (RFC 7578 section 4.8).
            () => continue,
        };
        if place.replace(trim(value)).is_some() {
            return Err(HeadFault::Twice);
        }
    }
    // RFC 7578 section 4.7 deprecates this field. A reader that ignores the field would misread encoded data.
    if encoding
        .is_some_and(|encoding| !["7bit", "8bit", "binary"].iter().any(|plain| encoding.eq_ignore_ascii_case(plain)))
    {
        return Err(HeadFault::Encoding);
    }
    let (name, file_name) = names(disposition.ok_or(HeadFault::Disposition)?)?;
    Ok(Head { name, file_name, content_type: content_type.map(str::to_string) })
}

/// Returns the name of a part, and of its file if it has one.
fn names(disposition: &str) -> Result<(String, Option<String>), HeadFault> {
    let end = disposition.find(';').unwrap_or(disposition.len());
    if !trim(&disposition[..end]).eq_ignore_ascii_case("form-data") {
        return Err(HeadFault::Disposition);
    }
    let (mut name, mut file_name, mut extended) = (None, None, None);
    for parameter in Parameters::of(&disposition[end..]) {
        let (known, value) = parameter.ok_or(HeadFault::Disposition)?;
        let place = match () {
            () if known.eq_ignore_ascii_case("name") => &mut name,
            () if known.eq_ignore_ascii_case("filename") => &mut file_name,
            () if known.eq_ignore_ascii_case("filename*") => &mut extended,
            () => continue,
        };
        if place.replace(value).is_some() {
            return Err(HeadFault::Disposition);
        }
    }
    let file_name = match (file_name, extended) {
        (Some(plain), _) => Some(written(plain)),
        (None, Some(Value::Token(extended))) => Some(decoded(extended).ok_or(HeadFault::Disposition)?),
        (None, Some(Value::Quoted(_))) => return Err(HeadFault::Disposition),
        (None, None) => None,
    };
    Ok((name.map(written).ok_or(HeadFault::Name)?, file_name))
}

/// Decodes a name as the module's documentation describes.
fn written(value: Value<'_>) -> String {
    match value {
        Value::Token(text) => text.to_string(),
        Value::Quoted(text) => {
            let text = unescape(text, |character| matches!(character, '"' | '\\'));
            match text.contains('%') {
                true => text.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n"),
                false => text.into_owned(),
            }
        }
    }
}

/// The most bytes of a safe file name. File systems usually allow 255, and the program may append to the name.
const MOST_NAME_BYTES: usize = 200;

/// Names of devices on Windows. Digits may follow, and then a dot and any text.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

/// Makes a safe name for a file from the name that the peer sent. Returns `None` if no character is left.
pub(super) fn safe_file_name(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let unsafe_character = |character: char| character.is_control() || "<>:\"|?*".contains(character);
    let mut safe: String = last.chars().filter(|&character| !unsafe_character(character)).collect();
    highwire_engine::truncate(&mut safe, MOST_NAME_BYTES);
    let safe = safe.trim_matches([' ', '.', '\u{a0}']);
    let stem = safe.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let is_device = DEVICES.contains(&stem.trim_end_matches(|digit: char| digit.is_ascii_digit()));
    match (safe.is_empty(), is_device) {
        (true, _) => None,
        (false, true) => Some(format!("_{safe}")),
        (false, false) => Some(safe.to_string()),
    }
}

/// Decodes a value with charset, language and percent-encoding: `utf-8''na%C3%AFve` (RFC 8187 section 3.2).
fn decoded(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_, text) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let mut plain = Vec::new();
    let mut bytes = text.as_bytes();
    while let Some((&byte, rest)) = bytes.split_first() {
        let (decoded, rest) = match byte {
            b'%' => (hex(rest.get(..2)?)?, &rest[2..]),
            _ => (byte, rest),
        };
        plain.push(decoded);
        bytes = rest;
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expected: Result<(&str, Option<&str>, Option<&str>), HeadFault>) {
        let head = parse(&Bytes::copy_from_slice(lines.as_bytes()));
        let expected = expected.map(|(name, file_name, content_type)| Head {
            name: name.to_string(),
            file_name: file_name.map(str::to_string),
            content_type: content_type.map(str::to_string),
        });
        assert_eq!(head, expected, "{lines:?}");
    }

    #[test]
    fn names_and_types() {
        let form = |rest: &str| format!("Content-Disposition: form-data; {rest}\r\n");
        check(&form("name=\"a\""), Ok(("a", None, None)));
        check(&form("name=a"), Ok(("a", None, None)));
        check(&form("name=\"\""), Ok(("", None, None)));
        check(&form("name=\"a;b\"; filename=\"c d.txt\""), Ok(("a;b", Some("c d.txt"), None)));
        check(&form("FileName=\"\"; NAME=\"\u{e9}\""), Ok(("\u{e9}", Some(""), None)));
        check(
            &form(r#"name="a\"b%22%0D%0Ac"; filename="C:\dir\\x\"y""#),
            Ok(("a\"b\"\r\nc", Some("C:\\dir\\x\"y"), None)),
        );
        check(&form("name=\"a\"; filename*=utf-8''na%C3%AFve"), Ok(("a", Some("na\u{ef}ve"), None)));
        // .NET's MultipartFormDataContent sends both.
        check(&form("name=file; filename=r.jpg; filename*=utf-8''r.jpg"), Ok(("file", Some("r.jpg"), None)));
        check(&form("name=a; filename*=utf-8''b; filename=c"), Ok(("a", Some("c"), None)));
        check(&form("name=a; filename=c; filename*=latin1''b"), Ok(("a", Some("c"), None)));
        check(
            "content-TYPE: \t text/plain; x=y \r\nX: y\r\nContent-Transfer-Encoding: BINARY\r\nContent-Disposition: Form-Data ;name=a\r\n",
            Ok(("a", None, Some("text/plain; x=y"))),
        );
    }

    #[test]
    fn names_for_files() {
        for (name, expected) in [
            ("crab.png", Some("crab.png")),
            ("../../etc/passwd", Some("passwd")),
            ("C:\\Users\\me\\a b.txt", Some("a b.txt")),
            ("C:a.txt", Some("Ca.txt")),
            (".htaccess", Some("htaccess")),
            ("a\0b\r\n|c?.txt. ", Some("abc.txt")),
            ("na\u{ef}ve", Some("na\u{ef}ve")),
            ("con", Some("_con")),
            ("Lpt1 .txt", Some("_Lpt1 .txt")),
            ("console", Some("console")),
            ("", None),
            ("..", None),
            ("a/", None),
            ("<>", None),
        ] {
            assert_eq!(safe_file_name(name).as_deref(), expected, "{name:?}");
        }
        assert_eq!(safe_file_name(&"\u{e9}".repeat(101)).map(|name| name.len()), Some(200));
    }

    #[test]
    fn what_is_refused() {
        let form = |rest: &str| format!("Content-Disposition: form-data; {rest}\r\n");
        check("", Err(HeadFault::Disposition));
        check("Content-Type: text/plain\r\n", Err(HeadFault::Disposition));
        check("Content-Disposition: attachment; name=\"a\"\r\n", Err(HeadFault::Disposition));
        check("Content-Disposition: form-data\r\n", Err(HeadFault::Name));
        check(&form("filename=\"a\""), Err(HeadFault::Name));
        check(&form("name=\"a\"; name=\"b\""), Err(HeadFault::Disposition));
        check(&form("name=\"a"), Err(HeadFault::Disposition));
        check(&form("name=\"a\\\""), Err(HeadFault::Disposition));
        check(&form("name=\"a\" filename=b"), Err(HeadFault::Disposition));
        check(&form("name=\"a\"; filename*=latin1''b"), Err(HeadFault::Disposition));
        check(&form("name=\"a\"; filename*=utf-8''%c"), Err(HeadFault::Disposition));
        check(&form("name=\"a\"; filename*=utf-8''%ff"), Err(HeadFault::Disposition));
        let twice = [form("name=\"a\""), form("name=\"b\"")].concat();
        check(&twice, Err(HeadFault::Twice));
        for line in ["x", ": y", "x y: z", " x: y", "x: \u{1}", "x: a\nb", "x: a\rb"] {
            check(&format!("{}{line}\r\n", form("name=\"a\"")), Err(HeadFault::Line));
        }
        check(
            "Content-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name=a\r\n",
            Err(HeadFault::Encoding),
        );
        assert_eq!(parse(&Bytes::from_static(b"x: \xff\r\n")), Err(HeadFault::NotUtf8));
    }
}
