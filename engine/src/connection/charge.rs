//! Charges the worker's share of the memory budget for the memory that a connection holds, and gives the charge back.

use super::account::Account;
use super::http1::Http1;
use super::transport::Transport;
use super::{Connection, Protocol};
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::Role;

impl Transport {
    /// Charges the worker's share of the memory budget for the bytes that the connection holds now. For the exchanges,
    /// uses their last count. Returns false if the budget has no room.
    pub(super) fn charge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        let held = self.held();
        self.account.charge(held, &mut worker.share)
    }

    /// Charges as [`charge`](Self::charge) does, for an HTTP/2 connection whose state and streams hold `bytes` bytes.
    /// Also returns false, without a charge, if this connection would leave too little for the others. HTTP/1 needs no
    /// such rule, because it has one body at a time, which has a limit of its own.
    pub(super) fn charge_streams(&mut self, bytes: usize, worker: &mut WorkerContext<impl Service>) -> bool {
        self.account.set_exchanges(bytes);
        let held = self.held();
        worker.share.allows(self.account.charged(), held) && self.account.charge(held, &mut worker.share)
    }

    /// Returns the number of bytes that the connection holds for its peer.
    fn held(&self) -> usize {
        self.account.held() + self.unread.capacity() + self.sealed.as_ref().map_or(0, |sealed| sealed.capacity())
    }

    /// Frees the unread bytes and gives the whole charge back to the worker's share, because the connection serves no
    /// more requests. The account keeps the size of the TLS session for the next `charge`. Returns the number of unsent
    /// bytes that the driver holds.
    pub(super) fn close_account(&mut self, worker: &mut WorkerContext<impl Service>) -> usize {
        self.unread.clear();
        self.account.close(&mut worker.share)
    }

    /// Gives the whole charge back and clears the account, because the connection has ended.
    pub(super) fn release(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.close_account(worker);
        self.account = Account::default();
    }

    /// Gives back the charge of the exchanges, which have ended with the connection.
    pub(super) fn give_back_exchanges(&mut self, worker: &mut WorkerContext<impl Service>) {
        // The exchanges may have been counted again since the connection began to end.
        self.account.set_exchanges(0);
        self.charge(worker);
    }
}

impl Connection {
    /// Counts and charges the bytes that this connection holds now. Returns false if the memory budget has no room.
    pub(super) fn recharge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        self.count_exchanges();
        self.transport.charge(worker)
    }

    /// Counts the bytes that the exchanges hold now, for the next [`Transport::charge`].
    pub(super) fn count_exchanges(&mut self) {
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.count_exchanges(&mut self.transport),
            Protocol::Http2(http2) => http2.count_exchanges(&mut self.transport),
            Protocol::Tunnel(tunnel) => tunnel.count_exchanges(&mut self.transport),
        }
    }

    /// Ends the exchanges and cancels their handlers.
    pub(super) fn release_protocol(&mut self, worker: &mut WorkerContext<impl Service>) {
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.release(worker),
            Protocol::Http2(_) | Protocol::Tunnel(_) => {
                let ended = Protocol::Http1(Http1::new(Role::Server));
                match std::mem::replace(&mut self.protocol, ended) {
                    Protocol::Http1(_) => {}
                    Protocol::Http2(http2) => http2.release(worker),
                    Protocol::Tunnel(tunnel) => tunnel.release(worker),
                }
            }
        }
    }

    /// Ends the exchanges of a connection that is ending, and gives back their charge.
    #[inline]
    pub(super) fn release_if_ended(&mut self, worker: &mut WorkerContext<impl Service>) {
        if !self.transport.is_ending() {
            return;
        }
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.release_if_ended(&mut self.transport, worker),
            Protocol::Http2(_) | Protocol::Tunnel(_) => {
                self.release_protocol(worker);
                self.transport.give_back_exchanges(worker);
            }
        }
    }

    /// Ends the exchanges and gives the whole charge back, because the connection has ended.
    pub(crate) fn release(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.release_protocol(worker);
        self.transport.release(worker);
    }
}
