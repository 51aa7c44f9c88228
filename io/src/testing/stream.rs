//! The bytes that the clients and the loop send to each other.

use crate::random::Seeded;
use std::sync::OnceLock;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToLoop,
    ToClient,
}

/// The length of the pattern that all streams repeat, each from its own start. It is a prime number, so that it does
/// not divide the size of a usual buffer. Otherwise the check could miss a buffer's worth of bytes that are lost,
/// doubled or exchanged.
pub(super) const PATTERN_BYTES: usize = 65_521;

pub(super) fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut random = Seeded::new(0);
        (0..PATTERN_BYTES).map(|_| random.next() as u8).collect()
    })
}

/// Returns the position in the pattern of byte `from` of a client's stream.
pub(super) fn place(client: usize, way: Way, from: u64) -> usize {
    (from as usize + client * 7919 + way as usize * 104_729) % PATTERN_BYTES
}

/// Returns `count` bytes of a client's stream, from byte `from` on, as slices of the pattern.
fn runs(client: usize, way: Way, from: u64, count: usize) -> impl Iterator<Item = &'static [u8]> {
    let mut place = place(client, way, from);
    let mut left = count;
    std::iter::from_fn(move || {
        let run = &pattern()[place..(place + left).min(PATTERN_BYTES)];
        (place, left) = (0, left - run.len());
        (!run.is_empty()).then_some(run)
    })
}

/// Returns `count` bytes of a client's stream, from byte `from` on.
pub(super) fn stream(client: usize, way: Way, from: u64, count: usize) -> Vec<u8> {
    runs(client, way, from, count).collect::<Vec<_>>().concat()
}

/// Checks that the bytes are those of a client's stream from byte `from` on.
///
/// # Panics
/// Panics if they are not.
pub(super) fn check_stream(client: usize, way: Way, from: u64, bytes: &[u8]) {
    let mut rest = bytes;
    for run in runs(client, way, from, bytes.len()) {
        let (part, behind) = rest.split_at(run.len());
        let place = from + (bytes.len() - rest.len()) as u64;
        assert!(part == run, "the bytes {way:?} of client {client} differ from the sent ones at or after byte {place}");
        rest = behind;
    }
}
