//! The buffers of bodies that are taken as a whole. The driver receives straight into them.

/// The number of bytes of a body that must have come before a buffer is lent for the rest. A peer that announces a long
/// body and sends little then costs little.
const LENT_AFTER: usize = 64 * 1024;

/// The most bytes that are received into a lent buffer at once, so that other connections have their turn.
const LENT_ROOM: usize = 256 * 1024;

/// The most bytes that are reserved for a body before it has as many. The system gives memory when it is written, so
/// what is reserved and not received costs addresses only.
const LENT_AHEAD: usize = 4 * 1024 * 1024;

/// Takes a body's buffer, to receive into it, if the body has begun to come. `left` is the number of missing bytes.
/// Returns the buffer, and for how many bytes it has room.
pub(crate) fn lend(buffer: &mut Vec<u8>, left: u64) -> Option<(Vec<u8>, usize)> {
    if buffer.len() < LENT_AFTER {
        return None;
    }
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    let room = left.min(LENT_ROOM);
    if buffer.capacity() - buffer.len() < room {
        buffer.reserve_exact(left.min(buffer.len().max(LENT_AHEAD)));
    }
    Some((std::mem::take(buffer), room))
}

/// Returns how many bytes a body's buffer costs. Of its unused memory, only as much counts as is soon used.
pub(crate) fn cost(buffer: &Vec<u8>) -> usize {
    buffer.capacity().min(buffer.len() + LENT_ROOM)
}
