//! Limits on heads, chunked framing and trailers, each with the reason for its default. docs/limits.md lists them.

/// Limits on a peer's messages. Each field names the status with which a server usually refuses a message that exceeds
/// the limit.
///
/// All connections of a server or client can share the limits. The caller passes them to each call that reads bytes, so
/// a connection need not store them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of bytes of a head: start line, fields and the empty line. More are refused with 431. Values
    /// above [`Limits::MAX_HEAD_BYTES`] count as that number. The default, 32 KiB, holds several of the largest cookies
    /// that browsers send (4 KiB each).
    pub head_bytes: u32,
    /// The largest number of bytes of a request target. More are refused with 414. RFC 9112 section 3 recommends
    /// supporting request lines of at least 8,000 bytes.
    pub target_bytes: u32,
    /// The largest number of bytes of one field line, name and value. More are refused with 431. Kerberos tickets in
    /// `Authorization` reach 12 KiB.
    pub field_bytes: u32,
    /// The largest number of fields in one head or trailer section. More are refused with 431. `head_bytes` alone is
    /// not enough, because tiny fields cost more to store than to send. Browsers usually send fewer than 30 fields.
    pub field_count: u16,
    /// The largest number of empty lines that are skipped before a request line. More are refused with 400. RFC 9112
    /// section 2.2 asks servers to skip at least one.
    pub empty_lines: u8,
    /// The largest number of bytes of chunk extensions in one body. More are refused with 400. Clients hardly use
    /// extensions, and attackers may send endless ones (CVE-2023-39326).
    pub chunk_extension_bytes: u16,
    /// The largest number of bytes of a trailer section. More are refused with 431. Values above
    /// [`Limits::MAX_HEAD_BYTES`] count as that number.
    pub trailer_bytes: u32,
    /// The number of chunks of fewer than 16 bytes that a peer may send on one connection. More are refused with 400. A
    /// small chunk costs us about as much as a large one, but costs the peer little. Each 64 bytes of a larger chunk
    /// restore one of the used-up chunks. Each second restores 256, if the caller has a clock.
    pub small_chunks: u16,
}

impl Limits {
    /// The largest effective `head_bytes` and `trailer_bytes`, because spans are 16 bits wide.
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
