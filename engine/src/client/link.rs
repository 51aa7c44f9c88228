//! The link between a connection to a server and the pool that it belongs to.

use super::failure::Failure;
use super::open::{OpeningTimes, Protocol};
use super::pending_request::PendingRequest;
use super::pool::Origin;
use crate::raw::Takeover;
use crate::runtime::context;
use crate::runtime::promise::Promise;
use crate::runtime::queue::Queue;
#[cfg(feature = "tls")]
use crate::secure::Secure;
use crate::server::rules::Rules;
use highwire_io::Instant;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::Waker;
use std::time::Duration;

/// What the pool, the requests and the connection share. The connection updates it after each of its events.
pub(crate) struct Link {
    pub(crate) rules: Rc<Rules>,
    pub(crate) protocol: Protocol,
    origin: Weak<Origin>,
    /// The requests that the connection must begin.
    queue: RefCell<Queue<Rc<PendingRequest>>>,
    /// The number of requests that the connection could begin, and the number of those that may be added to `queue`.
    most: Cell<u32>,
    room: Cell<u32>,
    /// True if the connection has no request.
    is_idle: Cell<bool>,
    /// True if the connection was given a request.
    has_begun: Cell<bool>,
    /// True if the pool lists this link among those that have room.
    pub(super) is_listed: Cell<bool>,
    /// True if the connection speaks HTTP/2.
    is_http2: Cell<bool>,
    /// True if the server is far away: a step of opening the connection took [`FAR`].
    is_far: Cell<bool>,
    /// True if the connection takes no more requests.
    is_closed: Cell<bool>,
    /// True if the connection shall close as soon as it has no request.
    retires: Cell<bool>,
    /// The number of ticks for which the connection may be idle: as long as the client permits, or the server says.
    pub(crate) idle: Cell<u32>,
    /// Wakes the connection.
    task: RefCell<Option<Waker>>,
    /// `None` since the connection has begun a request, or was closed.
    opening: RefCell<Option<Box<Opening>>>,
}

/// What is known of a connection until it begins its first request.
struct Opening {
    /// The promise that it becomes ready for requests. `None` since it is.
    ready: Option<Promise<Result<(), Failure>>>,
    /// The reason why it ends before that.
    reason: Option<Failure>,
    /// The beginning of the TLS handshake, and how long the steps of opening the connection took.
    handshake_begun: Option<Instant>,
    times: OpeningTimes,
}

/// The time for connecting, or for the TLS handshake, from which on a server is far away.
const FAR: Duration = Duration::from_millis(10);

impl Link {
    pub(super) fn new(
        rules: Rc<Rules>,
        protocol: Protocol,
        origin: Weak<Origin>,
        ready: Promise<Result<(), Failure>>,
        handshake_begun: Option<Instant>,
        times: OpeningTimes,
    ) -> Rc<Link> {
        let is_far = Cell::new(times.connect >= FAR);
        let opening = Opening { ready: Some(ready), reason: None, handshake_begun, times };
        Rc::new(Link {
            idle: Cell::new(rules.idle),
            rules,
            protocol,
            origin,
            queue: RefCell::default(),
            most: Cell::default(),
            room: Cell::default(),
            is_idle: Cell::default(),
            has_begun: Cell::default(),
            is_listed: Cell::default(),
            is_far,
            is_http2: Cell::default(),
            is_closed: Cell::default(),
            retires: Cell::default(),
            task: RefCell::default(),
            opening: RefCell::new(Some(Box::new(opening))),
        })
    }

