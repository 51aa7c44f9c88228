//! Encodes fields into header blocks (RFC 7541 sections 4.2, 5 and 6).
//!
//! The encoder finds a field in the static table by a hash of its name, and in the dynamic table by chains. The same
//! hash assigns each entry to a bucket. A bucket holds the number of its newest entry, and each entry links to the next
//! older entry of its bucket. Links are entry numbers that count all entries ever added, so an eviction changes no
//! link; a link to an evicted entry points outside the table, which ends the chain. In a full table a linear search
//! took 240 ns for a new date, and the chains take 110 ns, most of it for writing the date. In a table with a dozen
//! entries both take the same time.

use super::static_table::{self, STATIC_ENTRIES};
use super::table::Table;
use super::{DEFAULT_TABLE_BYTES, FIELD_OVERHEAD, huffman};
use alloc::vec::Vec;

/// The size in bytes of the largest dynamic table that an encoder uses, even if the peer allows more. It is the initial
/// size on every connection and usually holds the fields that a server repeats. A peer that allows more does not cost
/// us more memory.
pub const ENCODER_TABLE_BYTES: u32 = DEFAULT_TABLE_BYTES;

/// How to write a field, and whether to add it to the dynamic table. The first two kinds use an equal entry of a table
/// if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// Adds the field to the table if it is not too large, so the next equal field usually takes one or two bytes.
    Incremental,
    /// Does not add the field, for values that seldom repeat.
    Without,
    /// Does not add the field or search a table for its value, and requires intermediaries to do the same.
    Never,
}

/// Returns true if a field should be sent with [`Indexing::Never`].
///
/// An attacker who can make a client send chosen fields beside a secret one, and who sees the length of the blocks, can
/// guess the secret: a correct guess is found in the table and makes the block shorter (RFC 7541 section 7.1; CRIME did
/// this to DEFLATE). HPACK compares whole values only, so only a short value or one of little entropy can be guessed.
/// Credentials are never indexed. A short cookie is not either. A long cookie is indexed, because it cannot be guessed
/// and costs too much to send each time.
pub fn sensitive(name: &[u8], value: &[u8]) -> bool {
    /// The limit of nghttp2. 20 characters of base64 hold about 120 random bits.
    const SHORT_COOKIE_BYTES: usize = 20;
    match name {
        b"authorization" | b"proxy-authorization" | b"set-cookie" => true,
        b"cookie" => value.len() < SHORT_COOKIE_BYTES,
        _ => false,
    }
}

/// The largest number of entries that fit the table. Each entry counts at least its overhead.
const MOST_ENTRIES: usize = (ENCODER_TABLE_BYTES / FIELD_OVERHEAD) as usize;

/// The number of buckets, which is about the number of entries in a table of usual fields.
const BUCKETS: usize = 64;

/// The largest number of entries that are compared for one field. A chain may be longer if one name has had many
/// values, or if an attacker chose names with the same hash. A field that is not found is written in full, which is
/// also correct.
const MOST_STEPS: u32 = 16;

/// Encodes the header blocks of one direction of a connection, in the order in which they are sent.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// The number of the newest entry. Numbers wrap around, so an outdated link may lead to a wrong entry; a search
    /// therefore compares each entry that it finds.
    newest: u16,
    /// The number of each bucket's newest entry.
    buckets: [u16; BUCKETS],
    /// The number of the next older entry in the same bucket, indexed by an entry's number modulo `MOST_ENTRIES`. The
    /// entries in the table have consecutive numbers, and there are at most `MOST_ENTRIES`, so no two share an index.
    older: [u16; MOST_ENTRIES],
    /// The smallest bound in bytes that the peer has set for the table since the last block.
    smallest_bytes: u32,
    /// The last bound in bytes that the peer has set for the table.
    most_bytes: u32,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

/// The result of a search in the dynamic table, with the number of entries that are newer than the one found.
enum Found {
    Field(usize),
    Name(usize),
    Nothing,
}

