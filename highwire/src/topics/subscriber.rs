//! The messages that wait for a subscriber.

use super::history::{History, Start};
use super::message::{Delivery, Published};
use super::settings::{QUEUE_BYTES, SlowReader};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Weak;
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

/// The state of a subscription that the worker's tree and the subscription share.
pub(crate) struct Subscriber {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// The waiting messages, each with true if messages before it were lost.
    waiting: VecDeque<(Arc<Published>, bool)>,
    /// The number of bytes that the waiting messages hold.
    bytes: usize,
    /// The number of messages at the front that are from the topic's history, and their bytes. They were asked for, so
    /// they do not count as those of a slow reader.
    replayed: (usize, usize),
    /// True if messages behind the waiting ones were lost.
    missed: bool,
    /// For a subscription that began with the topic's history: the place up to which messages were delivered.
    place: Option<u64>,
    /// The start of a subscription that waits for the topic's history.
    start: Option<Start>,
    /// True if the subscription has ended because its reader was slow.
    is_cut: bool,
    waker: Option<Waker>,
    sink: Option<Weak<dyn Sink>>,
}

impl Subscriber {
    pub(super) fn new(sink: Option<Weak<dyn Sink>>) -> Subscriber {
        Subscriber { state: RefCell::new(State { sink, ..State::default() }) }
    }

    /// Makes the subscription wait for the topic's history.
    pub(super) fn wait_for_history(&self, start: Start) {
        self.state.borrow_mut().start = Some(start);
    }

    /// Returns the start of a subscription that has waited for the topic's history.
    pub(super) fn take_start(&self) -> Option<Start> {
        self.state.borrow_mut().start.take()
    }

    /// Adds the messages of the topic's history.
    pub(super) fn replay(&self, history: &History, start: Start) {
        let (messages, missed, place) = history.since(start);
        let mut state = self.state.borrow_mut();
        state.missed |= missed;
        for published in messages {
            state.replayed.0 += 1;
            state.replayed.1 += published.cost();
            state.push(published);
        }
        // A client that resumes after an unknown message must not be disconnected for it again and again.
        state.missed &= state.sink.is_none();
        state.place = Some(place);
        state.wake();
    }

    /// Records that messages were lost. If `has_history` is false, only of topics without a history.
    pub(super) fn miss(&self, has_history: bool) {
        let mut state = self.state.borrow_mut();
        state.missed |= has_history || (state.place.is_none() && state.start.is_none());
    }

    /// Delivers a message, or keeps it until there is room.
    pub(super) fn deliver(&self, published: &Arc<Published>) {
        let mut state = self.state.borrow_mut();
        if state.is_cut || state.start.is_some() {
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
        if is_gap && state.sink.is_some() && published.rule.settings.slow_reader == SlowReader::Disconnect {
            // A frame cannot say that messages were lost, but a client that connects again and resumes gets them.
            return state.cut(published);
        }
        if state.waiting.is_empty()
            && let Some(sink) = &state.sink
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
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Gives waiting messages to the sink while it has room. Returns false if messages are left.
    pub(crate) fn flush(&self, sink: &dyn Sink) -> bool {
        loop {
            let Some((published, _)) = self.state.borrow().waiting.front().cloned() else { return true };
            if !sink.take(&published) {
                return false;
            }
            self.state.borrow_mut().pop();
        }
    }

    /// Returns true if the subscription has ended because its reader was slow.
    pub(crate) fn is_cut(&self) -> bool {
        self.state.borrow().is_cut
    }

    /// Returns about how many bytes wait.
    pub(crate) fn held(&self) -> usize {
        self.state.borrow().bytes
    }
}

impl State {
    /// Adds a message behind the waiting ones, as the topic's policy for slow readers permits.
    fn add(&mut self, published: &Arc<Published>) {
        let settings = &published.rule.settings;
        let dropped = &published.rule.dropped;
        if settings.slow_reader == SlowReader::LatestOnly
            && let Some(at) =
                (self.replayed.0..self.waiting.len()).find(|at| self.waiting[*at].0.topic == published.topic)
        {
            self.remove(at);
            dropped.fetch_add(1, Ordering::Relaxed);
        }
        while let count = self.waiting.len() - self.replayed.0
            && let bytes = self.bytes - self.replayed.1
            && count > 0
            && (count >= settings.most_waiting() || bytes + published.cost() > QUEUE_BYTES)
        {
            match settings.slow_reader {
                SlowReader::DropOldest | SlowReader::LatestOnly => self.remove(self.replayed.0),
                SlowReader::DropNewest => {
                    self.missed = true;
                    dropped.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                SlowReader::Disconnect => return self.cut(published),
            }
            dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.push(published.clone());
        self.wake();
    }

    /// Ends the subscription because of a message that cannot be delivered.
    fn cut(&mut self, published: &Published) {
        published.rule.disconnected.fetch_add(1, Ordering::Relaxed);
        (self.is_cut, self.bytes, self.replayed) = (true, 0, (0, 0));
        self.waiting = VecDeque::new();
        self.wake();
    }

    /// Removes a waiting message. Messages are then missed before its successor.
    fn remove(&mut self, at: usize) {
        let Some((removed, _)) = self.waiting.remove(at) else { return };
        self.bytes -= removed.cost();
        match self.waiting.get_mut(at) {
            Some((_, missed)) => *missed = true,
            None => self.missed = true,
        }
    }

    fn push(&mut self, published: Arc<Published>) {
        self.bytes += published.cost();
        let missed = std::mem::take(&mut self.missed) || published.follows_gap;
        self.waiting.push_back((published, missed));
    }

    fn pop(&mut self) -> Option<Delivery> {
        let (published, missed) = self.waiting.pop_front()?;
        self.bytes -= published.cost();
        if self.replayed.0 > 0 {
            self.replayed.0 -= 1;
            self.replayed.1 -= published.cost();
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some(Delivery { published, missed })
    }

    fn wake(&mut self) {
        self.waker.take().into_iter().for_each(Waker::wake);
        if let Some(sink) = self.sink.as_ref().and_then(Weak::upgrade) {
            sink.wake();
        }
    }
}
