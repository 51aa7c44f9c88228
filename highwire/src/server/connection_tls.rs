//! A connection under TLS: what comes is decrypted before HTTP sees it; what HTTP sends is encrypted where it is handed to
//! the driver ([`Out`]).

use super::connection::Connection;
use super::dispatch::Kit;
use super::out::Out;
use super::secure::{Fault, Heard, Secure};
use crate::StatusCode;
use proto::Head;
use std::sync::atomic::Ordering;

/// What a connection is charged for its session beside what it holds of unread bytes: the session's state and what the
/// allocator rounds it to.
pub(super) const SESSION_BYTES: usize = 12 * 1024;

impl Connection {
    /// The connection begins with a handshake.
    pub(crate) fn secure(&mut self, secure: Box<Secure>, kit: &mut Kit) {
        self.tls = Some(secure);
        self.is_secure = true;
        kit.deadlines.set(self.id.index, kit.tick, kit.timeouts.handshake);
    }

    /// Bytes of TLS came.
    pub(super) fn received_tls(&mut self, bytes: &[u8], kit: &mut Kit, head: &mut Head, out: &mut Out<'_>) {
        let Some(tls) = &mut out.tls else { return };
        if tls.is_declined(bytes) {
            return self.go_plain(bytes, kit, head, out);
        }
        if tls.is_handshaking() {
            if kit.handshakes == 0 || !self.sealed.is_empty() {
                // Others have had this turn's share of the work; those that stand are served first.
                return self.keep_sealed(bytes, kit, out);
            }
            kit.handshakes -= 1;
        }
        let mut plain = std::mem::take(&mut kit.plain);
        let mut raw = std::mem::take(&mut kit.raw);
        let heard = tls.receive(bytes, &mut plain, &mut raw);
        // Who says nothing about it (RFC 7301) has to begin with what the server speaks.
        let is_http2 = tls.speaks_http2() || !kit.shared.config().http1;
        out.send_raw(self.id, &raw);
        match heard {
            Ok(heard) => {
                if let Heard::Opened = heard {
                    kit.shared.counters.handshakes.fetch_add(1, Ordering::Relaxed);
                    kit.deadlines.set(self.id.index, kit.tick, kit.timeouts.head);
                    if tracing::enabled!(tracing::Level::DEBUG)
                        && let Some(tls) = &out.tls
                    {
                        let facts = tls.facts();
                        tracing::debug!(peer = %crate::Peer::from(self.peer), ?facts, "a TLS connection stands");
                    }
                    if is_http2 {
                        self.begin_http2(kit, out);
                    }
                }
                if !plain.is_empty() || self.http2.is_some() {
                    self.received_plain(&plain, kit, head, out);
                }
                if let Heard::PeerClosed = heard {
                    self.peer_is_done(kit, head, out);
                }
            }
            Err(Fault::NotTls) => {
                kit.shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                // In the clear, since that is what it speaks.
                out.tls = None;
                self.end_with(StatusCode::BAD_REQUEST, "this port speaks TLS: use https", kit, out);
                if !self.is_ending() {
                    self.finish(kit, out);
                }
            }
            Err(Fault::Failed(error)) => {
                if out.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                    kit.shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                }
                tracing::debug!(peer = %crate::Peer::from(self.peer), error, "a TLS connection failed");
                // What came before the fault is still answered by nobody: the peer could not read it.
                out.tls = None;
                self.finish(kit, out);
            }
        }
        plain.clear();
        raw.clear();
        (kit.plain, kit.raw) = (plain, raw);
    }

    /// The peer speaks in the clear, on a port that serves that too.
    fn go_plain(&mut self, bytes: &[u8], kit: &mut Kit, head: &mut Head, out: &mut Out<'_>) {
        out.tls = None;
        self.is_secure = false;
        kit.deadlines.set(self.id.index, kit.tick, kit.timeouts.head);
        if !kit.shared.setup.config.http1 {
            self.begin_http2(kit, out);
        }
        self.received_plain(bytes, kit, head, out);
    }

    /// Keeps bytes of a handshake whose turn has not come.
    fn keep_sealed(&mut self, bytes: &[u8], kit: &mut Kit, out: &mut Out<'_>) {
        self.sealed.extend_from_slice(bytes);
        if self.sealed.len() >= super::connection::UNREAD_BYTES {
            // A request may come right behind the handshake.
            self.pause(out.queue);
        }
        if !self.recharge(kit) {
            return self.abort(kit, out);
        }
        kit.context.inbox.waker(self.task().number()).wake();
    }

    /// Goes on with a handshake that had to wait, if its turn has come.
    pub(super) fn proceed_tls(&mut self, kit: &mut Kit, head: &mut Head, out: &mut Out<'_>) {
        if kit.handshakes == 0 {
            return kit.context.inbox.waker(self.task().number()).wake();
        }
        let sealed = std::mem::take(&mut self.sealed);
        self.recharge(kit);
        self.received_tls(&sealed, kit, head, out);
        self.resume_if_wanted(out.queue);
        if self.ended {
            self.peer_is_done(kit, head, out);
        }
    }
}
