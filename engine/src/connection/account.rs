//! What a connection holds for its peer, charged to the worker's share of the memory budget.

use crate::budget::Share;

/// What a connection is charged for, in bytes. What can be asked of its buffers is not kept here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Taken from the worker's share.
    charged: u32,
    /// A request's body that its handler has.
    lent: u32,
    /// Answers that the driver has and the peer has not taken.
    unsent: u32,
    /// A TLS session, with what that holds of records that are not whole.
    session: u32,
    /// What its exchanges held when they were counted last.
    exchanges: u32,
}

fn clamp(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Account {
    /// Bytes that were taken from the worker's share.
    pub(super) fn charged(&self) -> usize {
        self.charged as usize
    }

    /// Bytes that the connection is to be charged for, but for its buffers.
    pub(super) fn held(&self) -> usize {
        self.unsent as usize + self.session as usize + self.exchanges as usize
    }

    pub(super) fn lent(&self) -> usize {
        self.lent as usize
    }

    pub(super) fn set_lent(&mut self, bytes: usize) {
        self.lent = clamp(bytes);
    }

    /// The driver has so many bytes more.
    pub(super) fn add_unsent(&mut self, bytes: usize) {
        self.unsent = self.unsent.saturating_add(clamp(bytes));
    }

    /// The driver has so many bytes, as long as it says nothing else.
    pub(super) fn set_unsent(&mut self, bytes: usize) {
        self.unsent = clamp(bytes);
    }

    /// Returns true if the session has changed.
    pub(super) fn set_session(&mut self, bytes: usize) -> bool {
        std::mem::replace(&mut self.session, clamp(bytes)) != self.session
    }

    pub(super) fn set_exchanges(&mut self, bytes: usize) {
        self.exchanges = clamp(bytes);
    }

    pub(super) fn charge(&mut self, held: usize, share: &mut Share) -> bool {
        let charged = self.charged as usize;
        if held > charged {
            if !share.take(held - charged) {
                return false;
            }
        } else {
            share.give(charged - held);
        }
        self.charged = clamp(held);
        true
    }

    /// Gives everything back but for the session, which lives as long as the connection. Returns what the driver still has.
    pub(super) fn close(&mut self, share: &mut Share) -> usize {
        let unsent = self.unsent as usize;
        share.give(self.charged as usize);
        *self = Account { session: self.session, ..Account::default() };
        unsent
    }
}
