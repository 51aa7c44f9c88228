//! The middleware that compresses responses.

use super::encode::{Encoded, Lease, Until};
use super::negotiate::Accepted;
use super::{Coding, elements};
use crate::middleware::Middleware;
use crate::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use bytes::Bytes;
use highwire_engine::body::BodyStream;
use highwire_engine::response::{Content, Streamed};
use std::fmt;
use std::sync::Arc;

/// The length in bytes up to which a complete body is compressed at once, so that the response has a `Content-Length`.
/// Longer bodies and streams are compressed in pieces while they are sent.
const ONE_SHOT_BYTES: usize = 32 * 1024;

/// The default length in bytes from which bodies are compressed. Shorter bodies usually fit into one packet even
/// uncompressed.
const THRESHOLD_BYTES: u64 = 1024;

/// The default limit of the bytes that the encoders of a worker hold in total. A response that would exceed it is sent
/// uncompressed, because many slow clients with long responses would otherwise use too much memory.
const ENCODER_MEMORY: usize = 32 * 1024 * 1024;

/// A [middleware](crate::middleware) that compresses responses for clients that accept it.
///
/// It uses the coding with the highest weight in the client's `Accept-Encoding`; among equal weights, the first in
/// [`codings`](Self::codings). A body is not compressed if its length is known and below the
/// [threshold](Self::threshold), or if the response
///
/// - has no media type, or one that is not worth compressing ([`types`](Self::types)),
/// - has a `Content-Encoding` already; with `identity`, a handler turns compression off,
/// - has `Cache-Control: no-transform`,
/// - is partial (206 or `Content-Range`; a 206 still gets `Vary` as the whole response would), has no body (such as
///   204), or has a digest of its body,
/// - switches to another protocol,
/// - would make the worker's encoders exceed their [memory](Self::memory), or is short and does not become shorter.
///
/// In a compressed response, a strong `ETag` becomes weak (RFC 9110 section 8.8.3.3), because the bytes differ from
/// those of the handler, and `Accept-Ranges` is removed. `Vary: Accept-Encoding` is added to each response that could
/// be compressed for some client. A response to HEAD has the fields of the response to GET.
///
/// A streamed body is flushed whenever its source has no data ready, so that events and slow streams reach the client
/// without delay.
///
/// ```
/// use highwire::App;
/// use highwire::compress::{Coding, Compression, compressible};
/// use highwire::testing::Client;
///
/// let compression = Compression::new()
///     .codings([Coding::Brotli, Coding::Gzip])
///     .level(Coding::Brotli, 5)
///     .types(|media_type| compressible(media_type) && media_type != "text/csv");
/// let app = App::new().get("/", || "again and ".repeat(1000)).with(compression);
/// let answer = Client::new(app)?.get("/").header("accept-encoding", "gzip, br").send();
/// assert_eq!(answer.header("content-encoding"), "br");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone)]
pub struct Compression {
    codings: Vec<Coding>,
    levels: [u32; Coding::ALL.len()],
    threshold: u64,
    memory: usize,
    types: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl fmt::Debug for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compression")
            .field("codings", &self.codings)
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}

impl Default for Compression {
    fn default() -> Compression {
        Compression::new()
    }
}

impl Compression {
    /// Creates the middleware with all codings: zstd at level 3, Brotli at 4, gzip and deflate at 6.
    pub fn new() -> Compression {
        let mut levels = [6; Coding::ALL.len()];
        levels[Coding::Zstd as usize] = 3;
        levels[Coding::Brotli as usize] = 4;
        Compression {
            codings: Coding::ALL.to_vec(),
            levels,
            threshold: THRESHOLD_BYTES,
            memory: ENCODER_MEMORY,
            types: Arc::new(compressible),
        }
    }

    /// Offers only these codings. If a client gives several the same weight, the first in this list wins.
    #[must_use]
    pub fn codings(mut self, codings: impl Into<Vec<Coding>>) -> Compression {
        self.codings = codings.into();
        self
    }

    /// Sets the level of a coding: 1 to 9 for gzip, deflate and zstd, 0 to 6 for Brotli. A level outside of this range
    /// is clamped, because higher levels take too much of a worker's time and memory; they are meant for files that are
    /// compressed once.
    #[must_use]
    pub fn level(mut self, coding: Coding, level: u32) -> Compression {
        let levels = match coding {
            Coding::Brotli => 0..=6,
            Coding::Gzip | Coding::Deflate | Coding::Zstd => 1..=9,
        };
        self.levels[coding as usize] = level.clamp(*levels.start(), *levels.end());
        self
    }

