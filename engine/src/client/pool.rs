//! The connections of a client on one worker, by origin, and the requests that wait for one.

use super::failure::Failure;
use super::link::Link;
use super::open::{Opened, Protocol};
use super::pending_request::{Asked, PendingRequest};
use super::request::Request;
use super::settings::{Bounds, Timeouts};
use crate::runtime::context;
use crate::runtime::deadline::TICKS_A_SECOND;
use crate::server::rules::Rules;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

/// A function that opens a connection to an origin. It must not wait for ever.
pub type Open = dyn Fn() -> Pin<Box<dyn Future<Output = Result<Opened, Failure>>>>;

/// The connections of a client on one worker. When it is dropped, the connections close as soon as they have no request.
pub struct Pool {
    shared: Rc<Shared>,
}

struct Shared {
    rules: Rc<Rules>,
    bounds: Bounds,
    origins: RefCell<HashMap<Box<str>, Rc<Origin>>>,
    /// The number of connections to all origins, with those that are being opened.
    count: Cell<usize>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("connections", &self.shared.count.get()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Creates a pool without connections.
    pub fn new(timeouts: &Timeouts, bounds: Bounds) -> Pool {
        let rules = Rc::new(Rules::of_client(timeouts, &bounds));
        let shared = Shared { rules, bounds, origins: RefCell::default(), count: Cell::default() };
        Pool { shared: Rc::new(shared) }
    }

    /// Returns the number of connections, with those that are being opened.
    pub fn connections(&self) -> usize {
        self.shared.count.get()
    }

    /// Returns the number of connections that have no request.
    pub fn idle(&self) -> usize {
        self.shared.origins.borrow().values().map(|origin| origin.idle()).sum()
    }

    /// Returns the origin with this key. If there is none, creates it, and `open` opens its connections.
    pub fn origin(&self, key: &str, protocol: Protocol, open: impl FnOnce() -> Box<Open>) -> Rc<Origin> {
        if let Some(origin) = self.shared.origins.borrow().get(key) {
            return origin.clone();
        }
        let origin = Rc::new_cyclic(|this| Origin {
            this: this.clone(),
            key: key.into(),
            open: open(),
            protocol,
            shared: Rc::downgrade(&self.shared),
            rules: self.shared.rules.clone(),
            count: Cell::default(),
            opening: Cell::default(),
            is_removed: Cell::default(),
            is_http2: Cell::new(match protocol {
                Protocol::Auto => None,
                Protocol::Http10 | Protocol::Http11 => Some(false),
                Protocol::Http2 => Some(true),
            }),
            links: RefCell::default(),
            free: RefCell::default(),
            waiting: RefCell::default(),
            wanted: Rc::default(),
        });
        self.shared.origins.borrow_mut().insert(key.into(), origin.clone());
        origin
    }
}

impl Shared {
    /// Makes room for another connection, if necessary by closing an idle one of another origin. Returns false if none
    /// is idle.
    fn take_place(&self) -> bool {
        if self.count.get() >= self.bounds.connections_in_all {
            let origins = self.origins.borrow();
            let idle =
                origins.values().find_map(|origin| origin.free.borrow().iter().find(|link| link.is_idle()).cloned());
            let Some(idle) = idle else { return false };
            drop(origins);
            idle.retire_now();
        }
        self.count.set(self.count.get() + 1);
        true
    }
}

/// The connections to one origin, and the requests that wait for one.
pub struct Origin {
    this: Weak<Origin>,
    key: Box<str>,
    open: Box<Open>,
    protocol: Protocol,
    shared: Weak<Shared>,
    rules: Rc<Rules>,
    /// The number of connections, with those that are being opened, and the number of the latter.
    count: Cell<usize>,
    opening: Cell<usize>,
    /// True if the origin was removed from its pool.
    is_removed: Cell<bool>,
    /// True if the server speaks HTTP/2, as far as the protocol or the last connection shows; `None` if neither does.
    is_http2: Cell<Option<bool>>,
    /// The open connections.
    links: RefCell<Vec<Rc<Link>>>,
    /// The open connections that have room. The one that was used last is used first, so that the others can close.
    free: RefCell<Vec<Rc<Link>>>,
    /// The requests that wait for a connection, and some that have stopped waiting.
    waiting: RefCell<VecDeque<Rc<PendingRequest>>>,
    /// The number of those that still wait.
    wanted: Rc<Cell<usize>>,
}

/// The most connections of an origin without a request of which one that was opened and not used is kept.
const UNUSED: usize = 8;

/// The number of connections of an origin with room beyond which idle ones close after [`SURPLUS_TICKS`]. Those that were used
/// last are used first, so that under a steady load none of these is idle for so long.
const ENOUGH: usize = 64;

/// See [`ENOUGH`].
pub(crate) const SURPLUS_TICKS: u32 = 2 * TICKS_A_SECOND;

/// The number of connections to one origin that may be opened at the same time while it has fewer than this. Otherwise as
/// many as it has may be opened, so that their number can double in the time that it takes to open one. A client that asks
/// for much and leaves then causes few connections.
const OPENING_AT_ONCE: usize = 16;

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("key", &self.key).field("connections", &self.count.get()).finish_non_exhaustive()
    }
}

