//! Compares our decoder of header blocks with a slow one that reads strings bit by bit and keeps its table as a list,
//! and passes the decoded fields through our encoder.

use super::{FieldText, Text};
use crate::hpack::{self, Decoder, Encoder, FieldLine, Indexing};
use alloc::vec::Vec;

/// The largest table size in bytes that an input can announce.
const LARGEST_TABLE: u32 = 255 * ANNOUNCED_UNIT;
const ANNOUNCED_UNIT: u32 = 32;

/// The byte of the input that announces another table size, which the next byte gives. Other values are lengths of
/// blocks.
const ANNOUNCE: u8 = 255;

/// Decodes header blocks in sequence, as on one connection. The first byte of the input chooses the largest list.
/// Blocks follow, each after its length, and announcements of table sizes: 255 and the size in units of 32 bytes.
///
/// # Panics
/// Panics if our decoder and the slow one differ, if a bound is exceeded, if a block has another meaning the second
/// time although the table did not change, or if a block of our encoder does not decode to the encoded fields.
pub fn hpack(input: &[u8]) {
    let Some((&options, mut rest)) = input.split_first() else { return };
    let most_list_bytes = [0, 100, 1000, 1 << 20][usize::from(options % 4)];
    let mut pair = Pair {
        decoder: Decoder::new(hpack::DEFAULT_TABLE_BYTES),
        slow: Slow::new(hpack::DEFAULT_TABLE_BYTES),
        most_list_bytes,
        largest_table: hpack::DEFAULT_TABLE_BYTES,
    };
    let mut echo = Echo::new();
    while let Some((&length, behind)) = rest.split_first() {
        if length == ANNOUNCE {
            let Some((&units, behind)) = behind.split_first() else { return };
            rest = behind;
            pair.announce(u32::from(units) * ANNOUNCED_UNIT);
            echo.announce(u32::from(units) * ANNOUNCED_UNIT);
            continue;
        }
        let (block, behind) = behind.split_at(behind.len().min(usize::from(length)));
        rest = behind;
        let Some(fields) = pair.receive(block) else { return };
        echo.play(&fields, options);
    }
}

/// A field, and true if it must never be indexed.
type Line = (FieldText, bool);

/// Decodes a block and checks the ranges of its fields. Returns the fields, and true if the list is too large.
fn decode(decoder: &mut Decoder, block: &[u8], most_list_bytes: u32) -> Result<(Vec<Line>, bool), hpack::Error> {
    const BEFORE: usize = 3;
    let (mut out, mut lines) = (Vec::from([0; BEFORE]), Vec::new());
    let decoded = decoder.decode(block, &mut out, (most_list_bytes, u32::MAX), |line| lines.push(line));
    // If the block ends inside a field, `out` may also hold the block's decoded strings and a name of the table.
    let slack = block.len() * 8 / 5 + LARGEST_TABLE as usize;
    assert!(out.len() <= BEFORE + most_list_bytes as usize + slack, "{} bytes of {}", out.len(), block.len());
    let decoded = decoded?;
    let (mut end, mut list_bytes) = (BEFORE, 0);
    let fields = lines.into_iter().map(|FieldLine { name, value, name_index, never_indexed }| {
        assert_eq!((name.start, value.start), (end, name.end), "the ranges are adjacent");
        end = value.end;
        list_bytes += name.len() + value.len() + hpack::FIELD_OVERHEAD as usize;
        let (name, value) = (&out[name], &out[value]);
        assert_eq!(name_index, hpack::name_index(name), "of {}", name.escape_ascii());
        ((Text(name.to_vec()), Text(value.to_vec())), never_indexed)
    });
    let fields = fields.collect();
    assert_eq!(end, out.len(), "bytes are appended that belong to no field");
    assert!(list_bytes <= most_list_bytes as usize);
    Ok((fields, decoded.too_large))
}

/// Our decoder and the slow one, with the same input.
struct Pair {
    decoder: Decoder,
    slow: Slow,
    most_list_bytes: u32,
    largest_table: u32,
}

impl Pair {
    fn announce(&mut self, bytes: u32) {
        self.decoder.set_most_table_bytes(bytes);
        self.slow.announce(bytes);
        self.largest_table = self.largest_table.max(bytes);
    }

