//! Translates HTTP/1 cases into HTTP/2 requests, as an intermediary would (RFC 9113 section 8.2.2). It parses the bytes
//! of the cases independently of the engine, slowly and literally, and rejects a case if its translation is in doubt.
//!
//! - Names become lower case, white space around values is removed, and `Host` becomes `:authority`. An HTTP/1.0
//!   request without `Host` gets the authority `sim`, the name of the server (RFC 9112 section 3.3).
//! - Connection-specific fields are dropped, and so are the expectations about them.
//! - Chunks become DATA and trailers. A body that is shorter than its Content-Length stays short if the client ends its
//!   direction. Otherwise the stream stays open.
//! - If 400 is expected, the server may also reset the stream with PROTOCOL_ERROR (RFC 9113 section 8.1.1).
//! - Bytes after the last answered request are dropped, because the server did not parse them.
//!
//! The other parts of a request are passed on unchanged, including invalid bytes in names, values and targets.

use crate::corpus::{Case, Expected};
use crate::frames::{Field, Part, Request};

/// The expected outcome on a stream.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// This answer.
    Answer(Expected),
    /// A reset with this code, and no answer.
    Reset(u32),
    /// A reset with PROTOCOL_ERROR, or this answer.
    Malformed(Expected),
    /// Neither an answer nor a reset.
    Nothing,
}

/// The reason why a case cannot be expressed in HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The bytes between the parts of a message are wrong or missing, and HTTP/2 has no such bytes.
    Lines,
    /// The version in the request line is wrong.
    Version,
    /// The case is about the framing of bodies by Transfer-Encoding.
    TransferEncoding,
    /// The expected answer is 101 or 426.
    Upgrade,
    /// The method is CONNECT, which has another form in HTTP/2.
    Connect,
    /// The case is about interim responses, which HTTP/1.0 does not have.
    Old,
    /// An absolute target without a `Host` field, which only HTTP/1.1 forbids.
    HostBesideTarget,
    /// The case tests a limit, and HTTP/2 counts the limited size differently.
    Measure,
}

/// Returns a case's requests and their expected outcomes.
///
/// # Errors
/// Returns the reason if the case cannot be translated.
pub fn translate(case: &Case) -> Result<(Vec<Request>, Vec<Outcome>), Reason> {
    let (mut requests, mut outcomes) = (Vec::new(), Vec::new());
    let mut rest = &case.send[..];
    for expected in &case.expect {
        if matches!(expected.status, 101 | 426) {
            return Err(Reason::Upgrade);
        }
        let (request, after) = request(rest, expected, case.eof)?;
        requests.push(request);
        outcomes.push(outcome(expected, rest));
        rest = after;
    }
    if requests.is_empty() {
        return Err(Reason::Lines);
    }
    Ok((requests, outcomes))
}

fn outcome(expected: &Expected, bytes: &[u8]) -> Outcome {
    let mut expected = expected.clone();
    expected.fields.retain(|(name, _)| !is_of_a_connection(name.as_bytes()));
    expected.chunked = false;
    if expected.status == 400 {
        return Outcome::Malformed(expected);
    }
    // The route `/headers` returns the request's fields, so the expected body changes with the fields.
    if bytes.windows(9).take(20).any(|window| window == b" /headers")
        && let Some(body) = &expected.body
    {
        let text = String::from_utf8_lossy(body).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let lines = lines.map(|(name, value)| (name.to_ascii_lowercase(), value));
        let lines = lines.filter(|(name, _)| name != "host" && !is_of_a_connection(name.as_bytes()));
        expected.body = Some(lines.map(|(name, value)| format!("{name}:{value}\n")).collect::<String>().into_bytes());
    }
    Outcome::Answer(expected)
}

