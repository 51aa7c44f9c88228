//! Finds the end of a token: the inner loop of every parser here.
//!
//! A [`Scanner`] answers, for three classes of bytes, where the first byte stands that does not belong. Parsers are
//! generic over it, and [`with`] runs a whole parse under the best one that the machine has, so that there is one
//! dispatch a message and none a token. Every scanner equals [`naive`] on every input: a property test says so.

#[cfg(target_arch = "aarch64")]
mod arm;
pub mod naive;
pub mod swar;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use naive::{HOST, NAME, QUERY, TARGET, is};

/// Finds, from index `from` on, the first byte that is not of a class; the slice's length where all are.
pub trait Scanner: Copy {
    /// The end of a run of token bytes (RFC 9110 section 5.6.2).
    fn name_end(bytes: &[u8], from: usize) -> usize;
    /// The end of a run of field value bytes: all but controls, with tab (RFC 9110 section 5.5).
    fn value_end(bytes: &[u8], from: usize) -> usize;
    /// The end of a run of request target bytes that need no second look: see [`naive::TARGET`].
    fn target_end(bytes: &[u8], from: usize) -> usize;

    /// Goes through a head from its front to its end.
    type Cursor<'b>: Cursor<'b>;
}

/// Finds ends of names and values in a head, one after the other: what it has seen of a block for one of them need not be
/// looked at again for the next. Indices must not go back by more than the token just found.
pub trait Cursor<'b> {
    /// A cursor at `from`.
    fn new(bytes: &'b [u8], from: usize) -> Self;
    /// As [`Scanner::name_end`].
    fn name_end(&mut self, from: usize) -> usize;
    /// As [`Scanner::value_end`].
    fn value_end(&mut self, from: usize) -> usize;
}

/// The cursor of scanners that are best asked anew for each token.
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

/// A parse that [`with`] runs under the machine's best scanner. Implement `run` as `#[inline(always)]`, or the
/// scanner's instructions cannot be inlined into it.
pub trait Job {
    /// What the parse gives.
    type Output;
    /// Parses with the given scanner.
    fn run<S: Scanner>(self) -> Self::Output;
}

/// Runs a job with the fastest scanner that this machine has.
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
        // Miri takes minutes for all of them; what it looks for shows at any.
        let step = if cfg!(miri) { 31 } else { 1 };
        for start in (0..64).step_by(step) {
            all_agree(&text[start..]);
        }
    }
}
