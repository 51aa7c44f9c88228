//! Topics: publish messages to all subscribers, on all workers and, through a [`Broker`], on several machines.
//!
//! A subscriber is a WebSocket ([`WebSocket::subscribe`](crate::ws::WebSocket::subscribe)), an event stream
//! ([`Topics::events`]) or a [`Subscription`]. All receivers of a message share its bytes: its frame is built, and
//! compressed, once. What happens to a slow receiver is a setting of the topic ([`SlowReader`]). A topic can have a
//! history, from which clients resume after they have reconnected, and members ([`Topics::join`]).
//!
//! `docs/topics.md` states what is promised, with and without a broker.
//!
//! ```
//! use highwire::topics::{SlowReader, Start, Topic, Topics};
//! use highwire::ws::{Message, WebSocket};
//! use highwire::{App, State};
//!
//! let topics = Topics::builder()
//!     .topic("chat/+", Topic::new().history(100).slow_reader(SlowReader::Disconnect))
//!     .build();
//! let app = App::new().state(topics).ws("/chat", async |mut socket: WebSocket, State(topics): State<Topics>| {
//!     if socket.subscribe(&topics, "chat/lobby", Start::Last(20)).is_err() {
//!         return;
//!     }
//!     while let Some(Ok(message)) = socket.recv().await {
//!         if let Message::Text(_) = message {
//!             let _ = topics.publish("chat/lobby", message);
//!         }
//!     }
//! });
//! # let _ = app;
//! ```

mod broker;
mod delivery;
mod error;
mod filter;
mod histories;
mod history;
mod hub;
mod lanes;
mod local;
mod lock;
mod memory;
mod message;
#[cfg(feature = "nats")]
mod nats;
mod pace;
mod presence;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "nats", feature = "redis"))]
mod remote;
mod settings;
mod subscriber;
mod subscription;
mod tree;

use crate::ws::Message;
use filter::PRESENCE;
use histories::IDLE_BYTES;
use hub::Hub;
use lock::lock;
use presence::MEMBER_BYTES;
use settings::Rule;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use broker::{Broker, Link};
pub use error::{BrokerError, JoinError, PublishError, SubscribeError};
pub use filter::InvalidTopic;
pub use history::Start;
pub use message::{Delivery, InvalidId, MessageId};
#[cfg(feature = "nats")]
pub use nats::Nats;
pub use presence::Member;
#[cfg(feature = "redis")]
pub use redis::Redis;
pub use settings::{Counts, SlowReader, Topic};
pub use subscription::Subscription;

pub(crate) use message::Published as PublishedMessage;
pub(crate) use pace::{Pace, returned};
pub(crate) use subscriber::{Queued, Sink};

/// A set of topics. Clones are cheap and share it. See the [module](self).
#[derive(Clone)]
pub struct Topics {
    hub: Arc<Hub>,
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topics").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Default for Topics {
    fn default() -> Topics {
        Topics::new()
    }
}

/// Settings of [`Topics`].
#[must_use]
pub struct TopicsBuilder {
    rules: Vec<(String, Topic)>,
    broker: Option<Box<dyn Broker>>,
    idle_histories: usize,
}

impl fmt::Debug for TopicsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicsBuilder").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl TopicsBuilder {
    /// Sets the settings of the topics that match a filter. If several filters match a topic, the first one counts. If
    /// none matches, the topic has the default settings.
    pub fn topic(mut self, filter: &str, settings: Topic) -> TopicsBuilder {
        self.rules.push((filter.into(), settings));
        self
    }

    /// Shares the topics with other processes, which need the same settings. A second broker replaces the first.
    pub fn broker(mut self, broker: impl Broker) -> TopicsBuilder {
        self.broker = Some(Box::new(broker));
        self
    }

    /// Sets the most bytes of the histories of all topics that have no subscriber; the default is 4 MiB. (A text counts
    /// about three times.) Clients that reconnect after the last subscriber of a topic has left resume from what is kept.
    /// If clients choose the names of topics, they also choose how much of this is used.
    pub fn idle_histories(mut self, bytes: usize) -> TopicsBuilder {
        self.idle_histories = bytes;
        self
    }

    /// Creates the topics, and starts the broker, if there is one. It connects in the background: until
    /// [`Topics::is_connected`], publishing fails, and subscribers wait.
    ///
    /// # Panics
    /// Panics if a filter is invalid or begins with `$presence/`.
    pub fn build(self) -> Topics {
        let rules = self.rules.into_iter().chain([("#".to_string(), Topic::new())]);
        let rules = rules.map(|(filter, settings)| {
            filter::check_filter(&filter).unwrap_or_else(|error| panic!("the filter {filter:?} is invalid: {error}"));
            assert!(!filter.starts_with('$'), "the filter {filter:?} is invalid: topics of presence have no settings");
            Arc::new(Rule::new(&filter, settings))
        });
        let hub = Arc::new(Hub::new(rules.collect(), self.broker, self.idle_histories));
        if let Some(broker) = &hub.broker {
            hub.start_heartbeat();
            broker.start(Link { hub: Arc::downgrade(&hub) });
        }
        Topics { hub }
    }
}

