//! The middleware that decodes the bodies of requests.

use super::decode::Pipeline;
use super::{Coding, Hold, elements};
use crate::middleware::Middleware;
use crate::{BodyUse, Request, Response, StatusCode, header};
use bytes::Bytes;
use highwire_engine::body::{BodyError, Pulled, Transform};
use highwire_engine::request::Ready;
use http::HeaderValue;
use std::cell::Cell;

/// Codings that a body may have, one upon the other. More than one is rare, and each multiplies what a few bytes can
/// unfold to.
const MOST_CODINGS: usize = 2;

/// How many bytes a byte may unfold to beyond the floor. Logs reach some 50; deflate ends at 1,032, Brotli and zstd know
/// no end.
const RATIO: u64 = 100;

/// Bytes that the decoders of a worker may hold for bodies in parts.
const DECODER_MEMORY: usize = 256 * 1024 * 1024;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Decodes the bodies of requests whose `Content-Encoding` is gzip, deflate, br or zstd: a
/// [middleware](crate::middleware). Whatever takes a body gets it decoded: `Bytes`, `String`, `Json`, `Body`.
///
/// What a body decodes to is bounded as bodies are, by the route's limit
/// ([`BodyLimit`](crate::middleware::BodyLimit), else `Limits::body_bytes` or `Limits::streamed_body_bytes`), and by the
/// [ratio](Self::ratio).
///
/// | the body | the answer |
/// |---|---|
/// | has a coding that is not known or not wanted, or more than two | 415, with `Accept-Encoding` (RFC 9110 section 15.5.16) |
/// | decodes to more than is allowed | 413 |
/// | is not what its coding says | 400 |
/// | comes in parts, while decoders hold all the memory they may | 503 |
///
/// A handler that takes a body in parts sees all but the first as a [`BodyError`], which is an answer of that status.
///
/// The request's fields stay as they came: `Content-Encoding` still names what is undone by then. Who reads that field
/// finds [`Decoded`] in the request's extensions.
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

/// Stands in the [extensions](Request::extensions) of a request whose body is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded;

impl Default for Decompression {
    fn default() -> Decompression {
        Decompression::new()
    }
}

impl Decompression {
    /// With all codings.
    pub fn new() -> Decompression {
        Decompression { codings: Coding::ALL.to_vec(), ratio: RATIO, memory: DECODER_MEMORY }
    }

    /// Accepts these only.
    #[must_use]
    pub fn codings(mut self, codings: impl Into<Vec<Coding>>) -> Decompression {
        self.codings = codings.into();
        self
    }

    /// The most bytes that a byte of a body may decode to, beyond the first mebibyte; 100 by default.
    #[must_use]
    pub fn ratio(mut self, ratio: u64) -> Decompression {
        self.ratio = ratio;
        self
    }

    /// The most bytes that the decoders of a worker may hold for bodies in parts; 256 MiB by default. A body of Brotli is
    /// counted for 17 MiB, one of zstd for 9, of the others for 64 KiB, from its first byte to its end.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Decompression {
        self.memory = bytes;
        self
    }

    /// The codings of a request's body, in the order in which they were applied.
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

/// Bytes that decoders are counted for: their windows and some.
fn bytes(codings: &[Coding]) -> usize {
    let kibibytes = codings.iter().map(|coding| match coding {
        Coding::Gzip | Coding::Deflate => 64,
        Coding::Brotli => 17 * 1024,
        Coding::Zstd => 9 * 1024,
    });
    kibibytes.sum::<usize>() * 1024
}

/// All of a body, decoded.
fn decode(body: Bytes, mut pipeline: Pipeline) -> Result<Vec<u8>, BodyError> {
    let mut whole = Vec::new();
    pipeline.push(body);
    while let Some(piece) = pipeline.next()? {
        whole.extend_from_slice(&piece);
    }
    pipeline.finish()?;
    Ok(whole)
}

/// A body in parts, on its way to the handler. Its decoders are there once its first part is: requests whose bodies never
/// come may not keep them from others.
#[derive(Debug)]
pub(super) struct Decoding {
    codings: Vec<Coding>,
    limit: u64,
    ratio: u64,
    /// Bytes that all decoders of the worker may hold.
    most: usize,
    first: Option<Bytes>,
    begun: Option<(Pipeline, Hold)>,
}

impl Decoding {
    pub(super) fn new(codings: Vec<Coding>, limit: u64, ratio: u64, most: usize) -> Decoding {
        Decoding { codings, limit, ratio, most, first: None, begun: None }
    }
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
        if request.extensions().get::<Decoded>().is_some() {
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
