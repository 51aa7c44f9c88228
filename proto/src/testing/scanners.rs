//! Compares the scanner that [`scan::with`] selects, and the portable one, with the naive one.

use crate::scan::naive::Naive;
use crate::scan::swar::Swar;
use crate::scan::{self, Cursor, Job, NAME, Scanner, TARGET};
use alloc::vec::Vec;

/// The length in bytes up to which scans start at every index of an input. In longer inputs they start at every seventh
/// index, which covers each alignment.
const EVERY_PLACE_BYTES: usize = 256;

/// Compares the scanner that [`scan::with`] selects, and the portable one, with the naive one.
///
/// # Panics
/// Panics if the scanners differ.
pub(super) fn agree(bytes: &[u8]) {
    scan::with(Agree(bytes));
    Agree(bytes).run::<Swar>();
}

struct Agree<'b>(&'b [u8]);

impl Job for Agree<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Scanner>(self) {
        let bytes = self.0;
        let names = ends(bytes, |byte| scan::is(NAME, byte));
        let values = ends(bytes, |byte| scan::is(scan::naive::VALUE, byte));
        let targets = ends(bytes, |byte| scan::is(TARGET, byte));
        let step = if bytes.len() <= EVERY_PLACE_BYTES { 1 } else { 7 };
        for from in (0..=bytes.len()).step_by(step) {
            assert_eq!(S::name_end(bytes, from), names[from], "a name at {from}");
            assert_eq!(S::value_end(bytes, from), values[from], "a value at {from}");
            assert_eq!(S::target_end(bytes, from), targets[from], "a target at {from}");
        }
        as_heads_are_read::<S>(bytes);
    }
}

/// Returns, for each index, the end of the run of a class that starts there, like the naive scanner but in one pass.
fn ends(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> Vec<usize> {
    let mut ends = Vec::from([bytes.len()]);
    for (place, &byte) in bytes.iter().enumerate().rev() {
        ends.push(if belongs(byte) { ends[ends.len() - 1] } else { place });
    }
    ends.reverse();
    ends
}

/// Moves a cursor from token to token, as in a head: name, one byte, value, one byte.
#[inline(always)]
fn as_heads_are_read<S: Scanner>(bytes: &[u8]) {
    let (mut fast, mut slow) = (S::Cursor::new(bytes, 0), <Naive as Scanner>::Cursor::new(bytes, 0));
    let mut at = 0;
    while at <= bytes.len() {
        let name = fast.name_end(at);
        assert_eq!(name, slow.name_end(at), "a cursor's name at {at}");
        at = (name + 1).min(bytes.len());
        let value = fast.value_end(at);
        assert_eq!(value, slow.value_end(at), "a cursor's value at {at}");
        at = value + 1;
    }
}
