//! Slows down WebSockets whose handlers publish faster than messages are delivered.
//!
//! Publishing never waits. Instead, if a handler publishes while much waits to be delivered, its WebSocket's next
//! [`recv`](crate::ws::WebSocket::recv) waits until that message is delivered. Flow control then slows the peer that
//! causes the messages, and no others: topics are delivered in turns, so a message to a topic without a backlog waits
//! little.

use super::delivery::Token;
use super::hub::Hub;
use highwire_engine::time::wake_after;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};
use std::task::Context;
use std::time::Duration;

/// The time after which a waiting receiver checks again.
const PAUSE: Duration = Duration::from_millis(1);

thread_local! {
    /// The address of the receiver that has returned a message last: its handler runs now.
    static LAST: Cell<usize> = const { Cell::new(0) };
    /// The receiver whose handler has published while much waited, and what it must wait for.
    static HELD_UP: RefCell<Option<(usize, Until)>> = const { RefCell::new(None) };
}

/// What a receiver must wait for.
#[derive(Debug)]
enum Until {
    /// Its message is delivered or, if the message is lost, the deliveries have caught up.
    Delivered(Token, Weak<Hub>),
    /// The deliveries have caught up. With a broker, it is unknown which delivery is that of its message.
    CaughtUp(Weak<Hub>),
}

impl Until {
    fn is_over(&self) -> bool {
        let has_caught_up = |hub: &Weak<Hub>| hub.upgrade().is_none_or(|hub| !hub.is_behind());
        match self {
            Until::Delivered(token, hub) => token.is_done() && (!token.is_lost() || has_caught_up(hub)),
            Until::CaughtUp(hub) => has_caught_up(hub),
        }
    }
}

/// Records that the receiver at an address returns a message to its handler.
pub(crate) fn returned(receiver: usize) {
    LAST.set(receiver);
}

/// Records that a message is being published. Returns the message's token if the publisher must wait for its delivery.
pub(super) fn publishing(hub: &Arc<Hub>) -> Option<Token> {
    if !hub.is_behind() {
        return None;
    }
    let token = Token::default();
    let until = match hub.broker {
        None => Until::Delivered(token.clone(), Arc::downgrade(hub)),
        Some(_) => Until::CaughtUp(Arc::downgrade(hub)),
    };
    HELD_UP.set(Some((LAST.get(), until)));
    Some(token)
}

/// The pace of one receiver: what must have happened before it may return another message.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    until: Option<Box<Until>>,
}

impl Pace {
    /// Returns true if the receiver at an address must wait. Its task is then woken to check again.
    pub(crate) fn must_wait(&mut self, receiver: usize, cx: &Context<'_>) -> bool {
        HELD_UP.with_borrow_mut(|held_up| {
            if let Some((_, until)) = held_up.take_if(|(known, _)| *known == receiver) {
                self.until = Some(Box::new(until));
            }
        });
        let waits = self.until.as_ref().is_some_and(|until| !until.is_over());
        if waits {
            wake_after(PAUSE, cx.waker());
        } else {
            self.until = None;
        }
        waits
    }
}
