//! HPACK (RFC 7541): header blocks of HTTP/2 to fields and back.
//!
//! A block is a row of representations. Each names a field by its place in a table (a *static* one of 61 entries, then
//! a *dynamic* one that both sides keep in step), or spells it out, plain or in a Huffman code, and may add it to the
//! dynamic table. So a block can be read only once, in order, and by one who has read all blocks before it. That is why
//! [`Decoder::decode`] goes on to the block's end where it has stopped to deliver, and why an [`Error`] ends the
//! connection.
//!
//! The decoder copies: names and values land in the caller's vector, one behind the other, and are told as ranges. What
//! an entry of the dynamic table held would otherwise have to outlive the next insertion.
//!
//! A repeated block needs no decoding at all: where [`Decoder::table_version`] was the same before and after a block,
//! the same bytes mean the same fields for as long as it stays so.
//!
//! ```
//! use highwire_proto::hpack::{DEFAULT_TABLE_BYTES, Decoder, Encoder, Indexing, name_index};
//!
//! let (mut encoder, mut block) = (Encoder::new(), Vec::new());
//! encoder.begin(&mut block);
//! encoder.status(200, &mut block);
//! encoder.field(b"server", b"highwire", Indexing::Incremental, &mut block);
//!
//! let (mut decoder, mut text, mut fields) = (Decoder::new(DEFAULT_TABLE_BYTES), Vec::new(), Vec::new());
//! let decoded = decoder.decode(&block, &mut text, (16 * 1024, 100), |field| fields.push(field))?;
//! assert!(!decoded.too_large);
//! assert_eq!(fields[0].name_index, name_index(b":status"));
//! assert_eq!(&text[fields[0].value.clone()], b"200");
//! assert_eq!(&text[fields[1].name.clone()], b"server");
//! assert_eq!(&text[fields[1].value.clone()], b"highwire");
//! # Ok::<(), highwire_proto::hpack::Error>(())
//! ```

use core::fmt;

mod decode;
mod encode;
mod huffman;
mod static_table;
mod table;

pub use decode::{Decoded, Decoder, FieldLine, HARD_FACTOR};
pub use encode::{ENCODER_TABLE_BYTES, Encoder, Indexing, sensitive};
pub use static_table::{name_index, static_name};

pub(crate) use huffman::{END, code};
pub(crate) use static_table::{STATIC_ENTRIES, static_entry};

/// The size of both dynamic tables until SETTINGS say otherwise (RFC 9113 section 6.5.2, SETTINGS_HEADER_TABLE_SIZE).
pub const DEFAULT_TABLE_BYTES: u32 = 4096;

/// What a field costs beside its name and value, in a table (RFC 7541 section 4.1) and in a list (RFC 9113 section
/// 6.5.2).
pub const FIELD_OVERHEAD: u32 = 32;

/// What is wrong with a header block. The peer is at fault, and both tables are out of step: the connection ends with
/// COMPRESSION_ERROR (RFC 9113 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The block ends inside a representation.
    Truncated,
    /// An index is 0 or beyond both tables.
    InvalidIndex,
    /// An integer does not fit 32 bits or has more than five continuation bytes.
    IntegerTooLarge,
    /// A string has the end-of-string code in it, or padding that is not up to seven ones.
    InvalidHuffman,
    /// The table's size is changed behind a field.
    MisplacedSizeUpdate,
    /// The table's size is changed more than twice in one block.
    TooManySizeUpdates,
    /// The table's size is set above what we allow.
    SizeUpdateTooLarge,
    /// We have made the table smaller, and the block does not say that the peer knows.
    MissingSizeUpdate,
    /// The list of fields is many times larger than asked for, or has more fields than the caller reads: see
    /// [`Decoder::decode`].
    ListTooLarge,
}

impl Error {
    /// The error in words.
    pub const fn text(self) -> &'static str {
        match self {
            Error::Truncated => "the header block ends inside a field",
            Error::InvalidIndex => "the header block names an entry that is in no table",
            Error::IntegerTooLarge => "the header block has an integer that is too large",
            Error::InvalidHuffman => "the header block has a string that is no Huffman code",
            Error::MisplacedSizeUpdate => "the header block changes the table's size behind a field",
            Error::TooManySizeUpdates => "the header block changes the table's size more than twice",
            Error::SizeUpdateTooLarge => "the header block makes the table larger than it may be",
            Error::ListTooLarge => "the header block stands for many more fields than allowed",
            Error::MissingSizeUpdate => "the header block does not make the table as small as it has to be",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Error {}

/// An entry of either table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry<'t> {
    /// The name and, right behind it, the value: decoding copies both at once.
    text: &'t [u8],
    name_bytes: usize,
    /// The first entry of the static table with this name, or 0.
    name_index: u8,
}

impl<'t> Entry<'t> {
    fn name(&self) -> &'t [u8] {
        &self.text[..self.name_bytes]
    }

    fn value(&self) -> &'t [u8] {
        &self.text[self.name_bytes..]
    }
}
