//! A request as the engine hands it to a service: whom it comes from, its body, and what its handler may leave behind.

use crate::body::Body;
use crate::config::Limits;
use crate::reply::{Awaited, InterimQueue, InterimResponses, Replier};
use crate::{Secure, Tls};
use bytes::Bytes;
use highwire_io::Peer;
use http::Extensions;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// How a handler wants the request's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyUse {
    /// Not at all: what comes is read and dropped, up to a limit.
    #[default]
    None,
    /// Whole, before the handler runs.
    Whole,
    /// In parts, while it runs.
    Parts,
}

impl BodyUse {
    /// Bytes of the largest body that a route without a limit of its own takes in this way.
    pub fn limit(self, caps: &Limits) -> u64 {
        match self {
            BodyUse::None => caps.unread_body_bytes,
            BodyUse::Whole => caps.body_bytes,
            BodyUse::Parts => caps.streamed_body_bytes,
        }
    }
}

/// Whom a request comes from.
#[derive(Clone, Copy)]
pub struct Caller<'r> {
    pub(crate) peer: Peer,
    pub(crate) session: Option<&'r Secure>,
    /// What was said of its TLS, where the request is kept apart from its connection.
    pub(crate) kept: Option<&'r Tls>,
}

impl std::fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("peer", &self.peer).field("is_secure", &self.is_secure()).finish()
    }
}

impl<'r> Caller<'r> {
    /// The sender of a request that is kept apart from its connection.
    pub fn kept(peer: crate::Peer, tls: Option<&'r Tls>) -> Caller<'r> {
        Caller { peer: peer.into(), session: None, kept: tls }
    }

    /// The address, of the client itself where a proxy in front says whose the connection is.
    pub fn peer(&self) -> crate::Peer {
        self.peer.into()
    }

    /// Returns true if the request came under TLS.
    pub fn is_secure(&self) -> bool {
        self.session.is_some() || self.kept.is_some()
    }

    /// What there is to say about the connection's TLS. Costs some allocations.
    pub fn tls(&self) -> Option<Tls> {
        self.session.map(|session| session.facts()).or_else(|| self.kept.cloned())
    }
}

/// How the task that answers a request is woken: made where somebody asks for it.
pub enum TaskWaker<'r> {
    /// Makes the waker.
    Maker(&'r dyn Fn() -> Waker),
    /// The waker.
    Known(Waker),
}

impl std::fmt::Debug for TaskWaker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TaskWaker")
    }
}

impl TaskWaker<'_> {
    /// The waker. Waking it polls the handler's future, and looks whether a [`Replier`] has answered.
    pub fn waker(&self) -> Waker {
        match self {
            TaskWaker::Maker(make) => make(),
            TaskWaker::Known(waker) => waker.clone(),
        }
    }
}

/// The body that stands ready for a handler.
#[derive(Debug, Default)]
pub enum Ready {
    /// There is none, or the handler wants none.
    #[default]
    Nothing,
    /// Somebody has taken it.
    Taken,
    /// All of it: [`BodyUse::Whole`].
    Whole(Bytes),
    /// As it comes: [`BodyUse::Parts`].
    Parts(Body),
}

/// What a handler's call leaves for its exchange.
#[derive(Default)]
#[non_exhaustive]
pub struct Hooks {
    /// Where the answer comes from, if the handler does not give it itself.
    pub reply: Option<Awaited>,
    /// Interim responses that the handler sends.
    pub interim: Option<Rc<RefCell<InterimQueue>>>,
    /// The waker of the request's task, where somebody has asked for it.
    pub waker: Option<Waker>,
    /// What whoever made a request of this process has attached to it.
    pub extensions: Extensions,
    /// Bytes of the body that the handler gets, where another one was made of what came. They are charged until it has
    /// answered.
    pub unfolded: Option<Rc<Cell<usize>>>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks").field("reply", &self.reply.is_some()).finish_non_exhaustive()
    }
}

impl Hooks {
    /// Lets the request be answered later. `waker` is that of the task that answers it.
    pub fn reply_later(&mut self, waker: Waker) -> Replier {
        let (replier, awaited) = Replier::new(waker, self.reply.take());
        self.reply = Some(awaited);
        replier
    }

    /// Lets interim responses be sent. `waker` is that of the task that answers the request.
    pub fn interim(&mut self, waker: Waker) -> InterimResponses {
        InterimResponses::new(self.interim.get_or_insert_with(|| InterimQueue::new(waker)).clone())
    }

    /// Whether anything of them outlives the call.
    pub(crate) fn are_for_exchange(&self) -> bool {
        self.reply.is_some() || self.interim.is_some() || self.unfolded.is_some()
    }
}