    /// Sets the length in bytes from which bodies are compressed; the default is 1,024. This threshold does not apply
    /// to bodies of unknown length.
    #[must_use]
    pub fn threshold(mut self, bytes: u64) -> Compression {
        self.threshold = bytes;
        self
    }

    /// Sets the most bytes that the encoders of each worker may hold; the default is 32 MiB. Further responses are sent
    /// uncompressed. `docs/compression.md` lists how many bytes each encoder counts as.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Compression {
        self.memory = bytes;
        self
    }

    /// Sets the function that returns true for media types to compress; the default is [`compressible`]. The function
    /// gets the media type in lower case, without parameters.
    ///
    /// ```
    /// use highwire::compress::{Compression, compressible};
    /// let compression = Compression::new().types(|name| compressible(name) || name == "model/obj");
    /// # let _ = compression;
    /// ```
    #[must_use]
    pub fn types(mut self, types: impl Fn(&str) -> bool + Send + Sync + 'static) -> Compression {
        self.types = Arc::new(types);
        self
    }

    /// Returns true if some client may get this response compressed. For a 206 or 304, this is about the complete
    /// response that it stands for.
    fn may_encode(&self, response: &Response) -> bool {
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
        let is_said = |name: &HeaderName| values(response, name).next().is_some();
        let is_bodiless = response.status() == StatusCode::NO_CONTENT || response.status().is_informational();
        if is_bodiless || NEVER.iter().any(is_said) || (is_said(&header::CONTENT_RANGE) && !is_part) {
            return false;
        }
        let mut directives = values(response, &header::CACHE_CONTROL).flat_map(elements);
        if directives.any(|directive| directive.eq_ignore_ascii_case(b"no-transform")) {
            return false;
        }
        let length = match response.content() {
            _ if is_part => whole_length(response).unwrap_or(u64::MAX),
            Content::Bytes(_) if response.status() == StatusCode::NOT_MODIFIED => self.threshold,
            Content::Bytes(bytes) if bytes.is_empty() => return false,
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Stream(streamed) => streamed.length.unwrap_or(u64::MAX),
            Content::Switch(_) => return false,
        };
        length >= self.threshold && self.is_wanted_type(response)
    }

    fn is_wanted_type(&self, response: &Response) -> bool {
        match response
            .header(&header::CONTENT_TYPE)
            .filter(|value| value.is_ascii())
            .and_then(|value| str::from_utf8(value).ok())
        {
            Some(value) => {
                let name = value.split(';').next().unwrap_or_default().trim();
                // With `multipart/byteranges`, the media type of the whole response is unknown here.
                let is_several = response.status() == StatusCode::PARTIAL_CONTENT
                    && name.eq_ignore_ascii_case("multipart/byteranges");
                is_several || (self.types)(&name.to_ascii_lowercase())
            }
            // A 304 need not have a `Content-Type`.
            None => response.status() == StatusCode::NOT_MODIFIED,
        }
    }

    /// Replaces the body by its encoded form. Returns false if the body stays as it is.
    fn encode(&self, coding: Coding, content: &mut Content) -> bool {
        let length = match content {
            Content::Bytes(bytes) => Some(bytes.len()),
            Content::Stream(streamed) => streamed.length.and_then(|length| usize::try_from(length).ok()),
            Content::Switch(_) => return false,
        };
        let level = self.levels[coding as usize];
        let Some(mut lease) = Lease::take(coding, level, length, self.memory) else { return false };
        let (body, announced, trailers) = match std::mem::replace(content, Content::Bytes(Bytes::new())) {
            Content::Bytes(bytes) if bytes.len() <= ONE_SHOT_BYTES => {
                let mut encoded = Vec::with_capacity(bytes.len() / 2);
                let is_smaller =
                    lease.encode(&bytes, Until::Ended, &mut encoded).is_ok() && encoded.len() < bytes.len();
                *content = Content::Bytes(if is_smaller { encoded.into() } else { bytes });
                return is_smaller;
            }
            Content::Bytes(bytes) => (BodyStream::of(bytes), None, None),
            Content::Stream(streamed) => (streamed.body, streamed.length, streamed.trailers),
            switch @ Content::Switch(_) => {
                *content = switch;
                return false;
            }
        };
        let body = BodyStream::from_source(Encoded::new(body, announced, lease));
        *content = Content::Stream(Box::new(Streamed { length: None, body, trailers }));
        true
    }
}

