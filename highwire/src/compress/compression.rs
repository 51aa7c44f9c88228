//! The middleware that compresses answers.

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

/// Bodies up to this length are compressed at once, so that their length is known; longer ones piece by piece while they
/// are sent.
const ONE_SHOT_BYTES: usize = 32 * 1024;

/// Shorter bodies are sent as they are: they leave in one packet either way.
const THRESHOLD_BYTES: u64 = 1024;

/// Bytes that the encoders of a worker may hold. Beyond, answers are sent as they are: slow readers of long answers must
/// not add up.
const ENCODER_MEMORY: usize = 32 * 1024 * 1024;

/// Compresses answers for clients that accept it: a [middleware](crate::middleware).
///
/// The coding is the one that the client's `Accept-Encoding` likes best, and among equals the first of
/// [`codings`](Self::codings). A body whose length is known and below the [threshold](Self::threshold) is left as it is,
/// and so is an answer
///
/// - whose [type](Self::types) is not worth it,
/// - that has a `Content-Encoding` already, `identity` included: a handler's way to say no,
/// - whose `Cache-Control` says `no-transform`,
/// - that is a part of something (206, where `Vary` is said as for the whole; `Content-Range`), has no body (204, 304) or a
///   digest of it,
/// - that changes to another protocol.
///
/// A strong `ETag` becomes weak (RFC 9110 section 8.8.3.3), as what is sent is no longer byte for byte what the handler
/// meant, and `Accept-Ranges` is dropped. `Vary: Accept-Encoding` is added to compressed answers and to those that would
/// be for another client. HEAD is answered with the fields of GET.
///
/// A streamed body is flushed whenever its source has nothing more for the moment, so that events and slow streams arrive
/// as they are made.
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
    /// With all codings: zstd of level 3, Brotli of 4, gzip and deflate of 6.
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

    /// Offers these only, the first one before the others where a client likes them equally.
    #[must_use]
    pub fn codings(mut self, codings: impl Into<Vec<Coding>>) -> Compression {
        self.codings = codings.into();
        self
    }

    /// How hard a coding tries: 1 to 9 for gzip, deflate and zstd, 0 to 6 for Brotli. What is outside becomes the nearest
    /// one: the levels beyond are for files that are compressed once, and would hold a worker and its memory.
    #[must_use]
    pub fn level(mut self, coding: Coding, level: u32) -> Compression {
        let levels = match coding {
            Coding::Brotli => 0..=6,
            Coding::Gzip | Coding::Deflate | Coding::Zstd => 1..=9,
        };
        self.levels[coding as usize] = level.clamp(*levels.start(), *levels.end());
        self
    }

    /// The length from which on bodies are compressed; 1,024 bytes by default. Bodies of unknown length always are.
    #[must_use]
    pub fn threshold(mut self, bytes: u64) -> Compression {
        self.threshold = bytes;
        self
    }

    /// The most bytes that the encoders of a worker may hold; 128 MiB by default. Where they do, further answers are sent as
    /// they are. `docs/compression.md` says what each encoder is counted for.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Compression {
        self.memory = bytes;
        self
    }

    /// Which media types are compressed, by their names in lower case and without parameters; [`compressible`] by
    /// default.
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

    /// Whether some client may get this answer compressed, or, instead of a part, the whole of it.
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
                // Several parts do not say what they are parts of.
                let is_several = response.status() == StatusCode::PARTIAL_CONTENT
                    && name.eq_ignore_ascii_case("multipart/byteranges");
                is_several || (self.types)(&name.to_ascii_lowercase())
            }
            // A 304 need not say what it is about.
            None => response.status() == StatusCode::NOT_MODIFIED,
        }
    }

    /// Puts the encoded body in place of the plain one: whether it did.
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

/// Fields of answers that are never changed: those that are encoded, and those whose bytes somebody has summed up (RFC 9530).
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

/// The length of what an answer is a part of, where it says so.
fn whole_length(response: &Response) -> Option<u64> {
    values(response, &header::CONTENT_RANGE)
        .next()
        .and_then(|value| str::from_utf8(value).ok())?
        .rsplit_once('/')?
        .1
        .parse()
        .ok()
}

/// What a request says that matters for its answer.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Wish {
    coding: Option<Coding>,
    /// The values of `If-None-Match`, where weak tags are among them.
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
        // The fields of a 304 are those of the answer with a body (RFC 9110 section 15.4.5), of which nothing is at hand to tell
        // whether it would be compressed. But whoever got it so has its weak tag.
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

/// Makes a strong entity tag weak, where that is right for the weak one.
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

/// Whether bodies of a media type, in lower case and without parameters, get shorter by being compressed: texts, what has
/// the syntax of JSON, XML or YAML, scripts, WebAssembly, and pictures and fonts that are not compressed in themselves.
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
