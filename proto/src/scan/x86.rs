//! 32 bytes at a time with AVX2, 16 with SSE2 (which every x86-64 has), chosen once at run time.
//!
//! A class of ASCII bytes is a 16 x 8 table of bits: a byte belongs if bit `high nibble` of `TABLE[low nibble]` is
//! set. Two byte shuffles look up both sides for 32 bytes; where their AND is zero, the byte does not belong.
//! Deviations: (1) bytes from 0x80 on have no row, so they never belong; field values, where they do, are judged by
//! comparisons instead. (2) A run's last block would read past the slice: it is loaded so that it ends with the
//! slice, and the bits before the start are shifted out. Slices shorter than a block go to the scalar scanner.

use super::{Cursor, Job, Plain, Scanner, naive, swar::Swar};
use core::arch::x86_64::*;

/// The low nibbles' half of a class table; the high nibbles' half is [`ROWS`].
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

/// Bit `n` for high nibble `n`, none from 8 on.
const ROWS: [u8; 32] =
    [1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0];
const NAME_COLUMNS: [u8; 32] = columns(naive::NAME);
const TARGET_COLUMNS: [u8; 32] = columns(naive::TARGET);

/// Judges a block of bytes. A trait and not a closure: closures are compiled without the caller's target features and
/// then cannot be inlined into it (measured: seven times slower).
trait Block {
    const WIDTH: usize;
    /// A bit for each byte that does not belong.
    ///
    /// # Safety
    /// `at` has `WIDTH` readable bytes, and the machine has the instructions that the implementer is named for.
    unsafe fn stops(at: *const u8) -> u32;
    /// The scanner for what is shorter than a block.
    fn rest(bytes: &[u8], from: usize) -> usize;
}

#[inline(always)]
fn blocks<B: Block>(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at + B::WIDTH <= bytes.len() {
        // SAFETY: `at + WIDTH <= len`, so the pointer and the `WIDTH` bytes behind it are inside the slice; only `with`
        // hands out a scanner, after it has seen that the machine has its instructions.
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

/// 32 bytes at a time. Only [`with`] hands it out, after it has seen that the machine has AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// The AVX2 lookup that the module's head describes.
///
/// # Safety
/// `at` has 32 readable bytes, and the machine has AVX2.
#[inline(always)]
unsafe fn not_in(columns: &[u8; 32], at: *const u8) -> u32 {
    // SAFETY: 32 bytes are readable by the contract, both tables have 32, and the machine has AVX2.
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
        // SAFETY: the contract is the same.
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
        // SAFETY: the contract is the same.
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
        // SAFETY: 32 bytes are readable by the contract, and the machine has AVX2.
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

/// Both classes of 64 bytes as two words of bits, made once: a token's end is then a shift and a count of zeros, where a
/// scan of its own would wait for a load, two shuffles and a move between register files (measured: 1.5 times as long for
/// a browser's head).
#[derive(Debug)]
pub(super) struct Masks<'b> {
    bytes: &'b [u8],
    base: usize,
    /// A bit for each byte that is in no name, from `base` on; and for each place behind the slice.
    names: u64,
    /// The same for values.
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

    /// The bits of 32 places.
    #[inline(always)]
    fn half(&self, at: usize) -> (u32, u32) {
        let length = self.bytes.len();
        if at + 32 <= length {
            // SAFETY: `at + 32 <= len`; only `with` hands out this scanner, after it has seen AVX2.
            return unsafe {
                (Avx2Name::stops(self.bytes.as_ptr().add(at)), Avx2Value::stops(self.bytes.as_ptr().add(at)))
            };
        }
        if at >= length {
            return (u32::MAX, u32::MAX);
        }
        // What lies behind the slice stops everything.
        let behind = u32::MAX << (length - at);
        if length >= 32 {
            let last = length - 32;
            // SAFETY: `last + 32 == len`; AVX2 as above.
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
                    // The place behind the slice stops, so this is never beyond it.
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

/// 16 bytes at a time, values only: SSE2 has no byte shuffle, so names and targets keep to the table.
#[derive(Clone, Copy)]
pub(super) struct Sse2;

struct Sse2Value;
impl Block for Sse2Value {
    const WIDTH: usize = 16;
    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u32 {
        // SAFETY: 16 bytes are readable by the contract; SSE2 is part of x86-64.
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
        // One look at one byte for each head instead of four at the library's table.
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
        // SAFETY: every feature that `with_avx2` is compiled for has just been seen on this machine.
        unsafe { with_avx2(job) }
    } else {
        job.run::<Sse2>()
    }
}
