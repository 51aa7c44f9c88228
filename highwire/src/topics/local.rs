//! The subscribers of one worker, and the mailbox through which other threads reach them.
//!
//! A worker makes at most [`DELIVERIES_A_TURN`] deliveries per turn, so that a message to thousands of subscribers, or
//! a flood of messages, leaves time for its other connections. The rest waits in one lane per topic, and the topics
//! take turns, so that a flood in one of them does not delay the others. A handler that publishes while much waits is
//! slowed down ([`pace`](super::pace)).

use super::delivery::{Delivery, Item, MAILBOX_BYTES, MAILBOX_ITEMS};
use super::filter::PRESENCE;
use super::hub::Hub;
use super::lanes::Lanes;
use super::subscriber::Subscriber;
use super::tree::{Key, Tree};
use highwire_engine::context;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

/// The numbers of items and of their bytes in a worker's mailbox above which publishers are slowed down.
const BEHIND_ITEMS: usize = 64;
const BEHIND_BYTES: usize = 1024 * 1024;

/// The most deliveries to subscribers per worker and turn. Each of them wakes a connection, which takes about 2 µs.
const DELIVERIES_A_TURN: usize = 256;

/// The most deliveries of a topic until another one has its turn.
const DELIVERIES_A_TOPIC: usize = 32;

/// Finding this many matching subscribers takes as long as one delivery.
const FOUND_A_DELIVERY: usize = 16;

