//! Requests to other servers, over connections of the same worker.
//!
//! A [`Pool`] has the connections of a client on one worker, by origin. A task gives it a [`Request`] and waits for the
//! [`Answer`] with an [`Asked`]. The pool gives the request to a connection that has room, or to one that it opens, or
//! lets it wait.
//!
//! A connection to a server is a `Connection` in the client's role: it has a `Link` to its pool, and its exchanges begin with their outgoing half. What differs from the server's role is in `connection/client.rs` and
//! `connection/http2/client.rs`.

mod failure;
mod link;
mod open;
mod pending_request;
mod pool;
mod request;
mod resolve;
pub(crate) mod settings;

pub use self::failure::{Failure, Stage};
pub(crate) use self::link::{Link, Setup};
pub use self::open::{Opened, OpeningTimes, Protocol};
pub(crate) use self::pending_request::PendingRequest;
pub use self::pending_request::{Asked, INTERIMS, Moments};
pub(crate) use self::pool::SURPLUS_TICKS;
pub use self::pool::{Open, Origin, Pool};
pub use self::request::{Answer, AnswerBody, Interim, Request};
pub use self::resolve::{ADDRESSES_KEPT, NAMES_KEPT, Names};
pub use self::settings::{Bounds, Timeouts};