impl Origin {
    /// Gives a request to a connection that has room. If there is none, the request waits, and another connection is
    /// opened if the bounds allow it.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub fn send(&self, request: Request) -> Asked {
        let pending_request = PendingRequest::new(request);
        let asked = Asked::new(pending_request.clone());
        match self.take_free() {
            Some(link) => link.begin(pending_request),
            None => self.wait(pending_request),
        }
        asked
    }

    /// Returns true if the origin belongs to its pool. The pool removes an origin that has no connections and no requests.
    pub fn is_alive(&self) -> bool {
        !self.is_removed.get()
    }

    /// Returns true if requests wait for a connection.
    pub(super) fn has_waiting(&self) -> bool {
        self.wanted.get() > 0
    }

    /// Returns true if more than [`ENOUGH`] connections have room.
    pub(super) fn has_surplus(&self) -> bool {
        self.free.borrow().len() > ENOUGH
    }

    /// Returns the number of connections that have no request.
    fn idle(&self) -> usize {
        self.free.borrow().iter().filter(|link| link.is_idle()).count()
    }

    /// Returns a connection that has room for a request.
    fn take_free(&self) -> Option<Rc<Link>> {
        let mut free = self.free.borrow_mut();
        loop {
            let link = free.last()?;
            match link.room() {
                0 => {
                    link.is_listed.set(false);
                    free.pop();
                }
                1 => {
                    link.is_listed.set(false);
                    return free.pop();
                }
                _ => return Some(link.clone()),
            }
        }
    }

    fn wait(&self, pending_request: Rc<PendingRequest>) {
        let Some(shared) = self.shared.upgrade() else { return pending_request.fail(Failure::ShuttingDown) };
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= shared.bounds.waiting {
            waiting.retain(|pending_request| !pending_request.is_abandoned());
        }
        if waiting.len() >= shared.bounds.waiting {
            return pending_request.fail(Failure::TooManyWaiting);
        }
        pending_request.queue(&self.wanted);
        waiting.push_back(pending_request);
        drop(waiting);
        self.open_more(&shared);
    }

    /// Opens connections for the requests that wait, as far as the bounds allow. While it is not known whether the
    /// server speaks HTTP/2, and if it does, opens one connection at a time.
    fn open_more(&self, shared: &Rc<Shared>) {
        let opened = self.count.get() - self.opening.get();
        let at_a_time = if self.is_http2.get() == Some(false) { opened.max(OPENING_AT_ONCE) } else { 1 };
        while self.opening.get() < self.wanted.get().min(at_a_time) && self.count.get() < shared.bounds.connections {
            if !shared.take_place() {
                // If all connections are busy with other origins, one that becomes free does not help this one. It is
                // closed when the next request of this origin is made.
                if self.count.get() == 0 {
                    self.fail_waiting(&Failure::TooManyConnections);
                }
                return;
            }
            self.count.set(self.count.get() + 1);
            self.opening.set(self.opening.get() + 1);
            let place = Place { shared: shared.clone(), origin: self.this.clone(), is_kept: false };
            let (rules, protocol, opened) = (self.rules.clone(), self.protocol, (self.open)());
            let this = self.this.clone();
            context::spawn(async move {
                let mut place = place;
                let link = match opened.await {
                    Ok(opened) => opened.into_link(rules, protocol, this.clone()).await,
                    Err(failure) => Err(failure),
                };
                let Some(origin) = this.upgrade() else { return };
                place.is_kept = link.is_ok();
                drop(place);
                origin.opened(link);
            });
        }
    }

    /// Handles the end of an attempt to open a connection.
    fn opened(&self, link: Result<Rc<Link>, Failure>) {
        self.opening.set(self.opening.get() - 1);
        let opened = link.as_ref().ok().cloned();
        match link {
            Ok(link) => {
                self.is_http2.set(Some(link.is_http2()));
                self.links.borrow_mut().push(link.clone());
                if link.is_closed() {
                    // It has ended in the meantime.
                    self.lost(&link);
                } else {
                    self.has_room(&link);
                }
            }
            // Another connection may still serve the others.
            Err(failure) if self.count.get() > 0 => {
                let next = self.waiting.borrow_mut().pop_front();
                next.into_iter().for_each(|pending_request| pending_request.fail(failure.copy()));
            }
            Err(failure) => self.fail_waiting(&failure),
        }
        self.feed();
        // The requests for which it was opened have left.
        if let Some(link) = opened
            && !self.has_waiting()
            && !link.has_begun()
            && !link.is_closed()
            && self.free.borrow().len() > UNUSED
        {
            link.retire_now();
        }
        self.forget_if_unused();
    }

    fn fail_waiting(&self, failure: &Failure) {
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(|pending_request| pending_request.fail(failure.copy()));
    }

    /// Gives waiting requests to connections that have room, and opens connections for the rest.
    fn feed(&self) {
        loop {
            if self.waiting.borrow().is_empty() {
                return;
            }
            let Some(link) = self.take_free() else { break };
            let next = self.waiting.borrow_mut().pop_front();
            match next {
                Some(pending_request) if pending_request.is_abandoned() => self.list(&link),
                Some(pending_request) => {
                    pending_request.leave_queue();
                    link.begin(pending_request);
                    self.list(&link);
                }
                None => return self.list(&link),
            }
        }
        if let Some(shared) = self.shared.upgrade() {
            self.open_more(&shared);
        }
    }

    /// Lists a connection among those that have room, if it has.
    fn list(&self, link: &Rc<Link>) {
        if link.room() > 0 && !link.is_listed.replace(true) {
            self.free.borrow_mut().push(link.clone());
        }
    }

    /// Handles a connection's report that it has more room than before.
    pub(super) fn has_room(&self, link: &Rc<Link>) {
        self.list(link);
        if !self.waiting.borrow().is_empty() {
            self.feed();
        }
    }

    /// Handles the end of a connection.
    pub(super) fn lost(&self, link: &Rc<Link>) {
        self.free.borrow_mut().retain(|other| !Rc::ptr_eq(other, link));
        let mut links = self.links.borrow_mut();
        let Some(at) = links.iter().position(|other| Rc::ptr_eq(other, link)) else { return };
        links.swap_remove(at);
        drop(links);
        self.give_place();
        if !link.has_begun() {
            // A server that ends each connection before its first request must not be called again and again.
            let next = self.waiting.borrow_mut().pop_front();
            next.into_iter().for_each(|pending_request| pending_request.fail(Failure::Unsent));
        }
        self.feed();
        self.forget_if_unused();
    }

    /// Counts one connection fewer.
    fn give_place(&self) {
        self.count.set(self.count.get() - 1);
        if let Some(shared) = self.shared.upgrade() {
            shared.count.set(shared.count.get() - 1);
        }
    }

    /// Removes the origin from its pool if it has no connections and no requests.
    fn forget_if_unused(&self) {
        if self.wanted.get() == 0 {
            // Those that are left have stopped waiting.
            drop(self.waiting.take());
        }
        if self.count.get() == 0
            && self.waiting.borrow().is_empty()
            && let Some(shared) = self.shared.upgrade()
        {
            self.is_removed.set(true);
            let mut origins = shared.origins.borrow_mut();
            // The caller of an origin that was removed before may have opened a connection for it.
            let is_this = origins.get(&self.key).is_some_and(|origin| std::ptr::eq(&**origin, self));
            let removed = if is_this { origins.remove(&self.key) } else { None };
            drop(origins);
            drop(removed);
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let links = self.links.take();
        links.iter().for_each(|link| link.retire());
        if let Some(shared) = self.shared.upgrade() {
            shared.count.set(shared.count.get() - links.len());
        }
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(|pending_request| pending_request.fail(Failure::ShuttingDown));
    }
}

/// The place of a connection that is being opened. If the attempt is given up, the place is free again.
struct Place {
    shared: Rc<Shared>,
    origin: Weak<Origin>,
    is_kept: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        match self.origin.upgrade() {
            Some(origin) => origin.give_place(),
            None => self.shared.count.set(self.shared.count.get() - 1),
        }
    }
}
