//! Parses `conformance/http1/*.case`. conformance/README.md describes the format.

use std::path::{Path, PathBuf};

/// A case.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// The name, unique in the corpus.
    pub name: String,
    /// The bytes that the client sends.
    pub send: Vec<u8>,
    /// True if the client then shuts down its sending direction.
    pub eof: bool,
    /// The final responses, in order.
    pub expect: Vec<Expected>,
    /// The bytes that follow a 101.
    pub raw: Vec<u8>,
    /// True if the server must close the connection after the last byte.
    pub closes: bool,
}

/// An expected response.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The status.
    pub status: u16,
    /// The body, if the case names it.
    pub body: Option<Vec<u8>>,
    /// The length of the body, if the case names it.
    pub length: Option<usize>,
    /// Fields that the response must have, as name and value.
    pub fields: Vec<(String, String)>,
    /// Names of fields that the response must not have.
    pub absent: Vec<String>,
    /// The statuses of the interim responses before this response.
    pub interim: Vec<u16>,
    /// True if the response answers HEAD and has no body.
    pub head: bool,
    /// Trailer fields that the response must have.
    pub trailers: Vec<(String, String)>,
    /// True if the body must be chunked.
    pub chunked: bool,
}

/// Reads all cases of a folder.
///
/// # Panics
/// Panics if a file cannot be read or contains an invalid line.
pub fn read(folder: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for (file, text) in files(folder) {
        let mut case: Option<Case> = None;
        for (number, line) in text.lines().enumerate() {
            let place = || format!("{}:{}", file.display(), number + 1);
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (word, &mut case) {
                ("", _) => {}
                (word, _) if word.starts_with('#') => {}
                ("case", None) => case = Some(Case { name: rest.to_string(), ..Case::default() }),
                ("send", Some(case)) => case.send.extend(unescape(rest, &place())),
                ("eof", Some(case)) => case.eof = true,
                ("expect", Some(case)) => case.expect.push(expected(rest, &place())),
                ("raw", Some(case)) => case.raw.extend(unescape(rest, &place())),
                ("end", Some(_)) => {
                    let mut done = case.take().expect("just matched");
                    done.closes = match rest {
                        "close" => true,
                        "open" => false,
                        other => panic!("{}: unknown end {other:?}", place()),
                    };
                    cases.push(done);
                }
                _ => panic!("{}: invalid line {line:?}", place()),
            }
        }
        assert!(case.is_none(), "{}: the last case has no end", file.display());
    }
    cases
}

/// Returns the paths and texts of a folder's case files, sorted by path.
pub(crate) fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a folder's entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "case"))
        .collect();
    files.sort();
    let text =
        |file: &PathBuf| std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    files.into_iter().map(|file| (file.clone(), text(&file))).collect()
}

pub(crate) fn expected(text: &str, place: &str) -> Expected {
    let (status, mut rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut expected = Expected {
        status: status.parse().unwrap_or_else(|_| panic!("{place}: invalid status {status:?}")),
        ..Expected::default()
    };
    while !rest.is_empty() {
        if let Some(body) = rest.strip_prefix("body=") {
            expected.body = Some(unescape(body, place));
            break;
        }
        let (key, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        match key.split_once('=') {
            None if key == "head" => expected.head = true,
            None if key == "chunked" => expected.chunked = true,
            Some(("length", number)) => {
                expected.length = Some(number.parse().unwrap_or_else(|_| panic!("{place}: invalid key {key:?}")))
            }
            Some(("interim", number)) => {
                expected.interim.push(number.parse().unwrap_or_else(|_| panic!("{place}: invalid key {key:?}")))
            }
            Some(("absent", name)) => expected.absent.push(name.to_ascii_lowercase()),
            Some((kind @ ("header" | "trailer"), field)) => {
                let (name, value) = field.split_once(':').unwrap_or_else(|| panic!("{place}: invalid key {key:?}"));
                let value = String::from_utf8(unescape(value, place))
                    .unwrap_or_else(|_| panic!("{place}: invalid key {key:?}"));
                let fields = if kind == "header" { &mut expected.fields } else { &mut expected.trailers };
                fields.push((name.to_ascii_lowercase(), value));
            }
            _ => panic!("{place}: unknown key {key:?}"),
        }
    }
    expected
}

pub(crate) fn unescape(text: &str, place: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&kind, after) = rest.split_first().unwrap_or_else(|| panic!("{place}: a backslash at the end"));
        rest = after;
        match kind {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'0' => bytes.push(0),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(byte.unwrap_or_else(|| panic!("{place}: \\x without two hex digits")));
                rest = &rest[2..];
            }
            b'{' => {
                let end = rest
                    .iter()
                    .position(|&byte| byte == b'}')
                    .unwrap_or_else(|| panic!("{place}: a brace is not closed"));
                let inside = std::str::from_utf8(&rest[..end])
                    .unwrap_or_else(|_| panic!("{place}: the text in braces is not UTF-8"));
                let (count, repeated) =
                    inside.split_once(':').unwrap_or_else(|| panic!("{place}: invalid repetition {inside:?}"));
                let count: usize = count.parse().unwrap_or_else(|_| panic!("{place}: invalid repetition {inside:?}"));
                assert_eq!(repeated.len(), 1, "{place}: {inside:?}");
                bytes.extend(std::iter::repeat_n(repeated.as_bytes()[0], count));
                rest = &rest[end + 1..];
            }
            _ => panic!("{place}: unknown escape \\{}", kind as char),
        }
    }
    bytes
}
