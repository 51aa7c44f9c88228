//! The state of topics that all workers share: who must get a message, histories, presence, and the broker.

use super::broker::{Broker, Payload};
use super::delivery::{Item, Token};
use super::error::PublishError;
use super::filter::{self, InvalidTopic, PRESENCE};
use super::histories::{Histories, Kept};
use super::history::Start;
use super::local::{Local, Mailbox};
use super::lock::lock;
use super::memory::Memory;
use super::message::{MessageId, Published};
use super::pace::publishing;
use super::presence::{self, Change};
use super::settings::{Rule, SlowReader, Topic};
use super::subscriber::Subscriber;
use crate::ws::Message;
use arc_swap::ArcSwap;
use highwire_io::random;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time during which changes of the members here are collected before the broker gets them for other machines.
const GATHERED: Duration = Duration::from_millis(200);

/// The most bytes about members that the broker gets in each such time. Peers choose how many topics they join and
/// leave; the rest waits.
const GATHERED_BYTES: usize = 256 * 1024;

/// About the number of bytes of a question for members.
const ASK_BYTES: usize = 64;

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
    pub(super) histories: Histories,
    /// The memory of all messages.
    pub(super) memory: Arc<Memory>,
    pub(super) presence: Mutex<presence::Presence>,
    /// The number of listeners in this process to each filter. Only with a broker.
    listened: Mutex<HashMap<String, usize>>,
    pub(super) broker: Option<Box<dyn Broker>>,
    pub(super) is_connected: AtomicBool,
    /// The work of the thread that tells other machines of members; `None` without a broker.
    news: Option<Arc<News>>,
    begun: Instant,
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(news) = &self.news {
            news.end();
        }
    }
}

