//! The trait [`Carrier`]: the operations that a protocol provides for one exchange. HTTP/1, HTTP/2 and requests of this
//! process implement it; [`lifecycle`](super::lifecycle) holds the logic that they share.

use super::abort::Abort;
use super::{Exchange, Intake};
use crate::body::{BoxError, Part};
use crate::message::request::{BodyUse, Caller};
use crate::message::response::Response;
use crate::runtime::context::TaskKind;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_proto::{Head, Length};
use http::{Extensions, HeaderName, HeaderValue};

/// The result of an attempt to send a part of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// More of the body can be sent.
    More,
    /// Nothing can be sent now, because the next part is not ready, the peer must take bytes first, or the exchange was
    /// aborted.
    Waits,
    /// The body is complete, or there is none.
    Over,
}

/// One exchange of a protocol. HTTP/1 and HTTP/2 create the [`Exchange`] only when it is needed, for example when the
/// handler is pending.
pub(crate) trait Carrier {
    /// True if the carrier returns flow-control credit to the peer after each poll of the handler, so a handler that
    /// takes body bytes during the poll need not wake the exchange.
    const CREDITS: bool = false;

    /// True if several exchanges share a connection and its memory. An exchange is then charged as soon as its handler
    /// is pending, so that this exchange, and not another, is refused if there is no room.
    const SHARES_CONNECTION: bool = false;

    /// The length of the longest body of bytes that [`send`](Self::send) hands on at once. A longer one may wait for the peer.
    const AT_ONCE: usize = 0;

    /// True if the protocol has the header field Upgrade.
    const UPGRADES: bool = false;

    /// Returns the task that runs when this exchange is woken.
    fn task(&self) -> TaskKind;

    /// Returns the sender of the request.
    fn caller(&self) -> Caller<'_>;

    fn exchange(&mut self) -> Option<&mut Exchange>;

    /// Returns the exchange, and creates it if there is none.
    fn make_exchange(&mut self, worker: &mut WorkerContext<impl Service>) -> &mut Exchange;

    /// Returns the byte counts of the request's body, if the carrier has any.
    fn intake(&mut self) -> Option<&mut Intake>;

    /// Takes the extensions that the caller has attached to a request of this process.
    fn take_extensions(&mut self) -> Option<Extensions> {
        None
    }

    /// Charges the memory budget for the bytes that the exchange holds now. Returns false if the budget has no room.
    fn charge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool;

    /// Ends the exchange because the memory budget has no room for the bytes that it holds.
    fn no_memory(&mut self, worker: &mut WorkerContext<impl Service>);

    /// Returns the size in bytes of the whole body that the handler holds.
    fn lent(&mut self) -> usize;

    /// Records that the handler holds a whole body of `bytes` bytes until it answers.
    fn lend(&mut self, bytes: usize);

    /// Prepares for a CONNECT that has a route. Returns true if the peer's bytes belong to a tunnel and not to a body.
    fn connect(&mut self, _: &mut WorkerContext<impl Service>) -> bool {
        false
    }

    /// Called after the handler of a CONNECT has been called, if [`connect`](Self::connect) returned true.
    fn connected(&mut self, _: Length, _: &mut WorkerContext<impl Service>) {}

    // The request's body.

    /// Returns true if a peer that has sent `Expect: 100-continue` may still wait for the 100.
    fn awaits_continue(&self) -> bool;

    /// Prepares for a body that no handler reads and whose bytes are dropped.
    fn leave_body(&mut self, _: Length, _: &Head, _: &mut WorkerContext<impl Service>) {}

    /// Returns the body if all of it has been received with the head.
    fn whole_body(&mut self, _: Length, _: &mut Head, _: &mut WorkerContext<impl Service>) -> Option<Bytes> {
        None
    }

    /// Called when a body begins. If the body is collected or passed on in parts, the exchange has been made already.
    fn body_begins(&mut self, _: BodyUse, _: &mut WorkerContext<impl Service>) {}

    /// Returns the number of body bytes that the peer has announced but not sent yet, or 0 if the carrier does not
    /// count them.
    fn announced(&self) -> u64 {
        0
    }

    /// Called after `bytes` bytes of the body were received and then stored or dropped.
    fn took(&mut self, body_use: BodyUse, bytes: usize, worker: &mut WorkerContext<impl Service>);

    /// Called if the received and announced bytes of the body exceed the route's limit. `bytes` is the number of bytes
    /// that were received last.
    fn over_limit(&mut self, body_use: BodyUse, bytes: usize, worker: &mut WorkerContext<impl Service>);

    /// Called when a collected body is complete.
    fn collected(&mut self) {}

    /// Called when the rest of the body is no longer needed, before an error response or a cut.
    fn stop_body(&mut self, worker: &mut WorkerContext<impl Service>);

    /// Called after each poll of the handler, which may have taken some of the body.
    fn polled(&mut self, _: &mut WorkerContext<impl Service>) {}

    /// Called when the request is complete, after the handler has been called or polled if that was necessary.
    fn request_ended(&mut self, worker: &mut WorkerContext<impl Service>);

    // The response.

    /// Replaces a response that this protocol cannot send. Prepares to close the connection if the response asks for
    /// that.
    fn admit(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>);

    /// Returns true if a final response may still be sent.
    fn may_answer(&mut self) -> bool;

    /// Sends an interim (1xx) response, or drops it if the client cannot receive one.
    fn interim(&mut self, status: u16, fields: &[(HeaderName, HeaderValue)]) -> Result<(), highwire_proto::Error>;

    /// Sends a final response, or its head if the body follows in parts.
    fn send(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>);

    /// Returns true if the carrier can send a range of a file as a part of a body.
    fn sends_files(&self) -> bool {
        false
    }

    /// Sends a part of the response's body. The carrier or the driver keeps the bytes that the peer does not take yet.
    fn send_part(&mut self, part: Part, worker: &mut WorkerContext<impl Service>) -> Result<Sent, Abort>;

    /// Called if the next part of the response's body is not ready.
    fn body_waits(&mut self, worker: &mut WorkerContext<impl Service>);

    /// Ends the response after its body, with these trailers.
    fn send_end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Result<(), Abort>;

    /// Keeps the program's own error for [`cut`](Self::cut), if the receiver of the response can see errors.
    fn keep_error(&mut self, _: BoxError) {}

    /// Ends the exchange after its response has begun. Cuts an incomplete response, so that the peer sees that it is
    /// incomplete.
    fn cut(&mut self, abort: Abort, worker: &mut WorkerContext<impl Service>);
}
