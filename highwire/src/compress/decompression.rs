//! The middleware that decodes request bodies.

use super::decode::Pipeline;
use super::{Coding, Hold, elements};
use crate::middleware::Middleware;
use crate::{BodyUse, Request, Response, StatusCode, header};
use bytes::Bytes;
use highwire_engine::body::{BodyError, Pulled, Transform};
use highwire_engine::request::Ready;
use http::HeaderValue;
use std::cell::Cell;

/// The most codings that a body may have. More than one is rare, and each further coding multiplies the length to which
/// a few bytes can expand.
const MOST_CODINGS: usize = 2;

/// The default limit of decoded bytes per encoded byte, beyond the first `RATIO_FLOOR` bytes. Log files reach about 50.
/// Deflate can reach 1,032; Brotli and zstd have no maximum.
const RATIO: u64 = 100;

/// The default limit of the bytes that the decoders of a worker hold in total for bodies that are received in parts.
const DECODER_MEMORY: usize = 256 * 1024 * 1024;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// A [middleware](crate::middleware) that decodes request bodies whose `Content-Encoding` is gzip, deflate, br or zstd.
/// Extractors such as `Bytes`, `String`, `Json` and `Body` get the decoded body.
///
/// The decoded length is limited by the [ratio](Self::ratio) and by the route's limit
/// ([`BodyLimit`](crate::middleware::BodyLimit), else `Limits::body_bytes` or `Limits::streamed_body_bytes`).
///
/// | the body | the response |
/// |---|---|
/// | has an unknown or disabled coding, or more than two codings | 415, with `Accept-Encoding` (RFC 9110 section 15.5.16) |
/// | exceeds a limit when decoded | 413 |
/// | is malformed in its coding | 400 |
/// | is received in parts, and the [memory](Self::memory) of the worker's decoders is used up | 503 |
///
/// For a handler that reads the body in parts, each of these except 415 is a [`BodyError`], which converts into a
/// response with that status.
///
/// The fields of the request do not change: `Content-Encoding` still names the codings that the middleware has removed.
/// [`Decoded`] in the request's extensions marks such a request.
///
/// ```
/// use highwire::App;
/// use highwire::compress::{Coding, Decompression};
/// use highwire::testing::Client;
///
/// let decompression = Decompression::new().codings([Coding::Gzip]).ratio(20);
/// let app = App::new().post("/", |body: String| body.len().to_string()).with(decompression);
/// let mut client = Client::new(app)?;
/// assert_eq!(client.post("/").body("as it is").send().text(), "8");
/// let refused = client.post("/").header("content-encoding", "br").body("...").send();
/// assert_eq!((refused.status().as_u16(), refused.header("accept-encoding")), (415, "gzip"));
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decompression {
    codings: Vec<Coding>,
    ratio: u64,
    memory: usize,
}

/// A marker in the [extensions](Request::extensions) of a request whose body has been decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded;

impl Default for Decompression {
    fn default() -> Decompression {
        Decompression::new()
    }
}

impl Decompression {
    /// Creates the middleware with all codings.
    pub fn new() -> Decompression {
        Decompression { codings: Coding::ALL.to_vec(), ratio: RATIO, memory: DECODER_MEMORY }
    }

    /// Accepts only these codings.
    #[must_use]
    pub fn codings(mut self, codings: impl Into<Vec<Coding>>) -> Decompression {
        self.codings = codings.into();
        self
    }

    /// Sets the most decoded bytes per encoded byte, beyond the first decoded mebibyte; the default is 100.
    #[must_use]
    pub fn ratio(mut self, ratio: u64) -> Decompression {
        self.ratio = ratio;
        self
    }

    /// Sets the most bytes that the decoders of each worker may hold for bodies that are received in parts; the default
    /// is 256 MiB. From the first byte of a body to its end, each of its codings counts: Brotli as 17 MiB, zstd as 9
    /// MiB, gzip and deflate as 64 KiB.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Decompression {
        self.memory = bytes;
        self
    }

    /// Returns the codings of a request's body in the order in which the client applied them, or a response with status
    /// 415.
    fn codings_of(&self, request: &Request<'_>) -> Result<Vec<Coding>, Response> {
        let mut codings = Vec::new();
        let fields = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
        for name in fields.flat_map(|(_, value)| elements(value)) {
            if name.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            match Coding::of(name).filter(|coding| self.codings.contains(coding)) {
                Some(coding) if codings.len() < MOST_CODINGS => codings.push(coding),
                _ => return Err(self.unsupported()),
            }
        }
        Ok(codings)
    }

    fn unsupported(&self) -> Response {
        let accepted = self.codings.iter().map(|coding| coding.name()).collect::<Vec<_>>().join(", ");
        let accepted = if accepted.is_empty() { "identity".to_string() } else { accepted };
        let response = Response::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body's coding is not supported here\n");
        match HeaderValue::try_from(accepted) {
            Ok(accepted) => response.with_header(header::ACCEPT_ENCODING, accepted),
            Err(_) => response,
        }
    }
}

