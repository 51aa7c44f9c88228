//! Decodes header blocks into fields (RFC 7541 sections 3, 5 and 6).
//!
//! The memory that a peer can make us use is bounded by the list size that the caller allows, by the block and by one
//! entry. A string has at most 8/5 of its Huffman code's length, and a field that does not fit the list is removed from
//! the output before the next one is decoded. The work is bounded too, because an indexed field that does not fit is
//! not copied, and an insertion into the table copies at most the table's size.

use super::static_table::{self, STATIC_ENTRIES};
use super::table::Table;
use super::{Entry, Error, FIELD_OVERHEAD, huffman};
use alloc::vec::Vec;
use core::ops::Range;

/// A decoded field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLine {
    /// The range of the field's name in the vector that [`Decoder::decode`] appended to.
    pub name: Range<usize>,
    /// The range of the field's value in the same vector, directly after the name.
    pub value: Range<usize>,
    /// The first index of the static table with this name, or 0, as [`name_index`](super::name_index) returns it. The
    /// number does not depend on how the peer encoded the name, so code can match on it.
    pub name_index: u8,
    /// True if the peer requires that intermediaries never add the field to a table (RFC 7541 section 6.2.3).
    pub never_indexed: bool,
}

/// The result of decoding a whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decoded {
    /// True if the list of fields is larger than allowed. The first field that did not fit and all after it are
    /// missing.
    pub too_large: bool,
}

/// Decodes the header blocks of one direction of a connection, in the order of their arrival.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The largest table size in bytes that the peer may set.
    most_table_bytes: u32,
    /// If set, the next block must begin with an update of the table's size to at most this many bytes.
    due: Option<u32>,
}

impl Decoder {
    /// Creates a decoder whose table has at most `most_table_bytes`. A connection begins with
    /// [`DEFAULT_TABLE_BYTES`](super::DEFAULT_TABLE_BYTES), even if our first SETTINGS announce another size, because
    /// the peer need not obey them before it acknowledges them.
    pub const fn new(most_table_bytes: u32) -> Decoder {
        Decoder { table: Table::new(most_table_bytes), most_table_bytes, due: None }
    }

    /// Applies our SETTINGS_HEADER_TABLE_SIZE, after the peer has acknowledged it. If it is below the table's bound,
    /// the next block must begin with a size update (RFC 7541 section 4.2).
    pub fn set_most_table_bytes(&mut self, most_table_bytes: u32) {
        self.most_table_bytes = most_table_bytes;
        if most_table_bytes < self.due.unwrap_or(self.table.most_bytes()) {
            self.due = Some(most_table_bytes);
            // A block that was valid before now lacks the update.
            self.table.renew();
        }
    }

    /// Returns the version of the dynamic table. It changes with each insertion, with each change of the table's size,
    /// and when [`set_most_table_bytes`](Self::set_most_table_bytes) makes a size update due. If decoding a block leaves
    /// the version unchanged, the same bytes decode to the same fields until the version changes. The version wraps
    /// around after 2^32 changes.
    pub fn table_version(&self) -> u32 {
        self.table.version()
    }

    /// Returns the dynamic table's size in bytes (RFC 7541 section 4.1).
    pub fn table_bytes(&self) -> u32 {
        self.table.bytes()
    }

