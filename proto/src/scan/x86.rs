//! Scanners for x86-64: 32 bytes at a time with AVX2, or 16 bytes of a value with SSE2, which every x86-64 has. With
//! the feature `std` the choice is made at run time.
//!
//! A class of ASCII bytes is a 16 x 8 table of bits: a byte belongs to the class if bit `high nibble` of `TABLE[low
//! nibble]` is set. Two byte shuffles look up, for each of 32 bytes, the bits of its low nibble and the one bit of its
//! high nibble. If their AND is zero, the byte does not belong. Deviations: (1) Bytes from 0x80 on have no bit, so they
//! never belong. Field values may contain them and are checked by comparisons instead. (2) The last block of a run may
//! reach past the slice. It is therefore loaded so that it ends with the slice, and the bits of bytes before the
//! current position are shifted out. Slices shorter than a block go to the scalar scanner.

use super::{Cursor, Job, Plain, Scanner, naive, swar::Swar};
use core::arch::x86_64::*;

/// Returns the bits of a class by low nibble, twice, because a shuffle looks up 16 bytes at a time. [`ROWS`] has the
/// bits by high nibble.
const fn columns(class: u8) -> [u8; 32] {
    let mut table = [0u8; 32];
    let mut byte = 0;
    while byte < 128 {
        if naive::CLASSES[byte] & class != 0 {
            table[byte & 15] |= 1 << (byte >> 4);
            table[(byte & 15) + 16] |= 1 << (byte >> 4);
        }
        byte += 1;
    }
    table
}

/// Bit `n` for high nibble `n`, and 0 from nibble 8 on, also twice.
const ROWS: [u8; 32] =
    [1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0];
const NAME_COLUMNS: [u8; 32] = columns(naive::NAME);
const TARGET_COLUMNS: [u8; 32] = columns(naive::TARGET);

/// Classifies a block of bytes. This is a trait, because closures are compiled without the caller's target features and
/// cannot be inlined into the caller (measured: seven times slower).
trait Block {
    const WIDTH: usize;
    /// Returns a word with a bit set for each byte that does not belong to the class.
    ///
    /// # Safety
    /// `at` must be valid for reads of `WIDTH` bytes, and the machine must have the instructions that the implementer
    /// is named for.
    unsafe fn stops(at: *const u8) -> u32;
    /// Scans a slice that is shorter than a block.
    fn rest(bytes: &[u8], from: usize) -> usize;
}

#[inline(always)]
fn blocks<B: Block>(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at + B::WIDTH <= bytes.len() {
        // SAFETY: `at + WIDTH <= len`, so the `WIDTH` bytes at the pointer are inside the slice; only `with` runs a job
        // with `Avx2`, after it has detected AVX2, and every x86-64 has SSE2.
        let found = unsafe { B::stops(bytes.as_ptr().add(at)) };
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        at += B::WIDTH;
    }
    if at >= bytes.len() {
        return bytes.len().max(from);
    }
    if bytes.len() < B::WIDTH {
        return B::rest(bytes, at);
    }
    let last = bytes.len() - B::WIDTH;
    // SAFETY: `last + WIDTH == len`, so the block is the slice's last `WIDTH` bytes; instructions as above.
    let found = unsafe { B::stops(bytes.as_ptr().add(last)) } >> (at - last);
    if found == 0 { bytes.len() } else { at + found.trailing_zeros() as usize }
}

/// Scans 32 bytes at a time. Only [`with`] runs a job with it, after it has detected AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// Returns a word with a bit set for each of 32 bytes that does not belong to a class, by the look-up that the module's
/// documentation describes.
///
/// # Safety
/// `at` must be valid for reads of 32 bytes, and the machine must have AVX2.
#[inline(always)]
unsafe fn not_in(columns: &[u8; 32], at: *const u8) -> u32 {
    // SAFETY: by the contract `at` is valid for reads of 32 bytes and the machine has AVX2; both tables have 32 bytes.
    unsafe {
        let block = _mm256_loadu_si256(at.cast());
        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(block), _mm256_set1_epi8(15));
        let row = _mm256_shuffle_epi8(_mm256_loadu_si256(ROWS.as_ptr().cast()), high);
        let column = _mm256_shuffle_epi8(_mm256_loadu_si256(columns.as_ptr().cast()), block);
        let out = _mm256_cmpeq_epi8(_mm256_and_si256(row, column), _mm256_setzero_si256());
        _mm256_movemask_epi8(out) as u32
    }
}

