//! Limits on heads, chunked framing and trailers, each with the reason for its default. docs/limits.md lists them.

/// Limits on a peer's messages. A message beyond one of them is refused with the status given there.
///
/// All connections of a server or client share them. They are passed to each call, so that a connection stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head: start line, fields and the empty line. 431 above. At most [`Limits::MAX_HEAD_BYTES`], because
    /// spans are 16 bits wide; 32 KiB holds several of the largest cookies that browsers send (4 KiB each).
    pub head_bytes: u32,
    /// Bytes of a request target. 414 above. RFC 9112 section 3 recommends supporting at least 8,000.
    pub target_bytes: u32,
    /// Bytes of one field line, name and value. 431 above. Kerberos tickets in `Authorization` reach 12 KiB.
    pub field_bytes: u32,
    /// Fields in one head or trailer section. 431 above. Tiny fields cost more to store than to send, so `head_bytes`
    /// alone is not enough; browsers send fewer than 30.
    pub field_count: u16,
    /// Empty lines skipped before a request line. 400 above. RFC 9112 section 2.2 asks servers to skip at least one.
    pub empty_lines: u8,
    /// Bytes of chunk extensions in one body. 400 above. Clients hardly use them; an endless one is an attack
    /// (CVE-2023-39326).
    pub chunk_extension_bytes: u16,
    /// Bytes of a trailer section. 431 above.
    pub trailer_bytes: u32,
    /// Chunks of fewer than 16 bytes that a connection may send. 400 above. A small chunk costs us as much as a large
    /// one, and the peer little. Each 64 bytes of a larger chunk allow one more, and each second allows 256 more.
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
