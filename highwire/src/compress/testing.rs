//! The assertions of the fuzz targets, and single encoders and decoders for benchmarks.

use super::decode::{Fault, Pipeline, RATIO_FLOOR};
use super::encode::{Lease, Until};
use super::negotiate::Accepted;
use super::{Coding, elements};
use bytes::Bytes;

/// An encoder of a response body.
#[derive(Debug)]
pub struct Encoding(Lease);

impl Encoding {
    /// Creates an encoder for a body of `length` bytes, or of unknown length.
    ///
    /// # Panics
    /// Panics if the encoder cannot be created.
    pub fn new(coding: Coding, level: u32, length: Option<usize>) -> Encoding {
        Encoding(Lease::take(coding, level, length, usize::MAX / 2).expect("an encoder"))
    }

    /// Encodes a part of a body, and flushes the encoder.
    ///
    /// # Panics
    /// Panics if encoding fails.
    pub fn part(&mut self, part: &[u8]) -> Vec<u8> {
        self.encode(part, Until::Flushed)
    }

    /// Encodes the last part of a body.
    ///
    /// # Panics
    /// Panics if encoding fails.
    pub fn end(mut self, part: &[u8]) -> Vec<u8> {
        self.encode(part, Until::Ended)
    }

    fn encode(&mut self, part: &[u8], until: Until) -> Vec<u8> {
        let mut output = Vec::new();
        self.0.encode(part, until, &mut output).expect("encoded");
        output
    }
}

/// A decoder of a request body.
#[derive(Debug)]
pub struct Decoding(Pipeline);

impl Decoding {
    /// Creates a decoder without limits.
    pub fn new(coding: Coding) -> Decoding {
        Decoding(Pipeline::new(&[coding], u64::MAX, u64::MAX))
    }

    /// Decodes a part of a body.
    ///
    /// # Panics
    /// Panics if the part is malformed.
    pub fn part(&mut self, part: &[u8]) -> Vec<u8> {
        self.0.push(Bytes::copy_from_slice(part));
        let pieces = std::iter::from_fn(|| self.0.next().expect("decoded"));
        pieces.flatten().collect()
    }
}

/// The most decoded bytes of a body in the fuzz target.
const LIMIT: u64 = 3 * RATIO_FLOOR;

const RATIO: u64 = 100;

/// Decodes `parts` one by one. Returns the decoded bytes and the result.
fn decode<'i>(codings: &[Coding], parts: impl Iterator<Item = &'i [u8]>) -> (Vec<u8>, Result<(), Fault>) {
    let mut pipeline = Pipeline::new(codings, LIMIT, RATIO);
    let mut decoded = Vec::new();
    for part in parts {
        pipeline.push(Bytes::copy_from_slice(part));
        loop {
            match pipeline.next() {
                Ok(Some(piece)) => decoded.extend_from_slice(&piece),
                Ok(None) => break,
                Err(fault) => return (decoded, Err(fault)),
            }
        }
    }
    let end = pipeline.finish();
    (decoded, end)
}

/// Decodes any bytes as a body, once whole and once in parts. The first byte selects one or two codings, the second the
/// length of the parts.
///
/// # Panics
/// Panics if the first run gives more bytes than the limit, or if the runs differ although neither finds the body too
/// large.
pub fn bodies(input: &[u8]) {
    let [which, cut, body @ ..] = input else { return };
    let coding = |number: u8| Coding::ALL[usize::from(number % 4)];
    let codings = [coding(*which), coding(which >> 2)];
    let codings = if which & 0x10 == 0 { &codings[..1] } else { &codings };
    let (whole, whole_end) = decode(codings, body.chunks(body.len().max(1)));
    let (parts, parts_end) = decode(codings, body.chunks(usize::from(*cut) + 1));
    assert!(whole.len() as u64 <= LIMIT, "{} bytes", whole.len());
    // The length of the parts decides how much input a decoder has read when it checks the ratio, so only one of the
    // runs may find the body too large.
    if ![whole_end, parts_end].contains(&Err(Fault::TooLarge)) {
        assert_eq!(whole_end, parts_end, "{codings:?}");
        assert!(whole_end.is_err() || whole == parts, "{codings:?}");
    }
}

/// Chooses codings with any bytes as the value of `Accept-Encoding`.
///
/// # Panics
/// Panics if the chosen coding is not offered or has weight 0, if an offered coding has a higher weight and the value
/// has no element that begins with `identity`, or if splitting the value at its first comma changes its meaning.
pub fn accepted(value: &[u8]) {
    let accepted = Accepted::of(std::iter::once(value));
    for offered in [&Coding::ALL[..], &[Coding::Gzip], &[Coding::Deflate, Coding::Brotli], &[]] {
        let best = accepted.best(offered);
        assert!(best.is_none_or(|best| offered.contains(&best) && accepted.weight(best) > 0));
        let liked = best.map_or(0, |best| accepted.weight(best));
        let identity = elements(value).any(|element| element.to_ascii_lowercase().starts_with(b"identity"));
        assert!(identity || offered.iter().all(|&coding| accepted.weight(coding) <= liked), "{offered:?}");
    }
    // Two fields, split at a comma, mean the same as one.
    if let Some(comma) = value.iter().position(|&byte| byte == b',') {
        assert_eq!(Accepted::of([&value[..comma], &value[comma + 1..]].into_iter()), accepted);
    }
}