impl Hub {
    pub(super) fn new(rules: Vec<Arc<Rule>>, broker: Option<Box<dyn Broker>>, idle_bytes: usize) -> Hub {
        let memory = Arc::new(Memory::default());
        let news = broker.as_ref().map(|_| Arc::default());
        Hub {
            rules,
            // A subscriber that misses a change would have a wrong list of members for ever.
            presence_rule: Arc::new(Rule::new("$presence/#", Topic::new().slow_reader(SlowReader::Disconnect))),
            node: random::system(),
            number: AtomicU64::new(0),
            mailboxes: ArcSwap::default(),
            histories: Histories::new(memory.clone(), idle_bytes, broker.is_none()),
            memory,
            presence: Mutex::default(),
            listened: Mutex::default(),
            broker,
            is_connected: AtomicBool::new(false),
            news,
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
        let (id, rule, token) = (self.next_id(), self.rule(topic), publishing(self));
        if let Some(broker) = &self.broker {
            let payload = Payload::Message { topic: topic.into(), id, message }.encode();
            broker.publish(topic, payload, rule.settings.history)?;
        } else {
            let published = Published::new(topic.into(), id, message, rule.clone());
            self.accept(published, None, token).map_err(|()| PublishError::NoMemory)?;
        }
        Ok(id)
    }

    /// Returns true if so much waits to be delivered on a worker that publishers must be slowed down.
    pub(crate) fn is_behind(&self) -> bool {
        self.mailboxes.load().iter().any(|mailbox| mailbox.is_behind())
    }

    /// Charges the memory budget for a message. If it has no room, evicts histories. Returns false if there is no room
    /// even then.
    fn charge(&self, published: &mut Published) -> bool {
        loop {
            if published.charge(&self.memory) {
                return true;
            }
            let kept = self.memory.kept.load(Ordering::Relaxed);
            if kept == 0 || !self.histories.shrink(kept / 2) {
                highwire_engine::log!(Memory, warn, "a published message does not fit the memory budget; it is lost");
                return false;
            }
        }
    }

    /// Delivers a message to the subscribers here: to those whose filter matches its topic, or only to those of
    /// `filter`. Fails if there is no memory for it.
    fn accept(
        self: &Arc<Hub>,
        mut published: Published,
        filter: Option<Arc<str>>,
        token: Option<Token>,
    ) -> Result<(), ()> {
        let rule = published.rule.clone();
        if !self.charge(&mut published) {
            return Err(());
        }
        rule.published.fetch_add(1, Ordering::Relaxed);
        let has_history = rule.settings.history > 0 && filter.as_ref().is_none_or(|filter| *filter == published.topic);
        self.with_mailboxes(|hub| {
            if !has_history {
                return hub.post(Item::Message(Arc::new(published), filter, token));
            }
            // With a broker, `listen` creates the history for the first listener, and `unlisten` drops it after the
            // last.
            let kept = match filter {
                Some(_) => hub.histories.find(&published.topic),
                None => Some(hub.history(&published.topic, &rule)),
            };
            let Some(kept) = kept else { return };
            hub.histories.note_use(&kept, hub.number.load(Ordering::Relaxed));
            // The lock is held until all workers have the message, so that they all have the same order.
            hub.histories.change(&kept, |history| {
                if let Some(published) = history.receive(published) {
                    hub.post(Item::Message(published, filter, token));
                }
            });
            hub.histories.keep_bounds();
        });
        Ok(())
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
    pub(super) fn history(&self, topic: &Arc<str>, rule: &Rule) -> Arc<Kept> {
        self.histories.get(topic, rule, self.number.load(Ordering::Relaxed))
    }

    /// Gives a subscriber the messages of a topic's history. Returns their number.
    pub(super) fn replay(&self, topic: &str, start: Start, subscriber: &Subscriber) -> usize {
        let kept = self.histories.find(topic);
        kept.map_or(0, |kept| kept.read(|history| subscriber.replay(history, start)))
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
        if let Some((topic, news)) = filter.strip_prefix(PRESENCE).zip(self.news.as_ref()) {
            news.add(topic, false);
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
            self.histories.forget(filter);
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
        // A broker that does not know `$` also matches these topics with wildcards. Members count only if they come
        // under a presence filter that this process listens to: others could be forged.
        let listened = filter.strip_prefix(PRESENCE).filter(|_| lock(&self.listened).contains_key(filter));
        let is_of = |topic: &str| listened.is_some_and(|listened| filter::matches(listened, topic));
        match Payload::decode(payload) {
            Some(Payload::Message { topic, id, message })
                if filter::check_name(&topic).is_ok()
                    && filter::matches(filter, &topic)
                    && lock(&self.listened).contains_key(filter) =>
            {
                let rule = self.rule(&topic).clone();
                // Without memory for it, the message is lost, which is logged.
                let _ = self.accept(Published::new(topic, id, message, rule), Some(filter.into()), None);
            }
            Some(Payload::Members { topic, node, members }) if is_of(&topic) && node != self.node => {
                let mut presence = lock(&self.presence);
                let changes = presence.hear(&topic, node, members, self.begun.elapsed());
                changes.into_iter().for_each(|change| self.announce(&topic, &change));
            }
            Some(Payload::Ask { topic, node }) if is_of(&topic) && node != self.node => self.tell_later(&topic),
            // This machine's own members, or bytes of another program.
            _ => {}
        }
    }

    pub(super) fn receive_history(self: &Arc<Hub>, topic: &str, kept: Option<Vec<Vec<u8>>>) {
        let rule = self.rule(topic).clone();
        let Some(history) = self.histories.find(topic) else { return };
        let kept = kept.map(|kept| {
            // A broker may have kept more than these topics keep.
            let last = &kept[kept.len().saturating_sub(rule.settings.history)..];
            let messages = last.iter().filter_map(|payload| match Payload::decode(payload) {
                Some(Payload::Message { topic: its, id, message }) if &*its == topic => {
                    let mut published = Published::new(its, id, message, rule.clone());
                    self.charge(&mut published).then_some(published)
                }
                _ => None,
            });
            messages.collect()
        });
        let topic: Arc<str> = topic.into();
        self.with_mailboxes(|hub| {
            hub.histories.change(&history, |history| {
                for published in history.complete(kept) {
                    hub.post(Item::Message(published, Some(topic.clone()), None));
                }
            });
            hub.histories.keep_bounds();
            hub.post(Item::Complete(topic));
        });
    }

    pub(super) fn set_connected(self: &Arc<Hub>, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
        if is_connected {
            let listened: Vec<_> = lock(&self.listened).keys().cloned().collect();
            let topics = listened.iter().filter_map(|filter| filter.strip_prefix(PRESENCE));
            self.news.iter().for_each(|news| topics.clone().for_each(|topic| news.add(topic, false)));
            lock(&self.presence).topics_here().iter().for_each(|topic| self.tell_later(topic));
            return;
        }
        for kept in self.histories.all() {
            self.histories.change(&kept, |history| history.is_complete = false);
        }
        self.with_mailboxes(|hub| hub.post(Item::Gap));
    }

    /// Tells the subscribers here, and other machines, of a change of this machine's members. The caller holds the lock
    /// of `presence`, so that all subscribers see all changes in one order.
    pub(super) fn report(&self, topic: &Arc<str>, change: Option<Change>) {
        if let Some(change) = change {
            self.announce(topic, &change);
        }
        self.tell_later(topic);
    }

    /// Publishes a change of a topic's members to the subscribers here. The workers deliver it in their next turns; the
    /// caller must not, because it holds the lock of `presence`.
    fn announce(&self, topic: &str, change: &Change) {
        let (topic, message) = (format!("{PRESENCE}{topic}").into(), Message::text(change.to_json()));
        let mut published = Published::new(topic, self.next_id(), message, self.presence_rule.clone());
        if self.charge(&mut published) {
            self.post(Item::Message(Arc::new(published), None, None));
        } else {
            self.post(Item::Missed(published.topic));
        }
    }

    /// Lets the heartbeat's thread tell other machines of this machine's members.
    fn tell_later(&self, topic: &Arc<str>) {
        if let Some(news) = &self.news {
            news.add(topic, true);
        }
    }

    /// Tells other machines of the members here. Returns about how many bytes they get.
    fn tell(&self, topic: &Arc<str>, told: &mut HashSet<Arc<str>>) -> usize {
        let Some(broker) = &self.broker else { return 0 };
        let members = lock(&self.presence).here(topic);
        // If all members have left before other machines were told of them, there is nothing to tell.
        if !members.is_empty() {
            told.insert(topic.clone());
        } else if !told.remove(topic) {
            return 0;
        }
        let payload = Payload::Members { topic: topic.clone(), node: self.node, members }.encode();
        let bytes = payload.len() + topic.len();
        // If this fails, the next heartbeat tells them.
        let _ = broker.publish(&format!("{PRESENCE}{topic}"), payload, 0);
        bytes
    }

    /// Starts the thread that tells other machines of the members here, asks for theirs, and forgets those of silent
    /// machines.
    pub(super) fn start_heartbeat(self: &Arc<Hub>) {
        let (hub, news) = (Arc::downgrade(self), self.news.clone().unwrap_or_default());
        let heartbeat = move || {
            let mut next = Instant::now() + HEARTBEAT;
            let mut told = HashSet::new();
            while news.wait(next) {
                std::thread::sleep(GATHERED);
                let Some(hub) = hub.upgrade() else { return };
                if Instant::now() >= next {
                    next = Instant::now() + HEARTBEAT;
                    let here = lock(&hub.presence).topics_here();
                    here.iter().for_each(|topic| news.add(topic, true));
                    let mut presence = lock(&hub.presence);
                    let changes = presence.expire(hub.begun.elapsed());
                    changes.into_iter().for_each(|(topic, change)| hub.announce(&topic, &change));
                }
                let mut bytes = 0;
                while bytes < GATHERED_BYTES
                    && let Some((topic, is_told)) = news.take()
                {
                    if is_told {
                        bytes += hub.tell(&topic, &mut told);
                    } else if lock(&hub.listened).contains_key(&format!("{PRESENCE}{topic}")) {
                        hub.ask(&topic);
                        bytes += ASK_BYTES;
                    }
                }
            }
        };
        let started = std::thread::Builder::new().name("highwire-topics".into()).spawn(heartbeat);
        if let Err(error) = started {
            tracing::error!(%error, "the thread for presence cannot start; other machines do not see the members here");
        }
    }
}

/// The topics of which other machines must be told, or asked, without duplicates: peers that join and leave cause at
/// most one of each per topic.
#[derive(Default)]
struct News {
    topics: Mutex<Gathered>,
    more: Condvar,
}

#[derive(Default)]
struct Gathered {
    /// The topics. The second value is true if this machine tells others of its members, and false if it asks for theirs.
    topics: BTreeSet<(Arc<str>, bool)>,
    /// The last topic that was taken, so that topics later in the order have their turn.
    last: Option<(Arc<str>, bool)>,
    has_ended: bool,
}

impl News {
    fn add(&self, topic: &str, is_told: bool) {
        let mut gathered = lock(&self.topics);
        if gathered.topics.is_empty() {
            self.more.notify_one();
        }
        gathered.topics.insert((topic.into(), is_told));
    }

    fn end(&self) {
        lock(&self.topics).has_ended = true;
        self.more.notify_one();
    }

    /// Waits for news, at most until a deadline. Returns false if the topics are gone.
    fn wait(&self, until: Instant) -> bool {
        let gathered = lock(&self.topics);
        let rest = until.saturating_duration_since(Instant::now());
        let waits = |gathered: &mut Gathered| gathered.topics.is_empty() && !gathered.has_ended;
        let waited = self.more.wait_timeout_while(gathered, rest, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    fn take(&self) -> Option<(Arc<str>, bool)> {
        let mut gathered = lock(&self.topics);
        let behind =
            gathered.last.take().and_then(|last| gathered.topics.range((Excluded(last), Unbounded)).next().cloned());
        let next = behind.or_else(|| gathered.topics.first().cloned())?;
        gathered.topics.remove(&next);
        gathered.last = Some(next.clone());
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A topic that changed again and again was once taken again and again, before those behind it.
    #[test]
    fn a_topic_that_is_added_again_lets_the_next_one_have_its_turn() {
        let news = News::default();
        for topic in ["a", "b", "c"] {
            news.add(topic, true);
        }
        let take = || {
            let (topic, is_told) = news.take().expect("a topic");
            news.add(&topic, is_told);
            topic
        };
        assert_eq!([take(), take(), take(), take()].map(|topic| topic.to_string()), ["a", "b", "c", "a"]);
    }
}
