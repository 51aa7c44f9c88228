//! The state of topics that all workers share: who must get a message, histories, presence, and the broker.

use super::broker::{Broker, Payload};
use super::error::PublishError;
use super::filter::{self, InvalidTopic, PRESENCE};
use super::history::{History, Start};
use super::local::{Item, Local, Mailbox};
use super::message::{MessageId, Published};
use super::presence::{self, Change};
use super::settings::{Rule, Topic};
use super::subscriber::Subscriber;
use crate::ws::Message;
use arc_swap::ArcSwap;
use highwire_io::random;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most topics that have a history. Beyond it, the history of the topic that was not used for the longest time is
/// dropped.
const HISTORIES: usize = 10_000;

/// The number of topics among which the one to drop is searched, so that the search takes little time.
const SAMPLED: usize = 16;

/// The most bytes of all histories. Beyond it, each topic to which something is published keeps only that message.
const HISTORIES_BYTES: usize = 256 * 1024 * 1024;

/// The time during which changes of the members here are collected before the broker gets them for other machines.
const GATHERED: Duration = Duration::from_millis(200);

/// The interval of reports of the members here to other machines. Reports are sent even if there is no change.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The state that all workers share.
pub(crate) struct Hub {
    pub(super) rules: Vec<Arc<Rule>>,
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
    pub(super) presence: Mutex<presence::Presence>,
    /// The number of listeners in this process to each filter. Only with a broker.
    listened: Mutex<HashMap<String, usize>>,
    pub(super) broker: Option<Box<dyn Broker>>,
    pub(super) is_connected: AtomicBool,
    /// The way to the thread that tells other machines of the members here.
    changed: Mutex<Option<Sender<Arc<str>>>>,
    begun: Instant,
}

/// Locks a mutex. A panic while it was locked does not matter: all changes under these locks are complete at each call
/// that could panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(super) fn new(rules: Vec<Arc<Rule>>, broker: Option<Box<dyn Broker>>) -> Hub {
        Hub {
            rules,
            presence_rule: Arc::new(Rule::new("$presence/#", Topic::new())),
            node: random::system(),
            number: AtomicU64::new(0),
            mailboxes: ArcSwap::default(),
            histories: Mutex::default(),
            kept: AtomicUsize::new(0),
            presence: Mutex::default(),
            listened: Mutex::default(),
            broker,
            is_connected: AtomicBool::new(false),
            changed: Mutex::new(None),
            begun: Instant::now(),
        }
    }

    pub(super) fn rule(&self, topic: &str) -> &Arc<Rule> {
        self.rules.iter().find(|rule| filter::matches(&rule.filter, topic)).unwrap_or(&self.presence_rule)
    }

    /// Returns true if the filter is the name of a topic that has a history.
    pub(super) fn has_history(&self, filter: &str) -> Result<bool, InvalidTopic> {
        let has_wildcard = filter::check_filter(filter)?;
        Ok(!has_wildcard && self.rule(filter).settings.history > 0)
    }

    fn next_id(&self) -> MessageId {
        MessageId { node: self.node, number: self.number.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    pub(super) fn publish(self: &Arc<Hub>, topic: &str, message: Message) -> Result<MessageId, PublishError> {
        let (id, rule) = (self.next_id(), self.rule(topic));
        if let Some(broker) = &self.broker {
            let payload = Payload::Message { topic: topic.into(), id, message }.encode();
            broker.publish(topic, payload, rule.settings.history)?;
        } else {
            self.accept(Published::new(topic.into(), id, message, rule.clone()), None);
        }
        Ok(id)
    }

    /// Delivers a message to the subscribers here: to those whose filter matches its topic, or only to those of
    /// `filter`.
    fn accept(self: &Arc<Hub>, published: Published, filter: Option<Arc<str>>) {
        let rule = published.rule.clone();
        rule.published.fetch_add(1, Ordering::Relaxed);
        let has_history = rule.settings.history > 0 && filter.as_ref().is_none_or(|filter| *filter == published.topic);
        self.with_mailboxes(|hub| {
            if !has_history {
                return hub.post(Item::Message(Arc::new(published), filter));
            }
            // With a broker, `listen` creates the history for the first listener, and `unlisten` drops it after the
            // last.
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

    pub(super) fn add(&self, mailbox: Arc<Mailbox>) {
        self.mailboxes.rcu(|mailboxes| {
            let mut mailboxes = Vec::clone(mailboxes);
            mailboxes.push(mailbox.clone());
            mailboxes
        });
    }

    pub(super) fn remove(&self, mailbox: &Arc<Mailbox>) {
        self.mailboxes.rcu(|mailboxes| {
            let others = mailboxes.iter().filter(|other| !Arc::ptr_eq(other, mailbox));
            others.cloned().collect::<Vec<_>>()
        });
    }

    /// Returns the history of a topic, possibly a new one.
    pub(super) fn history(&self, topic: &Arc<str>, rule: &Rule) -> Arc<Mutex<History>> {
        let mut histories = lock(&self.histories);
        if let Some(history) = histories.get(topic) {
            return history.clone();
        }
        // With a broker, each topic with a history has a listener in this process, so none can be dropped.
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
    pub(super) fn replay(&self, topic: &str, start: Start, subscriber: &Subscriber) {
        let history = lock(&self.histories).get(topic).cloned();
        if let Some(history) = history {
            subscriber.replay(&lock(&history), start);
        }
    }

    /// Counts a listener to a filter. For the first one in this process, subscribes on the broker. Creates the topic's
    /// history before, so that the broker can complete it.
    pub(super) fn listen(&self, filter: &str, has_history: bool) {
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

    /// Stops counting a listener to a filter. After the last one in this process, unsubscribes on the broker.
    pub(super) fn unlisten(&self, filter: &str) {
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
    pub(super) fn receive(self: &Arc<Hub>, filter: &str, payload: &[u8]) {
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

    pub(super) fn receive_history(self: &Arc<Hub>, topic: &str, kept: Option<Vec<Vec<u8>>>) {
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

    pub(super) fn set_connected(self: &Arc<Hub>, is_connected: bool) {
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
    pub(super) fn report(&self, topic: &Arc<str>, change: Option<Change>) {
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
    pub(super) fn start_heartbeat(self: &Arc<Hub>) {
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
