//! Parses `conformance/http2/*.case`. conformance/README.md describes the format.

use crate::corpus::{expected, files, unescape};
use crate::frames::{Field, Part, Request};
use crate::translate::Outcome;
use std::path::Path;
use testkit::frames::frame;

/// An action of the client.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends a request on the next stream.
    Ask(Request),
    /// Sends these bytes.
    Bytes(Vec<u8>),
}

/// A case.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// The name, unique in the corpus.
    pub name: String,
    /// The client's actions, in order.
    pub steps: Vec<Step>,
    /// True if the client then shuts down its sending direction.
    pub eof: bool,
    /// The expected outcomes on streams 1, 3, 5 and so on.
    pub expect: Vec<Outcome>,
    /// The error code with which the server must end the connection, if it must.
    pub fails: Option<u32>,
}

/// The names of the error codes 0 to 13 (RFC 9113 section 7).
const CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// A case that is being parsed, and its current request.
#[derive(Default)]
struct Draft {
    case: Case,
    request: Option<Request>,
}

impl Draft {
    fn begin(&mut self, fields: Vec<Field>) {
        self.done();
        self.request = Some(Request { fields, ..Request::default() });
    }

    /// Adds the current request, which is now complete, to the steps.
    fn done(&mut self) {
        self.case.steps.extend(self.request.take().map(Step::Ask));
    }
}

/// Reads all cases of a folder.
///
/// # Panics
/// Panics if a file cannot be read or contains an invalid line.
pub fn read(folder: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for (file, text) in files(folder) {
        let mut draft: Option<Draft> = None;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}", file.display(), number + 1);
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (word, &mut draft) {
                ("", _) => {}
                (word, _) if word.starts_with('#') => {}
                ("case", None) => {
                    let case = Case { name: rest.to_string(), ..Case::default() };
                    draft = Some(Draft { case, request: None });
                }
                ("end", Some(draft_now)) => {
                    draft_now.done();
                    let ends = if draft_now.case.eof { "close" } else { "open" };
                    draft_now.case.fails = if rest == ends { None } else { Some(code(rest, &place)) };
                    cases.push(draft.take().expect("just matched").case);
                }
                (word, Some(draft)) => line_of_a_case(draft, word, rest, &place),
                _ => panic!("{place}: invalid line {line:?}"),
            }
        }
        assert!(draft.is_none(), "{}: the last case has no end", file.display());
    }
    cases
}

fn line_of_a_case(draft: &mut Draft, word: &str, rest: &str, place: &str) {
    match (word, &mut draft.request) {
        ("request", _) => draft.begin(Vec::new()),
        ("get" | "post", _) => {
            let method = if word == "get" { "GET" } else { "POST" };
            let pseudo = [(":method", method), (":scheme", "http"), (":authority", "a")];
            let mut fields = pseudo.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).to_vec();
            fields.push((b":path".to_vec(), unescape(rest, place)));
            draft.begin(fields);
        }
        ("field", Some(request)) => {
            let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
            let field = (unescape(name, place), unescape(value, place));
            match request.parts.last_mut() {
                Some(Part::Trailers(fields)) => fields.push(field),
                Some(Part::Data(_)) => panic!("{place}: a field after data"),
                None => request.fields.push(field),
            }
        }
        ("data", Some(request)) => request.parts.push(Part::Data(unescape(rest, place))),
        ("trailers", Some(request)) => request.parts.push(Part::Trailers(Vec::new())),
        ("open", Some(request)) => request.open = true,
        ("frame", _) => {
            draft.done();
            let mut words = rest.splitn(4, ' ');
            let mut number =
                || words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{place}: {rest:?}"));
            let (kind, flags, stream): (u32, u32, u32) = (number(), number(), number());
            let payload = unescape(words.next().unwrap_or_default(), place);
            draft.case.steps.push(Step::Bytes(frame(kind as u8, flags as u8, stream, &payload)));
        }
        ("eof", _) => draft.case.eof = true,
        ("expect", _) => {
            draft.done();
            let outcome = match rest.split_once(' ') {
                _ if rest == "nothing" => Outcome::Nothing,
                Some(("reset", name)) => Outcome::Reset(code(name, place)),
                _ => Outcome::Answer(expected(rest, place)),
            };
            draft.case.expect.push(outcome);
        }
        _ => panic!("{place}: invalid line {word:?} {rest:?}"),
    }
}

fn code(name: &str, place: &str) -> u32 {
    CODES.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{place}: unknown error code {name:?}"))
        as u32
}
