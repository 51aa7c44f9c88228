//! Scans eight bytes at a time in an integer register, for machines without a known vector unit and for short slices.
//!
//! Only field values gain from it. Their class is "not a control byte", which takes two comparisons, and a subtraction
//! can do each on eight lanes at once. Names and targets have irregular classes, for which the table of [`naive`] is
//! faster.

use super::{Plain, Scanner, naive};

/// Scans eight bytes at a time.
#[derive(Clone, Copy)]
pub struct Swar;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Returns the high bit of each lane below 0x20 or equal to 0x7f. A borrow may wrongly mark a lane above a marked one,
/// but never one below it, and lanes with the high bit set are never marked. The lowest mark is therefore exact.
#[inline(always)]
fn controls(word: u64) -> u64 {
    let low = word.wrapping_sub(ONES * 0x20) & !word;
    let del = word ^ (ONES * 0x7f);
    let del = del.wrapping_sub(ONES) & !del;
    (low | del) & HIGHS
}

impl Scanner for Swar {
    type Cursor<'b> = Plain<'b, Swar>;

    #[inline(always)]
    fn name_end(bytes: &[u8], from: usize) -> usize {
        naive::Naive::name_end(bytes, from)
    }

    #[inline(always)]
    fn value_end(bytes: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(Ok(eight)) = bytes.get(at..at + 8).map(<[u8; 8]>::try_from) {
            let marks = controls(u64::from_le_bytes(eight));
            if marks == 0 {
                at += 8;
                continue;
            }
            at += marks.trailing_zeros() as usize / 8;
            if bytes[at] != b'\t' {
                return at;
            }
            at += 1;
        }
        naive::Naive::value_end(bytes, at)
    }

    #[inline(always)]
    fn target_end(bytes: &[u8], from: usize) -> usize {
        naive::Naive::target_end(bytes, from)
    }
}
