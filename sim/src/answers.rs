//! A simple parser of HTTP/1 responses that shares no code with the engine, and the comparison with a case's
//! expectations.

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Field names in lower case, and values, in order.
    pub fields: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
    /// The trailer fields.
    pub trailers: Vec<(String, String)>,
    /// True if the body was chunked.
    pub chunked: bool,
    /// True if the body had no announced length and ended with the connection.
    pub until_close: bool,
}

impl Answer {
    /// Returns the value of the first field with this name, which must be in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads a response from the front of `bytes`. Returns the response and its length in bytes, or `None` if it is
/// incomplete. `head` is true if the response answers HEAD, and `ended` is true if the connection has ended after
/// `bytes`.
///
/// # Errors
/// Returns an error if a server must not send these bytes.
pub fn read(bytes: &[u8], head: bool, ended: bool) -> Result<Option<(Answer, usize)>, String> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return if ended && !bytes.is_empty() { Err("the head is cut short".to_string()) } else { Ok(None) };
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| "the head is not UTF-8".to_string())?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let mut parts = status_line.splitn(3, ' ');
    if parts.next() != Some("HTTP/1.1") {
        return Err(format!("invalid status line {status_line:?}"));
    }
    let status = parts
        .next()
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| format!("invalid status line {status_line:?}"))?;
    let reason = parts.next().ok_or_else(|| format!("invalid status line {status_line:?}"))?.to_string();
    let fields = lines.map(field).collect::<Result<Vec<_>, _>>()?;
    let mut answer = Answer { status, reason, fields, ..Answer::default() };
    let count = |name: &str| answer.fields.iter().filter(|(known, _)| known == name).count();
    for name in ["content-length", "transfer-encoding", "date", "server", "connection"] {
        if count(name) > 1 {
            return Err(format!("{name} is repeated"));
        }
    }
    answer.chunked = answer.field("transfer-encoding") == Some("chunked");
    let length = match answer.field("content-length") {
        Some(length) => Some(length.parse::<usize>().map_err(|_| format!("invalid content-length {length:?}"))?),
        None => None,
    };
    if answer.chunked && length.is_some() {
        return Err("the answer has content-length and is chunked".to_string());
    }
    let start = end + 4;
    if head || status < 200 || status == 204 || status == 304 {
        if status < 200 || status == 204 {
            let framed = answer.chunked || length.is_some();
            if framed {
                return Err(format!("an answer with status {status} has content-length or is chunked"));
            }
        }
        return Ok(Some((answer, start)));
    }
    if answer.chunked {
        return chunks(answer, bytes, start, ended);
    }
    let rest = &bytes[start..];
    match length {
        Some(length) if rest.len() >= length => {
            answer.body = rest[..length].to_vec();
            Ok(Some((answer, start + length)))
        }
        Some(_) if ended => Err("the body is cut short".to_string()),
        Some(_) => Ok(None),
        None if ended => {
            answer.body = rest.to_vec();
            answer.until_close = true;
            Ok(Some((answer, bytes.len())))
        }
        None => Ok(None),
    }
}

fn chunks(mut answer: Answer, bytes: &[u8], start: usize, ended: bool) -> Result<Option<(Answer, usize)>, String> {
    let mut at = start;
    let more = |ended: bool| if ended { Err("the chunks are cut short".to_string()) } else { Ok(None) };
    loop {
        let Some(line) = find(&bytes[at..], b"\r\n") else { return more(ended) };
        let digits = std::str::from_utf8(&bytes[at..at + line]).unwrap_or("?");
        let size = usize::from_str_radix(digits, 16).map_err(|_| format!("invalid chunk size {digits:?}"))?;
        at += line + 2;
        if size == 0 {
            break;
        }
        let Some(data) = bytes.get(at..at + size + 2) else { return more(ended) };
        if &data[size..] != b"\r\n" {
            return Err("a chunk has no line end".to_string());
        }
        answer.body.extend_from_slice(&data[..size]);
        at += size + 2;
    }
    loop {
        let Some(line) = find(&bytes[at..], b"\r\n") else { return more(ended) };
        let text = String::from_utf8_lossy(&bytes[at..at + line]).into_owned();
        at += line + 2;
        if text.is_empty() {
            return Ok(Some((answer, at)));
        }
        answer.trailers.push(field(&text)?);
    }
}

