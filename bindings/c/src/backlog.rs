//! The queue from the program to a connection: the parts of a stream, or the messages of a WebSocket.
//!
//! The program adds items on any thread, and the connection's worker takes them out. If an item does not fit, the library refuses it, and
//! calls the program once when half of the room is free again.

use std::collections::VecDeque;
use std::task::{Context, Waker};

/// The most bytes that wait for a peer. This is as much as a kernel's socket buffer usually holds.
const ROOM: usize = 256 * 1024;

/// The most items for which an empty backlog keeps memory.
const KEPT_PLACES: usize = 64;

pub(crate) struct Backlog<T> {
    items: VecDeque<T>,
    held: usize,
    /// True if an item was refused after the last callback about room.
    wants_room: bool,
    reader: Option<Waker>,
}

impl<T> Backlog<T> {
    pub(crate) const fn new() -> Backlog<T> {
        Backlog { items: VecDeque::new(), held: 0, wants_room: false, reader: None }
    }

    /// Returns true if an item of this many bytes fits. If it does not, the worker tells the program later when there
    /// is room. An item of any length fits into an empty backlog, so that none is refused for ever.
    pub(crate) fn has_room_for(&mut self, bytes: usize) -> bool {
        let fits = self.held == 0 || self.held + bytes <= ROOM;
        self.wants_room |= !fits;
        fits
    }

    /// Returns true if more than [`ROOM`] bytes wait. If so, the worker tells the program later when there is room.
    pub(crate) fn is_overfull(&mut self) -> bool {
        let is_overfull = self.held > ROOM;
        self.wants_room |= is_overfull;
        is_overfull
    }

    /// Adds an item that counts as `bytes`, even if there is no room.
    pub(crate) fn push(&mut self, item: T, bytes: usize) {
        self.held += bytes;
        self.items.push_back(item);
    }

    /// Takes the next item, whose bytes `count` returns.
    pub(crate) fn pop(&mut self, count: impl FnOnce(&T) -> usize) -> Option<T> {
        let item = self.items.pop_front()?;
        self.held -= count(&item);
        Some(item)
    }

    /// Returns true, once after a refusal, if the worker must tell the program now that there is room.
    pub(crate) fn tells_of_room(&mut self) -> bool {
        let tells = self.wants_room && self.held <= ROOM / 2;
        self.wants_room &= !tells;
        tells
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Wakes the connection's task at the next item: see [`take_reader`](Self::take_reader).
    pub(crate) fn wait(&mut self, cx: &Context<'_>) {
        self.items.shrink_to(KEPT_PLACES);
        self.reader = Some(cx.waker().clone());
    }

    /// Returns the waiting task. Wake it after releasing the lock.
    pub(crate) fn take_reader(&mut self) -> Option<Waker> {
        self.reader.take()
    }

    /// Takes the waiting items, which are never sent. Drop them after releasing the lock.
    pub(crate) fn discard(&mut self) -> VecDeque<T> {
        (self.held, self.wants_room) = (0, false);
        std::mem::take(&mut self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_program_is_told_of_room_once() {
        let mut backlog = Backlog::new();
        assert!(backlog.has_room_for(2 * ROOM), "the first may have any length");
        backlog.push("long", 2 * ROOM);
        assert!(!backlog.has_room_for(1) && backlog.is_overfull() && !backlog.tells_of_room());
        assert_eq!(backlog.pop(|_| 2 * ROOM), Some("long"));
        assert!(backlog.tells_of_room() && !backlog.tells_of_room());
        backlog.push("a", ROOM - 1);
        backlog.push("b", 1);
        assert!(!backlog.is_overfull() && !backlog.has_room_for(1) && backlog.has_room_for(0));
        assert_eq!(backlog.discard().len(), 2);
        assert!(backlog.is_empty() && !backlog.tells_of_room() && backlog.pop(|_| 0).is_none());
    }
}
