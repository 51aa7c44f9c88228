//! Limits on the bytes that the WebSockets of one HTTP/2 connection hold together. A connection carries many
//! WebSockets, so limits per WebSocket would let one peer hold a hundred times as much. Over HTTP/1, a connection has
//! one WebSocket.

use crate::topics::Queued;
use highwire_engine::context;
use highwire_io::SocketId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// The most bytes that the WebSockets of a connection may hold together: of incomplete messages, of messages that handlers
/// have until they ask for the next ones, and of states for compression and subscriptions.
const CONNECTION_BYTES: usize = 3 * 1024 * 1024;

/// The same number while the WebSockets of all HTTP/2 connections of the worker hold more than [`WORKER_BYTES`].
const CONNECTION_BYTES_TIGHT: usize = 384 * 1024;
const WORKER_BYTES: usize = 16 * 1024 * 1024;

/// The number of bytes that a WebSocket may hold even if its connection holds too many.
const FREE_BYTES: usize = 32 * 1024;

/// The most WebSockets of a connection that compress with context takeover, each of which holds about 350 KB. Others
/// compress without it.
const TAKEOVERS: u32 = 4;

/// A connection: its worker, of which a thread may have several, and its socket.
type Key = (u64, SocketId);

/// The WebSockets of one connection.
#[derive(Debug)]
pub(super) struct Together {
    key: Key,
    held: Cell<usize>,
    takeovers: Cell<u32>,
    pub(super) subscriptions: Cell<usize>,
    /// The bytes of messages that wait for the subscriptions.
    pub(super) queued: Queued,
}

thread_local! {
    static CONNECTIONS: RefCell<HashMap<Key, Weak<Together>>> = RefCell::default();
    /// The sum over the connections of this thread.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

fn key(connection: SocketId) -> Option<Key> {
    context::current_worker().map(|worker| (worker, connection))
}

/// One WebSocket among those of its connection.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) together: Rc<Together>,
    /// True if the WebSocket compresses with context takeover.
    takes_over: bool,
    /// The number of bytes that the WebSocket holds.
    held: u32,
}

impl Member {
    pub(super) fn new(together: Rc<Together>, takes_over: bool) -> Member {
        together.takeovers.set(together.takeovers.get() + u32::from(takes_over));
        Member { together, takes_over, held: 0 }
    }

    /// Records that the WebSocket holds `bytes`. Returns false if it must free them.
    pub(super) fn hold(&mut self, bytes: u32) -> bool {
        let before = std::mem::replace(&mut self.held, bytes);
        before == bytes || self.together.count(before as usize, bytes as usize)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hold(0);
        self.together.takeovers.set(self.together.takeovers.get() - u32::from(self.takes_over));
    }
}

impl Together {
    /// Returns what the WebSockets of a connection of this worker share.
    pub(super) fn of(connection: SocketId) -> Option<Rc<Together>> {
        let key = key(connection)?;
        let known = CONNECTIONS.with_borrow(|connections| connections.get(&key).and_then(Weak::upgrade));
        Some(known.unwrap_or_else(|| {
            let together = Rc::new(Together {
                key,
                held: Cell::default(),
                takeovers: Cell::default(),
                subscriptions: Cell::default(),
                queued: Queued::default(),
            });
            CONNECTIONS.with_borrow_mut(|connections| connections.insert(key, Rc::downgrade(&together)));
            together
        }))
    }

    /// Returns true if another WebSocket of a connection may compress with context takeover. Without a worker on this
    /// thread, returns false.
    pub(super) fn may_take_over(connection: SocketId) -> bool {
        let Some(key) = key(connection) else { return false };
        let known = CONNECTIONS.with_borrow(|connections| connections.get(&key).and_then(Weak::upgrade));
        known.is_none_or(|together| together.takeovers.get() < TAKEOVERS)
    }

    /// Records that a WebSocket holds `now` bytes and held `before`. Returns false if it must free them.
    fn count(&self, before: usize, now: usize) -> bool {
        let change = |sum: usize| (sum + now).saturating_sub(before);
        self.held.set(change(self.held.get()));
        HELD.set(change(HELD.get()));
        let most = if HELD.get() > WORKER_BYTES { CONNECTION_BYTES_TIGHT } else { CONNECTION_BYTES };
        // If only one WebSocket holds much, the limits per WebSocket suffice.
        let others = self.held.get().saturating_sub(now);
        now <= before || now <= FREE_BYTES || others <= FREE_BYTES || others + now <= most
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(self.held.get()));
        // Fails if the thread ends.
        let _ = CONNECTIONS.try_with(|connections| connections.borrow_mut().remove(&self.key));
    }
}