impl Topics {
    /// Creates topics with the default settings: without a history and without a broker.
    pub fn new() -> Topics {
        Topics::builder().build()
    }

    /// Returns a builder for topics with settings.
    pub fn builder() -> TopicsBuilder {
        TopicsBuilder { rules: Vec::new(), broker: None, idle_histories: IDLE_BYTES }
    }

    /// Publishes a text or binary message, on any thread, without waiting. Returns the message's ID.
    ///
    /// Without a broker, the message is queued for the subscribers of this worker when this returns, unless 256
    /// deliveries were made in this turn of the worker, and other workers deliver it in their next turns. While many messages
    /// wait to be delivered, a WebSocket whose handler has published gets its next message later. With a broker, all subscribers
    /// get it when the broker returns it. No return value tells whether a client has received it.
    ///
    /// # Errors
    /// Returns an error if the name or the message is invalid, if the broker is unavailable, or if the memory budget has no
    /// room. The message is then not sent.
    pub fn publish(&self, topic: &str, message: impl Into<Message>) -> Result<MessageId, PublishError> {
        filter::check_name(topic)?;
        let message = message.into();
        if message.as_data().is_none() {
            return Err(PublishError::NotData);
        }
        self.hub.publish(topic, message)
    }

    /// Subscribes to the topics that match a filter. See [`Subscription`].
    ///
    /// # Errors
    /// Returns an error if the filter is invalid, or if `start` needs a history that the filter's topics do not have.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub fn subscribe(&self, filter: &str, start: Start) -> Result<Subscription, SubscribeError> {
        Subscription::new(&self.hub, filter, start, None)
    }

    /// Joins a topic as a member. The member leaves when the returned value is dropped. The same name may join several
    /// times, such as from two windows; it leaves when the last of these values is dropped. Subscribers of `$presence/`
    /// followed by the topic's name get a message for each member that joins, `{"joined":"name","info":"…"}`, or
    /// leaves, `{"left":"name"}`.
    ///
    /// # Errors
    /// Returns an error if the topic's name is invalid, the member's name or information is longer than 256 bytes, or the
    /// topic has 1,000 members on this machine.
    pub fn join(&self, topic: &str, name: &str, info: &str) -> Result<Membership, JoinError> {
        filter::check_name(topic)?;
        if name.len().max(info.len()) > MEMBER_BYTES {
            return Err(JoinError::TooLong);
        }
        let topic: Arc<str> = topic.into();
        let member = Member { name: name.into(), info: info.into() };
        {
            let mut presence = lock(&self.hub.presence);
            let change = presence.join(&topic, &member).map_err(|()| JoinError::Full)?;
            self.hub.report(&topic, change);
        }
        self.hub.listen(&format!("{PRESENCE}{topic}"), false);
        Ok(Membership { hub: self.hub.clone(), topic, name: member.name })
    }

    /// Returns the members of a topic, in the order of their names. Members of other processes are known only while
    /// this process has a member of the topic or a subscriber to its presence, and not in the first moments of that
    /// time.
    pub fn members(&self, topic: &str) -> Vec<Member> {
        self.members_after(topic, None, usize::MAX)
    }

    /// Returns the first members whose names follow `name`, at most `most`, in the order of their names. A long list
    /// can be sent in parts, each of which begins after the last name of the previous part. A part takes time for
    /// `most` members of each machine, and not for the whole list. `None` returns the list's first part. See
    /// [`members`](Self::members).
    pub fn members_after(&self, topic: &str, name: Option<&str>, most: usize) -> Vec<Member> {
        lock(&self.hub.presence).members_after(topic, name, most)
    }

    /// Returns the counts of the topics of each of the builder's filters, and those of all other topics as the last.
    pub fn counts(&self) -> Vec<Counts> {
        self.hub.rules.iter().map(|rule| rule.counts()).collect()
    }

    /// Returns true if the broker is connected, or if there is none.
    pub fn is_connected(&self) -> bool {
        self.hub.broker.is_none() || self.hub.is_connected.load(Ordering::Relaxed)
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

/// A member's presence in a topic, which ends when this is dropped.
#[must_use]
pub struct Membership {
    hub: Arc<Hub>,
    topic: Arc<str>,
    name: String,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("topic", &self.topic).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        {
            let mut presence = lock(&self.hub.presence);
            let change = presence.leave(&self.topic, &self.name);
            self.hub.report(&self.topic, change);
        }
        self.hub.unlisten(&format!("{PRESENCE}{}", self.topic));
    }
}
