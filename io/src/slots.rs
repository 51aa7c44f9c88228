//! Numbered slots with generations: a slab whose keys go stale.

use crate::SocketId;

/// Generations have 24 bits, so that they fit a completion's user data beside the index and a kind.
const GENERATIONS: u32 = 0xff_ffff;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by [`SocketId`].
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// The generation of slots that are new: above that of all that were given back.
    first: u32,
}

/// How many slots are kept when all are free.
const SLOTS_KEPT: usize = 1024;

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

    /// Gives the memory of slots back that are all free, after many connections have gone.
    #[cold]
    fn give_back(&mut self) {
        // Above all of them, and of those that were given back before; around their end it begins anew, as each slot does.
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
