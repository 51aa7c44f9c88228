//! The trait [`Carrier`]: what a protocol does for one exchange, and nothing else. HTTP/1, HTTP/2 and requests of this process
//! implement it; [`lifecycle`](super::lifecycle) holds what they have in common.

use super::abort::Abort;
use super::{Exchange, Intake};
use crate::body::{BoxError, Part};
use crate::context::TaskKind;
use crate::request::{BodyUse, Caller};
use crate::response::Response;
use crate::service::Service;
use crate::worker::WorkerContext;
use bytes::Bytes;
use highwire_proto::{Head, Length};
use http::{Extensions, HeaderName, HeaderValue};

/// The result of an attempt to send a part of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It can go on at its next turn.
    More,
    /// It waits for its next part or for the peer, both of which wake it; or it has failed.
    Waits,
    /// It is complete.
    Over,
}

/// One exchange of a protocol. It has an [`Exchange`] only while it is pending.
pub(crate) trait Carrier {
    /// The carrier credits the peer after each poll for what the handler took of the body, so that no wake is needed for that.
    const CREDITS: bool = false;

    /// Several exchanges share a connection and its memory. One that begins to wait is charged at once, so that it is the one that
    /// is refused if there is no room.
    const SHARES_CONNECTION: bool = false;

    /// The protocol has the header field Upgrade.
    const UPGRADES: bool = false;

    /// Returns the task that a wake of this exchange runs.
    fn task(&self) -> TaskKind;

    /// Returns the sender of the request.
    fn caller(&self) -> Caller<'_>;

    fn exchange(&mut self) -> Option<&mut Exchange>;

    /// Returns the exchange, and makes it if there is none.
    fn make_exchange(&mut self, worker: &mut WorkerContext<impl Service>) -> &mut Exchange;

    /// Returns the counts of the request's body.
    fn intake(&mut self) -> Option<&mut Intake>;

    /// Takes the extensions that the caller has attached to the request.
    fn take_extensions(&mut self) -> Extensions {
        Extensions::default()
    }

    /// Charges what the exchange holds now. Returns false if there is no room.
    fn charge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool;

    /// Ends the exchange because the memory budget has no room for what it holds.
    fn no_memory(&mut self, worker: &mut WorkerContext<impl Service>);

    /// Returns the bytes of a whole body that the handler holds.
    fn lent(&mut self) -> usize;

    /// Records that the handler holds a whole body of `bytes` until it answers.
    fn lend(&mut self, bytes: usize);

    /// Prepares for a CONNECT that has a route. Returns true if the peer's bytes belong to a tunnel and not to a body.
    fn connect(&mut self, _: &mut WorkerContext<impl Service>) -> bool {
        false
    }

    /// Called after the handler of a CONNECT.
    fn connected(&mut self, _: Length, _: &mut WorkerContext<impl Service>) {}

    // The request's body.

    /// Returns true if a peer that has sent `Expect: 100-continue` still waits for the 100.
    fn awaits_continue(&self) -> bool;

    /// Prepares for a body that no handler takes: its bytes will be dropped.
    fn leave_body(&mut self, _: Length, _: &Head, _: &mut WorkerContext<impl Service>) {}

    /// Returns the body if all of it has been received with the head.
    fn whole_body(&mut self, _: Length, _: &mut Head, _: &mut WorkerContext<impl Service>) -> Option<Bytes> {
        None
    }

    /// Called when a body begins, after the exchange has been made if it needs one.
    fn body_begins(&mut self, _: BodyUse, _: &mut WorkerContext<impl Service>) {}

    /// Returns the announced bytes that have not been received or counted yet.
    fn announced(&self) -> u64 {
        0
    }

    /// Called after `bytes` of the body were received and stored or dropped.
    fn took(&mut self, body_use: BodyUse, bytes: usize, worker: &mut WorkerContext<impl Service>);

    /// Called if the body, with the last `bytes`, is longer than its route allows.
    fn over_limit(&mut self, body_use: BodyUse, bytes: usize, worker: &mut WorkerContext<impl Service>);

    /// Called when a collected body is whole.
    fn collected(&mut self) {}

    /// Stops receiving the body.
    fn stop_body(&mut self, worker: &mut WorkerContext<impl Service>);

    /// Called after each poll of the handler, which may have taken some of the body.
    fn polled(&mut self, _: &mut WorkerContext<impl Service>) {}

    /// Called when the request is complete, after its handler has been called or woken.
    fn request_ended(&mut self, worker: &mut WorkerContext<impl Service>);

    // The response.

    /// Replaces a response that this protocol cannot send. Prepares to close the connection if the response asks for that.
    fn admit(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>);

    /// Returns true if no response has begun.
    fn may_answer(&mut self) -> bool;

    /// Sends an interim response.
    fn interim(&mut self, status: u16, fields: &[(HeaderName, HeaderValue)]) -> Result<(), highwire_proto::Error>;

    /// Sends a final response, or its head if the body follows in parts.
    fn send(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>);

    /// Returns true if a part of a body may be a range of a file.
    fn sends_files(&self) -> bool {
        false
    }

    /// Sends a part of a response's body, as far as the peer takes it.
    fn send_part(&mut self, part: Part, worker: &mut WorkerContext<impl Service>) -> Result<Sent, Abort>;

    /// Called if the next part of the response's body is not ready.
    fn body_waits(&mut self, worker: &mut WorkerContext<impl Service>);

    /// Ends a response after its body.
    fn send_end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Result<(), Abort>;

    /// Keeps the program's own error for [`cut`](Self::cut), if the receiver of the response can see errors.
    fn keep_error(&mut self, _: BoxError) {}

    /// Cuts a response that has begun, so that the peer sees that it is incomplete.
    fn cut(&mut self, abort: Abort, worker: &mut WorkerContext<impl Service>);
}