/// Returns the number of bytes counted for the decoders of a body, which is the size of their windows and an allowance
/// for the rest of their state.
fn bytes(codings: &[Coding]) -> usize {
    let kibibytes = codings.iter().map(|coding| match coding {
        Coding::Gzip | Coding::Deflate => 64,
        Coding::Brotli => 17 * 1024,
        Coding::Zstd => 9 * 1024,
    });
    kibibytes.sum::<usize>() * 1024
}

/// Decodes a whole body.
fn decode(body: Bytes, mut pipeline: Pipeline) -> Result<Vec<u8>, BodyError> {
    let mut whole = Vec::new();
    pipeline.push(body);
    while let Some(piece) = pipeline.next()? {
        whole.extend_from_slice(&piece);
    }
    pipeline.finish()?;
    Ok(whole)
}

/// The state of decoding a body that is received in parts. The decoders are created when the first part is decoded, so
/// that a request takes no memory for them before.
#[derive(Debug)]
pub(super) struct Decoding {
    codings: Vec<Coding>,
    limit: u64,
    ratio: u64,
    /// The most bytes that all decoders of the worker may hold.
    most: usize,
    first: Option<Bytes>,
    begun: Option<(Pipeline, Hold)>,
}

impl Decoding {
    pub(super) fn new(codings: Vec<Coding>, limit: u64, ratio: u64, most: usize) -> Decoding {
        Decoding { codings, limit, ratio, most, first: None, begun: None }
    }
}

/// Returns a transform that decodes a body with these codings, in the order in which they were applied, to at most `limit`
/// bytes.
#[cfg(feature = "client")]
pub(crate) fn decoding(codings: Vec<Coding>, limit: u64) -> Box<dyn Transform> {
    Box::new(Decoding::new(codings, limit, RATIO, DECODER_MEMORY))
}

impl Transform for Decoding {
    fn push(&mut self, part: Bytes) {
        match &mut self.begun {
            Some((pipeline, _)) => pipeline.push(part),
            None => self.first = Some(part),
        }
    }
    fn pull(&mut self, steps: &mut u32) -> Result<Pulled, BodyError> {
        if let Some(first) = self.first.take() {
            let hold = Hold::take(&HELD, bytes(&self.codings), self.most).ok_or(BodyError::NoMemory)?;
            let mut pipeline = Pipeline::new(&self.codings, self.limit, self.ratio);
            pipeline.push(first);
            self.begun = Some((pipeline, hold));
        }
        match &mut self.begun {
            Some((pipeline, _)) => Ok(pipeline.pull(steps)?),
            None => Ok(Pulled::Starved),
        }
    }
    fn finish(&mut self) -> Result<(), BodyError> {
        self.begun.as_ref().map_or(Ok(()), |(pipeline, _)| Ok(pipeline.finish()?))
    }
}

impl Middleware for Decompression {
    type State = ();

    fn before(&self, request: &mut Request<'_>) -> Result<(), Response> {
        let body_use = match request.body {
            Ready::Whole(body) if body.is_empty() => return Ok(()),
            Ready::Whole(_) => BodyUse::Whole,
            Ready::Parts(_) => BodyUse::Parts,
            Ready::Nothing | Ready::Taken => return Ok(()),
        };
        if request.extension::<Decoded>().is_some() {
            return Ok(());
        }
        let codings = self.codings_of(request)?;
        if codings.is_empty() {
            return Ok(());
        }
        let limit = request.shared.body_limit(request.route, body_use);
        match request.body {
            Ready::Whole(body) => {
                let pipeline = Pipeline::new(&codings, limit, self.ratio);
                let decoded = decode(std::mem::take(body), pipeline).map_err(crate::IntoResponse::into_response)?;
                let bytes = decoded.capacity();
                request.replace_body(decoded.into(), bytes);
            }
            Ready::Parts(body) => {
                body.transform_by(Box::new(Decoding::new(codings, limit, self.ratio, self.memory)));
            }
            Ready::Nothing | Ready::Taken => {}
        }
        request.extensions().insert(Decoded);
        Ok(())
    }

    fn after(&self, (): (), _: &mut Response) {}
}