fn is_of_a_connection(name: &[u8]) -> bool {
    let names: [&[u8]; 7] =
        [b"connection", b"http2-settings", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"];
    names.contains(&name)
}

/// Parses a request at the front of `bytes`. Returns the request and the bytes after it.
fn request<'b>(bytes: &'b [u8], expected: &Expected, eof: bool) -> Result<(Request, &'b [u8]), Reason> {
    let mut bytes = bytes;
    while let Some(after) = bytes.strip_prefix(b"\r\n") {
        if expected.status == 400 {
            return Err(Reason::Lines);
        }
        bytes = after;
    }
    let end = find(bytes, b"\r\n\r\n").ok_or(Reason::Lines)?;
    let (head, body) = (&bytes[..end], &bytes[end + 4..]);
    let mut lines = lines(head);
    let first: Vec<&[u8]> = lines.remove(0).split(|&byte| byte == b' ').collect();
    let &[method, target, version] = &first[..] else { return Err(Reason::Lines) };
    if method.is_empty() || target.is_empty() {
        return Err(Reason::Lines);
    }
    let old = match version {
        b"HTTP/1.0" => true,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', digit] if digit.is_ascii_digit() => false,
        _ => return Err(Reason::Version),
    };
    if method == b"CONNECT" {
        return Err(Reason::Connect);
    }
    let fields = lines.into_iter().map(field).collect::<Result<Vec<Field>, Reason>>()?;
    let values = |wanted: &[u8]| -> Vec<&[u8]> {
        fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| &value[..]).collect()
    };
    if old && (!values(b"expect").is_empty() || target == b"/early") {
        return Err(Reason::Old);
    }
    let mut request =
        Request { fields: pseudo(method, target, &values(b"host"), old, expected)?, ..Request::default() };
    let keeps_host = expected.status == 400 && request.fields.iter().all(|(name, _)| name != b":authority");
    let keeps_host = keeps_host || (expected.status == 400 && !target.starts_with(b"/"));
    for (name, value) in &fields {
        let te = name == b"te" && value == b"trailers";
        if te || !(is_of_a_connection(name) || (name == b"host" && !keeps_host)) {
            request.fields.push((name.clone(), value.clone()));
        }
    }
    let after = match (&values(b"transfer-encoding")[..], &values(b"content-length")[..]) {
        ([], []) => body,
        ([], [length]) if is_number(length) => {
            let length = String::from_utf8_lossy(length).parse().unwrap_or(usize::MAX);
            let (data, after) = body.split_at(body.len().min(length));
            request.open = data.len() < length && !eof;
            if length > 0 && !(data.is_empty() && request.open) {
                request.parts.push(Part::Data(data.to_vec()));
            }
            after
        }
        // The length is invalid, so the end of the body is unknown.
        ([], _) => b"",
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") && !old => {
            chunks(body, expected, &mut request.parts)?
        }
        _ => return Err(Reason::TransferEncoding),
    };
    Ok((request, after))
}

/// Returns the pseudo-fields for a request line and its `Host` fields.
fn pseudo(method: &[u8], target: &[u8], hosts: &[&[u8]], old: bool, expected: &Expected) -> Result<Vec<Field>, Reason> {
    let text = |bytes: &[u8]| bytes.to_vec();
    let (mut scheme, mut authority, mut path) = (text(b"http"), None, text(target));
    if let [host] = hosts {
        authority = Some(text(host));
    } else if hosts.is_empty() && old {
        authority = Some(text(b"sim"));
    }
    let starts_as_path = target.starts_with(b"/") || target.starts_with(b"?");
    if let Some(colon) = find(target, b"://").filter(|_| !starts_as_path) {
        if hosts.is_empty() && expected.status == 400 {
            return Err(Reason::HostBesideTarget);
        }
        scheme = text(&target[..colon]);
        let rest = &target[colon + 3..];
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        authority = Some(text(&rest[..end]));
        path = match &rest[end..] {
            [] if method == b"OPTIONS" => text(b"*"),
            after @ [b'/', ..] => text(after),
            after => [b"/", after].concat(),
        };
    }
    let mut fields = vec![(text(b":method"), text(method)), (text(b":scheme"), scheme), (text(b":path"), path)];
    fields.extend(authority.map(|authority| (text(b":authority"), authority)));
    Ok(fields)
}

fn field(line: &[u8]) -> Result<Field, Reason> {
    let colon = line.iter().position(|&byte| byte == b':').ok_or(Reason::Lines)?;
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(Reason::Lines);
    }
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let value = &line[colon + 1..];
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    Ok((line[..colon].to_ascii_lowercase(), value[start..end].to_vec()))
}

/// Converts chunks to DATA and trailers. Returns the bytes after the chunked body.
fn chunks<'b>(mut bytes: &'b [u8], expected: &Expected, parts: &mut Vec<Part>) -> Result<&'b [u8], Reason> {
    let wrong = Reason::TransferEncoding;
    loop {
        let end = find(bytes, b"\r\n").ok_or(wrong)?;
        let (line, after) = (&bytes[..end], &bytes[end + 2..]);
        // Extensions are dropped, because they are for one hop only. A case about invalid extensions cannot be
        // translated.
        let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
        let plain = (1..=6).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let plain = plain && (digits.len() == line.len() || expected.status != 400);
        let size = usize::from_str_radix(&String::from_utf8_lossy(digits), 16).ok().filter(|_| plain).ok_or(wrong)?;
        if size == 0 {
            bytes = after;
            break;
        }
        if after.get(size..size + 2) != Some(b"\r\n") {
            return Err(wrong);
        }
        parts.push(Part::Data(after[..size].to_vec()));
        bytes = &after[size + 2..];
    }
    if let Some(after) = bytes.strip_prefix(b"\r\n") {
        if parts.is_empty() {
            parts.push(Part::Data(Vec::new()));
        }
        return Ok(after);
    }
    let end = find(bytes, b"\r\n\r\n").ok_or(wrong)?;
    let trailers = lines(&bytes[..end]).into_iter().map(field).collect::<Result<Vec<Field>, Reason>>()?;
    let kept = trailers.into_iter().filter(|(name, _)| !is_of_a_connection(name));
    parts.push(Part::Trailers(kept.collect()));
    Ok(&bytes[end + 4..])
}

fn is_number(text: &[u8]) -> bool {
    (1..=19).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut rest) = (Vec::new(), bytes);
    while let Some(end) = find(rest, b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines.push(rest);
    lines
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
