//! A connection under TLS. Received bytes are decrypted before HTTP parses them; [`Out`] encrypts the bytes that HTTP
//! sends.

use super::Connection;
use super::out::Out;
use super::phase::DRAIN_TICKS;
use super::unread::UNREAD_BYTES;
use crate::client;
use crate::exchange::abort::Abort;
use crate::secure::Fault;
#[cfg(feature = "tls")]
use crate::secure::Secure;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::Queue;
use highwire_proto::Head;
use highwire_proto::h2::{Code, Failure};
use std::sync::atomic::Ordering;

/// The memory charge in bytes for the state of a TLS session, rounded up as the allocator does. Incomplete records are
/// charged in addition.
pub(super) const SESSION_BYTES: usize = 12 * 1024;

impl Connection {
    /// Gives the connection a TLS session. Returns false if the memory budget has no room for it.
    #[cfg(feature = "tls")]
    pub(crate) fn secure(&mut self, secure: Box<Secure>, worker: &mut WorkerContext<impl Service>) -> bool {
        self.transport.tls = Some(secure);
        self.transport.set_secure(true);
        self.transport.account.set_session(SESSION_BYTES);
        self.transport.set_patience(worker.rules.handshake, worker);
        self.recharge(worker)
    }

    /// Handles received bytes of a connection with a TLS session. Decrypts them, or keeps them if the handshake must
    /// wait for its turn. Removes the session if the peer speaks plain HTTP on a listener for both.
    pub(super) fn received_tls(
        &mut self,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        let Some(tls) = &mut out.tls else { return };
        if tls.is_declined(bytes) {
            return self.go_plain(bytes, worker, head, out);
        }
        if self.transport.sealed.is_some() {
            return self.keep_sealed(bytes, worker, out);
        }
        if tls.is_handshaking() && tls.completes_record(bytes) {
            if worker.handshakes == 0 || !worker.waiting.is_empty() {
                // This turn's handshakes are used up, or others wait before this one.
                return self.keep_sealed(bytes, worker, out);
            }
            worker.handshakes -= 1;
        }
        self.decrypt(bytes, worker, head, out);
    }

    /// Decrypts received bytes, sends the records that the session answers with, and handles the plaintext.
    fn decrypt(&mut self, bytes: &[u8], worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        let Some(tls) = &mut out.tls else { return };
        let mut plain = std::mem::take(&mut worker.plain);
        let mut raw = std::mem::take(&mut worker.raw);
        let heard = tls.receive(bytes, &mut plain, &mut raw);
        let config = worker.shared.config();
        // If HTTP/1 is turned off, a client without ALPN (RFC 7301) cannot fall back to it.
        let is_http2 = tls.speaks_http2() || !config.http1;
        let is_negotiated = tls.speaks_http2() || config.http2_without_alpn;
        let session = SESSION_BYTES + tls.held();
        out.send_raw(self.transport.id(), &raw);
        let fits = !self.transport.account.set_session(session) || self.recharge(worker);
        match heard {
            _ if !fits => self.abort(worker, out),
            Err(fault) if self.transport.is_client() => {
                let text = match fault {
                    Fault::NotTls => "the server does not speak TLS".to_string(),
                    Fault::Failed(text) => text,
                };
                out.tls = None;
                // Later, the server may have processed the request.
                let is_opening = self.transport.is_opening();
                self.fail_client(if is_opening { client::Failure::Tls(text) } else { client::Failure::Lost });
                self.finish(worker, out);
            }
            Ok(heard) => {
                if heard.opened && self.transport.is_client() {
                    self.opened_to(worker, out);
                } else if heard.opened {
                    worker.shared.counters.handshakes.fetch_add(1, Ordering::Relaxed);
                    let patience = if worker.draining() { DRAIN_TICKS } else { worker.rules.head };
                    self.transport.set_patience(patience, worker);
                    if tracing::enabled!(tracing::Level::DEBUG)
                        && let Some(tls) = &out.tls
                    {
                        let facts = tls.facts();
                        tracing::debug!(peer = %self.transport.peer(), ?facts, "a TLS handshake is complete");
                    }
                    if is_http2 {
                        self.begin_http2(worker, out);
                        if !is_negotiated {
                            self.refuse_http2(worker, out);
                        }
                    }
                }
                if self.transport.is_ending() {
                    plain.clear();
                } else if !plain.is_empty() || (heard.opened && self.protocol.http2().is_some()) {
                    self.received_plain(&plain, worker, head, out);
                }
                if heard.ended {
                    self.peer_is_done(true, worker, head, out);
                }
            }
            Err(Fault::NotTls) => {
                worker.shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                self.transport.log_refused(Some(400), Abort::NotTls.text(), worker);
                // The answer is in plain text, because the peer does not speak TLS.
                out.tls = None;
                self.end_with(Abort::NotTls, worker, out);
                if !self.transport.is_ending() {
                    self.finish(worker, out);
                }
            }
            Err(Fault::Failed(error)) => {
                if out.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                    worker.shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                }
                tracing::debug!(peer = %self.transport.peer(), error, "a TLS connection failed");
                self.transport.log_refused(None, &error, worker);
                // Requests that were decrypted before the fault are not answered, because the session can no longer
                // encrypt the answers.
                out.tls = None;
                self.finish(worker, out);
            }
        }
        plain.clear();
        raw.clear();
        (worker.plain, worker.raw) = (plain, raw);
    }

    /// Ends a connection whose client has not negotiated HTTP/2, if HTTP/1 is turned off (RFC 9113 section 3.2).
    fn refuse_http2(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if let Some(http2) = self.protocol.http2_mut() {
            let text = "HTTP/2 under TLS has to be negotiated by ALPN";
            http2.http.fail(Failure { code: Code::Protocol, text }, &mut out.queue.output);
        }
        self.finish(worker, out);
    }

    /// Removes the TLS session of a peer that speaks plain HTTP on a listener for both.
    fn go_plain(&mut self, bytes: &[u8], worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        out.tls = None;
        self.transport.set_secure(false);
        self.transport.account.set_session(0);
        self.recharge(worker);
        self.transport.set_patience(worker.rules.head, worker);
        if !worker.shared.config().http1 {
            self.begin_http2(worker, out);
        }
        self.received_plain(bytes, worker, head, out);
    }

    /// Keeps received bytes of a handshake that must wait for its turn.
    fn keep_sealed(&mut self, bytes: &[u8], worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.transport.sealed.is_none() {
            worker.waiting.push_back(self.transport.id());
        }
        let sealed = self.transport.sealed.get_or_insert_default();
        sealed.extend_from_slice(bytes);
        if sealed.len() >= UNREAD_BYTES {
            // Requests may follow the handshake at once, so the kept bytes need a limit.
            self.transport.pause(out.queue);
        }
        if !self.recharge(worker) {
            self.abort(worker, out);
        }
    }

    /// Continues a handshake that has waited for its turn.
    pub(crate) fn proceed_tls(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        if self.transport.is_ending() || self.transport.sealed.is_none() {
            return;
        }
        self.with_out(worker, queue, |connection, worker, out| {
            let sealed = connection.transport.sealed.take().unwrap_or_default();
            connection.recharge(worker);
            connection.decrypt(&sealed, worker, head, out);
            connection.resume_if_wanted(out.queue);
            if connection.transport.ended() {
                connection.peer_is_done(false, worker, head, out);
            }
        });
    }
}
