//! The items that wait for the subscribers of a worker, and the item that is being delivered.

use super::message::Published;
use super::subscriber::Subscriber;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most items, and the most bytes of messages, that may wait for a worker. A worker that is this far behind loses
/// further messages, and its subscribers see that they have missed some. Below this bound, only a topic with more than
/// its share loses messages.
pub(super) const MAILBOX_ITEMS: usize = 16 * 1024;
pub(super) const MAILBOX_BYTES: usize = 64 * 1024 * 1024;

/// Held by a message until it is delivered or lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Token {
    is_lost: Arc<AtomicBool>,
}

impl Token {
    /// Records that the message is lost.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Returns true if the message is delivered or lost. The caller has the only other handle of the token.
    pub(super) fn is_done(&self) -> bool {
        Arc::strong_count(&self.is_lost) == 1
    }
}

/// An item for the subscribers of a worker.
#[derive(Clone)]
pub(super) enum Item {
    /// A message for the subscribers whose filter matches its topic, or only for those of this filter.
    Message(Arc<Published>, Option<Arc<str>>, Option<Token>),
    /// The topic's history is complete. Subscribers that wait for it can begin.
    Complete(Arc<str>),
    /// Messages of topics without a history were lost.
    Gap,
    /// A message of this topic was lost.
    Missed(Arc<str>),
}

impl Item {
    /// Returns the topic of the item. A gap has none.
    pub(super) fn topic(&self) -> Option<&Arc<str>> {
        match self {
            Item::Message(published, ..) => Some(&published.topic),
            Item::Complete(topic) | Item::Missed(topic) => Some(topic),
            Item::Gap => None,
        }
    }

    /// Tells the publisher that the message is lost.
    pub(super) fn lose(&self) {
        if let Item::Message(_, _, Some(token)) = self {
            token.lose();
        }
    }

    pub(super) fn cost(&self) -> usize {
        match self {
            Item::Message(published, ..) => published.cost(),
            Item::Complete(_) | Item::Missed(_) | Item::Gap => 0,
        }
    }
}

/// An item that is being delivered.
pub(super) struct Delivery {
    pub(super) item: Item,
    /// The subscribers that get it.
    pub(super) subscribers: Vec<Rc<Subscriber>>,
    /// The number of subscribers that have got it.
    pub(super) done: usize,
}
