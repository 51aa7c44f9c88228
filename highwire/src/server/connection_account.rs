//! What a connection holds for its peer, charged to the worker's share of the memory budget.

use super::connection::Connection;
use super::dispatch::Kit;
use crate::body::BodyError;

impl Connection {
    /// Charges the worker's share for what this connection holds now: whether there was enough.
    pub(super) fn recharge(&mut self, kit: &mut Kit) -> bool {
        if let Some(http2) = &mut self.http2 {
            self.streams = u32::try_from(http2.held()).unwrap_or(u32::MAX);
        }
        // While something is done with them they are elsewhere, and not gone.
        self.charge(self.held() + self.streams as usize, kit)
    }

    /// Bytes that it holds for its peer, but for those of HTTP/2 streams.
    pub(super) fn held(&self) -> usize {
        let lent = self.lent as usize;
        self.away as usize
            + self.unread.capacity()
            + self.sealed.capacity()
            + self.session as usize
            + self.exchange.as_ref().map_or(lent, |exchange| exchange.lent(lent) + exchange.held())
    }

    /// Charges so many bytes, in place of what was charged before: whether there was room.
    pub(super) fn charge(&mut self, held: usize, kit: &mut Kit) -> bool {
        let charged = self.charged as usize;
        if held > charged {
            if !kit.share.take(held - charged) {
                return false;
            }
        } else {
            kit.share.give(charged - held);
        }
        self.charged = u32::try_from(held).unwrap_or(u32::MAX);
        true
    }

    /// Gives everything back: the connection is over.
    pub(super) fn release(&mut self, kit: &mut Kit) {
        self.unread = Vec::new();
        if let Some(http2) = self.http2.take() {
            http2.release(kit);
        }
        if let Some(mut exchange) = self.exchange.take() {
            exchange.give_up(BodyError::CutShort, kit);
            kit.recycle(exchange);
        }
        (self.lent, self.away, self.session, self.streams) = (0, 0, 0, 0);
        kit.share.give(std::mem::take(&mut self.charged) as usize);
    }
}