fn field(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(": ").ok_or_else(|| format!("invalid field line {line:?}"))?;
    if name.is_empty() || name.contains([' ', '\t']) {
        return Err(format!("invalid field line {line:?}"));
    }
    Ok((name.to_ascii_lowercase(), value.to_string()))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Checks that the bytes received on a connection that has ended consist of the answers and raw bytes that a case
/// expects, and of nothing else.
///
/// # Errors
/// Returns a description of the first difference.
pub fn judge(case: &crate::corpus::Case, bytes: &[u8]) -> Result<(), String> {
    let mut at = 0;
    for (number, expected) in case.expect.iter().enumerate() {
        let mut interim = Vec::new();
        let answer = loop {
            let read = read(&bytes[at..], expected.head, true).map_err(|error| format!("answer {number}: {error}"))?;
            let Some((answer, length)) = read else { return Err(format!("answer {number} is missing")) };
            at += length;
            if answer.status >= 200 || answer.status == 101 {
                break answer;
            }
            interim.push(answer.status);
        };
        compare_interim(&interim, expected).map_err(|error| format!("answer {number}: {error}"))?;
        compare(&answer, expected).map_err(|error| format!("answer {number}: {error}\n{answer:?}"))?;
    }
    if bytes[at..] != case.raw {
        return Err(format!("unexpected bytes after the answers: {:?}", String::from_utf8_lossy(&bytes[at..])));
    }
    Ok(())
}

/// Checks the statuses of the interim responses before an answer.
///
/// # Errors
/// Returns a description of the difference.
pub fn compare_interim(interim: &[u16], expected: &crate::corpus::Expected) -> Result<(), String> {
    // The server may send 100 even if the case does not name it.
    let counts = |&status: &u16| status != 100 || expected.interim.contains(&100);
    let interim: Vec<u16> = interim.iter().copied().filter(counts).collect();
    if interim == expected.interim {
        Ok(())
    } else {
        Err(format!("interim statuses {interim:?}, expected {:?}", expected.interim))
    }
}

/// Checks an answer against a case's expectations.
///
/// # Errors
/// Returns a description of the first difference.
pub fn compare(answer: &Answer, expected: &crate::corpus::Expected) -> Result<(), String> {
    if answer.status != expected.status {
        return Err(format!("status {}, expected {}", answer.status, expected.status));
    }
    for always in ["date", "server"] {
        if answer.field(always).is_none() {
            return Err(format!("{always} is missing"));
        }
    }
    if let Some(body) = &expected.body
        && answer.body != *body
    {
        return Err(format!("unexpected body {:?}", String::from_utf8_lossy(&answer.body)));
    }
    if expected.length.is_some_and(|length| answer.body.len() != length) {
        return Err(format!("unexpected body of {} bytes", answer.body.len()));
    }
    for (name, value) in &expected.fields {
        if !answer.fields.iter().any(|(known, its)| known == name && its.eq_ignore_ascii_case(value)) {
            return Err(format!("{name} is not {value:?}"));
        }
    }
    for name in &expected.absent {
        if answer.field(name).is_some() {
            return Err(format!("unexpected field {name}"));
        }
    }
    for trailer in &expected.trailers {
        if !answer.trailers.contains(trailer) {
            return Err(format!("the trailer {trailer:?} is missing"));
        }
    }
    if expected.chunked && !answer.chunked {
        return Err("the body is not chunked".to_string());
    }
    if answer.status == 405 && answer.field("allow").is_none() {
        return Err("allow is missing".to_string());
    }
    Ok(())
}
