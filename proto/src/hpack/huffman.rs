//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive in the order of their symbols, and the first of a length
//! follows the last of the previous length. The RFC's table can therefore be stored as 257 lengths, from which the
//! compiler computes all other tables.
//!
//! The decoder keeps the next bits of the string in a register and looks up the first `PEEK_BITS` of them, which
//! usually gives one symbol, or two if both fit. Most header text has five to seven bits per symbol. The usual state
//! machine (a state for each inner node of the tree, four or eight bits per step) also waits for a load before each
//! step, but advances four bits with a table of 16 KiB, or eight bits with one of 256 KiB. This decoder advances up to
//! eleven bits with 8 KiB, a quarter of a usual first-level cache.
//!
//! The register holds the string's bits *inverted*. A string is padded with ones, so the zeros that a shift brings in
//! read as padding, and no padding has to be added at the end.

use super::Error;
use alloc::vec::Vec;

/// The symbol that ends the code. It must not occur in a string.
pub(crate) const END: usize = 256;
const SYMBOLS: usize = END + 1;

/// The length in bits of each symbol's code, from RFC 7541 appendix B.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // 0
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7, // 64
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 128
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 192
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30, // 256
];
const SHORTEST: usize = 5;
const LONGEST: usize = 30;

#[derive(Clone, Copy)]
struct Code {
    bits: u32,
    length: u8,
}

static CODES: [Code; SYMBOLS] = {
    let mut codes = [Code { bits: 0, length: 0 }; SYMBOLS];
    let (mut next, mut length) = (0, 0);
    while length < LONGEST {
        length += 1;
        next <<= 1;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                codes[symbol] = Code { bits: next, length: length as u8 };
                next += 1;
            }
            symbol += 1;
        }
    }
    assert!(next == 1 << LONGEST, "the code is complete");
    codes
};

/// Returns the code of a byte or of [`END`], in the lower bits, and its length. Slow decoders in tests use it.
pub(crate) fn code(symbol: usize) -> (u32, u8) {
    (CODES[symbol].bits, CODES[symbol].length)
}

/// The symbols of one code length.
#[derive(Clone, Copy)]
struct Group {
    /// One above the last code of this length or a shorter one, shifted to the upper end of 32 bits. It is 2^32 for the
    /// longest code.
    end: u64,
    /// Added to a code of this length, modulo 2^32, it gives the index of the code's symbol in `SORTED`.
    to_place: u32,
}

/// The groups, by code length.
static GROUPS: [Group; LONGEST + 1] = groups();

const fn groups() -> [Group; LONGEST + 1] {
    let mut groups = [Group { end: 0, to_place: 0 }; LONGEST + 1];
    let (mut next, mut place, mut length) = (0u32, 0u32, 0);
    while length < LONGEST {
        length += 1;
        next <<= 1;
        groups[length].to_place = place.wrapping_sub(next);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                next += 1;
                place += 1;
            }
            symbol += 1;
        }
        groups[length].end = (next as u64) << (32 - length);
    }
    groups
}

/// The symbols in the order of their codes.
static SORTED: [u16; SYMBOLS] = sorted();

const fn sorted() -> [u16; SYMBOLS] {
    let mut sorted = [0; SYMBOLS];
    let (mut place, mut length) = (0, 0);
    while length < LONGEST {
        length += 1;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                sorted[place] = symbol as u16;
                place += 1;
            }
            symbol += 1;
        }
    }
    sorted
}

/// Returns the symbol whose code is at the front of 32 bits, and the code's length, which is `shortest` or more.
const fn front(bits: u32, groups: &[Group; LONGEST + 1], sorted: &[u16; SYMBOLS], shortest: usize) -> (u16, u8) {
    let mut length = shortest;
    // The code is complete: the longest group's end is above every number.
    while bits as u64 >= groups[length].end {
        length += 1;
    }
    let place = (bits >> (32 - length)).wrapping_add(groups[length].to_place);
    (sorted[place as usize], length as u8)
}

/// The number of bits that one step looks up. Decoding a browser's request took 1,550 ns with 9 bits, 1,430 with 10,
/// 1,150 with 11 and 980 with 12, each with a cache that held nothing else. A table for 12 bits takes 16 KiB, half of
/// many first-level caches.
const PEEK_BITS: u32 = 11;

/// The meaning of the next `PEEK_BITS` of a string, in one load. The two lower bytes hold the symbols, the third byte
/// the number of bits of all its symbols, the upper byte the number of bits of the first symbol and the number of
/// symbols. The whole word is 0 if the first code is longer than `PEEK_BITS`.
#[derive(Clone, Copy)]
struct Step(u32);

impl Step {
    const LONG: Step = Step(0);

    const fn new(symbols: [u8; 2], bits: u8, first_bits: u8) -> Step {
        let count = if bits == first_bits { 1 } else { 2 };
        Step(u32::from_le_bytes([symbols[0], symbols[1], bits, first_bits | count << 6]))
    }

