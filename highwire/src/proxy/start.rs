//! The slow start of HTTP/2 connections: how many of their requests may be at upstreams at the same time.
//!
//! A client can send a hundred requests in a few kilobytes and leave. Each of them costs an upstream, and perhaps a
//! connection. A new connection therefore begins with few requests, and may have more with each answer, so that a page with
//! a hundred parts loads as before. Until the first answer, each request waits for a few turns of the worker, which see
//! whether the client has left already.

use highwire_engine::context;
use highwire_io::SocketId;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

/// The number of requests with which a connection begins, and by how many each answer raises it.
const FIRST: u32 = 8;
const MORE: u32 = 2;

/// The number of turns of the worker that a request waits before the first answer. They take no time while the worker is
/// idle.
const TURNS: u32 = 3;

/// The connections of a worker that have requests at upstreams.
#[derive(Default)]
pub(super) struct Starts {
    connections: Rc<RefCell<HashMap<SocketId, Weak<Start>>>>,
}

/// A connection.
struct Start {
    id: SocketId,
    all: Rc<RefCell<HashMap<SocketId, Weak<Start>>>>,
    running: Cell<u32>,
    most: Cell<u32>,
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
}

/// A request that waits.
#[derive(Default)]
struct Ticket {
    waker: RefCell<Option<Waker>>,
    has_left: Cell<bool>,
}

/// A request that may be sent to an upstream. The next one may when it is dropped.
pub(super) struct Started {
    start: Rc<Start>,
}

impl Starts {
    /// Waits until a request of a connection may be sent to an upstream.
    pub(super) async fn enter(&self, id: SocketId) -> Started {
        let known = self.connections.borrow().get(&id).and_then(Weak::upgrade);
        let start = known.unwrap_or_else(|| {
            let (all, running, most) = (self.connections.clone(), Cell::new(0), Cell::new(FIRST));
            let start = Rc::new(Start { id, all, running, most, waiting: RefCell::default() });
            self.connections.borrow_mut().insert(id, Rc::downgrade(&start));
            start
        });
        let mut waiting = Waiting { ticket: None };
        let mut turns = if start.most.get() > FIRST { 0 } else { TURNS };
        poll_fn(|cx| {
            if turns > 0 {
                turns -= 1;
                context::wake_next_turn(cx.waker());
                return Poll::Pending;
            }
            if start.running.get() < start.most.get() {
                start.running.set(start.running.get() + 1);
                return Poll::Ready(());
            }
            // One that was woken although another request was faster waits anew.
            let known = waiting.ticket.take().filter(|ticket| !ticket.has_left.get());
            let ticket = known.unwrap_or_else(|| {
                let ticket = Rc::new(Ticket::default());
                start.waiting.borrow_mut().push_back(ticket.clone());
                ticket
            });
            *ticket.waker.borrow_mut() = Some(cx.waker().clone());
            waiting.ticket = Some(ticket);
            Poll::Pending
        })
        .await;
        Started { start }
    }
}

impl Started {
    /// Records that an upstream has answered the request.
    pub(super) fn answered(&self) {
        self.start.most.set(self.start.most.get().saturating_add(MORE));
        (0..MORE).for_each(|_| self.start.wake_next());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.start.running.set(self.start.running.get() - 1);
        self.start.wake_next();
    }
}

impl Start {
    fn wake_next(&self) {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(next) = next else { return };
            if !next.has_left.replace(true) {
                return next.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        self.all.borrow_mut().remove(&self.id);
    }
}

/// The ticket of a request, which leaves the queue when this is dropped.
struct Waiting {
    ticket: Option<Rc<Ticket>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.ticket.iter().for_each(|ticket| ticket.has_left.set(true));
    }
}
