//! The scanner for aarch64: 16 bytes at a time with NEON, which every aarch64 has. It looks up classes as `x86.rs` describes, but
//! leaves the bytes after the last whole block to the scalar scanner (`Swar`), and keeps no masks.

use super::{Plain, Scanner, naive, swar::Swar};
use core::arch::aarch64::*;

const fn columns(class: u8) -> [u8; 16] {
    let mut table = [0u8; 16];
    let mut byte = 0;
    while byte < 128 {
        if naive::CLASSES[byte] & class != 0 {
            table[byte & 15] |= 1 << (byte >> 4);
        }
        byte += 1;
    }
    table
}

const ROWS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0];
const NAME_COLUMNS: [u8; 16] = columns(naive::NAME);
const TARGET_COLUMNS: [u8; 16] = columns(naive::TARGET);

/// Scans 16 bytes at a time.
#[derive(Clone, Copy)]
pub(super) struct Neon;

/// Returns four bits per lane of `mask`, whose lanes are 0 or 0xff.
#[inline(always)]
fn lanes(mask: uint8x16_t) -> u64 {
    // SAFETY: NEON is part of aarch64; the operations touch registers only.
    unsafe { vget_lane_u64::<0>(vreinterpret_u64_u8(vshrn_n_u16::<4>(vreinterpretq_u16_u8(mask)))) }
}

#[inline(always)]
fn not_in(columns: &[u8; 16], block: &[u8; 16]) -> u64 {
    // SAFETY: all three arrays have 16 bytes; NEON is part of aarch64.
    unsafe {
        let block = vld1q_u8(block.as_ptr());
        let row = vqtbl1q_u8(vld1q_u8(ROWS.as_ptr()), vshrq_n_u8::<4>(block));
        let column = vqtbl1q_u8(vld1q_u8(columns.as_ptr()), vandq_u8(block, vdupq_n_u8(15)));
        lanes(vceqzq_u8(vandq_u8(row, column)))
    }
}

#[inline(always)]
fn controls(block: &[u8; 16]) -> u64 {
    // SAFETY: the array has 16 bytes; NEON is part of aarch64.
    unsafe {
        let block = vld1q_u8(block.as_ptr());
        let low = vbicq_u8(vcltq_u8(block, vdupq_n_u8(0x20)), vceqq_u8(block, vdupq_n_u8(9)));
        lanes(vorrq_u8(low, vceqq_u8(block, vdupq_n_u8(0x7f))))
    }
}

#[inline(always)]
fn blocks(bytes: &[u8], from: usize, stops: impl Fn(&[u8; 16]) -> u64, rest: impl Fn(&[u8], usize) -> usize) -> usize {
    let mut at = from;
    while let Some(Ok(block)) = bytes.get(at..at + 16).map(<&[u8; 16]>::try_from) {
        let found = stops(block);
        if found != 0 {
            return at + found.trailing_zeros() as usize / 4;
        }
        at += 16;
    }
    rest(bytes, at)
}

impl Scanner for Neon {
    type Cursor<'b> = Plain<'b, Neon>;

    #[inline(always)]
    fn name_end(bytes: &[u8], from: usize) -> usize {
        blocks(bytes, from, |block| not_in(&NAME_COLUMNS, block), Swar::name_end)
    }
    #[inline(always)]
    fn value_end(bytes: &[u8], from: usize) -> usize {
        blocks(bytes, from, controls, Swar::value_end)
    }
    #[inline(always)]
    fn target_end(bytes: &[u8], from: usize) -> usize {
        blocks(bytes, from, |block| not_in(&TARGET_COLUMNS, block), Swar::target_end)
    }
}
