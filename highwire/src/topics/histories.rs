//! The histories of all topics, and the bounds on their number and their bytes.

use super::history::History;
use super::lock::lock;
use super::memory::Memory;
use super::settings::Rule;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The most topics that have a history. Beyond it, the least recently used histories are evicted.
const HISTORIES: usize = 10_000;

/// The default limit on the bytes of all histories of topics without a subscriber.
pub(super) const IDLE_BYTES: usize = 4 * 1024 * 1024;

/// When a bound is exceeded, histories are evicted until 1/`FREED_PART` of it is free, so that a search among all
/// topics is rare.
const FREED_PART: usize = 8;

/// A history that the workers share.
pub(super) struct Kept {
    history: Mutex<History>,
    /// The number of the hub's last message when the history was last used.
    used: AtomicU64,
    bytes: AtomicUsize,
    has_listeners: AtomicBool,
}

impl Kept {
    /// Locks the history to read it. [`Histories::change`] changes it.
    pub(super) fn read<R>(&self, read: impl FnOnce(&History) -> R) -> R {
        read(&lock(&self.history))
    }
}

pub(super) struct Histories {
    topics: Mutex<HashMap<Arc<str>, Arc<Kept>>>,
    /// The number of topics.
    count: AtomicUsize,
    /// The bytes of the histories of topics that have no subscriber.
    idle: AtomicUsize,
    idle_most: usize,
    memory: Arc<Memory>,
    /// True if histories are complete from the start, because no broker has earlier messages.
    are_complete: bool,
}

impl Histories {
    pub(super) fn new(memory: Arc<Memory>, idle_most: usize, are_complete: bool) -> Histories {
        let (count, idle) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Histories { topics: Mutex::default(), count, idle, idle_most, memory, are_complete }
    }

