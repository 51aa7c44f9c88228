//! The last messages of a topic.

use super::message::{MessageId, Published};
use std::collections::VecDeque;
use std::sync::Arc;

/// The most bytes that the messages of a history may hold, except that one message may always be kept.
const HISTORY_BYTES: usize = 4 * 1024 * 1024;

/// The beginning of a subscription. [`Last`](Start::Last) and [`After`](Start::After) need a filter without a wildcard,
/// whose topic has a history ([`Topic::history`](super::Topic::history)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the next message.
    #[default]
    Next,
    /// With up to this many messages of the history.
    Last(usize),
    /// After the message with this ID. If the history does not contain it, all messages of the history are delivered,
    /// and the first of them is marked as [`missed`](super::Delivery::missed).
    After(MessageId),
}

/// The last messages of a topic, joined with those of a broker.
pub(super) struct History {
    most: usize,
    messages: VecDeque<Arc<Published>>,
    /// The bytes that the messages hold.
    bytes: usize,
    /// The place of the last message that was added. A new history does not begin with 0, because subscribers may know
    /// places of an earlier history.
    place: u64,
    /// True until the history is complete for the first time.
    is_new: bool,
    /// True once the broker's messages are known.
    pub(super) is_complete: bool,
    /// The messages that arrived while the history was not complete.
    early: VecDeque<Published>,
    /// True if messages after the last one were lost.
    has_gap: bool,
    /// The number of subscribers in this process.
    pub(super) listeners: usize,
    /// True after the topic has dropped this history.
    pub(super) is_forgotten: bool,
}

impl History {
    /// Creates an empty history, whose places follow `place`.
    pub(super) fn new(most: usize, is_complete: bool, place: u64) -> History {
        let (messages, early) = (VecDeque::new(), VecDeque::new());
        let is_new = !is_complete;
        let (has_gap, listeners, is_forgotten) = (false, 0, false);
        History { most, messages, bytes: 0, place, is_new, is_complete, early, has_gap, listeners, is_forgotten }
    }

    /// Returns about how many bytes the messages hold.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the oldest messages until at most `most` are left and their bytes are within the bound.
    pub(super) fn trim(&mut self, most: usize) {
        while self.messages.len() > most || (self.bytes > HISTORY_BYTES && self.messages.len() > 1) {
            let Some(oldest) = self.messages.pop_front() else { return };
            self.bytes -= oldest.kept_cost();
        }
    }

    /// Appends a message. Returns it with its place.
    pub(super) fn append(&mut self, mut published: Published) -> Arc<Published> {
        self.place += 1;
        published.place = self.place;
        published.follows_gap |= std::mem::take(&mut self.has_gap);
        let published = Arc::new(published);
        self.bytes += published.kept_cost();
        self.messages.push_back(published.clone());
        self.trim(self.most);
        published
    }

    /// Adds a message from the broker. Returns it with its place if the history is complete; otherwise, keeps it until
    /// [`complete`](Self::complete).
    pub(super) fn receive(&mut self, published: Published) -> Option<Arc<Published>> {
        if self.is_complete {
            return Some(self.append(published));
        }
        if self.early.len() >= self.most {
            self.early.pop_front();
        }
        self.early.push_back(published);
        None
    }

    /// Completes the history with the last messages that the broker has, oldest first. They are `None` if the broker
    /// keeps none; then the history begins anew. Returns the messages that are new here.
    pub(super) fn complete(&mut self, kept: Option<Vec<Published>>) -> Vec<Arc<Published>> {
        let mut early = std::mem::take(&mut self.early);
        let mut fresh = kept.unwrap_or_default();
        // A message that arrived before the broker's last kept one is among the kept ones, or older.
        let last_kept = early.iter().rposition(|published| fresh.iter().any(|kept| kept.id == published.id));
        early.drain(..last_kept.map_or(0, |at| at + 1));
        // A broker that was restored from a backup may lack the newest known messages.
        match fresh.iter().rposition(|published| self.messages.iter().any(|known| known.id == published.id)) {
            Some(at) => drop(fresh.drain(..=at)),
            // Nothing shows which messages are missing between the known ones and these.
            None if !self.is_new => {
                (self.messages, self.bytes) = (VecDeque::new(), 0);
                self.has_gap = true;
            }
            None => {}
        }
        fresh.extend(early);
        (self.is_complete, self.is_new) = (true, false);
        fresh.into_iter().map(|published| self.append(published)).collect()
    }

