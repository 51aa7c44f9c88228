//! Clients that leave while their request is handled.
//!
//! An end of the client's direction (FIN, close_notify) usually means that the client has closed its connection, and
//! sometimes that it has sent all its requests and still reads. The kernel tells the difference only when bytes are sent
//! to a client that is gone. The server therefore still sends what is ready, and cancels handlers that have not
//! answered. Over HTTP/1 it waits for [`Timeouts::disconnect`](crate::Timeouts::disconnect) before that. Over HTTP/2 it cancels
//! at once, because clients keep their direction open.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What happens to the handler of a request whose client has ended its direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// The handler is cancelled if it does not answer soon: see [`Timeouts::disconnect`](crate::Timeouts::disconnect).
    #[default]
    Cancel,
    /// The handler is cancelled at once.
    CancelAtOnce,
    /// The handler goes on until its own deadline. (It is cancelled if the connection breaks; a task of
    /// [`spawn`](crate::spawn) is not.)
    GoOn,
}

/// What an exchange and its handler share.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    policy: Cell<OnDisconnect>,
    has_left: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Presence {
    /// Records that the client has ended its direction, or its connection or stream. Returns what happens to the handler.
    pub(crate) fn left(&self) -> OnDisconnect {
        if !self.has_left.replace(true) {
            self.wakers.take().into_iter().for_each(Waker::wake);
        }
        self.policy.get()
    }
}

/// Tells a handler that its client has ended its direction, and what the handler wants then.
#[derive(Clone)]
pub struct Disconnect {
    presence: Rc<Presence>,
}

impl fmt::Debug for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disconnect").field("is_disconnected", &self.is_disconnected()).finish()
    }
}

impl Disconnect {
    pub(crate) fn new(presence: Rc<Presence>) -> Disconnect {
        Disconnect { presence }
    }

    /// Sets what happens to the handler when the client ends its direction; the default is [`OnDisconnect::Cancel`].
    pub fn set(&self, policy: OnDisconnect) {
        self.presence.policy.set(policy);
    }

    /// Returns true if the client has ended its direction, so that it has probably left, or its connection or stream.
    pub fn is_disconnected(&self) -> bool {
        self.presence.has_left.get()
    }

    /// Waits until the client ends its direction, its connection or its stream. A task that outlives the exchange waits for ever
    /// if the client has not done so before the answer was complete.
    pub async fn disconnected(&self) {
        poll_fn(|cx| self.poll_disconnected(cx)).await;
    }

    /// Polls for the end of the client's direction, as [`disconnected`](Self::disconnected) does.
    pub fn poll_disconnected(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_disconnected() {
            return Poll::Ready(());
        }
        let mut wakers = self.presence.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
