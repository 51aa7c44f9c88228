//! How much of bodies may wait for their readers.

use super::received::{ahead_in_all, held_in_all};

/// The number of waiting bytes of a body at which the engine stops receiving more of the body until its reader takes
/// some.
pub(crate) const INCOMING_BYTES: usize = 64 * 1024;

/// The same while the bodies of all requests and responses of the thread hold more than [`HELD_BYTES`]. Peers that do not
/// read can make many bodies wait: those that are passed on wait here until the receiver takes them.
const INCOMING_BYTES_TIGHT: usize = 8 * 1024;
const HELD_BYTES: usize = 8 * 1024 * 1024;

/// Returns the number of bytes that may wait for the reader of a body before its peer must wait.
pub(crate) fn most_incoming() -> usize {
    if is_tight() { INCOMING_BYTES_TIGHT } else { INCOMING_BYTES }
}

/// Returns true while the bodies of the thread hold more than [`HELD_BYTES`], and what peers far away may send ahead.
pub(crate) fn is_tight() -> bool {
    held_in_all() > HELD_BYTES + ahead_in_all().get()
}
