//! HPACK (RFC 7541): encodes fields into the header blocks of HTTP/2, and decodes them.
//!
//! A block is a sequence of representations. Each names a field by its index in a table (a *static* one of 61 entries,
//! then a *dynamic* one that both sides keep equal), or contains it, plain or in a Huffman code, and may add it to the
//! dynamic table. A block can therefore be decoded only once, in order, and after all blocks before it. This is why
//! [`Decoder::decode`] continues to the block's end even if it no longer delivers fields, and why an [`Error`] ends the
//! connection.
//!
//! The decoder copies names and values one after the other into the caller's vector, and reports them as ranges.
//! Without copies, an entry of the dynamic table would have to outlive the next insertion.
//!
//! A repeated block may need no decoding. If [`Decoder::table_version`] was the same before and after a block, the same
//! bytes stand for the same fields until the version changes.
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

/// The largest size in bytes of each dynamic table before SETTINGS change it (RFC 9113 section 6.5.2,
/// SETTINGS_HEADER_TABLE_SIZE).
pub const DEFAULT_TABLE_BYTES: u32 = 4096;

/// The number of bytes that a field counts in addition to its name and value, in a table (RFC 7541 section 4.1) and in
/// a list (RFC 9113 section 6.5.2).
pub const FIELD_OVERHEAD: u32 = 32;

/// An error in a header block. The peer is at fault, and the two sides' tables may no longer be equal, so the
/// connection must end, usually with COMPRESSION_ERROR (RFC 9113 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The block ends inside a representation.
    Truncated,
    /// An index is 0 or beyond both tables.
    InvalidIndex,
    /// An integer does not fit 32 bits or has more than five continuation bytes.
    IntegerTooLarge,
    /// A string contains the end-of-string code, or its padding is not at most seven ones.
    InvalidHuffman,
    /// The table's size is changed after a field.
    MisplacedSizeUpdate,
    /// The table's size is changed more than twice in one block.
    TooManySizeUpdates,
    /// The table's size is set above the size that we allow.
    SizeUpdateTooLarge,
    /// We have reduced the table's size, and the block does not begin with the update that confirms it.
    MissingSizeUpdate,
    /// The list of fields is more than [`HARD_FACTOR`] times as large as allowed, or has too many fields; see
    /// [`Decoder::decode`].
    ListTooLarge,
}

impl Error {
    /// Returns a description of the error, in lower case and without a full stop.
    pub const fn text(self) -> &'static str {
        match self {
            Error::Truncated => "the header block ends inside a field",
            Error::InvalidIndex => "the header block names an entry that is in no table",
            Error::IntegerTooLarge => "the header block has an integer that is too large",
            Error::InvalidHuffman => "the header block has a string that is no Huffman code",
            Error::MisplacedSizeUpdate => "the header block changes the table's size after a field",
            Error::TooManySizeUpdates => "the header block changes the table's size more than twice",
            Error::SizeUpdateTooLarge => "the header block makes the table larger than it may be",
            Error::ListTooLarge => "the header block's fields exceed the hard limit on their bytes or their number",
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

/// An entry of the static or the dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry<'t> {
    /// The name directly followed by the value, so that decoding copies both at once.
    text: &'t [u8],
    name_bytes: usize,
    /// The index of the first entry of the static table with this name, or 0.
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