/// Fields that keep a response from being compressed, because it is encoded already or has a digest of its bytes (RFC
/// 9530 and earlier RFCs).
const NEVER: [HeaderName; 5] = [
    header::CONTENT_ENCODING,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

fn values<'r>(response: &'r Response, name: &HeaderName) -> impl Iterator<Item = &'r [u8]> {
    response.headers().filter(move |(known, _)| *known == name).map(|(_, value)| value)
}

/// Returns the length of the complete representation from a response's `Content-Range`, if the field has it.
fn whole_length(response: &Response) -> Option<u64> {
    values(response, &header::CONTENT_RANGE)
        .next()
        .and_then(|value| str::from_utf8(value).ok())?
        .rsplit_once('/')?
        .1
        .parse()
        .ok()
}

/// The properties of a request that decide how its response is compressed.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Wish {
    coding: Option<Coding>,
    /// The values of `If-None-Match` fields that contain a weak tag, each followed by a comma.
    known: Vec<u8>,
}

impl Middleware for Compression {
    type State = Wish;

    fn before(&self, request: &mut Request<'_>) -> Result<Wish, Response> {
        let named = |wanted| request.headers().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
        let coding = Accepted::of(named("accept-encoding").map(|(_, value)| value)).best(&self.codings);
        let known = named("if-none-match").filter(|(_, value)| value.windows(3).any(|begin| begin == b"W/\""));
        Ok(Wish { coding, known: known.flat_map(|(_, value)| [value, b","].concat()).collect() })
    }

    fn after(&self, Wish { coding, known }: Wish, response: &mut Response) {
        if !self.may_encode(response) {
            return;
        }
        if !says_what_varies(response) {
            response.add_header(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        let Some(coding) = coding else { return };
        // A 304 has the fields of the 200 response that it replaces (RFC 9110 section 15.4.5). Without the body, it is
        // unknown here whether that response would be compressed. But a client that stored the compressed response has
        // sent the weak tag.
        if response.status() == StatusCode::NOT_MODIFIED {
            weaken(response, |weak| known.windows(weak.len()).any(|tag| tag == weak));
        } else if response.status() != StatusCode::PARTIAL_CONTENT && self.encode(coding, response.content_mut()) {
            weaken(response, |_| true);
            response.remove_header(&header::ACCEPT_RANGES);
            response.add_header(header::CONTENT_ENCODING, coding.value());
        }
    }
}

fn says_what_varies(response: &Response) -> bool {
    let mut names = values(response, &header::VARY).flat_map(elements);
    names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"))
}

/// Makes a strong entity tag weak if `is_right` returns true for the weak tag.
fn weaken(response: &mut Response, is_right: impl Fn(&[u8]) -> bool) {
    for (_, value) in response.own_headers().iter_mut().filter(|(name, _)| name == header::ETAG) {
        let weak = [b"W/", value.as_bytes()].concat();
        if value.as_bytes().starts_with(b"\"")
            && is_right(&weak)
            && let Ok(weak) = HeaderValue::from_bytes(&weak)
        {
            *value = weak;
        }
    }
}

/// Returns true if bodies of a media type are usually worth compressing, such as texts, formats with the syntax of
/// JSON, XML or YAML, scripts, WebAssembly, and images and fonts in uncompressed formats. The media type must be in
/// lower case and without parameters.
pub fn compressible(media_type: &str) -> bool {
    const TYPES: [&str; 22] = [
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/json",
        "application/jsonl",
        "application/rtf",
        "application/sql",
        "application/toml",
        "application/vnd.ms-fontobject",
        "application/wasm",
        "application/x-javascript",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/yaml",
        "font/collection",
        "font/otf",
        "font/ttf",
        "image/bmp",
        "image/vnd.microsoft.icon",
        "image/x-icon",
    ];
    let suffixes = ["+json", "+xml", "+yaml", "+json-seq"];
    media_type.starts_with("text/")
        || TYPES.contains(&media_type)
        || suffixes.iter().any(|suffix| media_type.ends_with(suffix))
}
