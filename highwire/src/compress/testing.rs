//! What the fuzz targets assert, and encoders and decoders by themselves for whoever measures them.

use super::decode::{Fault, Pipeline, RATIO_FLOOR};
use super::encode::{Lease, Until};
use super::negotiate::Accepted;
use super::{Coding, elements};
use bytes::Bytes;

/// An encoder as answers have it.
#[derive(Debug)]
pub struct Encoding(Lease);

impl Encoding {
    /// One for a body of that length, where it is known.
    ///
    /// # Panics
    /// Where there is none.
    pub fn new(coding: Coding, level: u32, length: Option<usize>) -> Encoding {
        Encoding(Lease::take(coding, level, length, usize::MAX / 2).expect("an encoder"))
    }

    /// Encodes a part of a body.
    ///
    /// # Panics
    /// Where that fails.
    pub fn part(&mut self, part: &[u8]) -> Vec<u8> {
        self.encode(part, Until::Flushed)
    }

    /// Encodes the last part of a body.
    ///
    /// # Panics
    /// Where that fails.
    pub fn end(mut self, part: &[u8]) -> Vec<u8> {
        self.encode(part, Until::Ended)
    }

    fn encode(&mut self, part: &[u8], until: Until) -> Vec<u8> {
        let mut output = Vec::new();
        self.0.encode(part, until, &mut output).expect("encoded");
        output
    }
}

/// The decoders of a body, as requests have them.
#[derive(Debug)]
pub struct Decoding(Pipeline);

impl Decoding {
    /// Without bounds.
    pub fn new(coding: Coding) -> Decoding {
        Decoding(Pipeline::new(&[coding], u64::MAX, u64::MAX))
    }

    /// Decodes a part of a body.
    ///
    /// # Panics
    /// Where that fails.
    pub fn part(&mut self, part: &[u8]) -> Vec<u8> {
        self.0.push(Bytes::copy_from_slice(part));
        let pieces = std::iter::from_fn(|| self.0.next().expect("decoded"));
        pieces.flatten().collect()
    }
}

/// The most that a body of the target may decode to.
const LIMIT: u64 = 3 * RATIO_FLOOR;

const RATIO: u64 = 100;

/// Decodes `parts` one by one: what came out, and how it ended.
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

/// Any bytes as an encoded body: the first byte names one or two codings, the second where it is cut. However it is cut, it
/// decodes to the same and within its bounds.
///
/// # Panics
/// Where that is not so.
pub fn bodies(input: &[u8]) {
    let [which, cut, body @ ..] = input else { return };
    let coding = |number: u8| Coding::ALL[usize::from(number % 4)];
    let codings = [coding(*which), coding(which >> 2)];
    let codings = if which & 0x10 == 0 { &codings[..1] } else { &codings };
    let (whole, whole_end) = decode(codings, body.chunks(body.len().max(1)));
    let (parts, parts_end) = decode(codings, body.chunks(usize::from(*cut) + 1));
    assert!(whole.len() as u64 <= LIMIT, "{} bytes", whole.len());
    // How far a decoder has read when the ratio is looked at depends on what it was given at once.
    if ![whole_end, parts_end].contains(&Err(Fault::TooLarge)) {
        assert_eq!(whole_end, parts_end, "{codings:?}");
        assert!(whole_end.is_err() || whole == parts, "{codings:?}");
    }
}

/// Any bytes as the value of `Accept-Encoding`: what is chosen is offered, not refused, and nothing that is offered is liked
/// better.
///
/// # Panics
/// Where that is not so.
pub fn accepted(value: &[u8]) {
    let accepted = Accepted::of(std::iter::once(value));
    for offered in [&Coding::ALL[..], &[Coding::Gzip], &[Coding::Deflate, Coding::Brotli], &[]] {
        let best = accepted.best(offered);
        assert!(best.is_none_or(|best| offered.contains(&best) && accepted.weight(best) > 0));
        let liked = best.map_or(0, |best| accepted.weight(best));
        let identity = elements(value).any(|element| element.to_ascii_lowercase().starts_with(b"identity"));
        assert!(identity || offered.iter().all(|&coding| accepted.weight(coding) <= liked), "{offered:?}");
    }
    // Cut into two fields at a comma it says the same.
    if let Some(comma) = value.iter().position(|&byte| byte == b',') {
        assert_eq!(Accepted::of([&value[..comma], &value[comma + 1..]].into_iter()), accepted);
    }
}
