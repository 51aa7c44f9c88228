//! The account of a connection: the bytes for which the worker's share of the memory budget is charged.

use crate::budget::Share;

/// The bytes that a connection holds for its peer, without those of its own buffers, whose capacity is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Bytes that were taken from the worker's share.
    charged: u32,
    /// Bytes of a whole request body that the handler holds.
    lent: u32,
    /// Bytes of answers that the driver holds and the peer has not taken.
    unsent: u32,
    /// Bytes of the TLS session and of its incomplete records.
    session: u32,
    /// Bytes of the exchanges, as of the last count.
    exchanges: u32,
}

fn clamp(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Account {
    /// Returns the bytes that were taken from the worker's share.
    pub(super) fn charged(&self) -> usize {
        self.charged as usize
    }

    /// Returns the bytes to be charged, without those of the connection's buffers.
    pub(super) fn held(&self) -> usize {
        self.unsent as usize + self.session as usize + self.exchanges as usize
    }

    pub(super) fn lent(&self) -> usize {
        self.lent as usize
    }

    pub(super) fn set_lent(&mut self, bytes: usize) {
        self.lent = clamp(bytes);
    }

    /// Adds bytes that the driver holds.
    pub(super) fn add_unsent(&mut self, bytes: usize) {
        self.unsent = self.unsent.saturating_add(clamp(bytes));
    }

    /// Sets the bytes that the driver holds.
    pub(super) fn set_unsent(&mut self, bytes: usize) {
        self.unsent = clamp(bytes);
    }

    /// Sets the bytes of the TLS session. Returns true if they have changed.
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

    /// Gives the whole charge back to the worker's share, and keeps only the size of the TLS session. Returns the bytes that the driver
    /// holds.
    pub(super) fn close(&mut self, share: &mut Share) -> usize {
        let unsent = self.unsent as usize;
        share.give(self.charged as usize);
        *self = Account { session: self.session, ..Account::default() };
        unsent
    }
}
