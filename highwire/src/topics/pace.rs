//! Holds up those who publish faster than messages are delivered.
//!
//! Publishing never waits, so a WebSocket whose handler has published while much waits to be delivered waits at its next
//! [`recv`](crate::ws::WebSocket::recv). Its peer, who causes the messages, is then held up by the protocol, and others are
//! not.

use super::hub::Hub;
use highwire_engine::time::wake_after;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};
use std::task::Context;
use std::time::Duration;

/// The time after which one who is held up looks again.
const PAUSE: Duration = Duration::from_millis(1);

thread_local! {
    /// The address of the receiver that has returned a message last: its handler runs now.
    static LAST: Cell<usize> = const { Cell::new(0) };
    /// The receiver whose handler has published while much waited, and the topics.
    static HELD_UP: RefCell<Option<(usize, Weak<Hub>)>> = const { RefCell::new(None) };
}

/// Records that the receiver at an address returns a message to its handler.
pub(crate) fn returned(receiver: usize) {
    LAST.set(receiver);
}

/// Records that a message was published.
pub(super) fn note_published(hub: &Arc<Hub>) {
    if hub.is_behind() {
        HELD_UP.set(Some((LAST.get(), Arc::downgrade(hub))));
    }
}

/// The pace of one receiver: the topics that must catch up before it may return another message.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    hub: Option<Weak<Hub>>,
}

impl Pace {
    /// Returns true if the receiver at an address must wait. Its task is then woken to look again.
    pub(crate) fn must_wait(&mut self, receiver: usize, cx: &Context<'_>) -> bool {
        HELD_UP.with_borrow_mut(|held_up| {
            if let Some((_, hub)) = held_up.take_if(|(known, _)| *known == receiver) {
                self.hub = Some(hub);
            }
        });
        let is_behind = self.hub.as_ref().and_then(Weak::upgrade).is_some_and(|hub| hub.is_behind());
        if is_behind {
            wake_after(PAUSE, cx.waker());
        } else {
            self.hub = None;
        }
        is_behind
    }
}