    /// Returns the history of a topic, if it has one now.
    pub(super) fn find(&self, topic: &str) -> Option<Arc<Kept>> {
        lock(&self.topics).get(topic).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Kept>> {
        lock(&self.topics).values().cloned().collect()
    }

    /// Returns the history of a topic, possibly a new one. `place` is the number of messages of the hub so far: no
    /// subscriber has seen a message whose place is above it.
    pub(super) fn get(&self, topic: &Arc<str>, rule: &Rule, place: u64) -> Arc<Kept> {
        let mut topics = lock(&self.topics);
        let make = || {
            Arc::new(Kept {
                history: Mutex::new(History::new(rule.settings.history, self.are_complete, place)),
                used: AtomicU64::new(place),
                bytes: AtomicUsize::new(0),
                has_listeners: AtomicBool::new(false),
            })
        };
        let kept = topics.entry(topic.clone()).or_insert_with(make).clone();
        self.count.store(topics.len(), Ordering::Relaxed);
        kept
    }

    /// Changes a history under its lock, and counts its bytes.
    pub(super) fn change<R>(&self, kept: &Kept, change: impl FnOnce(&mut History) -> R) -> R {
        let mut history = lock(&kept.history);
        let count = |history: &History| (history.bytes(), if history.listeners == 0 { history.bytes() } else { 0 });
        let (bytes_before, idle_before) = count(&history);
        let result = change(&mut history);
        if history.is_forgotten {
            history.trim(0);
        }
        let (bytes, idle) = count(&history);
        self.memory.kept.fetch_add(bytes, Ordering::Relaxed);
        self.memory.kept.fetch_sub(bytes_before, Ordering::Relaxed);
        self.idle.fetch_add(idle, Ordering::Relaxed);
        self.idle.fetch_sub(idle_before, Ordering::Relaxed);
        kept.bytes.store(bytes, Ordering::Relaxed);
        kept.has_listeners.store(history.listeners > 0, Ordering::Relaxed);
        result
    }

    /// Records that a history was used when the hub had this number of messages.
    pub(super) fn note_use(&self, kept: &Kept, number: u64) {
        kept.used.store(number, Ordering::Relaxed);
    }

    /// Removes the history of a topic. Code that still holds the history finds it empty.
    pub(super) fn forget(&self, topic: &str) {
        let mut topics = lock(&self.topics);
        let removed = topics.remove(topic);
        self.count.store(topics.len(), Ordering::Relaxed);
        drop(topics);
        removed.into_iter().for_each(|kept| self.change(&kept, |history| history.is_forgotten = true));
    }

    /// Evicts histories if there are too many, or if they hold too many bytes. The caller must hold no history's lock.
    pub(super) fn keep_bounds(&self) {
        let most = self.memory.histories_limit();
        let (kept, idle) = (self.memory.kept.load(Ordering::Relaxed), self.idle.load(Ordering::Relaxed));
        if kept > most || idle > self.idle_most || self.count.load(Ordering::Relaxed) > HISTORIES {
            self.shrink(most - most / FREED_PART);
        }
    }

    /// Evicts histories until all together hold at most `most` bytes: those of topics without a subscriber first, and
    /// of these the least recently used. Returns false if there was nothing to evict.
    pub(super) fn shrink(&self, most: usize) -> bool {
        let mut topics = lock(&self.topics);
        let mut oldest: Vec<_> = topics
            .iter()
            .map(|(topic, kept)| {
                let has_listeners = kept.has_listeners.load(Ordering::Relaxed);
                (has_listeners, kept.used.load(Ordering::Relaxed), topic.clone(), kept.clone())
            })
            .collect();
        oldest.sort_unstable_by_key(|(has_listeners, used, ..)| (*has_listeners, *used));
        let (idle_most, count_most) =
            (self.idle_most - self.idle_most / FREED_PART, HISTORIES - HISTORIES / FREED_PART);
        let mut has_dropped = false;
        for (has_listeners, _, topic, kept) in oldest {
            let is_above = self.memory.kept.load(Ordering::Relaxed) > most;
            let is_idle_above = self.idle.load(Ordering::Relaxed) > idle_most || topics.len() > count_most;
            if !is_above && (has_listeners || !is_idle_above) {
                break;
            }
            has_dropped |= kept.bytes.load(Ordering::Relaxed) > 0;
            if has_listeners {
                // Its subscribers remember places in it, so it is only emptied.
                self.change(&kept, |history| history.trim(0));
            } else {
                topics.remove(&topic);
                self.change(&kept, |history| history.is_forgotten = true);
            }
        }
        self.count.store(topics.len(), Ordering::Relaxed);
        has_dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{MessageId, Published};
    use super::super::settings::Topic;
    use super::*;
    use crate::ws::Message;

    struct Test {
        histories: Histories,
        number: u64,
    }

    impl Test {
        fn publish(&mut self, topic: &str, bytes: usize) {
            self.number += 1;
            let rule = Arc::new(Rule::new("#", Topic::new().history(10)));
            let kept = self.histories.get(&topic.into(), &rule, self.number);
            self.histories.note_use(&kept, self.number);
            let id = MessageId { node: 1, number: self.number };
            let message = Message::binary(vec![0; bytes]);
            let published = Published::new(topic.into(), id, message, rule);
            self.histories.change(&kept, |history| drop(history.append(published)));
            self.histories.keep_bounds();
        }

        fn bytes(&self, topic: &str) -> usize {
            self.histories.find(topic).map_or(0, |kept| kept.read(History::bytes))
        }
    }

    #[test]
    fn what_nobody_listens_to_is_dropped_first_and_the_longest_unused_before_others() {
        let memory = Arc::new(Memory::default());
        let mut test = Test { histories: Histories::new(memory.clone(), 1_100_000, true), number: 0 };
        test.publish("listened", 100_000);
        let listened = test.histories.find("listened").expect("a history");
        test.histories.change(&listened, |history| history.listeners += 1);
        for topic in ["a", "b", "a", "c"] {
            test.publish(topic, 100_000);
        }
        assert!(test.bytes("b") == 0 && test.bytes("a") > 0 && test.bytes("c") > 0 && test.bytes("listened") > 0);
        let total = ["a", "c", "listened"].map(|topic| test.bytes(topic)).iter().sum::<usize>();
        assert_eq!(memory.kept.load(Ordering::Relaxed), total);
        // The last subscriber leaves.
        test.histories.change(&listened, |history| history.listeners -= 1);
        test.histories.keep_bounds();
        assert_eq!(test.bytes("listened"), 0);
        assert!(test.histories.shrink(0));
        assert!(!test.histories.shrink(0), "nothing is left");
        assert_eq!((memory.kept.load(Ordering::Relaxed), test.histories.idle.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn topics_that_peers_name_are_bounded() {
        let mut test = Test { histories: Histories::new(Arc::default(), usize::MAX, true), number: 0 };
        for number in 0..HISTORIES + 10 {
            test.publish(&format!("t{number}"), 1);
        }
        assert!(lock(&test.histories.topics).len() <= HISTORIES);
        assert!(test.bytes(&format!("t{}", HISTORIES + 9)) > 0);
        assert_eq!(test.bytes("t0"), 0);
    }

    #[test]
    fn what_is_added_to_a_forgotten_history_is_not_kept() {
        let mut test = Test { histories: Histories::new(Arc::default(), usize::MAX, true), number: 0 };
        test.publish("a", 10);
        let kept = test.histories.find("a").expect("a history");
        test.histories.forget("a");
        let rule = Arc::new(Rule::new("#", Topic::new().history(10)));
        let published = Published::new("a".into(), MessageId { node: 1, number: 9 }, Message::text("late"), rule);
        test.histories.change(&kept, |history| drop(history.append(published)));
        assert_eq!(test.histories.memory.kept.load(Ordering::Relaxed), 0);
    }
}
