//! Masking (RFC 6455 section 5.3): byte `n` of a payload is combined with byte `n` modulo 4 of the key by exclusive or.

/// The number of bytes that one step of [`apply_mask`] handles. The compiler turns a step into a few vector
/// instructions.
const STEP: usize = 64;

/// Masks or unmasks bytes in place. Returns the key for the bytes that follow, and true if all resulting bytes are
/// ASCII, so that a text need not be checked again.
#[inline]
pub fn apply_mask(bytes: &mut [u8], key: [u8; 4]) -> ([u8; 4], bool) {
    let word = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let mut seen = 0_u64;
    let (steps, rest) = bytes.as_chunks_mut::<STEP>();
    for step in steps {
        for bytes in step.as_chunks_mut::<8>().0 {
            let clear = u64::from_ne_bytes(*bytes) ^ word;
            seen |= clear;
            *bytes = clear.to_ne_bytes();
        }
    }
    let (words, last) = rest.as_chunks_mut::<8>();
    for bytes in words {
        let clear = u64::from_ne_bytes(*bytes) ^ word;
        seen |= clear;
        *bytes = clear.to_ne_bytes();
    }
    let mut seen_last = 0;
    for (at, byte) in last.iter_mut().enumerate() {
        *byte ^= key[at % 4];
        seen_last |= *byte;
    }
    let mut next = key;
    next.rotate_left(bytes.len() % 4);
    (next, seen & 0x8080_8080_8080_8080 == 0 && seen_last < 0x80)
}

/// Does the same as [`apply_mask`], byte by byte. Tests compare the two.
pub fn apply_mask_naive(bytes: &mut [u8], key: [u8; 4]) -> ([u8; 4], bool) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte ^= key[at % 4];
    }
    let next = core::array::from_fn(|at| key[(at + bytes.len()) % 4]);
    (next, bytes.iter().all(u8::is_ascii))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn vectors_mask_as_single_bytes_do() {
        let all: Vec<u8> = (0..400_usize).map(|at| (at * 7) as u8).collect();
        for key in [[0; 4], [1, 2, 3, 4], [0x80, 0, 0x7f, 0xff]] {
            for from in 0..9 {
                for length in (0..=140).chain([255, 256, 257, 391]) {
                    let (mut fast, mut slow) = (all[from..from + length].to_vec(), all[from..from + length].to_vec());
                    assert_eq!(
                        apply_mask(&mut fast, key),
                        apply_mask_naive(&mut slow, key),
                        "{length} bytes from {from}"
                    );
                    assert_eq!(fast, slow, "{length} bytes from {from}");
                }
            }
        }
        for at in 0..130 {
            let mut bytes = [b'a'; 130];
            bytes[at] = 0x80;
            assert!(!apply_mask(&mut bytes, [0; 4]).1, "byte {at} is not ASCII");
        }
    }

    #[test]
    fn parts_are_masked_as_the_whole() {
        let whole: Vec<u8> = (0..100).collect();
        for cut in 0..=whole.len() {
            let (mut once, mut twice) = (whole.clone(), whole.clone());
            apply_mask(&mut once, [9, 8, 7, 6]);
            let (left, right) = twice.split_at_mut(cut);
            let (key, _) = apply_mask(left, [9, 8, 7, 6]);
            apply_mask(right, key);
            assert_eq!(once, twice, "cut at {cut}");
        }
    }
}
