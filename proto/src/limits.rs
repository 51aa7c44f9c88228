//! Every bound of the protocol code in one table. The numbers' reasons stand here; docs/limits.md lists them.

/// What a peer may make us read or hold before a message is refused.
///
/// Shared by all connections of a server or client; passing it at each call keeps a connection small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head: start line, fields and the empty line. 431 above. Spans are 16 bits wide, so at most
    /// [`Limits::MAX_HEAD_BYTES`]; 32 KiB holds the largest cookies that browsers send (4 KiB each, several).
    pub head_bytes: u32,
    /// Bytes of a request target. 414 above. 8,000 is what RFC 9112 section 3 asks every server to support at least.
    pub target_bytes: u32,
    /// Bytes of one field line, name and value. 431 above. Kerberos tickets in `Authorization` reach 12 KiB.
    pub field_bytes: u32,
    /// Fields in one head or trailer section. 431 above. Tiny fields cost more to hold than to send, so their number
    /// is bounded apart from their bytes; browsers send fewer than 30.
    pub field_count: u16,
    /// Empty lines before a start line that are skipped (RFC 9112 section 2.2 asks for one at least).
    pub empty_lines: u8,
    /// Bytes of chunk extensions in one body. Nobody uses them; an endless one is an attack (CVE-2023-39326).
    pub chunk_extension_bytes: u16,
    /// Bytes of a trailer section. 431 above.
    pub trailer_bytes: u32,
    /// Chunks of fewer than 16 bytes that a connection may send: 400 above. Each costs as much as a larger one and little to send.
    /// Larger chunks give them back, one for each 64 bytes, and so does time, 256 for each second.
    pub small_chunks: u16,
}

impl Limits {
    /// The largest `head_bytes` and `trailer_bytes` that 16-bit spans can address.
    pub const MAX_HEAD_BYTES: u32 = 65_535;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 32 * 1024,
            target_bytes: 8 * 1024,
            field_bytes: 16 * 1024,
            field_count: 100,
            empty_lines: 8,
            chunk_extension_bytes: 1024,
            trailer_bytes: 8 * 1024,
            small_chunks: 20_000,
        }
    }
}
