//! The parts of a request that the engine passes to a service: its sender, its body, and the hooks that its handler may
//! set.

use crate::body::Body;
use crate::exchange::disconnect::{Disconnect, Presence};
use crate::message::reply::{Awaited, InterimQueue, InterimResponses, Replier};
use crate::runtime::panics::drop_safely;
use crate::server::config::Limits;
use crate::{Secure, Tls};
use bytes::Bytes;
use highwire_io::{Peer, SocketId};
use http::Extensions;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// The way in which a handler takes the request's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyUse {
    /// The handler takes no body. A body is read and dropped, up to a limit.
    #[default]
    None,
    /// The handler takes the whole body, which is received before the handler runs.
    Whole,
    /// The handler takes the body in parts while it runs.
    Parts,
}

impl BodyUse {
    /// Returns the size in bytes of the largest body that a route without a limit of its own takes in this way.
    pub fn limit(self, caps: &Limits) -> u64 {
        match self {
            BodyUse::None => caps.unread_body_bytes,
            BodyUse::Whole => caps.body_bytes,
            BodyUse::Parts => caps.streamed_body_bytes,
        }
    }
}

/// The sender of a request.
#[derive(Clone, Copy)]
pub struct Caller<'r> {
    pub(crate) peer: Peer,
    pub(crate) session: Option<&'r Secure>,
    /// The facts of the TLS session, if the request is handled without its connection.
    pub(crate) kept: Option<&'r Tls>,
    /// The connection, if the request is handled with it.
    pub(crate) connection: Option<SocketId>,
}

impl std::fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("peer", &self.peer).field("is_secure", &self.is_secure()).finish()
    }
}

impl<'r> Caller<'r> {
    /// Returns the sender of a request that is handled without its connection.
    pub fn kept(peer: Peer, tls: Option<&'r Tls>) -> Caller<'r> {
        Caller { peer, session: None, kept: tls, connection: None }
    }

    /// Returns the address of the client. If a proxy has sent a PROXY header that names the client's address, returns
    /// that address.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the connection on which the request arrived: a number that no other open connection of the worker has. A
    /// later connection has another generation. Returns `None` for a request of this process, and for an owned one.
    pub fn connection(&self) -> Option<SocketId> {
        self.connection
    }

    /// Returns true if the request arrived over TLS.
    pub fn is_secure(&self) -> bool {
        self.session.is_some() || self.kept.is_some()
    }

    /// Returns the facts of the connection's TLS session, or `None` if it has none. Makes some allocations.
    pub fn tls(&self) -> Option<Tls> {
        self.session.map(|session| session.facts()).or_else(|| self.kept.cloned())
    }
}

/// The waker of the task that answers a request, made only when it is needed.
pub enum TaskWaker<'r> {
    /// A function that makes the waker.
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
    /// Returns the waker. Waking it polls the handler's future, and checks whether a [`Replier`] has answered.
    pub fn waker(&self) -> Waker {
        match self {
            TaskWaker::Maker(make) => make(),
            TaskWaker::Known(waker) => waker.clone(),
        }
    }
}

/// The request's body when its handler is called.
#[derive(Debug, Default)]
pub enum Ready {
    /// There is no body, or the handler takes none.
    #[default]
    Nothing,
    /// The body has been taken already.
    Taken,
    /// The whole body, for [`BodyUse::Whole`].
    Whole(Bytes),
    /// The body in parts as it is received, for [`BodyUse::Parts`].
    Parts(Body),
}

