//! The access log, which writes a line per response in the common, combined or JSON format.

use super::Middleware;
use crate::message::request::FromRequest;
use crate::{Basic, Request, Response};
use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::body::{BodyStream, BoxError, Part, Source};
use highwire_engine::context;
use highwire_engine::response::Content;
use std::fmt::Write as _;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::SystemTime;

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Common,
    Combined,
    Json,
}

/// Writes a line for each response that passes through this middleware. If the response's body is a stream, the line is
/// written when the stream is dropped, whether or not it was sent completely; otherwise when the response is ready. The
/// constructors choose the fields:
///
/// | | |
/// |---|---|
/// | [`common`](Self::common) | address, user, time, request line, status, number of body bytes |
/// | [`combined`](Self::combined) | the fields of `common`, `Referer` and `User-Agent` |
/// | [`json`](Self::json) | the fields of `combined`, the authority and the duration, as a JSON object |
///
/// Quotes, backslashes and all characters except printable ASCII are escaped in the client's input: as `\xHH`, or in
/// JSON as `\"`, `\\` and `\uHHHH`. The address is the [client's](super::ClientAddress). The user is the user name of
/// Basic authentication, even if the password is wrong. Each line is one call of `write_all`, so that several logs can
/// share a file that is opened for appending.
///
/// ```
/// use highwire::App;
/// use highwire::middleware::AccessLog;
///
/// let app = App::new().get("/", || "hello").with(AccessLog::combined(std::io::stdout()));
/// # let _ = app;
/// ```
#[derive(Clone)]
#[must_use]
pub struct AccessLog {
    format: Format,
    writer: Arc<Mutex<dyn Write + Send>>,
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessLog").field("format", &self.format).finish_non_exhaustive()
    }
}

impl AccessLog {
    /// Creates a log in the common log format.
    pub fn common(writer: impl Write + Send + 'static) -> AccessLog {
        AccessLog::new(Format::Common, writer)
    }

    /// Creates a log in the combined log format.
    pub fn combined(writer: impl Write + Send + 'static) -> AccessLog {
        AccessLog::new(Format::Combined, writer)
    }

    /// Creates a log with one JSON object per line.
    pub fn json(writer: impl Write + Send + 'static) -> AccessLog {
        AccessLog::new(Format::Json, writer)
    }

    fn new(format: Format, writer: impl Write + Send + 'static) -> AccessLog {
        AccessLog { format, writer: Arc::new(Mutex::new(writer)) }
    }
}

/// The parts of a line that are known before the response.
#[derive(Debug)]
pub struct Line {
    begun: highwire_io::Instant,
    time: SystemTime,
    address: String,
    user: String,
    method: String,
    target: String,
    protocol: &'static str,
    authority: String,
    referer: String,
    agent: String,
}

impl Middleware for AccessLog {
    type State = Line;

    fn before(&self, request: &mut Request<'_>) -> Result<Line, Response> {
        let text = |bytes: Option<&[u8]>| bytes.map(latin1).unwrap_or_default();
        Ok(Line {
            begun: context::now(),
            time: context::time_of_day(),
            address: super::client_address(request).map_or_else(|| "-".to_string(), |address| address.to_string()),
            user: user(request).unwrap_or_else(|| "-".to_string()),
            method: request.method().to_string(),
            target: request.target().to_string(),
            protocol: match request.version() {
                http::Version::HTTP_10 => "HTTP/1.0",
                http::Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
            authority: request.authority().to_string(),
            referer: text(request.header("referer")),
            agent: text(request.header("user-agent")),
        })
    }

    fn after(&self, line: Line, response: &mut Response) {
        let status = response.status().as_u16();
        let mut entry = Entry { log: self.clone(), line, status, bytes: 0 };
        match response.content_mut() {
            Content::Bytes(bytes) if entry.line.method != "HEAD" => entry.bytes = bytes.len() as u64,
            Content::Stream(streamed) => {
                let body = std::mem::replace(&mut streamed.body, BodyStream::of(Bytes::new()));
                streamed.body = BodyStream::from_source(Counted { body, entry });
            }
            Content::Bytes(_) | Content::Switch(_) => {}
        }
    }
}

/// A line that is written when this value is dropped.
struct Entry {
    log: AccessLog,
    line: Line,
    status: u16,
    bytes: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut text = match self.log.format {
            Format::Common => self.common(),
            Format::Combined => {
                let Line { referer, agent, .. } = &self.line;
                format!("{} \"{}\" \"{}\"", self.common(), Quoted(or_dash(referer)), Quoted(or_dash(agent)))
            }
            Format::Json => self.json(),
        };
        text.push('\n');
        let mut writer = self.log.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writer.write_all(text.as_bytes()).and_then(|()| writer.flush()) {
            tracing::error!(%error, "a line of the access log could not be written");
        }
    }
}