    /// Decodes a block with both decoders. Returns the fields that fit the list, or `None` if decoding fails.
    fn receive(&mut self, block: &[u8]) -> Option<Vec<Line>> {
        let version = self.decoder.table_version();
        let decoded = decode(&mut self.decoder, block, self.most_list_bytes);
        let expected = self.slow.decode(block);
        let bytes = self.decoder.table_bytes();
        assert!(bytes <= self.largest_table, "{bytes} bytes in a table of {}", self.largest_table);
        // The memory is for the text, and for places of 16 bytes, whose number is a power of two and at least four.
        let held = 2 * self.largest_table as usize + 16 * (self.largest_table as usize / 32).next_power_of_two().max(4);
        assert!(self.decoder.memory_bytes() <= held, "{} bytes held", self.decoder.memory_bytes());
        let list_bytes = expected.iter().flatten().map(|((name, value), _)| (name.0.len() + value.0.len() + 32) as u64);
        if list_bytes.sum::<u64>() > u64::from(self.most_list_bytes) * u64::from(hpack::HARD_FACTOR) {
            assert_eq!(decoded.map(drop), Err(hpack::Error::ListTooLarge));
            return None;
        }
        let (Ok((fields, too_large)), Some(expected)) = (&decoded, &expected) else {
            assert_eq!((decoded.is_ok(), expected.is_some()), (false, false), "{}: {decoded:?}", block.escape_ascii());
            return None;
        };
        assert_eq!(bytes as usize, self.slow.bytes(), "the tables have the same size after {}", block.escape_ascii());
        let mut left = self.most_list_bytes as usize;
        let fitting = expected.iter().take_while(|((name, value), _)| {
            let cost = name.0.len() + value.0.len() + 32;
            let fits = cost <= left;
            left = left.saturating_sub(cost);
            fits
        });
        let fitting = fitting.count();
        assert_eq!((fields.as_slice(), *too_large), (&expected[..fitting], fitting < expected.len()));
        if self.decoder.table_version() == version {
            assert_eq!(decode(&mut self.decoder, block, self.most_list_bytes), decoded, "decoded a second time");
            assert_eq!(self.decoder.table_version(), version);
        }
        decoded.ok().map(|(fields, _)| fields)
    }
}

/// Our encoder, and a decoder for its blocks.
struct Echo {
    encoder: Encoder,
    decoder: Decoder,
    blocks: usize,
}

impl Echo {
    fn new() -> Echo {
        Echo { encoder: Encoder::new(), decoder: Decoder::new(hpack::DEFAULT_TABLE_BYTES), blocks: 0 }
    }

    fn announce(&mut self, bytes: u32) {
        self.encoder.set_most_table_bytes(bytes);
        self.decoder.set_most_table_bytes(bytes);
    }

    fn play(&mut self, fields: &[Line], options: u8) {
        let version = self.encoder.table_version();
        let (block, expected) = self.encode(fields, options);
        let received = decode(&mut self.decoder, &block, 1 << 30);
        assert_eq!(received, Ok((expected, false)), "of {}", block.escape_ascii());
        assert_eq!(self.decoder.table_bytes(), self.encoder.table_bytes(), "the tables have the same size");
        if self.encoder.table_version() == version {
            assert_eq!(self.encode(fields, options).0, block, "encoded a second time");
        }
        self.blocks += 1;
    }

    fn encode(&mut self, fields: &[Line], options: u8) -> (Vec<u8>, Vec<Line>) {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        let mut expected = Vec::new();
        for (number, ((name, value), _)) in fields.iter().enumerate() {
            let ways = [Indexing::Incremental, Indexing::Without, Indexing::Incremental, Indexing::Never];
            let indexing = ways[(number + self.blocks + usize::from(options / 4)) % ways.len()];
            self.encoder.field(&name.0, &value.0, indexing, &mut block);
            expected.push(((name.clone(), value.clone()), indexing == Indexing::Never));
        }
        (block, expected)
    }
}

/// A slow decoder that follows the text of RFC 7541.
struct Slow {
    /// The entries, newest first.
    entries: Vec<FieldText>,
    table_bytes: u32,
    announced: u32,
    due: Option<u32>,
}

