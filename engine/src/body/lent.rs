//! The buffers of bodies that are taken as a whole. The driver receives straight into them.

use crate::runtime::memory;

/// The number of bytes of a body that must have come before a buffer is lent for the rest. A peer that announces a long
/// body and sends little then costs little.
const LENT_AFTER: usize = 64 * 1024;

/// The same while receiving is paused, because then no receive in progress has to be cancelled.
const LENT_AFTER_PAUSED: usize = 8 * 1024;

/// The most bytes that are received at once, as a multiple of those that have come.
const LENT_GROWTH: usize = 8;

/// The most bytes that are received into a lent buffer at once. Of a hundred connections that send long bodies, the kernel
/// copies as many each turn, which takes a few milliseconds.
const LENT_ROOM: usize = 128 * 1024;

/// The number of bytes that are charged for a body beyond those that have come, because they usually come within a few turns.
const LENT_SOON: usize = 2 * LENT_ROOM;

/// The most bytes that are reserved for a body before it has as many. The system gives memory when it is written, so what
/// is reserved and not received costs addresses only. The memory of an earlier body is resident, and costs all its bytes.
const LENT_AHEAD: usize = 512 * 1024;

/// Takes a body's buffer, to receive into it, if the body has begun to come. `left` is the number of missing bytes,
/// and `is_paused` tells whether receiving is paused. `resident` becomes the capacity if the buffer is now that of an earlier
/// body. Returns the buffer, and for how many bytes it has room.
pub(crate) fn lend(buffer: &mut Vec<u8>, left: u64, is_paused: bool, resident: &mut usize) -> Option<(Vec<u8>, usize)> {
    if buffer.len() < if is_paused { LENT_AFTER_PAUSED } else { LENT_AFTER } {
        return None;
    }
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    let room = left.min(LENT_ROOM).min(buffer.len() * LENT_GROWTH);
    if buffer.capacity() - buffer.len() < room {
        reserve(buffer, left.min(buffer.len().max(LENT_AHEAD)), resident);
    }
    Some((std::mem::take(buffer), room))
}

/// Reserves at least `more` bytes, if possible in memory of an earlier body.
fn reserve(buffer: &mut Vec<u8>, more: usize, resident: &mut usize) {
    let wanted = buffer.len() + more;
    match memory::take(wanted..=wanted + wanted / 2) {
        Some(mut kept) => {
            *resident = kept.capacity();
            kept.extend_from_slice(buffer);
            memory::keep(std::mem::replace(buffer, kept));
        }
        None => buffer.reserve_exact(more),
    }
}

/// Returns how many bytes a body's buffer costs, of which `resident` are resident. Of the other unused memory, only as much
/// counts as is soon used.
pub(crate) fn cost(buffer: &Vec<u8>, resident: usize) -> usize {
    buffer.capacity().min(buffer.len() + LENT_SOON).max(resident)
}
