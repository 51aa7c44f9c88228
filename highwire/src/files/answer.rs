//! The response with a file, which depends on the request's conditions, range and accepted codings.

use super::body::{self, Piece};
use super::coding::Wanted;
use super::entry::Variant;
use super::load::Content;
use super::range::Ranges;
use super::validators::{Conditions, Verdict};
use crate::app::shared::Shared;
use crate::message::request::Request;
use crate::{Response, StatusCode};
use bytes::Bytes;
use highwire_engine::context;
use highwire_engine::file_part::FilePart;
use http::{HeaderName, HeaderValue, header};
use std::borrow::Cow;
use std::ops::Range;

/// The fields of a request that its response depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms<'r> {
    conditions: Conditions<'r>,
    range: Option<Cow<'r, [u8]>>,
    pub(super) wanted: Wanted,
}

impl<'r> Terms<'r> {
    /// Reads the fields of a request in one pass.
    pub(super) fn of(request: &Request<'r>) -> Terms<'r> {
        let mut terms = Terms::default();
        let mut codings = None;
        for field in &request.head.fields {
            let name = field.name.of(request.window);
            let conditions = &mut terms.conditions;
            let (wanted, place): (&[u8], _) = match name.len() {
                5 => (b"range", &mut terms.range),
                8 if matches!(name[3], b'm' | b'M') => (b"if-match", &mut conditions.if_match),
                8 => (b"if-range", &mut conditions.if_range),
                13 => (b"if-none-match", &mut conditions.if_none_match),
                15 => (b"accept-encoding", &mut codings),
                17 => (b"if-modified-since", &mut conditions.if_modified_since),
                19 => (b"if-unmodified-since", &mut conditions.if_unmodified_since),
                _ => continue,
            };
            if name.eq_ignore_ascii_case(wanted) {
                add(place, field.value.of(request.window));
            }
        }
        // RFC 9110 section 14.2: a range is ignored for methods other than GET.
        if request.method() != "GET" {
            terms.range = None;
        }
        if let Some(codings) = codings {
            terms.wanted = Wanted::parse(&codings);
        }
        terms
    }

    pub(super) fn into_owned(self) -> Terms<'static> {
        let range = self.range.map(|range| Cow::Owned(range.into_owned()));
        Terms { conditions: self.conditions.into_owned(), range, wanted: self.wanted }
    }
}

/// Joins a field line to earlier lines of the same name, because together they form one list (RFC 9110 section 5.3).
fn add<'r>(place: &mut Option<Cow<'r, [u8]>>, value: &'r [u8]) {
    match place {
        None => *place = Some(Cow::Borrowed(value)),
        Some(known) => known.to_mut().extend([b", ", value].concat()),
    }
}

/// Returns the response for a file, which is the whole file, parts of it, or a 304, 412 or 416.
pub(super) fn answer(variant: &Variant, terms: &Terms<'_>, shared: &Shared) -> Response {
    match terms.conditions.judge(&variant.validators) {
        Verdict::Send => {}
        Verdict::NotModified => {
            let mut response = Response::new(StatusCode::NOT_MODIFIED);
            response.share_headers(variant.fields_unmodified.clone());
            return response;
        }
        Verdict::Failed => return shared.app.error(StatusCode::PRECONDITION_FAILED, "the file is not what it was"),
    }
    let ranges = match &terms.range {
        Some(range) if terms.conditions.ranges_count(&variant.validators) => Ranges::parse(range, variant.length()),
        _ => Ranges::Whole,
    };
    match ranges {
        Ranges::Whole => {
            let mut response = body(variant, 0..variant.length());
            response.share_headers(variant.fields.clone());
            response
        }
        Ranges::Unsatisfiable => {
            let response = shared.app.error(StatusCode::RANGE_NOT_SATISFIABLE, "the file has no such part");
            response.with_header(header::CONTENT_RANGE, text(format!("bytes */{}", variant.length())))
        }
        Ranges::Parts(parts) => match &parts[..] {
            [part] => {
                let mut response = body(variant, part.clone());
                response.own_headers().extend_from_slice(variant.fields.headers());
                let place = place(part, variant.length());
                response.with_header(header::CONTENT_RANGE, place).with_status(StatusCode::PARTIAL_CONTENT)
            }
            parts => in_parts(variant, parts),
        },
    }
}

/// Returns a response with a file as the page for a status.
pub(super) fn page(variant: &Variant, status: StatusCode) -> Response {
    let mut response = body(variant, 0..variant.length()).with_status(status);
    let of_content = |name: &HeaderName| [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::VARY].contains(name);
    let fields = variant.fields.headers().iter().filter(|(name, _)| of_content(name));
    response.own_headers().extend(fields.cloned());
    response
}

/// Returns a response with a part of a file and without fields.
fn body(variant: &Variant, part: Range<u64>) -> Response {
    match &variant.content {
        Content::File(file) => {
            let mut body = FilePart::new(file.clone(), part.clone());
            if part.start == 0 && body.is_large() && variant.begins_warm(&file.file, context::now()) {
                body.assume_warm();
            }
            Response::of_part(body)
        }
        Content::Bytes(bytes) => {
            let all = part.start == 0 && part.end == bytes.len() as u64;
            let bytes = if all { bytes.clone() } else { bytes.slice(part.start as usize..part.end as usize) };
            Response::with_content(highwire_engine::response::Content::Bytes(bytes))
        }
    }
}

fn place(part: &Range<u64>, length: u64) -> HeaderValue {
    text(format!("bytes {}-{}/{length}", part.start, part.end - 1))
}

fn text(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits, letters and punctuation are a valid field value")
}

/// Returns a 206 with several parts, each with its own header fields (RFC 9110 section 14.6).
fn in_parts(variant: &Variant, parts: &[Range<u64>]) -> Response {
    // The boundary is random, so that the author of a file cannot put it into the file.
    let boundary = format!("{:016x}{:016x}", highwire_io::random::system(), highwire_io::random::system());
    let media_type = variant.media_type.to_str().unwrap_or_default();
    let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
    let mut line_end = "";
    for part in parts {
        let (last, length) = (part.end - 1, variant.length());
        let head = format!(
            "{line_end}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: bytes {}-{last}/{length}\r\n\r\n",
            part.start,
        );
        line_end = "\r\n";
        pieces.extend([Piece::Bytes(head.into()), Piece::File(part.clone())]);
    }
    pieces.push(Piece::Bytes(format!("\r\n--{boundary}--\r\n").into()));
    let mut response = match &variant.content {
        Content::File(file) => body::response(file, pieces),
        Content::Bytes(bytes) => {
            let pieces = pieces.into_iter().map(|piece| match piece {
                Piece::Bytes(head) => head,
                Piece::File(part) => bytes.slice(part.start as usize..part.end as usize),
            });
            let whole: Vec<Bytes> = pieces.collect();
            Response::with_content(highwire_engine::response::Content::Bytes(whole.concat().into()))
        }
    };
    response.own_headers().extend_from_slice(variant.fields.headers());
    response.add_header(header::CONTENT_TYPE, text(format!("multipart/byteranges; boundary={boundary}")));
    response.with_status(StatusCode::PARTIAL_CONTENT)
}
