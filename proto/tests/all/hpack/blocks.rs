//! Tests of HPACK as a whole: our decoder reads our encoder's blocks, damaged blocks cause no panic, and another
//! implementation agrees with ours.

use std::collections::HashSet;

use highwire_proto::hpack::{DEFAULT_TABLE_BYTES, Decoder, Encoder, Error, Indexing};
use highwire_proto::testing;
use proptest::collection::vec as several;
use proptest::prelude::*;

type Field = (Vec<u8>, Vec<u8>);

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(Field, bool)>, Error> {
    let (mut out, mut lines) = (Vec::new(), Vec::new());
    let decoded = decoder.decode(block, &mut out, (u32::MAX, u32::MAX), |line| lines.push(line))?;
    assert!(!decoded.too_large);
    Ok(lines
        .into_iter()
        .map(|line| ((out[line.name].to_vec(), out[line.value].to_vec()), line.never_indexed))
        .collect())
}

/// A step of an encoder and a decoder: a change of the table's allowed size, or a block.
#[derive(Clone, Debug)]
enum Step {
    Announce(u32),
    Block(Vec<(Field, Indexing)>),
}

fn indexing() -> impl Strategy<Value = Indexing> {
    prop_oneof![4 => Just(Indexing::Incremental), 1 => Just(Indexing::Without), 1 => Just(Indexing::Never)]
}

/// Names and values: known ones, similar ones that repeat, and any bytes.
fn field() -> impl Strategy<Value = Field> {
    let name = prop_oneof![
        prop::sample::select(vec![":method", ":path", ":status", "accept", "date", "set-cookie", "content-type", "x"])
            .prop_map(|name| name.as_bytes().to_vec()),
        "[a-e]{1,3}".prop_map(String::into_bytes),
        "[a-z-]{1,40}".prop_map(String::into_bytes),
        several(any::<u8>(), 0..20),
    ];
    let value = prop_oneof![
        6 => prop::sample::select(vec!["GET", "/", "200", "", "text/html"]).prop_map(|value| value.as_bytes().to_vec()),
        6 => "[0-9]{1,2}".prop_map(String::into_bytes),
        6 => "[ -~]{0,100}".prop_map(String::into_bytes),
        3 => several(any::<u8>(), 0..200),
        // Values about as large as the table.
        1 => (any::<u8>(), 2800_usize..4200).prop_map(|(byte, length)| vec![byte; length]),
    ];
    (name, value)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let announce = prop_oneof![Just(0), 0_u32..300, 0_u32..10_000, any::<u32>()].prop_map(Step::Announce);
    let block = several((field(), indexing()), 0..20).prop_map(Step::Block);
    several(prop_oneof![1 => announce, 4 => block], 1..30)
}

proptest! {
    // The number of cases is low, because each has dozens of blocks.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_encoded_is_decoded(steps in steps()) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(DEFAULT_TABLE_BYTES));
        for step in steps {
            match step {
                Step::Announce(bytes) => {
                    encoder.set_most_table_bytes(bytes);
                    decoder.set_most_table_bytes(bytes);
                }
                Step::Block(fields) => {
                    let mut block = Vec::new();
                    encoder.begin(&mut block);
                    for ((name, value), indexing) in &fields {
                        encoder.field(name, value, *indexing, &mut block);
                    }
                    let expected: Vec<(Field, bool)> =
                        fields.into_iter().map(|(field, indexing)| (field, indexing == Indexing::Never)).collect();
                    prop_assert_eq!(decode(&mut decoder, &block), Ok(expected));
                    prop_assert_eq!(decoder.table_bytes(), encoder.table_bytes());
                }
            }
        }
    }

    #[test]
    fn another_decoder_reads_what_we_encode(blocks in several(several((field(), indexing()), 1..20), 1..10), bytes in 0_u32..5000) {
        let (mut encoder, mut other) = (Encoder::new(), loona_hpack::Decoder::new());
        encoder.set_most_table_bytes(bytes);
        for fields in blocks {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for ((name, value), indexing) in &fields {
                encoder.field(name, value, *indexing, &mut block);
            }
            let expected: Vec<Field> = fields.into_iter().map(|(field, _)| field).collect();
            prop_assert_eq!(other.decode(&block), Ok(expected));
        }
    }

    #[test]
    fn we_read_what_another_encoder_writes(blocks in several(several(field(), 1..20), 1..10)) {
        let (mut decoder, mut other) = (Decoder::new(DEFAULT_TABLE_BYTES), loona_hpack::Encoder::new());
        for fields in blocks {
            let block = other.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
            let expected: Vec<(Field, bool)> = fields.into_iter().map(|field| (field, false)).collect();
            prop_assert_eq!(decode(&mut decoder, &block), Ok(expected));
        }
    }

    #[test]
    fn any_bytes_are_judged_as_a_slow_decoder_does(input in several(any::<u8>(), 0..600)) {
        testing::hpack(&input);
    }
}

proptest! {
    // The number of cases is low, because each has hundreds of blocks.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Compares our decoder with the slow one on every prefix of a good block, and on the block with each of its bytes
    /// damaged in turn.
    #[test]
    fn damaged_blocks_are_judged_as_a_slow_decoder_does(
        fields in several((field(), indexing()), 1..6),
        damage in any::<u8>(),
        options in any::<u8>(),
    ) {
        let (mut encoder, mut block) = (Encoder::new(), Vec::new());
        for ((name, value), indexing) in fields {
            encoder.field(&name, &value, indexing, &mut block);
        }
        block.truncate(150);
        let play = |block: &[u8]| testing::hpack(&[&[options, block.len() as u8], block].concat());
        for at in 0..block.len() {
            play(&block[..at]);
            let whole = block[at];
            block[at] ^= damage;
            play(&block);
            block[at] = whole;
        }
    }
}

/// Decodes a block after [`REQUEST`], which adds entries to the table. Returns the error of either block.
fn after_a_good_one(block: &[u8]) -> Result<(), Error> {
    let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES);
    decode(&mut decoder, REQUEST)?;
    decode(&mut decoder, block).map(|_| ())
}

/// A block with indexed fields, literals of every kind, plain and in the Huffman code, and size updates.
const REQUEST: &[u8] = b"\x20\x3f\xe1\x1f\x82\x87\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\
    \x58\x08no-cache\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf\
    \x10\x08password\x06secret\x0f\x0d\x02\x34\x32\xbf\xbe";

#[test]
fn every_prefix_and_every_single_byte_changed_is_an_answer() {
    let mut seen = HashSet::new();
    assert_eq!(after_a_good_one(REQUEST), Ok(()));
    for at in 0..REQUEST.len() {
        seen.insert(after_a_good_one(&REQUEST[..at]));
        let mut block = REQUEST.to_vec();
        for byte in 0..=255 {
            block[at] = byte;
            seen.insert(after_a_good_one(&block));
        }
        for bit in 0..8 {
            block[at] = REQUEST[at] ^ 1 << bit;
            testing::hpack(&[&[3, block.len() as u8], &block[..]].concat());
        }
    }
    for error in [
        Error::Truncated,
        Error::InvalidIndex,
        Error::InvalidHuffman,
        Error::MisplacedSizeUpdate,
        Error::SizeUpdateTooLarge,
    ] {
        assert!(seen.contains(&Err(error)), "{error:?} was never returned");
    }
}