/// The items for a worker.
pub(super) struct Mailbox {
    sender: Sender<Item>,
    items: AtomicUsize,
    bytes: AtomicUsize,
    /// True if an item did not fit.
    lost: AtomicBool,
    /// True from the first item until the worker begins to take the items, so that many items cost one wake.
    is_woken: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Mailbox {
    pub(super) fn push(&self, item: Item) {
        let cost = item.cost();
        let is_full = self.items.load(Ordering::Relaxed) >= MAILBOX_ITEMS
            || self.bytes.load(Ordering::Relaxed).saturating_add(cost) > MAILBOX_BYTES;
        if is_full && matches!(item, Item::Message(..)) {
            item.lose();
            self.lost.store(true, Ordering::Relaxed);
        } else {
            self.items.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(cost, Ordering::Relaxed);
            // Fails only if the worker has ended.
            let _ = self.sender.send(item);
        }
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.waker.get().into_iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Returns true if the mailbox is half full.
    fn is_crowded(&self) -> bool {
        let (items, bytes) = (self.items.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        items >= MAILBOX_ITEMS / 2 || bytes >= MAILBOX_BYTES / 2
    }

    /// Returns true if so much waits that publishers must be slowed down.
    pub(super) fn is_behind(&self) -> bool {
        self.items.load(Ordering::Relaxed) > BEHIND_ITEMS || self.bytes.load(Ordering::Relaxed) > BEHIND_BYTES
    }

    /// Stops counting an item that was delivered or dropped.
    fn count_done(&self, item: &Item) {
        self.items.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(item.cost(), Ordering::Relaxed);
    }
}

/// The subscribers of one worker. It lives as long as it has a subscription.
pub(super) struct Local {
    pub(super) hub: Arc<Hub>,
    tree: RefCell<Tree>,
    mailbox: Arc<Mailbox>,
    receiver: Receiver<Item>,
    /// True while items are delivered, so that a message which a subscriber publishes waits for its turn.
    is_delivering: Cell<bool>,
    /// The items that wait for a later turn.
    lanes: RefCell<Lanes>,
    /// The last turn, and the number of deliveries that may be made in it.
    turn: Cell<u32>,
    left: Cell<usize>,
}

thread_local! {
    /// The subscribers of each worker of this thread and each hub. A thread has several workers if its program embeds them.
    static LOCALS: RefCell<Vec<(Owner, Weak<Local>)>> = const { RefCell::new(Vec::new()) };
}

/// The number of a worker, and the address of a hub.
type Owner = (Option<u64>, *const Hub);

fn owner(hub: &Arc<Hub>) -> Owner {
    (context::current_worker(), Arc::as_ptr(hub))
}

impl Local {
    /// Returns the subscribers of this worker, if it has any.
    pub(super) fn get(hub: &Arc<Hub>) -> Option<Rc<Local>> {
        let owner = owner(hub);
        LOCALS.with_borrow(|locals| {
            let found = locals.iter().find(|(known, _)| *known == owner);
            found.and_then(|(_, local)| local.upgrade())
        })
    }

    /// Returns the subscribers of this worker, possibly none.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub(super) fn get_or_create(hub: &Arc<Hub>) -> Rc<Local> {
        if let Some(local) = Local::get(hub) {
            return local;
        }
        hub.memory.use_budget_here();
        let (sender, receiver) = mpsc::channel();
        let mailbox = Arc::new(Mailbox {
            sender,
            items: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            is_woken: AtomicBool::new(false),
            waker: OnceLock::new(),
        });
        let local = Rc::new(Local {
            hub: hub.clone(),
            tree: RefCell::default(),
            mailbox: mailbox.clone(),
            receiver,
            is_delivering: Cell::new(false),
            lanes: RefCell::default(),
            turn: Cell::default(),
            left: Cell::default(),
        });
        LOCALS.with_borrow_mut(|locals| locals.push((owner(hub), Rc::downgrade(&local))));
        let weak = Rc::downgrade(&local);
        context::spawn(poll_fn(move |cx| {
            let Some(local) = weak.upgrade() else { return Poll::Ready(()) };
            // Fails from the second time on: the waker of a task does not change.
            let _ = local.mailbox.waker.set(cx.waker().clone());
            local.deliver();
            Poll::Pending
        }));
        hub.add(mailbox);
        local
    }

    pub(super) fn add(&self, filter: &Rc<str>, subscriber: Rc<Subscriber>) -> Key {
        self.tree.borrow_mut().add(filter, subscriber)
    }

    pub(super) fn remove(&self, filter: &str, key: Key) {
        self.tree.borrow_mut().remove(filter, key);
    }

    /// Suppresses the wakes for items, because the caller will deliver them.
    pub(super) fn hold_wakes(&self) {
        self.mailbox.is_woken.store(true, Ordering::Relaxed);
    }

    /// Delivers the items of the mailbox, within the deliveries of this turn.
    pub(super) fn deliver(&self) {
        if self.is_delivering.replace(true) {
            // The `deliver` that is running takes these items, too.
            return;
        }
        let _guard = Delivering(&self.is_delivering);
        let turn = context::turn();
        if self.turn.replace(turn) != turn {
            self.left.set(DELIVERIES_A_TURN);
        }
        loop {
            self.mailbox.is_woken.swap(false, Ordering::AcqRel);
            self.deliver_in_order();
            let has_sorted_all = self.deliver_in_turns();
            if self.left.get() == 0 || !has_sorted_all {
                self.mailbox.is_woken.store(true, Ordering::Relaxed);
                // Without a waker, the task has not run yet, and delivers when it does.
                self.mailbox.waker.get().into_iter().for_each(context::wake_next_turn);
                return;
            }
            if self.mailbox.lost.swap(false, Ordering::Relaxed) {
                let mut all = Vec::new();
                self.tree.borrow().all(&mut all);
                all.iter().for_each(|subscriber| subscriber.miss(true));
            }
            if !self.mailbox.is_woken.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Delivers the items as they come, if none waits from an earlier turn.
    fn deliver_in_order(&self) {
        while self.left.get() > 0 && self.lanes.borrow().is_empty() {
            let Ok(item) = self.receiver.try_recv() else { return };
            if let Some(unfinished) = self.deliver_some(self.begin(item, false), usize::MAX) {
                self.lanes.borrow_mut().begin_with(unfinished);
            }
        }
    }

    /// Sorts the items by their topics, and delivers some of each topic after the other. Returns false if more items may have
    /// come than can be sorted in a turn.
    fn deliver_in_turns(&self) -> bool {
        let mut sorted = 0;
        while sorted < MAILBOX_ITEMS
            && let Ok(item) = self.receiver.try_recv()
        {
            sorted += 1;
            match &item {
                Item::Gap => {
                    // All subscribers learn of the gap now. Those with waiting messages learn of it again after these.
                    // Topics of presence lose nothing: the changes of members are found again.
                    let loses =
                        |topic: &str| !topic.starts_with(PRESENCE) && self.hub.rule(topic).settings.history == 0;
                    self.lanes.borrow_mut().lose(loses);
                    drop(self.deliver_some(self.begin(item, false), usize::MAX));
                }
                Item::Message(..) | Item::Complete(_) | Item::Missed(_) => {
                    let lost = self.lanes.borrow_mut().add(item, self.mailbox.is_crowded());
                    if let Some(lost) = lost {
                        lost.lose();
                        self.mailbox.count_done(&lost);
                    }
                }
            }
        }
        while self.left.get() > 0 {
            let Some(mut lane) = self.lanes.borrow_mut().next() else { break };
            let enough = self.left.get().saturating_sub(DELIVERIES_A_TOPIC);
            while self.left.get() > enough {
                let Some(delivery) = lane.unfinished.take().or_else(|| {
                    let (item, follows_loss) = lane.pop()?;
                    Some(self.begin(item, follows_loss))
                }) else {
                    break;
                };
                lane.unfinished = self.deliver_some(delivery, self.left.get().saturating_sub(enough));
            }
            if lane.is_empty() && std::mem::take(&mut lane.has_lost) {
                // No message follows that could report the loss.
                self.find(&lane.topic, |subscriber| subscriber.miss(true));
            }
            self.lanes.borrow_mut().put_back(lane);
        }
        sorted < MAILBOX_ITEMS
    }

    fn find(&self, topic: &str, work: impl Fn(&Subscriber)) {
        let mut subscribers = Vec::new();
        self.tree.borrow().matching(topic, &mut subscribers);
        self.spend(1 + subscribers.len() / FOUND_A_DELIVERY);
        subscribers.iter().for_each(|subscriber| work(subscriber));
    }

    /// Finds the subscribers of an item. `follows_loss` is true if messages before it were lost.
    fn begin(&self, item: Item, follows_loss: bool) -> Delivery {
        let (tree, mut subscribers) = (self.tree.borrow(), Vec::new());
        match &item {
            Item::Message(published, None, _) => tree.matching(&published.topic, &mut subscribers),
            Item::Message(_, Some(filter), _) => tree.of_filter(filter, &mut subscribers),
            Item::Missed(topic) => tree.matching(topic, &mut subscribers),
            Item::Complete(topic) => tree.of_filter(topic, &mut subscribers),
            Item::Gap => tree.all(&mut subscribers),
        }
        self.spend(1 + subscribers.len() / FOUND_A_DELIVERY);
        if let Some(topic) = item.topic().filter(|_| follows_loss) {
            // The lost messages may have been for other filters.
            self.find(topic, |subscriber| subscriber.miss(true));
        }
        Delivery { item, subscribers, done: 0 }
    }

    fn spend(&self, deliveries: usize) {
        self.left.set(self.left.get().saturating_sub(deliveries));
    }

    /// Delivers an item to its next subscribers, at most `most`. Returns the item if some are left.
    fn deliver_some(&self, mut delivery: Delivery, most: usize) -> Option<Delivery> {
        let end = delivery.done.saturating_add(most);
        // All subscribers must learn of a gap before they get a later message.
        let is_gap = matches!(delivery.item, Item::Gap);
        while let Some(subscriber) = delivery.subscribers.get(delivery.done) {
            if (self.left.get() == 0 || delivery.done >= end) && !is_gap {
                return Some(delivery);
            }
            self.spend(1);
            match &delivery.item {
                Item::Message(published, ..) => subscriber.deliver(published),
                Item::Complete(topic) => {
                    if let Some(start) = subscriber.take_start() {
                        self.spend(self.hub.replay(topic, start, subscriber));
                    }
                }
                Item::Missed(_) => subscriber.miss(true),
                Item::Gap => subscriber.miss(false),
            }
            delivery.done += 1;
        }
        self.mailbox.count_done(&delivery.item);
        None
    }
}

/// Resets [`Local::is_delivering`], also after a panic.
struct Delivering<'l>(&'l Cell<bool>);

impl Drop for Delivering<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.hub.remove(&self.mailbox);
        // Fails if the thread ends.
        let _ = LOCALS.try_with(|locals| locals.borrow_mut().retain(|(_, local)| local.strong_count() > 0));
        // Ends the task that delivers.
        self.mailbox.waker.get().into_iter().for_each(Waker::wake_by_ref);
    }
}
