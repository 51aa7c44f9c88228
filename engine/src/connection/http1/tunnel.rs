//! The acceptance of another protocol over HTTP/1, after Upgrade or CONNECT. The connection then carries a
//! [`Tunnel`].

use super::Http1;
use super::send::{write_common_lines, write_fields};
use crate::connection::out::Out;
use crate::connection::transport::Transport;
use crate::connection::tunnel::Tunnel;
use crate::message::response::Response;
use crate::raw::{Raw, Switch};
use crate::service::Service;
use crate::worker::context::WorkerContext;

impl Http1 {
    /// Sends the response that accepts another protocol, and creates that protocol's task.
    pub(super) fn switch(
        &mut self,
        transport: &mut Transport,
        response: &mut Response,
        switch: Switch,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        response.own_headers();
        let accepted = self.http.accept(response.status.as_u16(), &mut out.queue.output, |writer| {
            write_common_lines(writer, worker, &response.fields);
            write_fields(writer, &response.fields);
        });
        if let Err(error) = accepted {
            return self.broken_answer(transport, error, worker, out);
        }
        let raw = Raw::new(worker.context.inbox.waker(transport.task().number()));
        let is_draining = worker.draining();
        match self.exchange().start_tunnel(raw, switch, is_draining) {
            Ok(()) => self.become_tunnel(transport),
            Err(_) => {
                out.flush(transport.id());
                self.close(transport, worker, out);
            }
        }
    }

    /// Parses nothing more, because a tunnel takes the place of HTTP/1 after this event. The deadline starts anew.
    pub(super) fn become_tunnel(&mut self, transport: &mut Transport) {
        transport.restart();
        self.accepted = self.exchange.as_mut().and_then(|exchange| exchange.take_tunnel());
    }

    /// Returns true if the connection becomes a tunnel after this event.
    pub(in crate::connection) fn becomes_tunnel(&self) -> bool {
        self.accepted.is_some()
    }

    /// Takes the tunnel that takes the place of HTTP/1.
    #[inline]
    pub(in crate::connection) fn take_tunnel(&mut self) -> Option<Tunnel> {
        let stream = self.accepted.take()?;
        self.recycle_exchange();
        Some(Tunnel::new(stream, self.exchange.take()))
    }
}