    /// Returns the number of bytes of heap memory that the decoder holds: at most twice the table's largest size, and
    /// 16 bytes for each entry that it has room for.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Decodes one complete header block: appends the names and values of its fields to `out` and calls `each` for each
    /// field in turn.
    ///
    /// If the list becomes larger than `most_list_bytes` (RFC 9113 section 6.5.2: names, values and
    /// [`FIELD_OVERHEAD`](super::FIELD_OVERHEAD) for each field), `decode` no longer appends fields or calls `each`,
    /// but still decodes the block to its end, so that the table stays equal to the peer's. Meanwhile `out` may exceed
    /// `most_list_bytes` by one name of the table and 8/5 of the block's size.
    ///
    /// A list of more than [`HARD_FACTOR`] times that size, or of more than `most_fields` fields, is not decoded to its
    /// end, because tiny blocks can stand for very large lists, which only attackers send.
    ///
    /// # Errors
    /// Returns [`Error::ListTooLarge`] for such a list, and another error if the block is malformed. The connection
    /// must then end, because the tables may no longer be equal. `out` may contain bytes that were not passed to
    /// `each`.
    pub fn decode(
        &mut self,
        block: &[u8],
        out: &mut Vec<u8>,
        (most_list_bytes, most_fields): (u32, u32),
        mut each: impl FnMut(FieldLine),
    ) -> Result<Decoded, Error> {
        let mut reader = Reader { block, at: 0 };
        self.size_updates(&mut reader)?;
        let mut list = List::new(most_list_bytes, most_fields);
        while let Some(&first) = block.get(reader.at) {
            reader.at += 1;
            let start = out.len();
            if first & 0x80 != 0 {
                let entry = self.entry(reader.integer(first, 7)?)?;
                if list.takes(entry.text.len())? {
                    out.extend_from_slice(entry.text);
                    let (middle, end) = (start + entry.name_bytes, start + entry.text.len());
                    let name_index = entry.name_index;
                    each(FieldLine { name: start..middle, value: middle..end, name_index, never_indexed: false });
                }
                continue;
            }
            let form = Literal::of(first)?;
            let name_index = self.name(&mut reader, first, form, out)?;
            let middle = out.len();
            reader.string(out)?;
            if form == Literal::Incremental {
                self.table.insert(&out[start..middle], &out[middle..], name_index);
            }
            let end = out.len();
            if list.takes(end - start)? {
                let never_indexed = form == Literal::Never;
                each(FieldLine { name: start..middle, value: middle..end, name_index, never_indexed });
            } else {
                out.truncate(start);
            }
        }
        Ok(Decoded { too_large: list.too_large })
    }

    /// Reads the changes of the table's size, which must precede all fields: the smallest size since the last block,
    /// and the last one (RFC 7541 section 4.2).
    fn size_updates(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        /// One update for the smallest size and one for the last. More updates would be redundant.
        const MOST_SIZE_UPDATES: u32 = 2;
        let mut updates = 0;
        while let Some(&first @ 0x20..=0x3f) = reader.block.get(reader.at) {
            if updates == MOST_SIZE_UPDATES {
                return Err(Error::TooManySizeUpdates);
            }
            updates += 1;
            reader.at += 1;
            let bytes = reader.integer(first, 5)?;
            if bytes > self.due.unwrap_or(self.most_table_bytes) {
                return Err(Error::SizeUpdateTooLarge);
            }
            self.due = None;
            self.table.resize(bytes);
        }
        if self.due.is_some() { Err(Error::MissingSizeUpdate) } else { Ok(()) }
    }

    /// Returns the entry at an index that counts over both tables.
    #[inline]
    fn entry(&self, index: u32) -> Result<Entry<'_>, Error> {
        let index = index as usize;
        match index {
            0 => Err(Error::InvalidIndex),
            1..=STATIC_ENTRIES => Ok(static_table::entry(index)),
            _ => self.table.entry(index - STATIC_ENTRIES - 1).ok_or(Error::InvalidIndex),
        }
    }

    /// Appends a literal field's name and returns its static index.
    fn name(&self, reader: &mut Reader<'_>, first: u8, form: Literal, out: &mut Vec<u8>) -> Result<u8, Error> {
        let index = reader.integer(first, form.prefix_bits())?;
        if index != 0 {
            let entry = self.entry(index)?;
            out.extend_from_slice(entry.name());
            return Ok(entry.name_index);
        }
        let start = out.len();
        reader.string(out)?;
        let name = &out[start..];
        Ok(static_table::find_name(name, static_table::hash(name)))
    }
}

/// The literal representations (RFC 7541 section 6.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Literal {
    Incremental,
    Without,
    Never,
}

impl Literal {
    /// Returns the literal representation that this first byte begins. It must not begin an indexed field.
    fn of(first: u8) -> Result<Literal, Error> {
        match first {
            0x40.. => Ok(Literal::Incremental),
            0x20.. => Err(Error::MisplacedSizeUpdate),
            0x10.. => Ok(Literal::Never),
            _ => Ok(Literal::Without),
        }
    }

