//! The messages that wait for a subscriber.

use super::history::{History, Start};
use super::message::{Delivery, Published};
use super::settings::{QUEUE_BYTES, QUEUE_BYTES_TIGHT, SlowReader};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

/// The receiver of a subscription's messages that can take them at once, without a task that is woken for each of them.
pub(crate) trait Sink {
    /// Takes a message. Returns false if there is no room.
    fn take(&self, published: &Published) -> bool;

    /// Called when messages wait because there was no room, or the subscription has ended.
    fn wake(&self);
}

/// The number of bytes of messages that wait for all subscriptions of a receiver.
pub(crate) type Queued = Rc<Cell<usize>>;

/// The state of a subscription that the worker's tree and the subscription share.
pub(crate) struct Subscriber {
    state: RefCell<State>,
}

struct State {
    reader: Reader,
    /// The waiting messages, and what waits for the topic's history; `None` if there is neither.
    waiting: Option<Box<Waiting>>,
    /// True if messages after the waiting ones were lost.
    missed: bool,
    /// True if the subscription has ended, because its reader was slow or has dropped it.
    is_cut: bool,
    /// True if it ended because messages were lost on their way to this process.
    lost_some: bool,
    /// True for a subscription to changes of members. An unreachable broker loses none of them: when it is back, the
    /// changes are found again.
    is_of_presence: bool,
    /// For a subscription that began with the topic's history: the place up to which messages were delivered.
    place: Option<u64>,
}

/// The receiver of the messages.
enum Reader {
    Sink {
        sink: Weak<dyn Sink>,
        queued: Queued,
    },
    /// A task, with its waker while it waits for the next message.
    Task(Option<Waker>),
}

#[derive(Default)]
struct Waiting {
    /// The messages, each with true if messages before it were lost.
    messages: VecDeque<(Arc<Published>, bool)>,
    /// The number of bytes that the messages hold.
    bytes: usize,
    /// The number of messages at the front that are from the topic's history, and their bytes. They were asked for, so
    /// they do not count as those of a slow reader.
    replayed: (usize, usize),
    /// The start of a subscription that waits for the topic's history.
    start: Option<Start>,
}

impl Subscriber {
    pub(super) fn new(sink: Option<(Weak<dyn Sink>, Queued)>, is_of_presence: bool) -> Subscriber {
        let reader = match sink {
            Some((sink, queued)) => Reader::Sink { sink, queued },
            None => Reader::Task(None),
        };
        Subscriber {
            state: RefCell::new(State {
                reader,
                waiting: None,
                missed: false,
                is_cut: false,
                lost_some: false,
                is_of_presence,
                place: None,
            }),
        }
    }

    /// Makes the subscription wait for the topic's history.
    pub(super) fn wait_for_history(&self, start: Start) {
        self.state.borrow_mut().waiting().start = Some(start);
    }

    /// Returns the start of a subscription that has waited for the topic's history.
    pub(super) fn take_start(&self) -> Option<Start> {
        self.state.borrow_mut().waiting.as_mut()?.start.take()
    }

    /// Adds the messages of the topic's history. Returns their number.
    pub(super) fn replay(&self, history: &History, start: Start) -> usize {
        let (messages, missed, place) = history.since(start);
        let mut state = self.state.borrow_mut();
        state.missed |= missed;
        let mut count = 0;
        for published in messages {
            let waiting = state.waiting();
            waiting.replayed.0 += 1;
            waiting.replayed.1 += published.cost();
            state.push(published);
            count += 1;
        }
        // A client that resumes after an unknown message must not be disconnected for it again and again.
        state.missed &= !state.has_sink();
        state.place = Some(place);
        state.wake();
        count
    }

    /// Records that messages were lost. If `has_history` is false, only topics without a history have lost some.
    pub(super) fn miss(&self, has_history: bool) {
        let mut state = self.state.borrow_mut();
        if has_history && state.is_of_presence && state.has_sink() {
            // No later change of the members would tell of this one.
            state.lost_some = true;
            state.clear();
            return state.wake();
        }
        let awaits_history = state.waiting.as_ref().is_some_and(|waiting| waiting.start.is_some());
        state.missed |= has_history || (state.place.is_none() && !awaits_history && !state.is_of_presence);
    }

    /// Delivers a message, or keeps it until there is room.
    pub(super) fn deliver(&self, published: &Arc<Published>) {
        let mut state = self.state.borrow_mut();
        if state.is_cut || state.waiting.as_ref().is_some_and(|waiting| waiting.start.is_some()) {
            return;
        }
        if let Some(place) = &mut state.place {
            // The message was delivered with the history.
            if published.place <= *place {
                return;
            }
            *place = published.place;
        }
        let is_gap = state.missed || published.follows_gap;
        if is_gap && state.has_sink() && published.rule.settings.slow_reader == SlowReader::Disconnect {
            // A frame cannot say that messages were lost, but a client that connects again and resumes gets them.
            state.lost_some = true;
            return state.cut(published);
        }
        if state.is_empty()
            && let Reader::Sink { sink, .. } = &state.reader
            && sink.upgrade().is_none_or(|sink| sink.take(published))
        {
            state.missed = false;
            return;
        }
        state.add(published);
    }

