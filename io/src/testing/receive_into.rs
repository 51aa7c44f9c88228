//! A receive into a buffer of the loop, as the model sees it.

/// A receive into a buffer of the loop, which begins with [`BEFORE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveInto {
    pub(super) room: usize,
    /// True if the driver has started the operation, because a turn has begun since.
    pub(super) started: bool,
    /// True if the loop has resumed receiving since. Bytes then come into the buffer or elsewhere.
    pub(super) is_cancelled: bool,
}

/// The bytes in a buffer before those that are received into it.
pub(super) const BEFORE: &[u8] = b"before";