    /// Returns true if the TLS handshake is not complete.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening.borrow().as_ref().is_some_and(|opening| opening.ready.is_some())
    }

    pub(crate) fn is_far(&self) -> bool {
        self.is_far.get()
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.get()
    }

    /// Records the waker of the connection's task.
    pub(crate) fn attach(&self, task: Waker) {
        *self.task.borrow_mut() = Some(task);
    }

    fn wake(&self) {
        self.task.borrow().iter().for_each(Waker::wake_by_ref);
    }

    /// Records that the connection is ready for requests.
    pub(crate) fn open(&self, is_http2: bool) {
        self.is_http2.set(is_http2);
        let mut opening = self.opening.borrow_mut();
        let Some(opening) = opening.as_mut() else { return };
        let Some(ready) = opening.ready.take() else { return };
        opening.times.handshake = opening.handshake_begun.map(|begun| context::now() - begun).unwrap_or_default();
        self.is_far.set(self.is_far.get() || opening.times.handshake >= FAR);
        ready.keep(Ok(()));
    }

    /// Records why the connection ends before it is open.
    pub(crate) fn set_reason(&self, failure: Failure) {
        if let Some(opening) = &mut *self.opening.borrow_mut() {
            opening.reason.get_or_insert(failure);
        }
    }

    /// Returns the number of requests that may be added.
    pub(super) fn room(&self) -> usize {
        self.room.get() as usize
    }

    /// Gives a request to the connection. The caller must have checked that there is room.
    pub(super) fn begin(&self, pending_request: Rc<PendingRequest>) {
        if !self.has_begun.replace(true)
            && let Some(opening) = self.opening.take()
        {
            pending_request.set_opening(opening.times);
        }
        self.room.set(self.room.get().saturating_sub(1));
        self.queue.borrow_mut().push_back(pending_request);
        self.wake();
    }

    /// Takes the next request that the connection must begin.
    pub(crate) fn next(&self) -> Option<Rc<PendingRequest>> {
        self.next_if(|_| true)
    }

    /// Takes the next request that the connection must begin, if it may begin that now.
    pub(crate) fn next_if(&self, may_begin: impl Fn(&PendingRequest) -> bool) -> Option<Rc<PendingRequest>> {
        let mut queue = self.queue.borrow_mut();
        loop {
            let first = queue.front()?;
            if !first.is_abandoned() && !may_begin(first) {
                return None;
            }
            let pending_request = queue.pop_front()?;
            if !pending_request.is_abandoned() {
                return Some(pending_request);
            }
        }
    }

    /// Returns true if no request waits to be begun.
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Returns true if the connection was given a request.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Returns true if the connection has no request.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.get() && self.is_quiet()
    }

    /// Returns true if the connection takes no more requests.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Records whether the connection has requests, and the number of requests that it could begin now, with those that
    /// wait to be begun.
    pub(crate) fn update(self: &Rc<Self>, is_idle: bool, most: usize) {
        self.is_idle.set(is_idle);
        if self.is_closed.get() {
            return;
        }
        let mut waiting = self.queue.borrow().len();
        if waiting > most && self.is_http2.get() {
            // The server allows fewer requests than before. The others can be sent on another connection.
            let kept: Vec<_> = std::iter::from_fn(|| self.next()).take(most).collect();
            let unsent = self.queue.take();
            *self.queue.borrow_mut() = kept.into_iter().collect();
            waiting = most;
            unsent.for_each(|pending_request| pending_request.fail(Failure::Unsent));
        }
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let room = most.saturating_sub(waiting as u32);
        if self.most.replace(most) < most && waiting > 0 {
            // A response has ended, or the server allows more requests.
            self.wake();
        }
        if self.room.replace(room) < room
            && let Some(origin) = self.origin.upgrade()
        {
            origin.has_room(self);
        }
    }

    /// Returns true if the connection is idle and probably not needed soon: the request for which it was opened has gone
    /// elsewhere, or the pool has many idle ones of the same origin.
    pub(crate) fn is_surplus(&self) -> bool {
        self.is_idle() && (!self.has_begun() || self.origin.upgrade().is_some_and(|origin| origin.has_surplus()))
    }

    /// Lets the connection close as soon as it has no request.
    pub(crate) fn retire(&self) {
        self.retires.set(true);
        self.wake();
    }

    /// Lets the connection close at once. It must have no request.
    pub(super) fn retire_now(self: &Rc<Self>) {
        self.retire();
        self.close();
    }

    /// Returns true if the connection shall close when it has no request: because its pool is gone or has retired it.
    pub(crate) fn retires(&self) -> bool {
        self.retires.get() || self.origin.strong_count() == 0
    }

    /// Returns true if a connection that has no request in progress shall close: no request waits to be begun, and the
    /// connection retires, or the worker shuts down and no request waits for a connection.
    pub(crate) fn is_over(&self, is_shutting_down: bool) -> bool {
        let is_awaited = || self.origin.upgrade().is_some_and(|origin| origin.has_waiting());
        self.is_quiet() && (self.retires() || (is_shutting_down && !is_awaited()))
    }

    /// Records that the connection takes no more requests. The requests that it has not begun fail as unsent.
    pub(crate) fn close(self: &Rc<Self>) {
        if self.is_closed.replace(true) {
            return;
        }
        self.room.set(0);
        if let Some(opening) = self.opening.take() {
            let Opening { ready, reason, .. } = *opening;
            if let Some(ready) = ready {
                ready.keep(Err(reason.unwrap_or(Failure::Lost)));
            }
        }
        let unsent = self.queue.take();
        unsent.for_each(|pending_request| pending_request.fail(Failure::Unsent));
        if let Some(origin) = self.origin.upgrade() {
            origin.lost(self);
        }
    }
}

/// What an opened connection needs to become one to a server of HTTP.
pub(crate) struct Setup {
    pub(crate) link: Rc<Link>,
    /// The TLS session and its first records.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<(Box<Secure>, Vec<u8>)>,
}

impl Takeover for Setup {
    fn lose(&self) {
        self.link.close();
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Setup")
    }
}
