//! Published messages, which all their receivers share.

use super::memory::{Held, Memory};
use super::settings::Rule;
use crate::sse;
use crate::ws::Message;
use crate::ws::frame;
use bytes::Bytes;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

/// The ID of a published message. It is written as two hexadecimal numbers, such as `9f3c62d01a55e0b7-1c`: the
/// publishing process and the number of the message there. Compare IDs only for equality: they may skip numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId {
    pub(super) node: u64,
    pub(super) number: u64,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.node, self.number)
    }
}

/// The text is not the ID of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidId;

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ID of a message is two hexadecimal numbers with a hyphen in between")
    }
}

impl std::error::Error for InvalidId {}

impl FromStr for MessageId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<MessageId, InvalidId> {
        let number = |text: &str| {
            let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u64::from_str_radix(text, 16).ok().filter(|_| is_hex).ok_or(InvalidId)
        };
        let (node, count) = text.split_once('-').ok_or(InvalidId)?;
        Ok(MessageId { node: number(node)?, number: number(count)? })
    }
}

/// A published message. Its frames are built once, by the first worker that needs them.
pub(crate) struct Published {
    pub(super) topic: Arc<str>,
    pub(super) id: MessageId,
    /// The place of the message in the topic's history here, beginning with 1, or 0 if the topic has no history.
    pub(super) place: u64,
    /// True if messages that were published before this one were lost.
    pub(super) follows_gap: bool,
    pub(super) message: Message,
    pub(super) rule: Arc<Rule>,
    /// The charge for the message; `None` in tests.
    held: Option<Held>,
    plain: OnceLock<Bytes>,
    deflated: OnceLock<Option<Bytes>>,
    event: OnceLock<Option<Bytes>>,
}

impl Published {
    pub(super) fn new(topic: Arc<str>, id: MessageId, message: Message, rule: Arc<Rule>) -> Published {
        let message = match &rule.settings.format {
            Some(format) => match catch_unwind(AssertUnwindSafe(|| format(&topic, id, &message))) {
                Ok(formatted) => formatted,
                Err(_) => {
                    highwire_engine::log!(Panic, error, topic = &*topic, "the format of a topic panicked");
                    message
                }
            },
            None => message.alone(),
        };
        let (plain, deflated, event) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (place, follows_gap, held) = (0, false, None);
        Published { topic, id, place, follows_gap, message, rule, held, plain, deflated, event }
    }

    /// Charges the memory of the topics for the message. Returns false if there is no room.
    pub(super) fn charge(&mut self, memory: &Arc<Memory>) -> bool {
        self.held = memory.take(self.kept_cost());
        self.held.is_some()
    }

    /// Returns true if so much waits for slow readers that each of them may have only a little.
    pub(super) fn is_memory_tight(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.memory().is_tight())
    }

    pub(crate) fn message(&self) -> &Message {
        &self.message
    }

    /// Returns the number of the message's bytes.
    pub(crate) fn length(&self) -> usize {
        self.message.as_data().map_or(0, |(_, bytes)| bytes.len())
    }

    /// Returns about how many bytes the message holds.
    pub(super) fn cost(&self) -> usize {
        size_of::<Published>() + self.topic.len() + self.length()
    }

    /// Returns about how many bytes the message holds for as long as a history keeps it, with its frames.
    pub(super) fn kept_cost(&self) -> usize {
        self.cost() + 2 * self.length()
    }

    /// Returns the message as a frame for WebSockets, deflated without context takeover if `deflated` is true and the
    /// message becomes shorter.
    pub(crate) fn frame(&self, deflated: bool) -> Bytes {
        if deflated && let Some(frame) = self.deflated.get_or_init(|| frame::deflated(&self.message)) {
            return frame.clone();
        }
        self.plain.get_or_init(|| frame::plain(&self.message)).clone()
    }

    /// Returns the message as a Server-Sent Event, or `None` if it is binary.
    pub(super) fn event(&self) -> Option<Bytes> {
        let event = self.event.get_or_init(|| match &self.message {
            Message::Text(text) => Some(sse::Event::new(text).id(self.id.to_string()).into_bytes()),
            _ => None,
        });
        event.clone()
    }
}

/// A message that a [`Subscription`](super::Subscription) has received.
#[derive(Clone)]
pub struct Delivery {
    pub(super) published: Arc<Published>,
    pub(super) missed: bool,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("topic", &self.topic()).field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Delivery {
    /// Returns the name of the topic.
    pub fn topic(&self) -> &str {
        &self.published.topic
    }

    /// Returns the message's ID, with which a client can resume.
    pub fn id(&self) -> MessageId {
        self.published.id
    }

    /// Returns the message. If the topic has a [`format`](super::Topic::format), it has been applied.
    pub fn message(&self) -> &Message {
        &self.published.message
    }

    /// Returns true if messages before this one were lost: the subscriber was slow, the message to resume after is not
    /// in the history, or the broker was not reachable. Show the gap, or load the state anew.
    pub fn missed(&self) -> bool {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for id in [MessageId { node: 0, number: 0 }, MessageId { node: u64::MAX, number: 28 }] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "-", "1", "1-", "-1", "+1-1", "1-2-3", "g-1", "11112222333344445-1", "1 -1"] {
            assert_eq!(text.parse::<MessageId>(), Err(InvalidId), "{text:?}");
        }
    }
}
