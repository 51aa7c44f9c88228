//! Brokers, through which several machines share topics.

use super::error::BrokerError;
use super::hub::Hub;
use super::message::MessageId;
use super::presence::{MEMBER_BYTES, MEMBERS, Member};
use crate::ws::{Message, Utf8Bytes};
use bytes::Bytes;
use std::fmt;
use std::sync::{Arc, Weak};

/// Carries messages between machines.
///
/// The topics tell a broker which filters have a listener in this process, and give it messages as opaque bytes. The
/// broker reports through its [`Link`] what it receives. All methods return at once; a broker works on a thread of its
/// own.
pub trait Broker: Send + Sync + 'static {
    /// Begins to connect. Called once, before all other methods.
    fn start(&self, link: Link);

    /// Queues a message for all machines that listen to a filter which matches the topic, including this one. `keep` is
    /// the number of last messages of the topic that the broker should keep, or 0.
    ///
    /// # Errors
    /// Returns an error if the broker is not connected, if its queue is full, or if the message is too large. The message
    /// is then not sent.
    fn publish(&self, topic: &str, payload: Bytes, keep: usize) -> Result<(), BrokerError>;

    /// Listens to a filter. If `has_history` is true, the filter is the name of a topic, and the broker must call
    /// [`Link::history`] each time it has begun to listen to the topic, also after a reconnection.
    fn subscribe(&self, filter: &str, has_history: bool);

    /// Stops listening to a filter.
    fn unsubscribe(&self, filter: &str);
}

/// The way from a [`Broker`] to the subscribers here.
#[derive(Clone)]
pub struct Link {
    pub(super) hub: Weak<Hub>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    /// Returns false if the topics do not exist any more. The broker must then end.
    pub fn is_alive(&self) -> bool {
        self.hub.strong_count() > 0
    }

    /// Delivers a message that has arrived because of a filter. If several filters match the message, the broker calls
    /// this once for each of them.
    pub fn received(&self, filter: &str, payload: &[u8]) {
        if let Some(hub) = self.hub.upgrade() {
            hub.receive(filter, payload);
        }
    }

    /// Returns the number of last messages that a topic keeps.
    pub fn history_length(&self, topic: &str) -> usize {
        self.hub.upgrade().map_or(0, |hub| hub.rule(topic).settings.history)
    }

    /// Gives the last messages of a topic that the broker has kept, oldest first, or `None` if it keeps none.
    pub fn history(&self, topic: &str, kept: Option<Vec<Vec<u8>>>) {
        if let Some(hub) = self.hub.upgrade() {
            hub.receive_history(topic, kept);
        }
    }

    /// Reports that the broker is connected. Call it before the broker listens to the filters again and reports the
    /// [`history`](Self::history) of their topics.
    pub fn connected(&self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.set_connected(true);
        }
    }

    /// Reports that the connection to the broker is lost.
    pub fn disconnected(&self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.set_connected(false);
        }
    }
}

/// The content of a payload.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Payload {
    Message {
        topic: Arc<str>,
        id: MessageId,
        message: Message,
    },
    /// The members of a topic on a machine.
    Members {
        topic: Arc<str>,
        node: u64,
        members: Vec<Member>,
    },
    /// A machine asks for the members of a topic on all others.
    Ask {
        topic: Arc<str>,
        node: u64,
    },
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const LIST: u8 = 3;
const ASK: u8 = 4;

impl Payload {
    /// Encodes a payload: a byte for its kind, the node and the number in 8 bytes each, the topic behind its length in 2
    /// bytes, and the content. Numbers are big-endian.
    pub(super) fn encode(&self) -> Bytes {
        let (kind, topic, node, number) = match self {
            Payload::Message { topic, id, message } => {
                (if matches!(message, Message::Text(_)) { TEXT } else { BINARY }, topic, id.node, id.number)
            }
            Payload::Members { topic, node, .. } => (LIST, topic, *node, 0),
            Payload::Ask { topic, node } => (ASK, topic, *node, 0),
        };
        let mut out = vec![kind];
        out.extend_from_slice(&node.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
        let mut text = |text: &str| {
            out.extend_from_slice(&(text.len() as u16).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        text(topic);
        if let Payload::Members { members, .. } = self {
            for member in members {
                text(&member.name);
                text(&member.info);
            }
        }
        if let Payload::Message { message, .. } = self {
            out.extend_from_slice(message.as_data().map_or(&[], |(_, bytes)| bytes));
        }
        out.into()
    }

    /// Decodes a payload. Returns `None` if it is invalid, such as that of another program.
    pub(super) fn decode(bytes: &[u8]) -> Option<Payload> {
        let (&kind, rest) = bytes.split_first()?;
        let (node, rest) = rest.split_first_chunk::<8>()?;
        let (number, mut rest) = rest.split_first_chunk::<8>()?;
        let (node, number) = (u64::from_be_bytes(*node), u64::from_be_bytes(*number));
        let mut text = |most: usize| {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (text, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            rest = after;
            std::str::from_utf8(text).ok().filter(|text| text.len() <= most)
        };
        let topic: Arc<str> = text(usize::MAX)?.into();
        let id = MessageId { node, number };
        match kind {
            TEXT => {
                let text = std::str::from_utf8(rest).ok()?;
                Some(Payload::Message { topic, id, message: Message::Text(Utf8Bytes::from(text)) })
            }
            BINARY => Some(Payload::Message { topic, id, message: Message::Binary(Bytes::copy_from_slice(rest)) }),
            LIST => {
                let mut members = Vec::new();
                while members.len() < MEMBERS {
                    let Some(name) = text(MEMBER_BYTES) else { break };
                    members.push(Member { name: name.into(), info: text(MEMBER_BYTES)?.into() });
                }
                rest.is_empty().then_some(Payload::Members { topic, node, members })
            }
            ASK => Some(Payload::Ask { topic, node }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_decoded_as_they_were_encoded() {
        let topic: Arc<str> = "chat/lobby".into();
        let id = MessageId { node: 0x0102_0304_0506_0708, number: 9 };
        let member = |name: &str| Member { name: name.into(), info: String::new() };
        for payload in [
            Payload::Message { topic: topic.clone(), id, message: Message::text("héllo") },
            Payload::Message { topic: topic.clone(), id, message: Message::binary(vec![0, 255]) },
            Payload::Message { topic: topic.clone(), id, message: Message::text("") },
            Payload::Members { topic: topic.clone(), node: 5, members: vec![member("ann"), member("")] },
            Payload::Members { topic: topic.clone(), node: 5, members: Vec::new() },
            Payload::Ask { topic, node: 5 },
        ] {
            let bytes = payload.encode();
            assert_eq!(Payload::decode(&bytes), Some(payload.clone()));
            for cut in 0..19 {
                assert_eq!(Payload::decode(&bytes[..cut]), None);
            }
        }
        for invalid in [&b""[..], b"PING", &[9; 40]] {
            assert_eq!(Payload::decode(invalid), None);
        }
    }
}
