//! Encodes DEFLATE (RFC 1951), for compressed messages that expand much or take long to inflate.

/// An empty stored block, with which a flush ends.
pub(super) const EMPTY_BLOCK: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// The longest match of DEFLATE, in bytes.
const MATCH_BYTES: usize = 258;

/// Writes bits, the lowest bit of each byte first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// The number of bits in the last byte, or 0 if it is full.
    used: u32,
}

impl Bits {
    fn bit(&mut self, bit: bool) {
        if self.used == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << self.used;
        }
        self.used = (self.used + 1) % 8;
    }

    /// Appends a number of `count` bits, lowest bit first.
    fn number(&mut self, value: u32, count: u32) {
        (0..count).for_each(|at| self.bit(value >> at & 1 == 1));
    }

    /// Appends a Huffman code, written as its binary digits.
    fn code(&mut self, code: &str) {
        code.bytes().for_each(|digit| self.bit(digit == b'1'));
    }

    /// Ends with the header of an empty stored block, whose last four bytes a WebSocket message leaves out (RFC 7692
    /// section 7.2.1).
    fn flush(mut self) -> Vec<u8> {
        self.number(0, 3);
        self.bytes
    }
}

/// Returns `length` zero bytes, compressed 1,032 to 1: a block whose code has two bits for a match of 258 bytes.
pub(super) fn zeros(length: usize) -> Vec<u8> {
    // The code lengths that the block defines are 1, 2, and runs of up to 138 zeros.
    const ONE: &str = "10";
    const TWO: &str = "11";
    const RUN: &str = "0";
    /// The order in which RFC 1951 section 3.2.7 transmits the lengths of these codes: 1 for a run (18), 2 for the
    /// lengths 2 and 1, and 0 for all others.
    const LENGTHS: [u32; 18] = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2];
    // The codes of the data. A distance of 1 has the code 0.
    const ZERO: &str = "10";
    const END: &str = "11";
    const MATCH: &str = "00";

    let mut bits = Bits::default();
    let run = |bits: &mut Bits, zeros: u32| {
        bits.code(RUN);
        bits.number(zeros - 11, 7);
    };
    // A block that is not the last, with its own codes: 286 for literals and lengths, 1 for distances.
    bits.number(0, 1);
    bits.number(2, 2);
    bits.number(286 - 257, 5);
    bits.number(0, 5);
    bits.number(LENGTHS.len() as u32 - 4, 4);
    LENGTHS.iter().for_each(|&length| bits.number(length, 3));
    // The literal 0 and the end (256) have two bits, a length of 258 (285) and a distance of 1 have one.
    bits.code(TWO);
    run(&mut bits, 138);
    run(&mut bits, 117);
    bits.code(TWO);
    run(&mut bits, 28);
    bits.code(ONE);
    bits.code(ONE);

    let matches = length.saturating_sub(1) / MATCH_BYTES;
    (0..length - matches * MATCH_BYTES).for_each(|_| bits.code(ZERO));
    (0..matches).for_each(|_| bits.code(MATCH));
    bits.code(END);
    bits.flush()
}

/// Returns ASCII text, each byte as a literal of the fixed code, which takes a decoder a step per byte.
pub(super) fn literals(text: &[u8]) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.number(0, 1);
    bits.number(1, 2);
    text.iter().for_each(|&byte| bits.code(&format!("{:08b}", byte + 0x30)));
    bits.number(0, 7);
    bits.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_that_zlib_inflates() {
        // 300 zeros: 42 literals and one match.
        const ZEROS: &[u8] =
            b"\xec\xc0\x81\x00\x00\x00\x00\x80\xa0\xfd\xa9\x17\xa9\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\x62\x00";
        assert_eq!(zeros(300), ZEROS);
        assert_eq!(literals(b"hi there"), b"\xca\xc8\x54\x28\xc9\x48\x2d\x4a\x05\x00");
        assert_eq!(zeros(1 << 20).len(), 1046);
    }
}