    fn symbols(self) -> [u8; 2] {
        [self.0 as u8, (self.0 >> 8) as u8]
    }

    fn count(self) -> usize {
        (self.0 >> 30) as usize
    }

    fn bits(self) -> u8 {
        (self.0 >> 16) as u8
    }

    fn first_bits(self) -> u8 {
        (self.0 >> 24) as u8 & 63
    }
}

/// The steps. The index of a step is the next `PEEK_BITS` bits of the string, inverted.
static STEPS: [Step; 1 << PEEK_BITS] = {
    let (groups, sorted) = (groups(), sorted());
    let mut steps = [Step::LONG; 1 << PEEK_BITS];
    let mut peeked = 0;
    while peeked < steps.len() {
        let bits = !((peeked as u32) << (32 - PEEK_BITS)) & (u32::MAX << (32 - PEEK_BITS));
        let (first, first_bits) = front(bits, &groups, &sorted, SHORTEST);
        let (second, second_bits) = front(bits << first_bits, &groups, &sorted, SHORTEST);
        if (first_bits + second_bits) as u32 <= PEEK_BITS {
            steps[peeked] = Step::new([first as u8, second as u8], first_bits + second_bits, first_bits);
        } else if first_bits as u32 <= PEEK_BITS {
            steps[peeked] = Step::new([first as u8, 0], first_bits, first_bits);
        }
        peeked += 1;
    }
    steps
};

/// Decodes a string and appends it.
///
/// # Errors
/// Returns [`Error::InvalidHuffman`] if the string contains the code of [`END`], or if its padding is not at most seven
/// ones.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    // It is cheaper to allocate zeros and cut the unused ones off than to reserve room for each symbol. Each step
    // stores two symbols even if it has only one.
    out.resize(start + text.len() * 8 / SHORTEST + 2, 0);
    let decoded = decode_into(text, &mut out[start..]);
    out.truncate(start + decoded.unwrap_or(0));
    decoded.map(|_| ())
}

/// The next bits of a string, inverted, in the upper bits of a word.
#[derive(Clone, Copy)]
struct Register {
    bits: u64,
    /// The number of valid bits. Those below are zeros, or bits of the bytes that are read next.
    count: u32,
}

/// Decodes a string into `to`. Returns the number of bytes written.
fn decode_into(mut text: &[u8], to: &mut [u8]) -> Result<usize, Error> {
    let mut register = Register { bits: 0, count: 0 };
    let mut written = 0;
    while let Some(next) = text.first_chunk() {
        // Reads eight bytes at once. Bytes that do not fit whole are read again next time, to the same position.
        register.bits |= !u64::from_be_bytes(*next) >> register.count;
        text = &text[(63 - register.count as usize) / 8..];
        // At least 56 bits are valid: enough for all these steps, or for one long code.
        register.count |= 56;
        for number in 0..56 / PEEK_BITS {
            let step = register.peek();
            if step.bits() != 0 {
                to[written..written + 2].copy_from_slice(&step.symbols());
                written += step.count();
                register.shift(step.bits());
                continue;
            }
            if number == 0 {
                let (symbol, bits) = long(register);
                to[written] = u8::try_from(symbol).map_err(|_| Error::InvalidHuffman)?;
                written += 1;
                register.shift(bits);
            }
            break;
        }
    }
    let last = decode_last(text, register, &mut to[written..])?;
    Ok(written + last)
}

/// Decodes the rest of a string: the register and fewer than eight bytes after it.
fn decode_last(mut text: &[u8], mut register: Register, to: &mut [u8]) -> Result<usize, Error> {
    let mut written = 0;
    loop {
        while register.count < 56
            && let Some((&byte, rest)) = text.split_first()
        {
            register.bits |= u64::from(!byte) << (56 - register.count);
            register.count += 8;
            text = rest;
        }
        let step = register.peek();
        if step.bits() == 0 {
            // Padding also looks like a long code.
            if register.count <= PEEK_BITS {
                break;
            }
            let (symbol, bits) = long(register);
            if u32::from(bits) > register.count {
                break;
            }
            to[written] = u8::try_from(symbol).map_err(|_| Error::InvalidHuffman)?;
            written += 1;
            register.shift(bits);
        } else if u32::from(step.bits()) <= register.count {
            to[written..written + 2].copy_from_slice(&step.symbols());
            written += step.count();
            register.shift(step.bits());
        } else if u32::from(step.first_bits()) <= register.count {
            // The second symbol consists of padding.
            to[written] = step.symbols()[0];
            written += 1;
            register.shift(step.first_bits());
        } else {
            break;
        }
    }
    if register.count < 8 && register.bits == 0 { Ok(written) } else { Err(Error::InvalidHuffman) }
}

impl Register {
    #[inline]
    fn peek(self) -> Step {
        STEPS[(self.bits >> (u64::BITS - PEEK_BITS)) as usize]
    }

