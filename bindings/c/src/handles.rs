//! Tables of the objects behind handles. A handle has a kind (8 bits), a generation (24 bits) and a slot (32 bits).
//!
//! A table is a list of slots behind one lock, which is held only to look an object up. A request whose handler runs is
//! in no table, so an immediate answer takes no lock.

use crate::result::{Failed, HIGHWIRE_INVALID_HANDLE};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A type of handles.
pub(crate) trait Handle: Copy {
    /// The kind, from 1 on. It tells handles of different types apart even in languages that have only numbers.
    const KIND: u8;
    /// What the handle names, for texts of errors.
    const NAME: &str;
    fn of(id: u64) -> Self;
    fn id(self) -> u64;
}

/// Returns the bits of a handle that say its kind.
pub(crate) const fn kind_bits<H: Handle>() -> u64 {
    (H::KIND as u64) << 56
}

const LAST_GENERATION: u32 = (1 << 24) - 1;

/// The objects of one type of handles.
pub(crate) struct Table<H, T> {
    slots: Mutex<Slots<T>>,
    handles: PhantomData<fn() -> H>,
}

struct Slots<T> {
    slots: Vec<(u32, Option<Arc<T>>)>,
    free: Vec<u32>,
}

impl<H: Handle, T> Table<H, T> {
    pub(crate) const fn new() -> Table<H, T> {
        Table { slots: Mutex::new(Slots { slots: Vec::new(), free: Vec::new() }), handles: PhantomData }
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn split(handle: H) -> Option<(usize, u32)> {
        let id = handle.id();
        let (kind, generation, slot) = ((id >> 56) as u8, (id >> 32) as u32 & LAST_GENERATION, id as u32);
        (kind == H::KIND).then_some((slot as usize, generation))
    }

    /// Adds an object, and returns its handle.
    pub(crate) fn add(&self, object: Arc<T>) -> H {
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
        H::of(kind_bits::<H>() | u64::from(place.0) << 32 | u64::from(slot))
    }

    /// Returns the object of a handle.
    pub(crate) fn get(&self, handle: H) -> Result<Arc<T>, Failed> {
        let found = Self::split(handle).and_then(|(slot, generation)| {
            let slots = self.lock();
            let (its, object) = slots.slots.get(slot)?;
            object.clone().filter(|_| *its == generation)
        });
        found.ok_or_else(|| missing(handle))
    }

    /// Removes the object of a handle, which is invalid from now on.
    pub(crate) fn remove(&self, handle: H) -> Result<Arc<T>, Failed> {
        let found = Self::split(handle).and_then(|(slot, generation)| {
            let mut slots = self.lock();
            let place = slots.slots.get_mut(slot).filter(|place| place.0 == generation)?;
            let object = place.1.take()?;
            // A slot whose generations are used up stays empty, so that no handle names two objects.
            if place.0 < LAST_GENERATION {
                place.0 += 1;
                slots.free.push(slot as u32);
            }
            Some(object)
        });
        found.ok_or_else(|| missing(handle))
    }

    /// Returns the number of objects.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().slots.iter().filter(|(_, object)| object.is_some()).count()
    }
}

/// Returns the error of a handle without an object.
pub(crate) fn missing<H: Handle>(handle: H) -> Failed {
    let text = match handle.id() {
        0 => "0 is no handle".to_string(),
        id => format!("{id:#x} is no {}, or it was freed or used up", H::NAME),
    };
    (HIGHWIRE_INVALID_HANDLE, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::highwire_app;

    #[test]
    fn a_handle_is_invalid_after_its_object_is_gone() {
        let table = Table::<highwire_app, i32>::new();
        let one = table.add(Arc::new(1));
        assert_eq!(*table.get(one).expect("the object"), 1);
        assert_eq!(*table.remove(one).expect("the object"), 1);
        let two = table.add(Arc::new(2));
        assert_ne!(one, two);
        assert_eq!(one.id as u32, two.id as u32, "the slot is used again");
        for wrong in [0, 1, u64::MAX, one.id, two.id ^ 1 << 56, two.id + 1] {
            let wrong = highwire_app { id: wrong };
            assert_eq!(table.get(wrong).map_err(|error| error.0).err(), Some(HIGHWIRE_INVALID_HANDLE), "{wrong:?}");
            assert!(table.remove(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!((*table.get(two).expect("the object"), table.len()), (2, 1));
        // No generation comes twice.
        table.lock().slots[0].0 = LAST_GENERATION;
        let last = highwire_app { id: two.id | u64::from(LAST_GENERATION) << 32 };
        assert_eq!(table.remove(last).ok().as_deref(), Some(&2));
        let three = table.add(Arc::new(3));
        assert_ne!(three.id as u32, last.id as u32);
        assert!(table.get(last).is_err());
    }
}
