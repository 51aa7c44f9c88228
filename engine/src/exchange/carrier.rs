//! What a protocol does for one exchange, and nothing else. HTTP/1, a stream of HTTP/2 and the call of this process each implement
//! [`Carrier`]; [`lifecycle`](super::lifecycle) is what they have in common.

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

/// What an attempt to send some of a response's body came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It goes on when it is its turn again.
    More,
    /// It waits for its next part or for the peer, either of which moves it on. Or it has failed, and is over.
    Waits,
    /// It is complete.
    Over,
}

/// One exchange on its way through a protocol. The exchange itself may not be there: one that is over at once has none.
pub(crate) trait Carrier {
    /// The peer is credited for what a handler takes of a body after each poll, so that no wake has to tell of it.
    const CREDITS: bool = false;

    /// Other exchanges share its connection, and the memory that it may have: one that waits is charged when it begins to, so
    /// that it is refused itself where there is no room.
    const SHARES_CONNECTION: bool = false;

    /// A request may ask for another protocol by Upgrade.
    const UPGRADES: bool = false;

    /// The task that moves this exchange on.
    fn task(&self) -> TaskKind;

    /// Who asks.
    fn caller(&self) -> Caller<'_>;

    fn exchange(&mut self) -> Option<&mut Exchange>;

    /// Returns the exchange, made where there is none.
    fn make_exchange(&mut self, worker: &mut WorkerContext<impl Service>) -> &mut Exchange;

    /// Returns what was counted of the request's body.
    fn intake(&mut self) -> Option<&mut Intake>;

    /// Takes the extensions that the caller has attached to the request.
    fn take_extensions(&mut self) -> Extensions {
        Extensions::default()
    }

    /// Charges what the exchange holds now. Returns false if there is no room.
    fn charge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool;

    /// The memory budget has no room for what the exchange holds.
    fn no_memory(&mut self, worker: &mut WorkerContext<impl Service>);

    /// Returns the bytes of a whole body that the handler has.
    fn lent(&mut self) -> usize;

    /// The handler has a whole body of so many bytes until it has answered.
    fn lend(&mut self, bytes: usize);

    /// A CONNECT came for a route. Returns true if its bytes are for the protocol that may be accepted, and no body.
    fn connect(&mut self, _: &mut WorkerContext<impl Service>) -> bool {
        false
    }

    /// The handler of a CONNECT was called.
    fn connected(&mut self, _: Length, _: &mut WorkerContext<impl Service>) {}

    // The request's body.

    /// Returns true if the peer waits for 100 (Continue), where its head says that it does.
    fn awaits_continue(&self) -> bool;

    /// Prepares for a body that no handler takes. Its bytes are dropped as they come.
    fn leave_body(&mut self, _: Length, _: &Head, _: &mut WorkerContext<impl Service>) {}

    /// Returns the body if all of it is here already.
    fn whole_body(&mut self, _: Length, _: &mut Head, _: &mut WorkerContext<impl Service>) -> Option<Bytes> {
        None
    }

    /// A body begins that is used in this way: the exchange is made already where there is to be one.
    fn body_begins(&mut self, _: BodyUse, _: &mut WorkerContext<impl Service>) {}

    /// Bytes that are announced and have not come yet, beyond those that were counted.
    fn announced(&self) -> u64 {
        0
    }

    /// So many bytes of the body came.
    fn took(&mut self, body_use: BodyUse, bytes: usize, worker: &mut WorkerContext<impl Service>);

    /// The body, of which so many bytes came last, is longer than its route takes.
    fn over_limit(&mut self, body_use: BodyUse, bytes: usize, worker: &mut WorkerContext<impl Service>);

    /// A body that was collected is whole.
    fn collected(&mut self) {}

    /// Nothing more of the body is wanted.
    fn stop_body(&mut self, worker: &mut WorkerContext<impl Service>);

    /// The handler was polled, and may have taken some of the body.
    fn polled(&mut self, _: &mut WorkerContext<impl Service>) {}

    /// The request is complete, and its handler knows.
    fn request_ended(&mut self, worker: &mut WorkerContext<impl Service>);

    // The response.

    /// Replaces a response that cannot be sent here by one that can. Ends the connection behind a response that asks for that.
    fn admit(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>);

    /// Returns true if no response has begun.
    fn may_answer(&mut self) -> bool;

    /// Sends an interim response.
    fn interim(&mut self, status: u16, fields: &[(HeaderName, HeaderValue)]) -> Result<(), highwire_proto::Error>;

    /// Sends a final response, or begins with it.
    fn send(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>);

    /// Returns true if parts of a body may be ranges of files.
    fn sends_files(&self) -> bool {
        false
    }

    /// Sends a part of a response's body, as far as the peer takes it.
    fn send_part(&mut self, part: Part, worker: &mut WorkerContext<impl Service>) -> Result<Sent, Abort>;

    /// The next part of a response's body is not ready.
    fn body_waits(&mut self, worker: &mut WorkerContext<impl Service>);

    /// Ends a response whose body was sent.
    fn send_end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Result<(), Abort>;

    /// Keeps the program's own error for [`cut`](Self::cut), where somebody can see it.
    fn keep_error(&mut self, _: BoxError) {}

    /// Ends a response that has begun, so that the peer sees that it is not whole.
    fn cut(&mut self, abort: Abort, worker: &mut WorkerContext<impl Service>);
}