    /// Polls for the next message. `None` means that the subscription has ended.
    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut state = self.state.borrow_mut();
        if let Some(delivery) = state.pop() {
            return Poll::Ready(Some(delivery));
        }
        if state.is_cut {
            return Poll::Ready(None);
        }
        if let Reader::Task(waker) = &mut state.reader {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Gives waiting messages to the sink while it has room. Returns false if messages are left.
    pub(crate) fn flush(&self, sink: &dyn Sink) -> bool {
        loop {
            let first = self.state.borrow().waiting.as_ref().and_then(|waiting| waiting.messages.front().cloned());
            let Some((published, _)) = first else { return true };
            if !sink.take(&published) {
                return false;
            }
            self.state.borrow_mut().pop();
        }
    }

    /// Returns true if the subscription has ended, because its reader was slow or messages were lost before.
    pub(crate) fn is_cut(&self) -> bool {
        self.state.borrow().is_cut
    }

    /// Returns true if the subscription has ended because messages were lost on their way to this process, such as
    /// while its broker was unreachable.
    pub(crate) fn has_lost_some(&self) -> bool {
        self.state.borrow().lost_some
    }

    /// Ends the subscription, because its reader has dropped it. A message that is being delivered no longer reaches
    /// it.
    pub(super) fn end(&self) {
        self.state.borrow_mut().clear();
    }
}

impl State {
    fn waiting(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_default()
    }

    fn is_empty(&self) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.messages.is_empty())
    }

    fn has_sink(&self) -> bool {
        matches!(self.reader, Reader::Sink { .. })
    }

    /// Updates the number of bytes that wait for all subscriptions of the receiver.
    fn count(&self, added: usize, removed: usize) {
        if let Reader::Sink { queued, .. } = &self.reader {
            queued.set((queued.get() + added).saturating_sub(removed));
        }
    }

    /// Returns true if the queue has no room for a message.
    fn is_full(&self, published: &Published) -> bool {
        let (mut count, mut bytes) = (0, 0);
        if let Some(waiting) = &self.waiting {
            count = waiting.messages.len() - waiting.replayed.0;
            bytes = waiting.bytes - waiting.replayed.1;
        }
        let others =
            if let Reader::Sink { queued, .. } = &self.reader { queued.get().saturating_sub(bytes) } else { 0 };
        let most = if published.is_memory_tight() { QUEUE_BYTES_TIGHT } else { QUEUE_BYTES };
        let cost = published.cost();
        (count > 0 && (count >= published.rule.settings.most_waiting() || bytes + cost > most))
            || (others > 0 && others + bytes + cost > QUEUE_BYTES)
    }

    /// Adds a message behind the waiting ones, as the topic's policy for slow readers permits.
    fn add(&mut self, published: &Arc<Published>) {
        let policy = published.rule.settings.slow_reader;
        let dropped = &published.rule.dropped;
        if policy == SlowReader::LatestOnly
            && let Some(waiting) = &self.waiting
            && let Some(at) =
                (waiting.replayed.0..waiting.messages.len()).find(|at| waiting.messages[*at].0.topic == published.topic)
        {
            self.remove(at);
            dropped.fetch_add(1, Ordering::Relaxed);
        }
        while self.is_full(published) {
            if policy == SlowReader::Disconnect {
                return self.cut(published);
            }
            dropped.fetch_add(1, Ordering::Relaxed);
            let waiting = self.waiting.as_ref().filter(|waiting| waiting.replayed.0 < waiting.messages.len());
            match (policy, waiting.map(|waiting| waiting.replayed.0)) {
                (SlowReader::DropOldest | SlowReader::LatestOnly, Some(oldest)) => self.remove(oldest),
                // The new one is dropped by the topic's setting, or because the receiver's other subscriptions leave no room.
                _ => {
                    self.missed = true;
                    return;
                }
            }
        }
        self.push(published.clone());
        self.wake();
    }

    /// Ends the subscription because of a message that cannot be delivered.
    fn cut(&mut self, published: &Published) {
        published.rule.disconnected.fetch_add(1, Ordering::Relaxed);
        self.clear();
        self.wake();
    }

    fn clear(&mut self) {
        self.is_cut = true;
        if let Some(waiting) = self.waiting.take() {
            self.count(0, waiting.bytes);
        }
    }

    /// Removes a waiting message. Messages are then missed before its successor.
    fn remove(&mut self, at: usize) {
        let waiting = self.waiting();
        let Some((removed, _)) = waiting.messages.remove(at) else { return };
        waiting.bytes -= removed.cost();
        match waiting.messages.get_mut(at) {
            Some((_, missed)) => *missed = true,
            None => self.missed = true,
        }
        self.count(0, removed.cost());
    }

    fn push(&mut self, published: Arc<Published>) {
        self.count(published.cost(), 0);
        let missed = std::mem::take(&mut self.missed) || published.follows_gap;
        let waiting = self.waiting();
        waiting.bytes += published.cost();
        waiting.messages.push_back((published, missed));
    }

    fn pop(&mut self) -> Option<Delivery> {
        let waiting = self.waiting.as_mut()?;
        let (published, missed) = waiting.messages.pop_front()?;
        waiting.bytes -= published.cost();
        if waiting.replayed.0 > 0 {
            waiting.replayed.0 -= 1;
            waiting.replayed.1 -= published.cost();
        }
        if waiting.messages.is_empty() && waiting.start.is_none() {
            self.waiting = None;
        }
        self.count(0, published.cost());
        Some(Delivery { published, missed })
    }

    fn wake(&mut self) {
        match &mut self.reader {
            Reader::Task(waker) => waker.take().into_iter().for_each(Waker::wake),
            Reader::Sink { sink, .. } => sink.upgrade().into_iter().for_each(|sink| sink.wake()),
        }
    }
}
