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
mod filter;
mod history;
mod local;
mod message;
#[cfg(feature = "nats")]
mod nats;
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
use arc_swap::ArcSwap;
use broker::Payload;
use filter::PRESENCE;
use highwire_io::random;
use history::History;
use local::{Item, Local, Mailbox};
use message::Published;
use presence::{Change, MEMBER_BYTES};
use settings::Rule;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use broker::{Broker, BrokerError, Link};
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
pub(crate) use subscriber::{Sink, Subscriber};

/// The most topics that have a history. Beyond it, the history of the topic that was not used for the longest time is
/// dropped.
const HISTORIES: usize = 10_000;

/// The number of topics among which the one to drop is searched, so that the search takes little time.
const SAMPLED: usize = 16;

/// The most bytes of all histories. Beyond it, each topic to which something is published keeps only that message.
const HISTORIES_BYTES: usize = 256 * 1024 * 1024;

/// The time in which changes of the members here are collected before other machines are told.
const GATHERED: Duration = Duration::from_millis(200);

/// The interval in which other machines are told of the members here, even if there is no change.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Topics, which all their clones share. See the [module](self).
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

    /// Shares the topics with other machines.
    pub fn broker(mut self, broker: impl Broker) -> TopicsBuilder {
        self.broker = Some(Box::new(broker));
        self
    }

    /// Creates the topics, and starts the broker.
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
        let hub = Arc::new(Hub {
            rules: rules.collect(),
            presence_rule: Arc::new(Rule::new("$presence/#", Topic::new())),
            node: random::system(),
            number: AtomicU64::new(0),
            mailboxes: ArcSwap::default(),
            histories: Mutex::default(),
            kept: AtomicUsize::new(0),
            presence: Mutex::default(),
            listened: Mutex::default(),
            broker: self.broker,
            is_connected: AtomicBool::new(false),
            changed: Mutex::new(None),
            begun: Instant::now(),
        });
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
        TopicsBuilder { rules: Vec::new(), broker: None }
    }

    /// Publishes a text or binary message. It can be called on any thread, and never waits. Returns the message's ID.
    ///
    /// Without a broker, the subscribers of this worker have the message when this returns, and those of other workers
    /// get it in their next turn. With a broker, all subscribers get it when the broker returns it.
    ///
    /// # Errors
    /// Returns an error if the name or the message is invalid, or if the broker is unavailable. The message is then not
    /// sent.
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
    /// Returns an error if the filter is invalid, or if it begins in a history that its topics do not have.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub fn subscribe(&self, filter: &str, start: Start) -> Result<Subscription, SubscribeError> {
        Subscription::new(&self.hub, filter, start, None)
    }

    /// Joins a topic as a member. The member leaves when the returned value is dropped. The same name may join several
    /// times; it has left when it has left as often. Subscribers of `$presence/` followed by the topic's name get a
    /// message for each member that joins, `{"joined":"name","info":"…"}`, or leaves, `{"left":"name"}`.
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

    /// Returns the members of a topic, in the order of their names. Members on other machines are only known while
    /// somebody here has joined the topic or listens to its presence.
    pub fn members(&self, topic: &str) -> Vec<Member> {
        lock(&self.hub.presence).members(topic)
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

/// The state that all workers share.
pub(crate) struct Hub {
    rules: Vec<Arc<Rule>>,
    presence_rule: Arc<Rule>,
    /// A random number for this hub.
    node: u64,
    /// The number of the last message that was published here.
    number: AtomicU64,
    /// The mailboxes of the workers that have subscribers. A publisher reads them without a lock.
    mailboxes: ArcSwap<Vec<Arc<Mailbox>>>,
    /// The histories of the topics that have one. A history's lock gives its messages one order on all workers.
    histories: Mutex<HashMap<Arc<str>, Arc<Mutex<History>>>>,
    /// The bytes of all histories.
    kept: AtomicUsize,
    presence: Mutex<presence::Presence>,
    /// The filters that somebody here listens to, and their numbers of listeners. Only with a broker.
    listened: Mutex<HashMap<String, usize>>,
    broker: Option<Box<dyn Broker>>,
    is_connected: AtomicBool,
    /// The way to the thread that tells other machines of the members here.
    changed: Mutex<Option<Sender<Arc<str>>>>,
    begun: Instant,
}

/// Locks a mutex. A panic while it was locked does not matter: all changes under these locks are complete at each call
/// that could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    fn rule(&self, topic: &str) -> &Arc<Rule> {
        self.rules.iter().find(|rule| filter::matches(&rule.filter, topic)).unwrap_or(&self.presence_rule)
    }

    fn next_id(&self) -> MessageId {
        MessageId { node: self.node, number: self.number.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    fn publish(self: &Arc<Hub>, topic: &str, message: Message) -> Result<MessageId, PublishError> {
        let (id, rule) = (self.next_id(), self.rule(topic));
        if let Some(broker) = &self.broker {
            let payload = Payload::Message { topic: topic.into(), id, message }.encode();
            broker.publish(topic, payload, rule.settings.history)?;
        } else {
            self.accept(Published::new(topic.into(), id, message, rule.clone()), None);
        }
        Ok(id)
    }

    /// Delivers a message to the subscribers here: to those whose filter matches its topic, or only to those of `filter`.
    fn accept(self: &Arc<Hub>, published: Published, filter: Option<Arc<str>>) {
        let rule = published.rule.clone();
        rule.published.fetch_add(1, Ordering::Relaxed);
        let has_history = rule.settings.history > 0 && filter.as_ref().is_none_or(|filter| *filter == published.topic);
        self.with_mailboxes(|hub| {
            if !has_history {
                return hub.post(Item::Message(Arc::new(published), filter));
            }
            // With a broker, the history was created when somebody began to listen, and is gone if nobody does.
            let history = match filter {
                Some(_) => lock(&hub.histories).get(&published.topic).cloned(),
                None => Some(hub.history(&published.topic, &rule)),
            };
            let Some(history) = history else { return };
            // The lock is held until all workers have the message, so that they all have the same order.
            let mut history = lock(&history);
            history.used = hub.number.load(Ordering::Relaxed);
            hub.change(&mut history, |history| {
                if let Some(published) = history.receive(published) {
                    hub.post(Item::Message(published, filter));
                }
            });
        });
    }

    /// Changes a history, and counts its bytes.
    fn change(&self, history: &mut History, change: impl FnOnce(&mut History)) {
        let before = history.bytes();
        change(history);
        if self.kept.load(Ordering::Relaxed) > HISTORIES_BYTES {
            history.trim(1);
        }
        self.kept.fetch_add(history.bytes(), Ordering::Relaxed);
        self.kept.fetch_sub(before, Ordering::Relaxed);
    }

    /// Removes the history of a topic.
    fn forget(&self, histories: &mut HashMap<Arc<str>, Arc<Mutex<History>>>, topic: &str) {
        if let Some(history) = histories.remove(topic) {
            self.change(&mut lock(&history), |history| history.trim(0));
        }
    }

    /// Posts items, and then delivers those for this worker.
    fn with_mailboxes(self: &Arc<Hub>, post: impl FnOnce(&Hub)) {
        let local = Local::get(self);
        if let Some(local) = &local {
            local.hold_wakes();
        }
        post(self);
        if let Some(local) = local {
            local.deliver();
        }
    }

    fn post(&self, item: Item) {
        let mailboxes = self.mailboxes.load();
        if let Some((last, others)) = mailboxes.split_last() {
            others.iter().for_each(|mailbox| mailbox.push(item.clone()));
            last.push(item);
        }
    }

    fn add(&self, mailbox: Arc<Mailbox>) {
        self.mailboxes.rcu(|mailboxes| {
            let mut mailboxes = Vec::clone(mailboxes);
            mailboxes.push(mailbox.clone());
            mailboxes
        });
    }

    fn remove(&self, mailbox: &Arc<Mailbox>) {
        self.mailboxes.rcu(|mailboxes| {
            let others = mailboxes.iter().filter(|other| !Arc::ptr_eq(other, mailbox));
            others.cloned().collect::<Vec<_>>()
        });
    }

    /// Returns the history of a topic, possibly a new one.
    fn history(&self, topic: &Arc<str>, rule: &Rule) -> Arc<Mutex<History>> {
        let mut histories = lock(&self.histories);
        if let Some(history) = histories.get(topic) {
            return history.clone();
        }
        // With a broker, somebody here listens to each topic with a history, so none can be dropped.
        if histories.len() >= HISTORIES && self.broker.is_none() {
            let sample = histories.iter().take(SAMPLED);
            let unused = sample.min_by_key(|(_, history)| lock(history).used).map(|(topic, _)| topic.clone());
            unused.into_iter().for_each(|unused| self.forget(&mut histories, &unused));
        }
        // No subscriber has seen a message whose place is above the number of messages.
        let place = self.number.load(Ordering::Relaxed);
        let history = Arc::new(Mutex::new(History::new(rule.settings.history, self.broker.is_none(), place)));
        histories.insert(topic.clone(), history.clone());
        history
    }

    /// Gives a subscriber the messages of a topic's history.
    fn replay(&self, topic: &str, start: Start, subscriber: &Subscriber) {
        let history = lock(&self.histories).get(topic).cloned();
        if let Some(history) = history {
            let history = lock(&history);
            let (messages, missed, place) = history.since(start);
            subscriber.replay(messages, missed, place);
        }
    }

    /// Listens to a filter on the broker, if nobody here did. Creates the topic's history before, so that the broker can
    /// complete it.
    fn listen(&self, filter: &str, has_history: bool) {
        let Some(broker) = &self.broker else { return };
        let mut listened = lock(&self.listened);
        let count = listened.entry(filter.into()).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        if has_history {
            self.history(&filter.into(), self.rule(filter));
        }
        broker.subscribe(filter, has_history);
        if let Some(topic) = filter.strip_prefix(PRESENCE) {
            self.ask(topic);
        }
    }

    /// Stops listening to a filter on the broker, if nobody else here listens.
    fn unlisten(&self, filter: &str) {
        let Some(broker) = &self.broker else { return };
        let mut listened = lock(&self.listened);
        let Some(count) = listened.get_mut(filter) else { return };
        *count -= 1;
        if *count == 0 {
            listened.remove(filter);
            broker.unsubscribe(filter);
            self.forget(&mut lock(&self.histories), filter);
            if let Some(topic) = filter.strip_prefix(PRESENCE) {
                lock(&self.presence).forget_others(topic);
            }
        }
    }

    /// Asks the other machines for the members of a topic.
    fn ask(&self, topic: &str) {
        if let Some(broker) = self.broker.as_ref().filter(|_| filter::check_name(topic).is_ok()) {
            let payload = Payload::Ask { topic: topic.into(), node: self.node }.encode();
            // If this fails, their next heartbeats report the members.
            let _ = broker.publish(&format!("{PRESENCE}{topic}"), payload, 0);
        }
    }

    /// Handles a payload from the broker.
    fn receive(self: &Arc<Hub>, filter: &str, payload: &[u8]) {
        // A broker that does not know `$` also matches these topics with wildcards.
        let is_presence = filter.starts_with(PRESENCE);
        match Payload::decode(payload) {
            Some(Payload::Message { topic, id, message })
                if filter::check_name(&topic).is_ok()
                    && filter::matches(filter, &topic)
                    && lock(&self.listened).contains_key(filter) =>
            {
                let rule = self.rule(&topic).clone();
                self.accept(Published::new(topic, id, message, rule), Some(filter.into()));
            }
            Some(Payload::Members { topic, node, members }) if is_presence && node != self.node => {
                let mut presence = lock(&self.presence);
                let changes = presence.hear(&topic, node, members, self.begun.elapsed());
                changes.into_iter().for_each(|change| self.announce(&topic, &change));
            }
            Some(Payload::Ask { topic, node }) if is_presence && node != self.node => self.tell_later(&topic),
            // Our own members, or bytes of another program.
            _ => {}
        }
    }

    fn receive_history(self: &Arc<Hub>, topic: &str, kept: Option<Vec<Vec<u8>>>) {
        let rule = self.rule(topic).clone();
        let Some(history) = lock(&self.histories).get(topic).cloned() else { return };
        let kept = kept.map(|kept| {
            let messages = kept.iter().filter_map(|payload| match Payload::decode(payload) {
                Some(Payload::Message { topic: its, id, message }) if &*its == topic => {
                    Some(Published::new(its, id, message, rule.clone()))
                }
                _ => None,
            });
            messages.collect()
        });
        let topic: Arc<str> = topic.into();
        self.with_mailboxes(|hub| {
            let mut history = lock(&history);
            hub.change(&mut history, |history| {
                for published in history.complete(kept) {
                    hub.post(Item::Message(published, Some(topic.clone())));
                }
            });
            hub.post(Item::Complete(topic));
        });
    }

    fn set_connected(self: &Arc<Hub>, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
        if is_connected {
            let listened: Vec<_> = lock(&self.listened).keys().cloned().collect();
            listened.iter().filter_map(|filter| filter.strip_prefix(PRESENCE)).for_each(|topic| self.ask(topic));
            lock(&self.presence).topics_here().iter().for_each(|topic| self.tell_later(topic));
            return;
        }
        let histories: Vec<_> = lock(&self.histories).values().cloned().collect();
        for history in histories {
            lock(&history).is_complete = false;
        }
        self.with_mailboxes(|hub| hub.post(Item::Gap));
    }

    /// Tells the subscribers here, and other machines, of a change of the members here. The caller holds the lock of
    /// `presence`, so that all subscribers see all changes in one order.
    fn report(&self, topic: &Arc<str>, change: Option<Change>) {
        if let Some(change) = change {
            self.announce(topic, &change);
        }
        self.tell_later(topic);
    }

    /// Publishes a change of a topic's members to the subscribers here. The workers deliver it in their next turns, and
    /// not the caller, who holds the lock of `presence`.
    fn announce(&self, topic: &str, change: &Change) {
        let (topic, message) = (format!("{PRESENCE}{topic}").into(), Message::text(change.to_json()));
        let published = Published::new(topic, self.next_id(), message, self.presence_rule.clone());
        self.post(Item::Message(Arc::new(published), None));
    }

    /// Lets the heartbeat's thread tell other machines of the members here.
    fn tell_later(&self, topic: &Arc<str>) {
        if let Some(changed) = &*lock(&self.changed) {
            // Fails only if the thread has ended.
            let _ = changed.send(topic.clone());
        }
    }

    fn tell(&self, topic: &Arc<str>) {
        if let Some(broker) = &self.broker {
            let members = lock(&self.presence).here(topic);
            let payload = Payload::Members { topic: topic.clone(), node: self.node, members }.encode();
            // If this fails, the next heartbeat tells them.
            let _ = broker.publish(&format!("{PRESENCE}{topic}"), payload, 0);
        }
    }

    /// Starts the thread that tells other machines of the members here, and forgets those of silent machines.
    fn start_heartbeat(self: &Arc<Hub>) {
        let (sender, receiver) = mpsc::channel::<Arc<str>>();
        *lock(&self.changed) = Some(sender);
        let hub = Arc::downgrade(self);
        let heartbeat = move || {
            let mut next = Instant::now() + HEARTBEAT;
            loop {
                let received = receiver.recv_timeout(next.saturating_duration_since(Instant::now()));
                if received == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                let mut topics: Vec<_> = received.into_iter().collect();
                if !topics.is_empty() {
                    std::thread::sleep(GATHERED);
                    topics.extend(receiver.try_iter());
                }
                let Some(hub) = hub.upgrade() else { return };
                if Instant::now() >= next {
                    next = Instant::now() + HEARTBEAT;
                    topics.extend(lock(&hub.presence).topics_here());
                    let mut presence = lock(&hub.presence);
                    let changes = presence.expire(hub.begun.elapsed());
                    changes.into_iter().for_each(|(topic, change)| hub.announce(&topic, &change));
                }
                topics.sort();
                topics.dedup();
                topics.iter().for_each(|topic| hub.tell(topic));
            }
        };
        let started = std::thread::Builder::new().name("highwire-topics".into()).spawn(heartbeat);
        if let Err(error) = started {
            tracing::error!(%error, "the thread for presence cannot start; other machines do not see the members here");
        }
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

/// The reason why a message was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic's name is invalid.
    Topic(InvalidTopic),
    /// Only text and binary messages can be published.
    NotData,
    /// The message was not given to the broker.
    Broker(BrokerError),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishError::Topic(error) => error.fmt(f),
            PublishError::NotData => f.write_str("only text and binary messages can be published"),
            PublishError::Broker(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PublishError {}

impl From<InvalidTopic> for PublishError {
    fn from(error: InvalidTopic) -> PublishError {
        PublishError::Topic(error)
    }
}

impl From<BrokerError> for PublishError {
    fn from(error: BrokerError) -> PublishError {
        PublishError::Broker(error)
    }
}

/// The reason why a subscription was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The filter is invalid.
    Filter(InvalidTopic),
    /// Only a topic that has a history can be resumed, and no filter with a wildcard.
    NoHistory,
    /// The WebSocket has 1,000 subscriptions.
    TooMany,
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubscribeError::Filter(error) => error.fmt(f),
            SubscribeError::NoHistory => {
                f.write_str("only a topic that has a history can be resumed, and no filter with a wildcard")
            }
            SubscribeError::TooMany => f.write_str("a WebSocket has at most 1,000 subscriptions"),
        }
    }
}

impl std::error::Error for SubscribeError {}

impl From<InvalidTopic> for SubscribeError {
    fn from(error: InvalidTopic) -> SubscribeError {
        SubscribeError::Filter(error)
    }
}

/// The reason why a member could not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinError {
    /// The topic's name is invalid.
    Topic(InvalidTopic),
    /// The name or the information is longer than 256 bytes.
    TooLong,
    /// The topic has 1,000 members on this machine.
    Full,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Topic(error) => error.fmt(f),
            JoinError::TooLong => f.write_str("a member's name and information have at most 256 bytes"),
            JoinError::Full => f.write_str("the topic has 1,000 members on this machine"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<InvalidTopic> for JoinError {
    fn from(error: InvalidTopic) -> JoinError {
        JoinError::Topic(error)
    }
}