    /// Returns how many bits of the first byte hold the name's index.
    fn prefix_bits(self) -> u32 {
        if self == Literal::Incremental { 6 } else { 4 }
    }
}

/// The multiple of the allowed list size beyond which a list is not decoded any further.
pub const HARD_FACTOR: u32 = 4;

/// The remaining allowances for the list of a block's fields.
struct List {
    left: usize,
    too_large: bool,
    /// The number of bytes after which decoding stops with an error.
    hard_left: u64,
    fields_left: u32,
}

impl List {
    fn new(most_bytes: u32, most_fields: u32) -> List {
        let hard_left = u64::from(most_bytes) * u64::from(HARD_FACTOR);
        List { left: most_bytes as usize, too_large: false, hard_left, fields_left: most_fields }
    }

    /// Counts a field whose name and value have `text_bytes` bytes. Returns true if it fits the allowed list, or an
    /// error if decoding must stop.
    #[inline]
    fn takes(&mut self, text_bytes: usize) -> Result<bool, Error> {
        let bytes = text_bytes + FIELD_OVERHEAD as usize;
        self.hard_left = self.hard_left.checked_sub(bytes as u64).ok_or(Error::ListTooLarge)?;
        self.fields_left = self.fields_left.checked_sub(1).ok_or(Error::ListTooLarge)?;
        Ok(match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                // Smaller fields after this one must be missing too, because otherwise the list would have a gap.
                self.left = 0;
                self.too_large = true;
                false
            }
        })
    }
}