    /// Returns the messages with which a subscription begins, true if messages before them were lost, and the place of
    /// the last message.
    pub(super) fn since(&self, start: Start) -> (impl Iterator<Item = Arc<Published>>, bool, u64) {
        let (skipped, missed) = match start {
            Start::Next => (self.messages.len(), self.has_gap),
            Start::Last(count) => (self.messages.len().saturating_sub(count), self.has_gap),
            Start::After(id) => match self.messages.iter().rposition(|published| published.id == id) {
                Some(at) => (at + 1, self.has_gap),
                None => (0, true),
            },
        };
        (self.messages.iter().skip(skipped).cloned(), missed, self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{Rule, Topic};
    use super::*;
    use crate::ws::Message;

    fn published(number: u64) -> Published {
        let rule = Arc::new(Rule::new("#", Topic::new()));
        Published::new("a".into(), MessageId { node: 1, number }, Message::text(number.to_string()), rule)
    }

    fn numbers(messages: impl Iterator<Item = Arc<Published>>) -> Vec<(u64, u64, bool)> {
        messages.map(|published| (published.id.number, published.place, published.follows_gap)).collect()
    }

    #[test]
    fn a_subscription_begins_where_it_wants() {
        let mut history = History::new(3, true, 0);
        for number in 10..15 {
            history.append(published(number));
        }
        for (start, expected, expected_missed) in [
            (Start::Next, &[][..], false),
            (Start::Last(2), &[13, 14], false),
            (Start::Last(100), &[12, 13, 14], false),
            (Start::After(MessageId { node: 1, number: 14 }), &[], false),
            (Start::After(MessageId { node: 1, number: 12 }), &[13, 14], false),
            (Start::After(MessageId { node: 1, number: 11 }), &[12, 13, 14], true),
            (Start::After(MessageId { node: 2, number: 12 }), &[12, 13, 14], true),
        ] {
            let (messages, missed, place) = history.since(start);
            let found: Vec<_> = messages.map(|published| published.id.number).collect();
            assert_eq!((&found[..], missed, place), (expected, expected_missed, 5), "{start:?}");
        }
    }

    #[test]
    fn the_messages_of_a_broker_continue_the_known_ones() {
        let mut history = History::new(4, false, 0);
        assert!(history.receive(published(3)).is_none(), "the history is not complete");
        let fresh = history.complete(Some(vec![published(1), published(2), published(3)]));
        assert_eq!(numbers(fresh.into_iter()), [(1, 1, false), (2, 2, false), (3, 3, false)]);
        assert_eq!(history.receive(published(4)).map(|published| published.place), Some(4));
        // The connection is lost; then the broker has what was missed.
        history.is_complete = false;
        history.receive(published(7));
        let fresh = history.complete(Some((3..=6).map(published).collect()));
        assert_eq!(numbers(fresh.into_iter()), [(5, 5, false), (6, 6, false), (7, 7, false)]);
        // The broker no longer has the last known message.
        history.is_complete = false;
        let fresh = history.complete(Some((9..=10).map(published).collect()));
        assert_eq!(numbers(fresh.into_iter()), [(9, 8, true), (10, 9, false)]);
        assert_eq!(numbers(history.since(Start::Last(9)).0), [(9, 8, true), (10, 9, false)]);
        // It was restored from a backup, and lacks the newest known message.
        history.is_complete = false;
        let fresh = history.complete(Some([9, 11].map(published).into()));
        assert_eq!(numbers(fresh.into_iter()), [(11, 10, false)]);
        // More messages than are kept have arrived while the history was requested.
        history.is_complete = false;
        (12..=16).for_each(|number| drop(history.receive(published(number))));
        let fresh = history.complete(Some((11..=14).map(published).collect()));
        let found: Vec<_> = fresh.iter().map(|published| published.id.number).collect();
        assert_eq!(found, [12, 13, 14, 15, 16]);
        // A broker without a history.
        history.is_complete = false;
        assert!(history.complete(None).is_empty());
        assert!(history.since(Start::After(MessageId { node: 1, number: 16 })).1, "it cannot be resumed");
        assert_eq!(history.receive(published(18)).map(|published| published.follows_gap), Some(true));
    }

    #[test]
    fn the_bytes_of_a_history_are_bounded() {
        let mut history = History::new(1000, true, 0);
        for number in 0..20 {
            let rule = Arc::new(Rule::new("#", Topic::new()));
            let message = Message::text("x".repeat(1_000_000));
            history.append(Published::new("a".into(), MessageId { node: 1, number }, message, rule));
            assert!(history.bytes() <= HISTORY_BYTES, "{}", history.bytes());
        }
        assert!(!history.messages.is_empty());
        history.trim(0);
        assert_eq!((history.messages.len(), history.bytes()), (0, 0));
    }
}
