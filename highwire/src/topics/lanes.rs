//! The items that wait on a worker: one queue (lane) per topic. The lanes take turns, round-robin.

use super::delivery::{Delivery, Item, MAILBOX_BYTES, MAILBOX_ITEMS};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The items and bytes that a lane may always have.
const LANE_ITEMS: usize = 64;
const LANE_BYTES: usize = 256 * 1024;

/// The lanes of a worker's topics.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: HashMap<Arc<str>, Lane>,
    /// The topics, in the order of their turns.
    order: VecDeque<Arc<str>>,
}

/// The items of a topic, in their order.
pub(super) struct Lane {
    pub(super) topic: Arc<str>,
    /// The item that is delivered in part.
    pub(super) unfinished: Option<Delivery>,
    /// The others. The second value is true if messages before the item were lost.
    items: VecDeque<(Item, bool)>,
    /// The sum of their costs.
    bytes: usize,
    /// True if messages after the last item were lost.
    pub(super) has_lost: bool,
}

impl Lane {
    fn new(topic: Arc<str>) -> Lane {
        Lane { topic, unfinished: None, items: VecDeque::new(), bytes: 0, has_lost: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unfinished.is_none() && self.items.is_empty()
    }

    /// Takes the next item. The second value is true if messages before it were lost.
    pub(super) fn pop(&mut self) -> Option<(Item, bool)> {
        let (item, follows_loss) = self.items.pop_front()?;
        self.bytes -= item.cost();
        Some((item, follows_loss))
    }
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Begins with an item that is delivered in part. There must be no lanes.
    pub(super) fn begin_with(&mut self, unfinished: Delivery) {
        if let Some(topic) = unfinished.item.topic().cloned() {
            self.order.push_back(topic.clone());
            self.lanes.insert(topic.clone(), Lane { unfinished: Some(unfinished), ..Lane::new(topic) });
        }
    }

    /// Adds an item to the lane of its topic. Returns a message for which the lane has no room: if `is_crowded`, each
    /// topic gets only its share of the worker's bounds.
    pub(super) fn add(&mut self, item: Item, is_crowded: bool) -> Option<Item> {
        let parts = self.lanes.len() + 1;
        let topic = item.topic()?;
        if !self.lanes.contains_key(topic) {
            self.order.push_back(topic.clone());
            self.lanes.insert(topic.clone(), Lane::new(topic.clone()));
        }
        let lane = self.lanes.get_mut(topic)?;
        let cost = item.cost();
        let is_full = lane.items.len() >= LANE_ITEMS.max(MAILBOX_ITEMS / parts)
            || lane.bytes + cost > LANE_BYTES.max(MAILBOX_BYTES / parts);
        if is_crowded && is_full && !lane.items.is_empty() && matches!(item, Item::Message(..)) {
            lane.has_lost = true;
            return Some(item);
        }
        lane.bytes += cost;
        lane.items.push_back((item, std::mem::take(&mut lane.has_lost)));
        None
    }

    /// Records that messages of some topics were lost after the waiting ones.
    pub(super) fn lose(&mut self, is_lost: impl Fn(&str) -> bool) {
        self.lanes.values_mut().filter(|lane| is_lost(&lane.topic)).for_each(|lane| lane.has_lost = true);
    }

    /// Takes the lane whose turn it is.
    pub(super) fn next(&mut self) -> Option<Lane> {
        self.lanes.remove(&self.order.pop_front()?)
    }

    /// Puts a lane behind the others, unless it is empty.
    pub(super) fn put_back(&mut self, lane: Lane) {
        if lane.is_empty() {
            return;
        }
        self.order.push_back(lane.topic.clone());
        self.lanes.insert(lane.topic.clone(), lane);
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{MessageId, Published};
    use super::super::settings::{Rule, Topic};
    use super::*;
    use crate::ws::Message;

    fn item(topic: &str, number: u64) -> Item {
        let rule = Arc::new(Rule::new("#", Topic::new()));
        let id = MessageId { node: 0, number };
        Item::Message(Arc::new(Published::new(topic.into(), id, Message::text("x"), rule)), None, None)
    }

    fn number(item: &Item) -> u64 {
        let Item::Message(published, ..) = item else { panic!("a message") };
        published.id.number
    }

    #[test]
    fn lanes_have_their_turns_and_keep_the_order_of_their_items() {
        let mut lanes = Lanes::default();
        for number in 1..=4 {
            ["a", "b", "c"][..(number as usize).min(3)]
                .iter()
                .for_each(|topic| drop(lanes.add(item(topic, number), false)));
        }
        let mut taken = Vec::new();
        while let Some(mut lane) = lanes.next() {
            let (item, follows_loss) = lane.pop().expect("no lane is empty");
            assert!(!follows_loss);
            taken.push(format!("{}{}", lane.topic, number(&item)));
            lanes.put_back(lane);
        }
        assert_eq!(taken.join(" "), "a1 b2 c3 a2 b3 c4 a3 b4 a4");
        assert!(lanes.is_empty());
    }

    #[test]
    fn a_topic_has_no_more_than_its_part_and_the_next_message_tells_of_the_loss() {
        let mut lanes = Lanes::default();
        assert!(lanes.add(item("small", 1), true).is_none());
        let most = (MAILBOX_ITEMS / 2) as u64;
        for number in 0..most + 10 {
            let parts_before = if number == 0 { 2 } else { 3 };
            let is_lost = number >= (MAILBOX_ITEMS / parts_before) as u64;
            assert_eq!(lanes.add(item("flood", number), true).is_some(), is_lost, "{number}");
        }
        assert!(lanes.add(item("flood", 0), false).is_none(), "there is room for all");
        assert!(lanes.add(item("flood", 0), true).is_some());
        assert!(lanes.add(item("small", 2), true).is_none(), "another topic has its own part");
        let (small, mut flood) = (lanes.next().expect("a lane"), lanes.next().expect("a lane"));
        assert!(!small.has_lost && flood.has_lost);
        assert_eq!(flood.pop().map(|(item, follows_loss)| (number(&item), follows_loss)), Some((0, false)));
        lanes.put_back(flood);
        assert!(lanes.add(item("flood", most), false).is_none());
        let mut flood = lanes.next().expect("a lane");
        let mut told = Vec::new();
        while let Some((item, follows_loss)) = flood.pop() {
            told.extend(follows_loss.then(|| number(&item)));
        }
        assert_eq!((told, flood.has_lost), (vec![0, most], false), "only messages behind lost ones tell of them");
    }
}
