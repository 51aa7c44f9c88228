//! The subscribers of one worker, and the mailbox through which other threads reach them.

use super::hub::Hub;
use super::message::Published;
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

/// The most items, and the most bytes of messages, that may wait in a worker's mailbox. A worker that is this far behind
/// loses further messages, and its subscribers see that they have missed some.
const MAILBOX_ITEMS: usize = 16 * 1024;
const MAILBOX_BYTES: usize = 64 * 1024 * 1024;

/// The most deliveries to subscribers before other tasks of the worker have their turn, not counting the last item's.
const DELIVERIES: usize = 16 * 1024;

/// An item for the subscribers of a worker.
#[derive(Clone)]
pub(super) enum Item {
    /// A message for the subscribers whose filter matches its topic, or only for those of this filter.
    Message(Arc<Published>, Option<Arc<str>>),
    /// The topic's history is complete. Subscribers that wait for it can begin.
    Complete(Arc<str>),
    /// Messages of topics without a history were lost.
    Gap,
}

impl Item {
    fn cost(&self) -> usize {
        match self {
            Item::Message(published, _) => published.cost(),
            Item::Complete(_) | Item::Gap => 0,
        }
    }
}

/// The items for a worker.
pub(super) struct Mailbox {
    sender: Sender<Item>,
    items: AtomicUsize,
    bytes: AtomicUsize,
    /// True if an item did not fit.
    lost: AtomicBool,
    /// True from an item until the worker begins to take the items, so that many items cost one wake.
    is_woken: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Mailbox {
    pub(super) fn push(&self, item: Item) {
        let cost = item.cost();
        let is_full = self.items.load(Ordering::Relaxed) >= MAILBOX_ITEMS
            || self.bytes.load(Ordering::Relaxed).saturating_add(cost) > MAILBOX_BYTES;
        if is_full && matches!(item, Item::Message(..)) {
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
}

/// The subscribers of one worker. It lives as long as it has a subscription.
pub(super) struct Local {
    pub(super) hub: Arc<Hub>,
    tree: RefCell<Tree>,
    mailbox: Arc<Mailbox>,
    receiver: Receiver<Item>,
    /// True while items are delivered, so that a message which a subscriber publishes waits for its turn.
    is_delivering: Cell<bool>,
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

    pub(super) fn add(&self, filter: &str, subscriber: Rc<Subscriber>) -> Key {
        self.tree.borrow_mut().add(filter, subscriber)
    }

    pub(super) fn remove(&self, filter: &str, key: Key) {
        self.tree.borrow_mut().remove(filter, key);
    }

    /// Suppresses the wakes for items, because the caller will deliver them.
    pub(super) fn hold_wakes(&self) {
        self.mailbox.is_woken.store(true, Ordering::Relaxed);
    }

    /// Delivers the items of the mailbox.
    pub(super) fn deliver(&self) {
        if self.is_delivering.replace(true) {
            // The call that is delivering takes these items, too.
            return;
        }
        let _guard = Delivering(&self.is_delivering);
        let mut count = 0;
        loop {
            self.mailbox.is_woken.swap(false, Ordering::AcqRel);
            while count < DELIVERIES
                && let Ok(item) = self.receiver.try_recv()
            {
                count += 1 + self.deliver_item(item);
            }
            if count >= DELIVERIES {
                self.mailbox.is_woken.store(true, Ordering::Relaxed);
                self.mailbox.waker.get().into_iter().for_each(Waker::wake_by_ref);
                return;
            }
            if self.mailbox.lost.swap(false, Ordering::Relaxed) {
                self.tree.borrow().all(&mut |subscriber| subscriber.miss(true));
            }
            if !self.mailbox.is_woken.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Delivers an item. Returns the number of subscribers.
    fn deliver_item(&self, item: Item) -> usize {
        self.mailbox.items.fetch_sub(1, Ordering::Relaxed);
        self.mailbox.bytes.fetch_sub(item.cost(), Ordering::Relaxed);
        let tree = self.tree.borrow();
        let mut count = 0;
        match item {
            Item::Message(published, None) => tree.matching(&published.topic, &mut |subscriber| {
                count += 1;
                subscriber.deliver(&published);
            }),
            Item::Message(published, Some(filter)) => tree.of_filter(&filter, &mut |subscriber| {
                count += 1;
                subscriber.deliver(&published);
            }),
            Item::Complete(topic) => tree.of_filter(&topic, &mut |subscriber| {
                count += 1;
                if let Some(start) = subscriber.take_start() {
                    self.hub.replay(&topic, start, subscriber);
                }
            }),
            Item::Gap => tree.all(&mut |subscriber| subscriber.miss(false)),
        }
        count
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