impl Encoder {
    /// Creates an encoder for a peer that has not sent SETTINGS.
    pub const fn new() -> Encoder {
        Encoder {
            table: Table::new(ENCODER_TABLE_BYTES),
            newest: 0,
            buckets: [0; BUCKETS],
            older: [0; MOST_ENTRIES],
            smallest_bytes: ENCODER_TABLE_BYTES,
            most_bytes: ENCODER_TABLE_BYTES,
        }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE. Values above [`ENCODER_TABLE_BYTES`] count as that number. The
    /// next block announces a changed size to the peer.
    pub fn set_most_table_bytes(&mut self, most_table_bytes: u32) {
        self.most_bytes = most_table_bytes.min(ENCODER_TABLE_BYTES);
        self.smallest_bytes = self.smallest_bytes.min(self.most_bytes);
        if self.owes_update() {
            // A block that the caller kept lacks the update.
            self.table.renew();
        }
    }

    /// Returns a number that changes whenever the same fields may be written in other bytes. If the number is the same
    /// before and after a block, that block can be sent again until the number changes. The number wraps around after
    /// 2^32 changes.
    pub fn table_version(&self) -> u32 {
        self.table.version()
    }

    /// Returns the dynamic table's size in bytes (RFC 7541 section 4.1).
    pub fn table_bytes(&self) -> u32 {
        self.table.bytes()
    }

    /// Returns the number of bytes of heap memory that the encoder holds.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Begins a block: appends the changes of the table's size that are due. If the size was reduced and raised again,
    /// both changes are written (RFC 7541 section 4.2).
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if self.owes_update() {
            self.update(out);
        }
    }

    fn owes_update(&self) -> bool {
        self.smallest_bytes != self.table.most_bytes() || self.most_bytes != self.table.most_bytes()
    }

    fn update(&mut self, out: &mut Vec<u8>) {
        for bytes in [self.smallest_bytes, self.most_bytes] {
            if bytes != self.table.most_bytes() {
                integer(0x20, 5, bytes as usize, out);
                self.table.resize(bytes);
            }
        }
        self.smallest_bytes = self.most_bytes;
    }

    /// Appends a field to the block that [`begin`](Encoder::begin) began. The name must be in lower case, as HTTP/2
    /// requires; this is not checked.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let hash = static_table::hash(name);
        let name_index = static_table::find_name(name, hash);
        if indexing == Indexing::Never {
            let index = match name_index {
                0 => self.find(hash, name, name_index, value).index(),
                _ => usize::from(name_index),
            };
            return literal(0x10, 4, index, name, value, out);
        }
        let whole = static_table::find_value(name_index, value);
        if whole != 0 {
            return out.push(0x80 | whole);
        }
        let found = self.find(hash, name, name_index, value);
        if let Found::Field(_) = found {
            return integer(0x80, 7, found.index(), out);
        }
        let index = if name_index != 0 { usize::from(name_index) } else { found.index() };
        if indexing == Indexing::Incremental && self.has_room(name, value) {
            literal(0x40, 6, index, name, value, out);
            self.insert(hash, name, value, name_index);
        } else {
            literal(0x00, 4, index, name, value, out);
        }
    }

    /// Appends the field `:status`, with the last three digits of `status`.
    #[inline]
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        match status {
            200 => out.push(0x88),
            204 => out.push(0x89),
            206 => out.push(0x8a),
            304 => out.push(0x8b),
            400 => out.push(0x8c),
            404 => out.push(0x8d),
            500 => out.push(0x8e),
            _ => {
                let digits = [status / 100, status / 10, status].map(|number| b'0' + (number % 10) as u8);
                self.field(b":status", &digits, Indexing::Incremental, out);
            }
        }
    }

    /// Returns true if the field takes at most three quarters of the table. A larger field would evict fields that
    /// repeat, and seldom repeats itself.
    fn has_room(&self, name: &[u8], value: &[u8]) -> bool {
        let cost = name.len() + value.len() + FIELD_OVERHEAD as usize;
        cost <= self.table.most_bytes() as usize / 4 * 3
    }

    fn find(&self, hash: u32, name: &[u8], name_index: u8, value: &[u8]) -> Found {
        let (mut found, mut number) = (Found::Nothing, self.buckets[bucket(hash)]);
        for _ in 0..MOST_STEPS {
            let newer = usize::from(self.newest.wrapping_sub(number));
            let Some(entry) = self.table.entry(newer) else { break };
            // Equal name indexes mean equal names, or two names that are not in the static table.
            if entry.name_index == name_index && (name_index != 0 || entry.name() == name) {
                if entry.value() == value {
                    return Found::Field(newer);
                }
                if let Found::Nothing = found {
                    found = Found::Name(newer);
                }
            }
            number = self.older[usize::from(number) % MOST_ENTRIES];
        }
        found
    }

    /// Adds a field, which must fit the table.
    fn insert(&mut self, hash: u32, name: &[u8], value: &[u8], name_index: u8) {
        self.table.insert(name, value, name_index);
        self.newest = self.newest.wrapping_add(1);
        let newest_of_bucket = &mut self.buckets[bucket(hash)];
        self.older[usize::from(self.newest) % MOST_ENTRIES] = *newest_of_bucket;
        *newest_of_bucket = self.newest;
    }
}

