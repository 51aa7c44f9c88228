//! The steps of a connection that differ in the client's role: how it begins, how it begins requests, and what it
//! reports to the pool.

use super::http1::Http1;
use super::out::Out;
use super::phase::Phase;
use super::{Connection, Protocol};
use crate::client::{self, Failure, Interim, Link, SURPLUS_TICKS, Setup};
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::{Head, Role};
use http::{HeaderName, HeaderValue, StatusCode};
use std::any::Any;
use std::rc::Rc;

impl Connection {
    /// Returns the link to the pool, if this is a connection to a server.
    #[inline]
    pub(crate) fn link(&self) -> Option<&Rc<Link>> {
        self.transport.link()
    }

    /// Makes an opened connection one to a server of HTTP, if its task has asked for that.
    pub(super) fn become_client(
        &mut self,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        let Protocol::Tunnel(tunnel) = &self.protocol else { return };
        let Some((setup, received)) = tunnel.raw().borrow_mut().take_setup() else { return };
        // Only the client gives a connection to another protocol.
        let Ok(setup) = (setup as Box<dyn Any>).downcast::<Setup>() else { return };
        let link = setup.link.clone();
        worker.rules = link.rules.clone();
        link.attach(worker.context.inbox.waker(self.transport.task().number()));
        if let Some(old) = self.transport.become_client(link) {
            // This connection was one to a proxy, whose pool no longer counts it.
            old.close();
        }
        self.release_protocol(worker);
        self.protocol = Protocol::Http1(Http1::new(Role::Client));
        self.transport.restart();
        if !self.begin_tls(*setup, worker, out) {
            self.opened_to(worker, out);
        }
        if !received.is_empty() && !self.transport.is_ending() {
            match out.tls {
                None => self.received_plain(&received, worker, head, out),
                Some(_) => self.received_tls(&received, worker, head, out),
            }
        }
    }

    /// Sends the first records of the TLS session. Returns false if there is no session.
    #[cfg(feature = "tls")]
    fn begin_tls(&mut self, setup: Setup, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) -> bool {
        let Some((mut secure, hello)) = setup.tls else { return false };
        if out.tls.is_some() {
            let text = "TLS to a server through TLS to its proxy is not supported";
            self.fail_client(Failure::Unsupported(text));
            self.abort(worker, out);
            return true;
        }
        out.send_raw(self.transport.id(), &hello);
        secure.scratch = std::mem::take(&mut worker.scratch);
        out.tls = Some(secure);
        self.transport.set_secure(true);
        self.transport.account.set_session(super::tls::SESSION_BYTES);
        self.transport.set_patience(worker.rules.handshake, worker);
        if !self.recharge(worker) {
            self.fail_client(Failure::NoMemory);
            self.abort(worker, out);
        }
        true
    }

    #[cfg(not(feature = "tls"))]
    fn begin_tls(&mut self, _: Setup, _: &mut WorkerContext<impl Service>, _: &mut Out<'_>) -> bool {
        false
    }

    /// Handles the end of the TLS handshake, or the beginning of a connection without TLS.
    pub(super) fn opened_to(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let Some(link) = self.transport.link().cloned() else { return };
        let is_agreed = out.tls.as_ref().is_some_and(|tls| tls.speaks_http2());
        let is_http2 = match link.protocol {
            client::Protocol::Auto => is_agreed,
            client::Protocol::Http10 | client::Protocol::Http11 if is_agreed => {
                let text = "the TLS configuration offers HTTP/2, which the client does not speak here";
                self.fail_client(Failure::Unsupported(text));
                return self.finish(worker, out);
            }
            client::Protocol::Http10 | client::Protocol::Http11 => false,
            client::Protocol::Http2 if out.tls.is_some() && !is_agreed => {
                self.fail_client(Failure::Unsupported("the server does not offer HTTP/2"));
                return self.finish(worker, out);
            }
            client::Protocol::Http2 => true,
        };
        if is_http2 {
            self.begin_http2(worker, out);
            if self.transport.is_ending() {
                return self.fail_client(Failure::NoMemory);
            }
        }
        link.open(is_http2);
        self.transport.restart();
        self.wait_for(Phase::Idle, worker);
    }

    /// Records the reason why a client's connection ends, and fails its requests with that reason.
    pub(super) fn fail_client(&mut self, failure: Failure) {
        let Some(link) = self.transport.link().cloned() else { return };
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.fail_pending(&failure),
            Protocol::Http2(http2) => http2.fail_pending(&failure),
            // Its request has got its response.
            Protocol::Tunnel(_) => {}
        }
        link.set_reason(failure);
    }

    /// Begins the next requests, as far as the server allows.
    pub(super) fn drive_client(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let Some(link) = self.transport.link().cloned().filter(|link| !link.is_opening()) else { return };
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.drive_client(&mut self.transport, &link, worker, out),
            Protocol::Http2(http2) => self.transport.drive_http2_client(http2, &link, worker, out),
            Protocol::Tunnel(_) => {}
        }
    }

    /// Begins a shutdown: the connection closes when it has no request.
    pub(super) fn drain_client(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        // Requests of handlers that are still running may wait for a connection that is being opened.
        self.transport.link().into_iter().filter(|link| !link.is_opening()).for_each(|link| link.retire());
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.settle_client(&mut self.transport, worker, out),
            Protocol::Http2(http2) => http2.settle(&mut self.transport, worker, out),
            Protocol::Tunnel(tunnel) => tunnel.settle(&mut self.transport, worker, out.queue),
        }
        // Less may wait for readers now than when receiving paused.
        self.resume_if_wanted(out.queue);
    }

    /// Reports to the pool how many requests the connection could begin. Called after each event.
    pub(crate) fn report(&mut self, worker: &mut WorkerContext<impl Service>) {
        let Some(link) = self.transport.link() else { return };
        if self.transport.is_ending() {
            return link.close();
        }
        if link.is_opening() {
            return;
        }
        let (is_idle, most) = match &self.protocol {
            Protocol::Tunnel(_) => return,
            Protocol::Http1(http1) => {
                let is_idle = http1.may_ask(&self.transport);
                (is_idle, usize::from(is_idle))
            }
            // The requests in progress go on. Those that are not begun can be sent on another connection.
            Protocol::Http2(http2) if http2.http.peer_goes_away().is_some() => return link.close(),
            // It takes no more requests while it is not known to live.
            Protocol::Http2(http2) if http2.pinged.is_some() => (false, 0),
            Protocol::Http2(http2) => (http2.http.open_streams() == 0, http2.room(worker.rules.streams)),
        };
        link.update(is_idle, most);
        if self.transport.phase() == Phase::Idle && link.is_surplus() {
            self.transport.hurry(SURPLUS_TICKS, worker);
        }
    }
}

/// Returns an interim response for the requester.
pub(super) fn interim(head: &Head, window: &[u8]) -> Interim {
    let fields = head.fields.iter().filter_map(|field| {
        let name = HeaderName::from_bytes(field.name.of(window)).ok()?;
        Some((name, HeaderValue::from_bytes(field.value.of(window)).ok()?))
    });
    Interim { status: StatusCode::from_u16(head.status).unwrap_or(StatusCode::CONTINUE), fields: fields.collect() }
}
