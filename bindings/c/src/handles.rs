//! Tables of the objects behind handles. A handle has a kind (8 bits), a generation (24 bits) and a slot (32 bits).
//!
//! A table is a list of slots behind one lock, which is held only to look an object up. Requests that are being handled are
//! in no table, so an answer that is given at once takes no lock.

use crate::result::{Failed, HIGHWIRE_INVALID_HANDLE};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kinds of handles. 0 is no handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    App = 1,
    Server = 2,
    Response = 3,
    Stream = 4,
    Loop = 5,
    Request = 6,
    Websocket = 7,
    Topics = 8,
    Client = 9,
    Call = 10,
    Reply = 11,
}

const LAST_GENERATION: u32 = (1 << 24) - 1;

/// The objects of one kind.
pub(crate) struct Table<T> {
    kind: Kind,
    slots: Mutex<Slots<T>>,
}

struct Slots<T> {
    slots: Vec<(u32, Option<Arc<T>>)>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Table<T> {
        Table { kind, slots: Mutex::new(Slots { slots: Vec::new(), free: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn split(&self, handle: u64) -> Option<(usize, u32)> {
        let (kind, generation, slot) = ((handle >> 56) as u8, (handle >> 32) as u32 & LAST_GENERATION, handle as u32);
        (kind == self.kind as u8).then_some((slot as usize, generation))
    }

    /// Adds an object, and returns its handle.
    pub(crate) fn add(&self, object: Arc<T>) -> u64 {
        let mut slots = self.lock();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                slots.slots.push((0, None));
                (slots.slots.len() - 1) as u32
            }
        };
        let place = &mut slots.slots[slot as usize];
        place.1 = Some(object);
        (self.kind as u64) << 56 | u64::from(place.0) << 32 | u64::from(slot)
    }

    /// Returns the object of a handle.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Failed> {
        let found = self.split(handle).and_then(|(slot, generation)| {
            let slots = self.lock();
            let (its, object) = slots.slots.get(slot)?;
            object.clone().filter(|_| *its == generation)
        });
        found.ok_or_else(|| self.missing(handle))
    }

    /// Removes the object of a handle, which is invalid from now on.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Failed> {
        let found = self.split(handle).and_then(|(slot, generation)| {
            let mut slots = self.lock();
            let place = slots.slots.get_mut(slot).filter(|place| place.0 == generation)?;
            let object = place.1.take()?;
            // A slot without further generations stays empty, so that no handle names two objects.
            if place.0 < LAST_GENERATION {
                place.0 += 1;
                slots.free.push(slot as u32);
            }
            Some(object)
        });
        found.ok_or_else(|| self.missing(handle))
    }

    fn missing(&self, handle: u64) -> Failed {
        let kind = format!("{:?}", self.kind).to_lowercase();
        let text = if handle == 0 {
            "0 is no handle".to_string()
        } else {
            format!("{handle:#x} is no {kind}, or one that was freed or used up")
        };
        (HIGHWIRE_INVALID_HANDLE, text)
    }

    /// Returns the number of objects.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().slots.iter().filter(|(_, object)| object.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_invalid_after_its_object_is_gone() {
        let table = Table::new(Kind::App);
        let one = table.add(Arc::new(1));
        assert_eq!(*table.get(one).expect("the object"), 1);
        assert_eq!(*table.remove(one).expect("the object"), 1);
        let two = table.add(Arc::new(2));
        assert_ne!(one, two);
        assert_eq!(one as u32, two as u32, "the slot is used again");
        for wrong in [0, 1, u64::MAX, one, two ^ 1 << 56, two + 1] {
            assert_eq!(table.get(wrong).map_err(|error| error.0).err(), Some(HIGHWIRE_INVALID_HANDLE), "{wrong:x}");
            assert!(table.remove(wrong).is_err(), "{wrong:x}");
        }
        assert_eq!((*table.get(two).expect("the object"), table.len()), (2, 1));
        // No generation comes twice.
        table.lock().slots[0].0 = LAST_GENERATION;
        let last = two | u64::from(LAST_GENERATION) << 32;
        assert_eq!(table.remove(last).ok().as_deref(), Some(&2));
        let three = table.add(Arc::new(3));
        assert_ne!(three as u32, last as u32);
        assert!(table.get(last).is_err());
    }
}