struct Avx2Name;
impl Block for Avx2Name {
    const WIDTH: usize = 32;
    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u32 {
        // SAFETY: `not_in` has the same contract as this function.
        unsafe { not_in(&NAME_COLUMNS, at) }
    }
    #[inline(always)]
    fn rest(bytes: &[u8], from: usize) -> usize {
        Swar::name_end(bytes, from)
    }
}

struct Avx2Target;
impl Block for Avx2Target {
    const WIDTH: usize = 32;
    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u32 {
        // SAFETY: `not_in` has the same contract as this function.
        unsafe { not_in(&TARGET_COLUMNS, at) }
    }
    #[inline(always)]
    fn rest(bytes: &[u8], from: usize) -> usize {
        Swar::target_end(bytes, from)
    }
}

struct Avx2Value;
impl Block for Avx2Value {
    const WIDTH: usize = 32;
    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u32 {
        // SAFETY: by the contract `at` is valid for reads of 32 bytes and the machine has AVX2.
        unsafe {
            let block = _mm256_loadu_si256(at.cast());
            let low = _mm256_cmpeq_epi8(_mm256_min_epu8(block, _mm256_set1_epi8(0x1f)), block);
            let tab = _mm256_cmpeq_epi8(block, _mm256_set1_epi8(9));
            let del = _mm256_cmpeq_epi8(block, _mm256_set1_epi8(0x7f));
            _mm256_movemask_epi8(_mm256_or_si256(_mm256_andnot_si256(tab, low), del)) as u32
        }
    }
    #[inline(always)]
    fn rest(bytes: &[u8], from: usize) -> usize {
        Swar::value_end(bytes, from)
    }
}

impl Scanner for Avx2 {
    type Cursor<'b> = Masks<'b>;

    #[inline(always)]
    fn name_end(bytes: &[u8], from: usize) -> usize {
        blocks::<Avx2Name>(bytes, from)
    }
    #[inline(always)]
    fn value_end(bytes: &[u8], from: usize) -> usize {
        blocks::<Avx2Value>(bytes, from)
    }
    #[inline(always)]
    fn target_end(bytes: &[u8], from: usize) -> usize {
        blocks::<Avx2Target>(bytes, from)
    }
}

/// A cursor that computes the name and value classes of 64 bytes at once, as two words of bits. The end of a token is
/// then found by a shift and a count of zeros, whereas a scan for each token waits for a load, two shuffles and a move
/// between register files (measured: 1.5 times as long for a browser's head).
#[derive(Debug)]
pub(super) struct Masks<'b> {
    bytes: &'b [u8],
    base: usize,
    /// A set bit for each of the 64 places from `base` on that has no name byte or is past the end of the slice.
    names: u64,
    /// The same for value bytes.
    values: u64,
}

impl Masks<'_> {
    #[inline(always)]
    fn load(&mut self, base: usize) {
        self.base = base;
        let (low_names, low_values) = self.half(base);
        let (high_names, high_values) = self.half(base + 32);
        self.names = u64::from(high_names) << 32 | u64::from(low_names);
        self.values = u64::from(high_values) << 32 | u64::from(low_values);
    }

    /// Returns the bits of the 32 places from `at` on, for names and for values.
    #[inline(always)]
    fn half(&self, at: usize) -> (u32, u32) {
        let length = self.bytes.len();
        if at + 32 <= length {
            // SAFETY: `at + 32 <= len`; only `with` runs a job with this scanner, after it has detected AVX2.
            return unsafe {
                (Avx2Name::stops(self.bytes.as_ptr().add(at)), Avx2Value::stops(self.bytes.as_ptr().add(at)))
            };
        }
        if at >= length {
            return (u32::MAX, u32::MAX);
        }
        // Places past the end of the slice count as stops.
        let behind = u32::MAX << (length - at);
        if length >= 32 {
            let last = length - 32;
            // SAFETY: `last + 32 == len`, so the block is the slice's last 32 bytes; AVX2 as above.
            let (names, values) = unsafe {
                (Avx2Name::stops(self.bytes.as_ptr().add(last)), Avx2Value::stops(self.bytes.as_ptr().add(last)))
            };
            return (names >> (at - last) | behind, values >> (at - last) | behind);
        }
        let mut block = [0; 32];
        block[..length - at].copy_from_slice(&self.bytes[at..]);
        // SAFETY: the block has 32 bytes; AVX2 as above.
        let (names, values) = unsafe { (Avx2Name::stops(block.as_ptr()), Avx2Value::stops(block.as_ptr())) };
        (names | behind, values | behind)
    }

    #[inline(always)]
    fn end(&mut self, from: usize, class: impl Fn(&Self) -> u64) -> usize {
        let mut at = from;
        loop {
            let offset = at.wrapping_sub(self.base);
            if offset < 64 {
                let stops = class(self) >> offset;
                if stops != 0 {
                    // Places past the end of the slice count as stops, so this is at most its length.
                    return at + stops.trailing_zeros() as usize;
                }
                at = self.base + 64;
            }
            if at >= self.bytes.len() {
                return self.bytes.len().max(from);
            }
            self.load(at);
        }
    }
}

