//! Sends requests over HTTP/1.

use super::H1;
use super::send::write_fields;
use crate::client::{Asking, Failure, Protocol};
use crate::connection::Connection;
use crate::connection::out::Out;
use crate::connection::phase::Phase;
use crate::exchange::Exchange;
use crate::exchange::carrier::Carrier;
use crate::fields::check;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::{Version, h1};
use http::Method;
use std::rc::Rc;

impl Connection {
    /// Sends a request, or its head if the body follows in parts. If the request is invalid, fails it and sends nothing.
    pub(in crate::connection) fn begin_request(
        &mut self,
        asking: Rc<Asking>,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let version = match self.transport.link.as_ref().map(|link| link.protocol) {
            Some(Protocol::Http10) => Version::Http10,
            _ => Version::Http11,
        };
        let request = asking.request();
        if let Err(error) = check(&request.fields) {
            drop(request);
            return asking.fail(Failure::Invalid(error));
        }
        let is_connect = request.method == Method::CONNECT;
        let sent = self.http.send_request(
            h1::Request {
                method: request.method.as_str(),
                target: &request.target,
                version,
                length: request.content.length(),
                keep_alive: !request.closes && !worker.draining,
                upgrade: request.upgrade.is_some() || is_connect,
            },
            &mut out.queue.output,
            |writer| {
                writer.field(b"Host", request.authority.as_bytes());
                if let Some(protocol) = request.upgrade.as_ref().filter(|_| !is_connect) {
                    writer.field(b"Upgrade", protocol.as_bytes());
                }
                write_fields(writer, &request.fields);
            },
        );
        let is_sparing = request.is_sparing;
        drop(request);
        if let Err(error) = sent {
            return asking.fail(Failure::Invalid(error));
        }
        let content = asking.begin(worker.context.inbox.waker(self.transport.task().number()), worker.now);
        let mut exchange = Exchange::boxed();
        exchange.ask(asking);
        self.exchange = Some(exchange);
        self.receive_head_alone(is_sparing, out.queue);
        self.intake = Default::default();
        self.transport.phase = Phase::Fresh;
        self.send_content(content, worker, out);
        if let Some(exchange) = H1::new(self, out).exchange() {
            exchange.outgoing.end_unless_it_goes_on();
        }
    }
}