    #[inline]
    fn shift(&mut self, bits: u8) {
        self.bits <<= bits;
        self.count -= u32::from(bits);
    }
}

/// Returns the symbol at the front, whose code is longer than a step, and the code's length. Control bytes, bytes from
/// 0x80 on, and a few others such as `#`, `@` and `{` have such codes.
#[cold]
fn long(register: Register) -> (u16, u8) {
    front((!register.bits >> 32) as u32, &GROUPS, &SORTED, PEEK_BITS as usize + 1)
}

/// Returns the number of bytes that [`encode`] appends.
pub(super) fn encoded_bytes(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of a text, padded with ones.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0_u32);
    for &byte in text {
        let code = CODES[usize::from(byte)];
        bits = bits << code.length | u64::from(code.bits);
        count += u32::from(code.length);
        // Fewer than 32 bits stay, and the longest code has 30, so 64 bits suffice.
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    let last = ((bits << 32 | u64::from(u32::MAX)) >> count) as u32;
    out.extend_from_slice(&last.to_be_bytes()[..count.div_ceil(8) as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::decode_huffman;
    use alloc::vec;
    use proptest::prelude::*;

    fn check(text: &[u8]) {
        let mut out = vec![1, 2];
        let decoded = decode(text, &mut out).map(|()| out[2..].to_vec());
        assert_eq!(decoded.ok(), decode_huffman(text), "{}", text.escape_ascii());
        assert!(out.len() <= 2 + text.len() * 8 / 5);
    }

    #[test]
    fn the_code_is_that_of_the_rfc() {
        for (symbol, bits, length) in [
            (0, 0x1ff8, 13),
            (10, 0x3fff_fffc, 30),
            (32, 0x14, 6),
            (48, 0x0, 5),
            (50, 0x2, 5),
            (97, 0x3, 5),
            (116, 0x9, 5),
            (92, 0x7fff0, 19),
            (122, 0x7b, 7),
            (126, 0x1ffd, 13),
            (127, 0xfff_fffc, 28),
            (192, 0x3ff_ffe0, 26),
            (203, 0x7ff_ffde, 27),
            (255, 0x3ff_ffee, 26),
            (END, 0x3fff_ffff, 30),
        ] {
            assert_eq!(code(symbol), (bits, length), "{symbol}");
        }
    }

    #[test]
    fn every_byte_comes_back_at_every_place() {
        for byte in 0..=255 {
            for before in 0..20 {
                for after in 0..20 {
                    let text =
                        [&b"0:/Xaaaa&&&&00000000"[..before], &[byte], &b"www.example.com/0000"[..after]].concat();
                    let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
                    encode(&text, &mut encoded);
                    assert_eq!(encoded.len(), encoded_bytes(&text));
                    assert_eq!(decode(&encoded, &mut decoded), Ok(()));
                    assert_eq!(decoded, text);
                }
            }
        }
    }

    #[test]
    fn padding_is_up_to_seven_ones() {
        for (text, expected) in [
            (&[][..], Some(&b""[..])),
            (&[0x07], Some(b"0")),
            (&[0x06], None),
            (&[0x00], None),
            (&[0xff], None),
            (&[0xfe], None),
            (&[0x1f, 0xff], None),
            (&[0x07, 0xff], None),
            (&[0xf8, 0xff], None),
            (&[0x00, 0x00, 0x00, 0x00, 0x00], Some(b"00000000")),
            (&[0x00, 0x00, 0x00, 0x00, 0x00, 0xff], None),
            (&[0xff, 0xff, 0xff, 0xff], None),
            (&[0xff, 0xff, 0xff, 0xfc], None),
            (&[0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x00], None),
            (&[0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0x00], None),
        ] {
            let mut out = Vec::new();
            assert_eq!(decode(text, &mut out).ok().map(|()| &out[..]), expected, "{text:x?}");
            check(text);
        }
    }

    #[test]
    fn two_bytes_of_many_kinds() {
        // The test takes every seventh value, which changes each bit and saves the slow decoder seconds.
        for bytes in (0..=u16::MAX).step_by(7) {
            check(&bytes.to_be_bytes());
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_judged_as_bit_by_bit(text in prop::collection::vec(any::<u8>(), 0..40)) {
            check(&text);
        }

        #[test]
        fn bytes_with_many_ones_are_judged_as_bit_by_bit(
            text in prop::collection::vec(prop_oneof![Just(0xff_u8), Just(0xfe), Just(0x7f), any::<u8>()], 0..40),
        ) {
            check(&text);
        }

        #[test]
        fn codes_with_a_flipped_bit_are_judged_as_bit_by_bit(
            text in prop::collection::vec(any::<u8>(), 1..60),
            flipped in any::<prop::sample::Index>(),
        ) {
            let mut encoded = Vec::new();
            encode(&text, &mut encoded);
            check(&encoded);
            let at = flipped.index(encoded.len() * 8);
            encoded[at / 8] ^= 1 << (at % 8);
            check(&encoded);
        }
    }
}
