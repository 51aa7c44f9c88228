//! Boxes that a thread keeps for reuse, for values that most connections need only for a moment.

use std::cell::RefCell;
use std::thread::LocalKey;

/// The most unused boxes of a type that a thread keeps. The public doc of `recycle` repeats this number.
const MOST_FREE: usize = 64;

/// Unused boxes of one type, for a `thread_local!`.
#[derive(Debug)]
pub struct FreeList<T> {
    boxes: RefCell<Vec<Box<T>>>,
}

impl<T> Default for FreeList<T> {
    fn default() -> FreeList<T> {
        FreeList { boxes: RefCell::default() }
    }
}

impl<T: Default> FreeList<T> {
    /// Creates a list without boxes.
    pub const fn new() -> FreeList<T> {
        FreeList { boxes: RefCell::new(Vec::new()) }
    }

    /// Returns a box with the default value.
    pub fn take(here: &'static LocalKey<FreeList<T>>) -> Box<T> {
        // There are none while the thread ends.
        here.try_with(|spares| spares.boxes.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }

    /// Drops the contents of a box. Keeps its memory for [`take`](Self::take), unless there are 64 already.
    pub fn recycle(here: &'static LocalKey<FreeList<T>>, mut used: Box<T>) {
        // The value's destructor may call this again, so nothing is borrowed yet.
        *used = T::default();
        let _ = here.try_with(|spares| {
            let mut boxes = spares.boxes.borrow_mut();
            if boxes.len() < MOST_FREE {
                boxes.push(used);
            }
        });
    }
}
