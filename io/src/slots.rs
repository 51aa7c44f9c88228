//! A slab with generations: the key of a removed value finds nothing, even if its slot is used again, until the slot's
//! generation repeats after 2^24 uses.

use crate::SocketId;

/// The highest generation. Generations have 24 bits, so that the 64 bits of user data of an io_uring completion can
/// hold a generation, an index and a kind.
const GENERATIONS: u32 = 0xff_ffff;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values, found by [`SocketId`].
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// The generation of new slots. Until it wraps, it is higher than the generations of all slots whose memory was
    /// freed.
    first: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots::new()
    }
}

/// The number of slots above which their memory is freed when all of them are free.
pub(crate) const SLOTS_KEPT: usize = 1024;

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new(), first: 0 }
    }

    pub(crate) fn insert(&mut self, value: T) -> SocketId {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return SocketId { index, generation: slot.generation };
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: self.first, value: Some(value) });
        SocketId { index, generation: self.first }
    }

    #[inline]
    pub(crate) fn get(&mut self, id: SocketId) -> Option<&mut T> {
        match self.slots.get_mut(id.index as usize) {
            Some(slot) if slot.generation == id.generation => slot.value.as_mut(),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATIONS;
        self.free.push(id.index);
        if self.free.len() == self.slots.len() && self.slots.len() > SLOTS_KEPT {
            self.give_back();
        }
        Some(value)
    }

    /// Frees the memory of all slots. Called when there are more than [`SLOTS_KEPT`] slots and all of them are free.
    #[cold]
    fn give_back(&mut self) {
        // It is higher than the generation of every slot freed now or earlier, so that old ids stay invalid. After 24
        // bits, it wraps as the generation of a slot does.
        let generations = self.slots.iter().map(|slot| slot.generation);
        self.first = (generations.max().unwrap_or(0).max(self.first) + 1) & GENERATIONS;
        (self.slots, self.free) = (Vec::new(), Vec::new());
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SocketId> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.value.is_some())
            .map(|(index, slot)| SocketId { index: index as u32, generation: slot.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_are_all_free_are_given_back_and_their_ids_stay_stale() {
        let mut slots = Slots::new();
        let mut old: Vec<SocketId> = (0..SLOTS_KEPT + 1).map(|_| slots.insert('a')).collect();
        slots.remove(old[0]);
        old.push(slots.insert('b'));
        for id in &old {
            slots.remove(*id);
        }
        assert_eq!(slots.slots.capacity(), 0);
        let new: Vec<SocketId> = (0..SLOTS_KEPT + 1).map(|_| slots.insert('c')).collect();
        assert!(new.iter().all(|id| !old.contains(id)));
        assert!(old.iter().all(|id| slots.get(*id).is_none()));
    }

    #[test]
    fn an_id_of_an_earlier_value_in_the_slot_finds_nothing() {
        let mut slots = Slots::new();
        let old = slots.insert('a');
        assert_eq!(slots.remove(old), Some('a'));
        let new = slots.insert('b');
        assert_eq!(new.index, old.index);
        assert_eq!(slots.get(old), None);
        assert_eq!(slots.remove(old), None);
        assert_eq!(slots.get(new), Some(&mut 'b'));
        assert_eq!(slots.ids().collect::<Vec<_>>(), [new]);
    }
}