impl Entry {
    fn common(&self) -> String {
        let Entry { line, status, bytes, .. } = self;
        let Line { address, user, method, target, protocol, .. } = line;
        let time = Moment::of(line.time);
        let bytes = if *bytes == 0 { "-".to_string() } else { bytes.to_string() };
        format!(
            "{address} - {} [{}] \"{} {} {protocol}\" {status} {bytes}",
            // Without quotes, a space would shift the fields behind it.
            Quoted(user).to_string().replace(' ', "\\x20"),
            time.clf(),
            Quoted(method),
            Quoted(target)
        )
    }

    fn json(&self) -> String {
        let Entry { line, status, bytes, .. } = self;
        let took = context::now_if_any().map_or(0, |now| now.since(line.begun).as_micros());
        let mut text = String::with_capacity(256);
        let mut field = |name: &str, value: &str| {
            let _ = write!(text, "{}\"{name}\":\"{}\"", if text.is_empty() { '{' } else { ',' }, Json(value));
        };
        field("time", &Moment::of(line.time).rfc3339());
        field("address", &line.address);
        field("user", &line.user);
        field("method", &line.method);
        field("authority", &line.authority);
        field("target", &line.target);
        field("protocol", line.protocol);
        field("referer", &line.referer);
        field("agent", &line.agent);
        let _ = write!(text, ",\"status\":{status},\"bytes\":{bytes},\"microseconds\":{took}}}");
        text
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// A response body that counts the bytes that are taken from it, for the log line.
struct Counted {
    body: BodyStream,
    entry: Entry,
}

impl Stream for Counted {
    type Item = Result<Bytes, BoxError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let part = self.body.poll(cx);
        if let Poll::Ready(Some(Ok(bytes))) = &part {
            self.entry.bytes += bytes.len() as u64;
        }
        part
    }
}

impl Source for Counted {
    fn held(&self) -> usize {
        self.body.held()
    }

    fn poll_part(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Part, BoxError>>> {
        let part = self.body.poll_part(cx);
        if let Poll::Ready(Some(Ok(part))) = &part {
            self.entry.bytes += part.length();
        }
        part
    }
}

/// Decodes bytes as Latin-1, so that no byte is lost.
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// Returns the user name of Basic authentication (RFC 7617), if the request has one.
fn user(request: &mut Request<'_>) -> Option<String> {
    let is_basic = |value: &[u8]| value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "));
    request.header("authorization").filter(|value| is_basic(value))?;
    Basic::from_request(request).ok().map(|basic| basic.user).filter(|user| !user.is_empty())
}

/// Displays a text escaped for the quotes of a log line.
struct Quoted<'t>(&'t str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\x{:02X}", character as u32)?,
                ' '..='~' => f.write_char(character)?,
                other => write!(f, "\\x{:02X}", other as u32)?,
            }
        }
        Ok(())
    }
}

/// Displays a text escaped for the quotes of JSON (RFC 8259 section 7). The result is ASCII.
struct Json<'t>(&'t str);

impl std::fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                ' '..='~' => f.write_char(character)?,
                other => {
                    for unit in other.encode_utf16(&mut [0; 2]) {
                        write!(f, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A time, in the parts from which the formats' timestamps are made.
struct Moment {
    /// The time as an HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`.
    text: String,
    milliseconds: u32,
}

impl Moment {
    fn of(time: SystemTime) -> Moment {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Moment { text: httpdate::fmt_http_date(time), milliseconds: since.subsec_millis() }
    }

    /// Returns the time as `06/Nov/1994:08:49:37 +0000`.
    fn clf(&self) -> String {
        let text = &self.text;
        format!("{}/{}/{}:{} +0000", &text[5..7], &text[8..11], &text[12..16], &text[17..25])
    }

    /// Returns the time as `1994-11-06T08:49:37.123Z`.
    fn rfc3339(&self) -> String {
        const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let text = &self.text;
        let month = MONTHS.find(&text[8..11]).map_or(0, |at| at / 3 + 1);
        format!("{}-{month:02}-{}T{}.{:03}Z", &text[12..16], &text[5..7], &text[17..25], self.milliseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments_are_written_in_both_ways() {
        let moment = Moment::of(SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_042));
        assert_eq!(moment.clf(), "06/Nov/1994:08:49:37 +0000");
        assert_eq!(moment.rfc3339(), "1994-11-06T08:49:37.042Z");
    }

    #[test]
    fn what_could_forge_a_line_is_escaped() {
        let text = latin1(b"a\"b\\c\r\n\x1b[31m\xe9");
        assert_eq!(Quoted(&text).to_string(), "a\\x22b\\x5Cc\\x0D\\x0A\\x1B[31m\\xE9");
        assert_eq!(Json(&text).to_string(), "a\\\"b\\\\c\\u000d\\u000a\\u001b[31m\\u00e9");
        assert_eq!(Json("\u{1f600}").to_string(), "\\ud83d\\ude00");
    }
}