impl<'b> Cursor<'b> for Masks<'b> {
    #[inline(always)]
    fn new(bytes: &'b [u8], from: usize) -> Masks<'b> {
        let mut masks = Masks { bytes, base: from, names: 0, values: 0 };
        masks.load(from);
        masks
    }
    #[inline(always)]
    fn name_end(&mut self, from: usize) -> usize {
        self.end(from, |masks| masks.names)
    }
    #[inline(always)]
    fn value_end(&mut self, from: usize) -> usize {
        self.end(from, |masks| masks.values)
    }
}

/// Scans values 16 bytes at a time. SSE2 has no byte shuffle, so names and targets are looked up byte by byte.
#[derive(Clone, Copy)]
pub(super) struct Sse2;

struct Sse2Value;
impl Block for Sse2Value {
    const WIDTH: usize = 16;
    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u32 {
        // SAFETY: by the contract `at` is valid for reads of 16 bytes; SSE2 is part of x86-64.
        unsafe {
            let block = _mm_loadu_si128(at.cast());
            let low = _mm_cmpeq_epi8(_mm_min_epu8(block, _mm_set1_epi8(0x1f)), block);
            let tab = _mm_cmpeq_epi8(block, _mm_set1_epi8(9));
            let del = _mm_cmpeq_epi8(block, _mm_set1_epi8(0x7f));
            _mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, low), del)) as u32
        }
    }
    #[inline(always)]
    fn rest(bytes: &[u8], from: usize) -> usize {
        Swar::value_end(bytes, from)
    }
}

impl Scanner for Sse2 {
    type Cursor<'b> = Plain<'b, Sse2>;

    #[inline(always)]
    fn name_end(bytes: &[u8], from: usize) -> usize {
        Swar::name_end(bytes, from)
    }
    #[inline(always)]
    fn value_end(bytes: &[u8], from: usize) -> usize {
        blocks::<Sse2Value>(bytes, from)
    }
    #[inline(always)]
    fn target_end(bytes: &[u8], from: usize) -> usize {
        Swar::target_end(bytes, from)
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn with_avx2<J: Job>(job: J) -> J::Output {
    job.run::<Avx2>()
}

#[inline]
fn has_avx2() -> bool {
    #[cfg(feature = "std")]
    {
        use core::sync::atomic::{AtomicU8, Ordering};
        // Caches the result in one byte: one load for each head instead of four look-ups in the standard library's
        // table.
        static SEEN: AtomicU8 = AtomicU8::new(UNKNOWN);
        const UNKNOWN: u8 = 2;
        match SEEN.load(Ordering::Relaxed) {
            UNKNOWN => {
                let seen = std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("bmi1")
                    && std::arch::is_x86_feature_detected!("bmi2")
                    && std::arch::is_x86_feature_detected!("lzcnt");
                SEEN.store(u8::from(seen), Ordering::Relaxed);
                seen
            }
            seen => seen == 1,
        }
    }
    #[cfg(not(feature = "std"))]
    return cfg!(all(
        target_feature = "avx2",
        target_feature = "bmi1",
        target_feature = "bmi2",
        target_feature = "lzcnt"
    ));
}

#[inline]
pub(super) fn with<J: Job>(job: J) -> J::Output {
    if has_avx2() {
        // SAFETY: `has_avx2` returns true only if the machine has every feature that `with_avx2` enables.
        unsafe { with_avx2(job) }
    } else {
        job.run::<Sse2>()
    }
}