impl Found {
    /// Returns the index over both tables, or 0 if nothing was found.
    fn index(&self) -> usize {
        match self {
            Found::Field(newer) | Found::Name(newer) => STATIC_ENTRIES + 1 + newer,
            Found::Nothing => 0,
        }
    }
}

fn bucket(hash: u32) -> usize {
    (hash >> (u32::BITS - BUCKETS.trailing_zeros())) as usize
}

/// Writes a literal representation. `first` has the upper bits of the first byte, whose lower `prefix_bits` bits hold
/// the beginning of `index`. `index` is the index of the name, or 0 if the name follows.
fn literal(first: u8, prefix_bits: u32, index: usize, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    integer(first, prefix_bits, index, out);
    if index == 0 {
        string(name, out);
    }
    string(value, out);
}

/// Writes an integer (RFC 7541 section 5.1).
#[inline]
fn integer(first: u8, prefix_bits: u32, value: usize, out: &mut Vec<u8>) {
    let mask = (1 << prefix_bits) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes a string (RFC 7541 section 5.2): in the Huffman code if that is shorter, else plain, because plain text of
/// the same length is read faster.
fn string(text: &[u8], out: &mut Vec<u8>) {
    let encoded_bytes = huffman::encoded_bytes(text);
    out.reserve(encoded_bytes.min(text.len()) + 8);
    if encoded_bytes < text.len() {
        integer(0x80, 7, encoded_bytes, out);
        huffman::encode(text, out);
    } else {
        integer(0x00, 7, text.len(), out);
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn block(encoder: &mut Encoder, fields: &[(&str, &str)], indexing: Indexing) -> String {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in fields {
            encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut out);
        }
        hex(&out)
    }

    #[test]
    fn rfc_7541_appendix_c_4() {
        let mut encoder = Encoder::new();
        let mut fields = Vec::from([(":method", "GET"), (":scheme", "http"), (":path", "/")]);
        fields.push((":authority", "www.example.com"));
        assert_eq!(block(&mut encoder, &fields, Indexing::Incremental), "828684418cf1e3c2e5f23a6ba0ab90f4ff");
        fields.push(("cache-control", "no-cache"));
        assert_eq!(block(&mut encoder, &fields, Indexing::Incremental), "828684be5886a8eb10649cbf");
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ];
        let expected = "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf";
        assert_eq!(block(&mut encoder, &fields, Indexing::Incremental), expected);
        assert_eq!(encoder.table_bytes(), 164);
    }

    #[test]
    fn rfc_7541_appendix_c_6() {
        let mut encoder = Encoder::new();
        encoder.set_most_table_bytes(256);
        assert_eq!(block(&mut encoder, &[], Indexing::Incremental), "3fe101");
        let mut fields = [
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ];
        let expected = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82\
                        ae43d3";
        assert_eq!(block(&mut encoder, &fields, Indexing::Incremental), expected);
        fields[0].1 = "307";
        // The RFC has 83640eff, which is the Huffman code. It is three bytes long, too, and we prefer plain text.
        assert_eq!(block(&mut encoder, &fields, Indexing::Incremental), "4803333037c1c0bf");
        assert_eq!(encoder.table_bytes(), 222);
        let fields = [
            (":status", "200"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            ("location", "https://www.example.com"),
            ("content-encoding", "gzip"),
            ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        ];
        let expected = "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5\
                        af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007";
        assert_eq!(block(&mut encoder, &fields, Indexing::Incremental), expected);
        assert_eq!(encoder.table_bytes(), 215);
    }

    #[test]
    fn fields_as_each_indexing_writes_them() {
        let mut encoder = Encoder::new();
        for (name, value, indexing, expected) in [
            ("password", "secret", Indexing::Never, "1086ac684783d9278441496153"),
            ("etag", "1", Indexing::Without, "0f130131"),
            ("etag", "1", Indexing::Incremental, "620131"),
            ("etag", "1", Indexing::Without, "be"),
            ("etag", "1", Indexing::Never, "1f130131"),
            (":method", "GET", Indexing::Without, "82"),
            (":method", "GET", Indexing::Never, "120347 4554"),
            ("x", "1", Indexing::Incremental, "400178 0131"),
            ("x", "2", Indexing::Without, "0f2f0132"),
            ("x", "1", Indexing::Never, "1f2f0131"),
            ("x", "", Indexing::Incremental, "7e00"),
            ("accept", "", Indexing::Never, "1f0400"),
            ("accept", "", Indexing::Incremental, "93"),
        ] {
            let mut out = Vec::new();
            encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut out);
            let expected: String = expected.split(' ').collect();
            assert_eq!(hex(&out), expected, "{name}: {value} {indexing:?}");
        }
    }

    #[test]
    fn every_status() {
        let mut encoder = Encoder::new();
        for (status, expected) in [
            (200, "88"),
            (204, "89"),
            (206, "8a"),
            (304, "8b"),
            (400, "8c"),
            (404, "8d"),
            (500, "8e"),
            (302, "48826402"),
            (302, "be"),
            (999, "4803393939"),
        ] {
            let mut out = Vec::new();
            encoder.status(status, &mut out);
            assert_eq!(hex(&out), expected, "{status}");
        }
    }

    #[test]
    fn size_updates() {
        for (announced, expected) in [
            (&[][..], ""),
            (&[4096], ""),
            (&[65_536], ""),
            (&[0], "20"),
            (&[100], "3f45"),
            (&[100, 200], "3f453fa901"),
            (&[200, 100], "3f45"),
            (&[0, 65_536], "203fe11f"),
            (&[100, 0, 200, 4096], "203fe11f"),
        ] {
            let mut encoder = Encoder::new();
            let version = encoder.table_version();
            announced.iter().for_each(|&bytes| encoder.set_most_table_bytes(bytes));
            assert_eq!(encoder.table_version() == version, expected.is_empty(), "{announced:?}");
            assert_eq!(block(&mut encoder, &[], Indexing::Without), expected, "{announced:?}");
            assert_eq!(block(&mut encoder, &[], Indexing::Without), "", "announced once");
        }
    }

    #[test]
    fn a_size_that_went_down_and_up_empties_the_table() {
        let mut encoder = Encoder::new();
        assert_eq!(block(&mut encoder, &[("x", "1")], Indexing::Incremental), "4001780131");
        encoder.set_most_table_bytes(0);
        encoder.set_most_table_bytes(4096);
        assert_eq!(block(&mut encoder, &[("x", "1")], Indexing::Incremental), "203fe11f4001780131");
        assert_eq!(block(&mut encoder, &[("x", "1")], Indexing::Incremental), "be");
    }

    #[test]
    fn large_fields_do_not_empty_the_table() {
        let mut encoder = Encoder::new();
        let value = "v".repeat(3000);
        assert!(block(&mut encoder, &[("x", &value)], Indexing::Incremental).starts_with("400178"));
        let value = "v".repeat(3040);
        assert!(block(&mut encoder, &[("x", &value)], Indexing::Incremental).starts_with("0f2f"));
        encoder.set_most_table_bytes(0);
        assert_eq!(block(&mut encoder, &[("x", "1")], Indexing::Incremental), "200001780131");
        assert_eq!(encoder.table_bytes(), 0);
    }

    #[test]
    fn what_is_in_the_table_is_found_until_it_is_evicted() {
        let mut encoder = Encoder::new();
        // An entry takes 34 bytes, so 120 entries fit.
        for number in 0..100_000_u32 {
            let name = [b'a' + (number % 25) as u8];
            let value = [b'0' + (number / 25 % 10) as u8];
            let version = encoder.table_version();
            let mut out = Vec::new();
            encoder.field(&name, &value, Indexing::Incremental, &mut out);
            // Each field repeats after 249 others, of which only the last 120 stay in the table.
            assert_ne!(encoder.table_version(), version);
            out.clear();
            encoder.field(&name, &value, Indexing::Incremental, &mut out);
            assert_eq!(out, [0xbe], "{number}");
            let before = [b'a' + ((number + 25 - 24) % 25) as u8];
            if number > 100 {
                out.clear();
                let number = number - 24;
                encoder.field(&before, &[b'0' + (number / 25 % 10) as u8], Indexing::Without, &mut out);
                assert_eq!(out, [0xbe + 24], "{number}");
            }
        }
    }

    #[test]
    fn credentials_are_sensitive() {
        for (name, value, expected) in [
            ("authorization", "", true),
            ("proxy-authorization", "Basic", true),
            ("set-cookie", "a=b", true),
            ("cookie", "0123456789012345678", true),
            ("cookie", "01234567890123456789", false),
            ("accept", "*/*", false),
        ] {
            assert_eq!(sensitive(name.as_bytes(), value.as_bytes()), expected, "{name}");
        }
    }
}
