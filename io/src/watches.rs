//! The descriptors that a driver watches for its loop.

use crate::SocketId;
use crate::op::Interest;
use crate::slots::Slots;
use crate::sys::Waitable;
use std::collections::HashMap;

/// A watched descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// The loop's number.
    pub(crate) token: u64,
    pub(crate) descriptor: Waitable,
    pub(crate) interest: Interest,
    /// True if the descriptor is registered with the system's poll (readiness driver only).
    pub(crate) is_registered: bool,
}

impl Watched {
    pub(crate) fn new(token: u64, descriptor: Waitable, interest: Interest) -> Watched {
        Watched { token, descriptor, interest, is_registered: false }
    }
}

/// The watches in progress. Each has an id of the driver's own, so that a late event of an ended watch finds nothing.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: Slots<Watched>,
    ids: HashMap<u64, SocketId>,
}

impl Watches {
    /// Adds a watch. The caller must have ended an earlier one with the same token.
    pub(crate) fn insert(&mut self, watched: Watched) -> SocketId {
        let id = self.watches.insert(watched);
        self.ids.insert(watched.token, id);
        id
    }

    /// Ends the watch with an id.
    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Watched> {
        let watched = self.watches.remove(id)?;
        self.ids.remove(&watched.token);
        Some(watched)
    }

    /// Ends the watch with a token. Returns its id, too.
    pub(crate) fn cancel(&mut self, token: u64) -> Option<(SocketId, Watched)> {
        let id = self.ids.remove(&token)?;
        Some((id, self.watches.remove(id)?))
    }

    pub(crate) fn mark_registered(&mut self, id: SocketId) {
        self.watches.get(id).into_iter().for_each(|watched| watched.is_registered = true);
    }

    pub(crate) fn get(&mut self, id: SocketId) -> Option<Watched> {
        self.watches.get(id).copied()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SocketId> {
        self.watches.ids()
    }
}
