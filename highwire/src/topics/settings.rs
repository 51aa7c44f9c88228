//! The settings of topics.

use super::message::MessageId;
use crate::ws::Message;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The default number of messages that may wait for a subscriber.
const QUEUE_MESSAGES: usize = 256;

/// The most bytes that may wait for a subscriber, except that one message may always wait.
pub(super) const QUEUE_BYTES: usize = 1024 * 1024;

/// The most bytes that may wait for a subscriber while much waits for slow readers.
pub(super) const QUEUE_BYTES_TIGHT: usize = 64 * 1024;

type Format = Arc<dyn Fn(&str, MessageId, &Message) -> Message + Send + Sync>;

/// What happens when a message arrives for a subscriber that has too many waiting messages. `docs/topics.md` compares
/// the choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowReader {
    /// The oldest waiting message is dropped.
    #[default]
    DropOldest,
    /// The new message is dropped.
    DropNewest,
    /// Of each topic, only the latest message waits, even if there is room for more.
    LatestOnly,
    /// The subscription ends, and a WebSocket closes with the code 1008, or with 1013 if messages were lost for another
    /// reason. A client that reconnects and resumes misses nothing as long as the topic's history reaches back far
    /// enough.
    Disconnect,
}

/// The settings of the topics that match a filter.
#[derive(Clone, Default)]
#[must_use]
pub struct Topic {
    pub(super) slow_reader: SlowReader,
    most_waiting: Option<usize>,
    pub(super) history: usize,
    pub(super) format: Option<Format>,
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic")
            .field("slow_reader", &self.slow_reader)
            .field("queue", &self.most_waiting())
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

impl Topic {
    /// Creates the default settings: no history, and the oldest of more than 256 waiting messages is dropped.
    pub fn new() -> Topic {
        Topic::default()
    }

    /// Sets what happens to subscribers that fall behind.
    pub fn slow_reader(mut self, policy: SlowReader) -> Topic {
        self.slow_reader = policy;
        self
    }

    /// Sets the most messages that may wait for a subscriber; the default is 256, and 0 counts as 1. Their bytes are
    /// limited to 1 MiB, and to 64 KiB while more than 4 MiB wait for the slow readers of all topics, except that one
    /// message may always wait. All subscriptions of a WebSocket share the 1 MiB. Messages from the history do not count.
    /// For a WebSocket or an event stream, 64 KiB more wait in its connection.
    pub fn queue(mut self, messages: usize) -> Topic {
        self.most_waiting = Some(messages.max(1));
        self
    }

    /// Keeps the last messages of each topic, none by default, so that subscribers can begin with them or resume after
    /// a message that they know. They are kept in memory: at most 4 MiB per topic, in all at most 256 MiB or an eighth
    /// of the server's memory budget (a text counts about three times), and without a broker at most 10,000 topics. The
    /// histories of topics without a subscriber hold at most 4 MiB together
    /// ([`TopicsBuilder::idle_histories`](super::TopicsBuilder::idle_histories)). Beyond these bounds, the least
    /// recently used histories are evicted.
    pub fn history(mut self, messages: usize) -> Topic {
        self.history = messages;
        self
    }

    /// Sets a function that turns each published message into the one that subscribers get. Its arguments are the
    /// topic's name, the ID and the message. It runs once for each message in each process, not for each subscriber;
    /// with a broker, once for each filter that has a listener in the process. It can put the ID into the message, for
    /// clients of a WebSocket. If it panics, the message is delivered as it was published.
    pub fn format(mut self, format: impl Fn(&str, MessageId, &Message) -> Message + Send + Sync + 'static) -> Topic {
        self.format = Some(Arc::new(format));
        self
    }

    pub(super) fn most_waiting(&self) -> usize {
        self.most_waiting.unwrap_or(QUEUE_MESSAGES)
    }
}

/// The settings of topics and the counts of their messages.
pub(crate) struct Rule {
    pub(super) filter: String,
    pub(super) settings: Topic,
    pub(super) published: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) disconnected: AtomicU64,
}

impl Rule {
    pub(super) fn new(filter: &str, settings: Topic) -> Rule {
        let (published, dropped, disconnected) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Rule { filter: filter.into(), settings, published, dropped, disconnected }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            filter: self.filter.clone(),
            published: self.published.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            disconnected: self.disconnected.load(Ordering::Relaxed),
        }
    }
}

/// The counts of the topics that have the same settings, since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// The filter of the topics.
    pub filter: String,
    /// The number of messages that were published here or, with a broker, have arrived from it, once for each filter.
    pub published: u64,
    /// The number of messages that were dropped because a subscriber was slow, counted once for each subscriber, without
    /// those that waited when a subscription ended.
    pub dropped: u64,
    /// The number of subscriptions that ended because the subscriber was slow.
    pub disconnected: u64,
}