/// A block, and how far it has been read.
struct Reader<'b> {
    block: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Error> {
        let byte = *self.block.get(self.at).ok_or(Error::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads an integer whose first byte has been read and holds `prefix_bits` bits of it (RFC 7541 section 5.1).
    #[inline]
    fn integer(&mut self, first: u8, prefix_bits: u32) -> Result<u32, Error> {
        let mask = (1 << prefix_bits) - 1;
        if first & mask < mask { Ok(u32::from(first & mask)) } else { self.continued(mask) }
    }

    fn continued(&mut self, prefix: u8) -> Result<u32, Error> {
        /// Five bytes hold the 32 bits of any size in the protocol. More bytes are leading zeros, or the number is too
        /// large.
        const MOST_CONTINUATION_BYTES: u32 = 5;
        let mut value = u64::from(prefix);
        for number in 0..MOST_CONTINUATION_BYTES {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << (7 * number);
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| Error::IntegerTooLarge);
            }
        }
        Err(Error::IntegerTooLarge)
    }

    /// Reads a string and appends it (RFC 7541 section 5.2).
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let first = self.byte()?;
        let length = self.integer(first, 7)? as usize;
        let text = self.block[self.at..].get(..length).ok_or(Error::Truncated)?;
        self.at += length;
        if first & 0x80 != 0 {
            return huffman::decode(text, out);
        }
        out.extend_from_slice(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_index;
    use super::*;
    use alloc::format;
    use alloc::string::String;

    type Fields = Vec<(String, String)>;

    fn decode(decoder: &mut Decoder, block: &[u8], most_list_bytes: u32) -> Result<(Fields, Decoded), Error> {
        let (mut out, mut lines) = (b"before".to_vec(), Vec::new());
        let decoded = decoder.decode(block, &mut out, (most_list_bytes, u32::MAX), |line| lines.push(line))?;
        let mut end = 6;
        let text = |range: &Range<usize>| String::from_utf8_lossy(&out[range.clone()]).into_owned();
        let fields = lines.iter().map(|line| {
            assert_eq!((line.name.start, line.value.start), (end, line.name.end), "the ranges are adjacent");
            end = line.value.end;
            let (name, value) = (text(&line.name), text(&line.value));
            assert_eq!(line.name_index, name_index(name.as_bytes()), "{name}");
            (name, value)
        });
        let fields = fields.collect();
        assert_eq!(end, out.len(), "nothing else is appended");
        Ok((fields, decoded))
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex")).collect()
    }

    /// A block, its fields, and the table's size after it.
    type Case<'c> = (&'c str, &'c [(&'c str, &'c str)], u32);

    /// Decodes blocks in sequence, and compares the fields and the table's size after each.
    fn check(most_table_bytes: u32, blocks: &[Case<'_>]) {
        let mut decoder = Decoder::new(most_table_bytes);
        for (block, expected, bytes) in blocks {
            let (fields, decoded) = decode(&mut decoder, &hex(block), 1 << 20).expect(block);
            let expected: Fields = expected.iter().map(|&(name, value)| (name.into(), value.into())).collect();
            assert_eq!((fields, decoded.too_large), (expected, false), "{block}");
            assert_eq!(decoder.table_bytes(), *bytes, "{block}");
        }
    }

    #[test]
    fn rfc_7541_appendix_c_1() {
        for (bytes, prefix_bits, expected) in [("0a", 5, 10), ("1f9a0a", 5, 1337), ("2a", 8, 42)] {
            let block = hex(bytes);
            let mut reader = Reader { block: &block, at: 1 };
            // HPACK has no prefix of eight bits, so the third example is read with seven.
            assert_eq!(reader.integer(block[0], prefix_bits.min(7)), Ok(expected));
            assert_eq!(reader.at, block.len());
        }
    }

    #[test]
    fn rfc_7541_appendix_c_2() {
        check(
            4096,
            &[(
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                &[("custom-key", "custom-header")],
                55,
            )],
        );
        check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")], 0)]);
        check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")], 0)]);
        check(4096, &[("82", &[(":method", "GET")], 0)]);
    }

    const REQUESTS: [&[(&str, &str)]; 3] = [
        &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
            ("cache-control", "no-cache"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ],
    ];

    #[test]
    fn rfc_7541_appendix_c_3_and_c_4() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let huffman = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, huffman] {
            check(4096, &[0, 1, 2].map(|number| (blocks[number], REQUESTS[number], [57, 110, 164][number])));
        }
    }

    const RESPONSES: [&[(&str, &str)]; 3] = [
        &[
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ],
        &[
            (":status", "307"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ],
        &[
            (":status", "200"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            ("location", "https://www.example.com"),
            ("content-encoding", "gzip"),
            ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        ],
    ];

    #[test]
    fn rfc_7541_appendix_c_5_and_c_6() {
        let plain = [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 \
             474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 \
             666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 \
             3630 303b 2076 6572 7369 6f6e 3d31",
        ];
        let huffman = [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 \
             63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 \
             b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ];
        for blocks in [plain, huffman] {
            check(256, &[0, 1, 2].map(|number| (blocks[number], RESPONSES[number], [222, 222, 215][number])));
        }
    }

    #[test]
    fn malformed_blocks() {
        for (block, expected) in [
            ("80", Error::InvalidIndex),
            ("be", Error::InvalidIndex),
            ("82 82 be", Error::InvalidIndex),
            ("7e 01 61", Error::InvalidIndex),
            ("0f 2f 01 61", Error::InvalidIndex),
            ("ff ff ff ff ff 0f", Error::IntegerTooLarge),
            ("ff ff ff ff ff 7f", Error::IntegerTooLarge),
            ("ff ff ff ff ff ff 01", Error::IntegerTooLarge),
            ("ff 80 80 80 80 80 00", Error::IntegerTooLarge),
            ("00 7f ff ff ff ff ff ff ff ff ff 01", Error::IntegerTooLarge),
            ("ff", Error::Truncated),
            ("ff 80 80", Error::Truncated),
            ("40", Error::Truncated),
            ("00 01", Error::Truncated),
            ("00 01 61", Error::Truncated),
            ("00 01 61 02 62", Error::Truncated),
            ("00 01 61 7f ff ff ff ff 0e", Error::Truncated),
            ("3f", Error::Truncated),
            ("00 81 00 00", Error::InvalidHuffman),
            ("00 81 06 00", Error::InvalidHuffman),
            ("00 01 61 82 07 ff", Error::InvalidHuffman),
            ("00 01 61 84 ff ff ff ff", Error::InvalidHuffman),
            ("82 20", Error::MisplacedSizeUpdate),
            ("20 82 3f e1 1f", Error::MisplacedSizeUpdate),
            ("3f e2 1f", Error::SizeUpdateTooLarge),
            ("20 20 20", Error::TooManySizeUpdates),
        ] {
            assert_eq!(decode(&mut Decoder::new(4096), &hex(block), 1000).err(), Some(expected), "{block}");
        }
    }

    #[test]
    fn the_largest_integers_of_five_continuation_bytes_are_read() {
        for (bytes, expected) in
            [("ff 80 ff ff ff 0f", u32::MAX), ("ff 80 80 80 80 00", 127), ("fe", 126), ("ff 00", 127)]
        {
            let block = hex(bytes);
            assert_eq!(Reader { block: &block, at: 1 }.integer(block[0], 7), Ok(expected), "{bytes}");
        }
    }

    #[test]
    fn names_are_known_however_they_are_written() {
        let mut decoder = Decoder::new(4096);
        let fields = decode(&mut decoder, &hex("40 07 3a6d 6574 686f 64 03 50 55 54 be 7e 01 61 0f 2f 01 62"), 1000);
        // The helper `decode` asserts that each name index fits its name, so that only the fields are left to compare.
        let expected = ["PUT", "PUT", "a", "b"].map(|value| (":method".into(), value.into()));
        assert_eq!(fields.expect("a good block").0, expected);
    }

    #[test]
    fn a_list_that_is_too_large_ends_early_and_the_table_stays_in_step() {
        // The block has two fields of 34 bytes, a static field of 42 bytes, and a field of 36 bytes that is inserted.
        let block = hex("40 01 61 01 62 be 82 40 02 63 63 02 64 64");
        let version = |decoder: &Decoder| decoder.table_version();
        for (most_list_bytes, count) in
            [(37, 1), (67, 1), (68, 2), (109, 2), (110, 3), (145, 3), (146, 4), (u32::MAX, 4)]
        {
            let mut decoder = Decoder::new(4096);
            let before = version(&decoder);
            let (fields, decoded) = decode(&mut decoder, &block, most_list_bytes).expect("a good block");
            assert_eq!((fields.len(), decoded.too_large), (count, count < 4), "{most_list_bytes}");
            assert_eq!((decoder.table_bytes(), version(&decoder)), (70, before.wrapping_add(2)));
            let (fields, _) = decode(&mut decoder, &hex("be bf"), 1000).expect("both are in the table");
            assert_eq!(fields, [("cc".into(), "dd".into()), ("a".into(), "b".into())]);
        }
        for most_list_bytes in [0, 33, 36] {
            let decoded = decode(&mut Decoder::new(4096), &block, most_list_bytes);
            assert_eq!(decoded, Err(Error::ListTooLarge), "{most_list_bytes}: four times this is less than 146");
        }
    }

    #[test]
    fn a_block_of_more_fields_than_anybody_reads_is_not_decoded() {
        for (fields, expected) in [(5, Ok(Decoded { too_large: false })), (6, Err(Error::ListTooLarge))] {
            let block = Vec::from_iter(core::iter::repeat_n(0x82, fields));
            let mut count = 0;
            let decoded = Decoder::new(4096).decode(&block, &mut Vec::new(), (u32::MAX, 5), |_| count += 1);
            assert_eq!((decoded, count), (expected, 5));
        }
    }

    #[test]
    fn a_smaller_field_behind_one_that_does_not_fit_is_missing_too() {
        let block = hex("00 03 61 61 61 03 62 62 62 00 01 61 01 62");
        let (fields, decoded) = decode(&mut Decoder::new(4096), &block, 36).expect("a good block");
        assert_eq!((fields, decoded.too_large), (Fields::new(), true));
    }

    #[test]
    fn a_bomb_of_indexed_fields_is_not_copied() {
        let mut decoder = Decoder::new(4096);
        let mut block = hex("40 01 61 7f 81 1e");
        block.extend([b'v'; 4000]);
        block.extend([0xbe; 16_000]);
        let mut out = Vec::new();
        let decoded = decoder.decode(&block, &mut out, (32 * 1024, u32::MAX), |_| {});
        assert_eq!(decoded, Err(Error::ListTooLarge));
        assert!(out.len() <= 32 * 1024 && out.capacity() <= 128 * 1024, "{} of {}", out.len(), out.capacity());
    }

    #[test]
    fn never_indexed_is_told() {
        let (mut out, mut told) = (Vec::new(), Vec::new());
        let block = hex("10 01 61 01 62 00 01 61 01 62 40 01 61 01 62 be 17 02 61 62");
        let decoded =
            Decoder::new(4096).decode(&block, &mut out, (1000, u32::MAX), |line| told.push(line.never_indexed));
        assert_eq!((decoded, told), (Ok(Decoded { too_large: false }), Vec::from([true, false, false, false, true])));
    }

    /// Each case has the announced sizes, a block, the number of its fields or its error, and the table's bound after
    /// the block.
    #[test]
    fn size_updates_are_due_where_ours_is_smaller() {
        for (announced, block, expected, bound) in [
            (&[][..], "82", Ok(1), 4096),
            (&[], "3f e1 1f 82", Ok(1), 4096),
            (&[], "20 3f e1 1f 82", Ok(1), 4096),
            (&[], "20", Ok(0), 0),
            (&[], "", Ok(0), 4096),
            (&[8192], "82", Ok(1), 4096),
            (&[8192], "3f e1 3f 82", Ok(1), 8192),
            (&[8192], "3f e2 3f 82", Err(Error::SizeUpdateTooLarge), 4096),
            (&[100], "82", Err(Error::MissingSizeUpdate), 4096),
            (&[100], "", Err(Error::MissingSizeUpdate), 4096),
            (&[100], "3f 45 82", Ok(1), 100),
            (&[100], "3f 46 82", Err(Error::SizeUpdateTooLarge), 4096),
            (&[100], "20 82", Ok(1), 0),
            (&[100], "20 3f 45 82", Ok(1), 100),
            (&[0, 4096], "82", Err(Error::MissingSizeUpdate), 4096),
            (&[0, 4096], "3f e1 1f 82", Err(Error::SizeUpdateTooLarge), 4096),
            (&[0, 4096], "20 3f e1 1f 82", Ok(1), 4096),
            (&[0, 4096], "20 82", Ok(1), 0),
            (&[200, 100, 300], "3f 45 3f 8d 02 82", Ok(1), 300),
            (&[4096], "82", Ok(1), 4096),
        ] {
            let mut decoder = Decoder::new(4096);
            let version = decoder.table_version();
            announced.iter().for_each(|&bytes| decoder.set_most_table_bytes(bytes));
            let due = announced.iter().any(|&bytes| bytes < 4096);
            assert_eq!(decoder.table_version() != version, due, "{announced:?}");
            let decoded = decode(&mut decoder, &hex(block), 1000).map(|(fields, _)| fields.len());
            assert_eq!(decoded, expected, "{announced:?} {block}");
            assert_eq!(decoder.table.most_bytes(), bound, "{announced:?} {block}");
            if expected.is_ok() {
                assert!(decode(&mut decoder, &hex("82"), 1000).is_ok(), "nothing more is due");
            }
        }
    }

    #[test]
    fn a_peer_that_has_already_made_its_table_small_owes_nothing() {
        let mut decoder = Decoder::new(4096);
        assert!(decode(&mut decoder, &hex("20 82"), 1000).is_ok());
        decoder.set_most_table_bytes(100);
        assert!(decode(&mut decoder, &hex("82"), 1000).is_ok());
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut decoder = Decoder::new(64);
        assert!(decode(&mut decoder, &hex("40 01 61 01 62"), 1000).is_ok());
        let mut block = hex("be 7e 21");
        block.extend([b'v'; 33]);
        let (fields, _) = decode(&mut decoder, &block, 1000).expect("the name is that of the evicted entry");
        assert_eq!(fields[1], ("a".into(), format!("{:v<33}", "")));
        assert_eq!(decoder.table_bytes(), 0);
        assert_eq!(decode(&mut decoder, &hex("be"), 1000), Err(Error::InvalidIndex));
    }
}
