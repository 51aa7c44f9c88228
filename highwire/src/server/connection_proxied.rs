//! A connection behind a proxy that says whose it is, before anything else.

use super::connection::Connection;
use super::dispatch::Kit;
use super::out::Out;
use super::proxied::{self, Said};
use io::Queue;
use proto::Head;

impl Connection {
    /// Bytes came, and the header has not.
    #[cold]
    pub(super) fn received_proxied(&mut self, bytes: &[u8], kit: &mut Kit, head: &mut Head, queue: &mut Queue) {
        // The header is shorter than any buffer: what was kept of it is bounded by it.
        let mut window = std::mem::take(&mut self.unread);
        window.extend_from_slice(bytes);
        match proxied::read(&window) {
            Said::NeedMore => {
                self.unread = window;
                if !self.recharge(kit) {
                    self.with_out(kit, queue, |connection, kit, out| connection.abort(kit, out));
                }
            }
            Said::Wrong => {
                tracing::debug!(peer = %crate::Peer::from(self.peer), "a connection does not begin with the PROXY protocol");
                self.with_out(kit, queue, |connection, kit, out| connection.abort(kit, out));
            }
            Said::Header { bytes, peer } => {
                self.proxied = false;
                if let Some(peer) = peer {
                    if !kit.shared.admit_for(self.peer, peer) {
                        return self.with_out(kit, queue, |connection, kit, out| connection.refuse_peer(kit, out));
                    }
                    self.peer = peer;
                }
                if !kit.shared.config().http1 && !self.is_secure() {
                    self.speak_http2(kit, queue);
                }
                if window.len() > bytes {
                    self.received(&window[bytes..], kit, head, queue);
                }
            }
        }
    }

    /// The peer has too many connections already.
    fn refuse_peer(&mut self, kit: &mut Kit, out: &mut Out<'_>) {
        if out.tls.is_some() {
            return self.abort(kit, out);
        }
        self.end_with(super::exchange::abort::Abort::TooManyConnections, kit, out);
        if !self.is_ending() {
            self.finish(kit, out);
        }
    }
}