/// The part of a block that has not been read.
struct Bytes<'b>(&'b [u8]);

impl Slow {
    fn new(bytes: u32) -> Slow {
        Slow { entries: Vec::new(), table_bytes: bytes, announced: bytes, due: None }
    }

    fn announce(&mut self, bytes: u32) {
        self.announced = bytes;
        if bytes < self.table_bytes {
            self.due = Some(self.due.map_or(bytes, |due| due.min(bytes)));
        }
    }

    fn bytes(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.0.len() + value.0.len() + 32).sum()
    }

    fn fit(&mut self, bytes: usize) {
        while self.bytes() > bytes {
            self.entries.pop();
        }
    }

    fn decode(&mut self, block: &[u8]) -> Option<Vec<Line>> {
        let mut bytes = Bytes(block);
        let (mut fields, mut updates) = (Vec::new(), 0);
        while let Some(&first) = bytes.0.first() {
            if first & 0b1110_0000 == 0b0010_0000 {
                let size = bytes.integer(5)?;
                updates += 1;
                if !fields.is_empty() || updates > 2 || size > self.due.take().unwrap_or(self.announced) {
                    return None;
                }
                self.table_bytes = size;
                self.fit(size as usize);
            } else {
                if self.due.is_some() {
                    return None;
                }
                fields.push(self.field(&mut bytes, first)?);
            }
        }
        self.due.is_none().then_some(fields)
    }

    fn field(&mut self, bytes: &mut Bytes<'_>, first: u8) -> Option<Line> {
        if first & 0b1000_0000 != 0 {
            let index = bytes.integer(7)?;
            return Some((self.entry(index)?, false));
        }
        let incremental = first & 0b0100_0000 != 0;
        let name = match bytes.integer(if incremental { 6 } else { 4 })? {
            0 => bytes.string()?,
            index => self.entry(index)?.0,
        };
        let field = (name, bytes.string()?);
        if incremental {
            let cost = field.0.0.len() + field.1.0.len() + 32;
            self.fit((self.table_bytes as usize).saturating_sub(cost));
            self.entries.insert(0, field.clone());
            self.fit(self.table_bytes as usize);
        }
        Some((field, !incremental && first & 0b0001_0000 != 0))
    }

    fn entry(&self, index: u32) -> Option<FieldText> {
        let index = (index as usize).checked_sub(1)?;
        if index < hpack::STATIC_ENTRIES {
            let (name, value) = hpack::static_entry(index + 1);
            return Some((Text(name.into()), Text(value.into())));
        }
        self.entries.get(index - hpack::STATIC_ENTRIES).cloned()
    }
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn integer(&mut self, prefix_bits: u32) -> Option<u32> {
        let mask = (1 << prefix_bits) - 1;
        let mut value = u128::from(self.next()? & mask);
        if value == u128::from(mask) {
            let mut continued = true;
            for shift in [0, 7, 14, 21, 28] {
                if continued {
                    let byte = self.next()?;
                    value += u128::from(byte % 128) << shift;
                    continued = byte >= 128;
                }
            }
            if continued {
                return None;
            }
        }
        value.try_into().ok()
    }

    fn string(&mut self) -> Option<Text> {
        let huffman = *self.0.first()? >= 128;
        let length = self.integer(7)? as usize;
        let text = self.0.get(..length)?;
        self.0 = &self.0[length..];
        if huffman { decode_huffman(text).map(Text) } else { Some(Text(text.to_vec())) }
    }
}

/// Decodes a Huffman string bit by bit, by comparing the bits read so far with the code of every symbol.
pub(crate) fn decode_huffman(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut length) = (Vec::new(), 0, 0);
    for at in 0..text.len() * 8 {
        bits = bits << 1 | u32::from(text[at / 8] >> (7 - at % 8) & 1);
        length += 1;
        match (0..=hpack::END).find(|&symbol| hpack::code(symbol) == (bits, length)) {
            Some(hpack::END) => return None,
            Some(symbol) => {
                out.push(symbol as u8);
                (bits, length) = (0, 0);
            }
            None => {}
        }
    }
    (length < 8 && bits == (1 << length) - 1).then_some(out)
}
