//! Charging a connection for what it holds, and giving it back.

use super::Connection;
use super::account::Account;
use super::transport::Transport;
use crate::body::BodyError;
use crate::service::Service;
use crate::worker::WorkerContext;

impl Transport {
    /// Charges the worker's share for what the connection holds now, with its exchanges as they were counted last. Returns false
    /// if there is no room.
    pub(super) fn charge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        let held = self.held();
        self.account.charge(held, &mut worker.share)
    }

    /// The same where its streams hold so many bytes. One connection may not have what is for all; of HTTP/1 it has one body at a
    /// time, which has a bound of its own.
    pub(super) fn charge_streams(&mut self, bytes: usize, worker: &mut WorkerContext<impl Service>) -> bool {
        self.account.set_exchanges(bytes);
        let held = self.held();
        worker.share.allows(self.account.charged(), held) && self.account.charge(held, &mut worker.share)
    }

    /// Bytes that it holds for its peer.
    fn held(&self) -> usize {
        self.account.held() + self.unread.capacity() + self.sealed.capacity()
    }

    /// Drops what is unread, and gives everything back but for the TLS session: no request is served any more. Returns bytes that
    /// the driver still has.
    pub(super) fn close_account(&mut self, worker: &mut WorkerContext<impl Service>) -> usize {
        self.unread = Vec::new();
        self.account.close(&mut worker.share)
    }

    /// Gives everything back: the connection is over.
    pub(super) fn release(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.close_account(worker);
        self.account = Account::default();
    }
}

impl Connection {
    /// Charges the worker's share for what this connection holds now. Returns false if there is no room.
    pub(super) fn recharge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        self.count_exchanges();
        self.transport.charge(worker)
    }

    /// Counts what its exchanges hold now, for the next [`Transport::charge`].
    pub(super) fn count_exchanges(&mut self) {
        let lent = self.transport.account.lent();
        let exchanges = match (&mut self.http2, &self.exchange) {
            (Some(http2), _) => http2.held(),
            (None, Some(exchange)) => exchange.lent(lent) + exchange.held(),
            (None, None) => lent,
        };
        self.transport.account.set_exchanges(exchanges);
    }

    /// Ends what is under way, of every protocol: handlers are cancelled.
    pub(super) fn release_protocol(&mut self, worker: &mut WorkerContext<impl Service>) {
        if let Some(http2) = self.http2.take() {
            http2.release(worker);
        }
        if let Some(mut exchange) = self.exchange.take() {
            exchange.give_up(BodyError::CutShort, worker);
            exchange.recycle();
        }
    }

    /// The same, once nothing is read or answered any more.
    #[inline]
    pub(super) fn release_if_ended(&mut self, worker: &mut WorkerContext<impl Service>) {
        if self.transport.is_ending() && (self.http2.is_some() || self.exchange.is_some()) {
            self.release_protocol(worker);
            // What was charged for it after the end has no use any more.
            self.transport.account.set_exchanges(0);
            self.transport.charge(worker);
        }
    }

    /// Gives everything back: the connection is over.
    pub(crate) fn release(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.release_protocol(worker);
        self.transport.release(worker);
    }
}