/// The values that pass between an exchange and the call of its handler, beside body and answer.
#[derive(Default)]
#[non_exhaustive]
pub struct Hooks {
    /// The end that waits for a [`Replier`], if the handler does not answer with its result.
    pub reply: Option<Awaited>,
    /// The waker of the request's task, if it has been made.
    pub waker: Option<Waker>,
    /// The values that most requests do not have. Together they cost such a request one look.
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    /// The queue of interim responses, if the handler may send some.
    interim: Option<Rc<RefCell<InterimQueue>>>,
    /// The values that the caller of a request of this process, or middleware, has attached.
    extensions: Extensions,
    /// The size in bytes of the body that the handler gets, if middleware has decoded the received body. It is charged
    /// until the handler has answered.
    decoded_bytes: Option<Rc<Cell<usize>>>,
    /// What the handler learns if the client leaves, if it has asked.
    presence: Option<Rc<Presence>>,
}

/// What an exchange keeps of the hooks after the call of its handler.
pub(crate) struct KeptHooks {
    pub(crate) reply: Option<Awaited>,
    pub(crate) interim: Option<Rc<RefCell<InterimQueue>>>,
    pub(crate) decoded_bytes: Option<Rc<Cell<usize>>>,
    pub(crate) presence: Option<Rc<Presence>>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks").field("reply", &self.reply.is_some()).finish_non_exhaustive()
    }
}

impl Hooks {
    /// Returns a [`Replier`] that answers the request later. `waker` must wake the request's task.
    pub fn reply_later(&mut self, waker: Waker) -> Replier {
        let (replier, awaited) = Replier::new(waker, self.reply.take());
        self.reply = Some(awaited);
        replier
    }

    /// Returns a sender of interim responses. `waker` must wake the request's task.
    pub fn interim(&mut self, waker: Waker) -> InterimResponses {
        InterimResponses::new(self.rare().interim.get_or_insert_with(|| InterimQueue::new(waker)).clone())
    }

    /// Returns what tells the handler that its client has left.
    pub fn disconnect(&mut self) -> Disconnect {
        Disconnect::new(self.rare().presence.get_or_insert_default().clone())
    }

    /// Returns the values that the caller of a request of this process, or middleware, has attached.
    pub fn extensions(&mut self) -> &mut Extensions {
        &mut self.rare().extensions
    }

    /// Returns a value that the caller of a request of this process, or middleware, has attached.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.rare.as_ref()?.extensions.get()
    }

    /// Charges this number of bytes for the body that the handler gets, because middleware has decoded the received one, until the
    /// handler has answered.
    pub fn set_decoded(&mut self, bytes: usize) {
        self.rare().decoded_bytes.get_or_insert_default().set(bytes);
    }

    /// Returns hooks for a handler that is called later, when the call with these is over: it learns of its client what one with
    /// these would learn, and its interim responses and the charge of its body are those of the same request. `waker` must wake the
    /// request's task.
    pub fn for_later(&mut self, waker: Waker) -> Hooks {
        self.interim(waker.clone());
        let own = self.rare();
        let rare = Rare {
            interim: own.interim.clone(),
            extensions: std::mem::take(&mut own.extensions),
            decoded_bytes: Some(own.decoded_bytes.get_or_insert_default().clone()),
            presence: Some(own.presence.get_or_insert_default().clone()),
        };
        Hooks { reply: None, waker: Some(waker), rare: Some(Box::new(rare)) }
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Returns true if the exchange may have to keep something after the call.
    #[inline]
    pub(crate) fn may_be_kept(&self) -> bool {
        self.reply.is_some() || self.rare.is_some()
    }

    /// Takes what the exchange must keep after the call, if there is something.
    pub(crate) fn take_kept(&mut self) -> Option<KeptHooks> {
        let rare = self.rare.take().map_or_else(Rare::default, |rare| *rare);
        let Rare { interim, extensions, decoded_bytes, presence } = rare;
        // Dropping a value of the program may panic, and the exchange must still get its future.
        drop_safely(extensions);
        let kept = KeptHooks { reply: self.reply.take(), interim, decoded_bytes, presence };
        let is_some =
            kept.reply.is_some() || kept.interim.is_some() || kept.decoded_bytes.is_some() || kept.presence.is_some();
        is_some.then_some(kept)
    }
}
