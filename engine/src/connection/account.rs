//! The account of a connection: counts of the bytes that it holds for its peer, and the number of bytes that are
//! charged to its worker's share of the memory budget.

use crate::server::budget::Share;

/// The byte counts of a connection. The connection's own buffers (`unread` and `sealed`) have no count here, because
/// their capacities are added at each charge.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// The number of bytes that are charged to the worker's share of the memory budget.
    charged: u32,
    /// The number of bytes of an HTTP/1 request body that the handler holds as a whole.
    lent: u32,
    /// The number of unsent bytes that the driver holds until the kernel takes them.
    unsent: u32,
    /// The number of bytes of the TLS session and its incomplete records.
    session: u32,
    /// The number of bytes that the exchanges hold, as of the last count.
    exchanges: u32,
}

fn clamp(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Account {
    /// Returns the number of bytes that are charged to the worker's share.
    pub(super) fn charged(&self) -> usize {
        self.charged as usize
    }

    /// Returns the number of bytes that the connection holds, without its own buffers.
    pub(super) fn held(&self) -> usize {
        self.unsent as usize + self.session as usize + self.exchanges as usize
    }

    pub(super) fn lent(&self) -> usize {
        self.lent as usize
    }

    pub(super) fn set_lent(&mut self, bytes: usize) {
        self.lent = clamp(bytes);
    }

    /// Adds to the number of unsent bytes that the driver holds.
    pub(super) fn add_unsent(&mut self, bytes: usize) {
        self.unsent = self.unsent.saturating_add(clamp(bytes));
    }

    /// Sets the number of unsent bytes that the driver holds.
    pub(super) fn set_unsent(&mut self, bytes: usize) {
        self.unsent = clamp(bytes);
    }

    /// Sets the number of bytes of the TLS session. Returns true if the number has changed.
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

    /// Gives the whole charge back to the worker's share, and keeps only the size of the TLS session. Returns the
    /// number of unsent bytes that the driver holds.
    pub(super) fn close(&mut self, share: &mut Share) -> usize {
        let unsent = self.unsent as usize;
        share.give(self.charged as usize);
        *self = Account { session: self.session, ..Account::default() };
        unsent
    }
}
