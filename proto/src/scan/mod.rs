//! Finds the end of a token, which is the inner loop of the parsers of heads, targets and fields.
//!
//! A [`Scanner`] finds, for each of three classes, the first byte that is not in the class. Parsers are generic over
//! it, and [`with`] runs a whole parse with the best scanner of the machine, so that the choice is made once per parse
//! and not per token. A property test compares the machine's scanners with [`naive`].

#[cfg(target_arch = "aarch64")]
mod arm;
pub mod naive;
pub mod swar;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use naive::{HOST, LOWER_NAME, NAME, QUERY, TARGET, is};

/// Finds the first byte from index `from` on that is not in a class. Returns the slice's length if all bytes are.
pub trait Scanner: Copy {
    /// Returns the end of a run of token bytes (RFC 9110 section 5.6.2).
    fn name_end(bytes: &[u8], from: usize) -> usize;
    /// Returns the end of a run of field value bytes: tab and all bytes but controls (RFC 9110 section 5.5).
    fn value_end(bytes: &[u8], from: usize) -> usize;
    /// Returns the end of a run of request target bytes that need no further check: see [`naive::TARGET`].
    fn target_end(bytes: &[u8], from: usize) -> usize;

    /// The cursor that goes through a head from its front to its end.
    type Cursor<'b>: Cursor<'b>;
}

/// Finds the ends of names and values in a head, one after the other. A cursor may keep the result for a block of bytes
/// and use it for several tokens. An index must not be lower than that of the previous call.
pub trait Cursor<'b> {
    /// Creates a cursor whose first index is `from`.
    fn new(bytes: &'b [u8], from: usize) -> Self;
    /// Like [`Scanner::name_end`].
    fn name_end(&mut self, from: usize) -> usize;
    /// Like [`Scanner::value_end`].
    fn value_end(&mut self, from: usize) -> usize;
}

/// A cursor that keeps nothing and scans anew for each token.
#[derive(Debug)]
pub struct Plain<'b, S> {
    bytes: &'b [u8],
    scanner: core::marker::PhantomData<S>,
}

impl<'b, S: Scanner> Cursor<'b> for Plain<'b, S> {
    #[inline(always)]
    fn new(bytes: &'b [u8], _: usize) -> Plain<'b, S> {
        Plain { bytes, scanner: core::marker::PhantomData }
    }
    #[inline(always)]
    fn name_end(&mut self, from: usize) -> usize {
        S::name_end(self.bytes, from)
    }
    #[inline(always)]
    fn value_end(&mut self, from: usize) -> usize {
        S::value_end(self.bytes, from)
    }
}

/// A parse that [`with`] runs with the best scanner of the machine. Implement `run` as `#[inline(always)]`; otherwise
/// the scanner's functions may not be inlined into it.
pub trait Job {
    /// The result of the parse.
    type Output;
    /// Parses with the given scanner.
    fn run<S: Scanner>(self) -> Self::Output;
}

/// Runs a job with the fastest scanner that this machine is known to support.
#[inline]
pub fn with<J: Job>(job: J) -> J::Output {
    #[cfg(target_arch = "x86_64")]
    return x86::with(job);
    #[cfg(target_arch = "aarch64")]
    return job.run::<arm::Neon>();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return job.run::<swar::Swar>();
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn agrees<S: Scanner>(bytes: &[u8]) {
        for from in 0..=bytes.len() {
            assert_eq!(S::name_end(bytes, from), naive::Naive::name_end(bytes, from), "name {bytes:?} from {from}");
            assert_eq!(S::value_end(bytes, from), naive::Naive::value_end(bytes, from), "value {bytes:?} from {from}");
            assert_eq!(
                S::target_end(bytes, from),
                naive::Naive::target_end(bytes, from),
                "target {bytes:?} from {from}"
            );
        }
        for start in [0, bytes.len() / 3] {
            let mut cursor = S::Cursor::new(bytes, start);
            for from in start..=bytes.len() {
                assert_eq!(cursor.name_end(from), naive::Naive::name_end(bytes, from), "name {bytes:?} at {from}");
                assert_eq!(cursor.value_end(from), naive::Naive::value_end(bytes, from), "value {bytes:?} at {from}");
            }
        }
    }

    struct Here<'a>(&'a [u8]);
    impl Job for Here<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Scanner>(self) {
            agrees::<S>(self.0);
        }
    }

    fn all_agree(bytes: &[u8]) {
        agrees::<swar::Swar>(bytes);
        #[cfg(target_arch = "x86_64")]
        agrees::<x86::Sse2>(bytes);
        with(Here(bytes));
    }

    #[test]
    fn every_byte_at_every_place_of_a_block_is_judged_as_the_naive_scanner_does() {
        for filler in [b'a', 0xc3, b'-'] {
            for byte in 0..=255u8 {
                for place in [0, 1, 7, 8, 15, 16, 30, 31, 32, 33, 39] {
                    let mut bytes = [filler; 40];
                    bytes[place] = byte;
                    all_agree(&bytes);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn fast_scanners_equal_the_naive_one(bytes in prop::collection::vec(prop_oneof![9 => 0x21u8..0x7f, 1 => any::<u8>()], 0..150)) {
            all_agree(&bytes);
        }
    }

    #[test]
    fn alignment_does_not_matter() {
        let text: Vec<u8> = (0..200).map(|i| if i == 150 { b'\r' } else { b'a' + (i % 26) as u8 }).collect();
        // Miri takes minutes for all offsets, so it tests only a few.
        let step = if cfg!(miri) { 31 } else { 1 };
        for start in (0..64).step_by(step) {
            all_agree(&text[start..]);
        }
    }
}
