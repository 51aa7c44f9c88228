//! The slow start of HTTP/2 connections: how many of their requests may be at upstreams at the same time.
//!
//! A client can send a hundred requests in a few kilobytes and leave. Each of them costs an upstream, and perhaps a
//! connection. A new connection therefore begins with few requests, and may have more with each answer that it takes, so
//! that a page with a hundred parts loads as before. Until the first answer, each request waits for a few turns of the worker, which see
//! whether the client has left already.
//!
//! A client can also ask for a hundred long answers and read none of them. Then each answer occupies memory here. So a
//! connection begins no request while it takes nothing of [`UNTAKEN`] answers. Many new connections could do the same, so
//! if a worker has [`FRESH`] requests of such connections, little is received of the answers to others before their clients
//! take it.
//!
//! Long uploads do not wait for other requests, because their unread bytes could close the window that all uploads of the
//! connection share. But only [`UPLOADS`] of them may be on their way to upstreams, because a client that sends a byte of
//! each occupies a connection with each.

use highwire_engine::context;
use highwire_engine::time::{Sleep, sleep, timeout};
use highwire_io::SocketId;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The number of requests with which a connection begins, and by how many each answer raises it.
const FIRST: u32 = 8;
const MORE: u32 = 2;

/// The most requests of all connections of a worker that have taken no answer yet, and whose answers are received as always.
/// Such an answer may occupy 150 KB until its client takes it, one that is received sparingly 20 KB.
const FRESH: u32 = 4;

/// The number of answers that may wait until the client takes the first part of their bodies.
const UNTAKEN: u32 = 8;

/// The time after which an answer without a first part, such as an event stream, no longer counts.
const SILENCE: Duration = Duration::from_millis(50);

/// The number of turns of the worker that a request waits before the first answer. They take no time while the worker is
/// idle.
const TURNS: u32 = 3;

/// The length in bytes from which on a body makes a request a long upload. A hundred shorter ones leave room in the window.
pub(super) const UPLOAD_BYTES: u64 = 2048;

/// The most long uploads of a connection, and how long further ones wait before they are refused.
const UPLOADS: u32 = 32;
const UPLOAD_WAIT: Duration = Duration::from_secs(5);

/// The connections of a worker that have requests at upstreams.
#[derive(Default)]
pub(super) struct Starts {
    connections: Rc<RefCell<HashMap<SocketId, Weak<Start>>>>,
    /// The number of requests, and of answers of which nothing is taken, of the connections that have taken no answer yet.
    fresh: Rc<Cell<u32>>,
}

/// A connection.
struct Start {
    id: SocketId,
    all: Rc<RefCell<HashMap<SocketId, Weak<Start>>>>,
    fresh: Rc<Cell<u32>>,
    /// The part of this connection in `fresh`.
    own_fresh: Cell<u32>,
    most: Cell<u32>,
    untaken: Cell<u32>,
    requests: Lane,
    uploads: Lane,
}

/// Requests of a kind: how many are at upstreams, and those that wait.
#[derive(Default)]
struct Lane {
    running: Cell<u32>,
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    /// A request with a long body, until the body is passed on.
    Upload,
}

/// A request that waits.
#[derive(Default)]
struct Ticket {
    waker: RefCell<Option<Waker>>,
    has_left: Cell<bool>,
}

/// A request that may be sent to an upstream. The next one may when it is dropped.
pub(super) struct Started {
    start: Rc<Start>,
    kind: Kind,
    is_sparing: bool,
}

/// The place of a request among the uploads of its connection, for the request and its body.
#[derive(Clone, Default)]
pub(super) struct Uploading(Option<Rc<Cell<Option<Started>>>>);

impl Uploading {
    /// Creates the place of a body in parts. The [`Default`] is that of another body, which has none.
    pub(super) fn new() -> Uploading {
        Uploading(Some(Rc::default()))
    }

    pub(super) fn set(&self, upload: Started) {
        if let Some(place) = &self.0 {
            place.set(Some(upload));
        }
    }

    pub(super) fn take(&self) -> Option<Started> {
        self.0.as_ref().and_then(|place| place.take())
    }
}

/// An answer of which the client has taken nothing.
pub(super) struct Untaken {
    start: Rc<Start>,
    /// True if a part has been given, which the client has taken when the next one is asked for.
    has_given: bool,
    /// Ends when the upstream has been silent for [`SILENCE`].
    silence: Option<Sleep>,
    /// True unless the upstream is silent.
    counts: bool,
}

impl Starts {
    /// Waits until a request of a connection may be sent to an upstream.
    pub(super) async fn enter(&self, id: SocketId) -> Started {
        self.enter_as(Kind::Request, id).await
    }

    /// Waits until a long upload of a connection may be sent to an upstream. Returns `None` if it may not in time.
    pub(super) async fn enter_upload(&self, id: SocketId) -> Option<Started> {
        timeout(UPLOAD_WAIT, self.enter_as(Kind::Upload, id)).await.ok()
    }

    async fn enter_as(&self, kind: Kind, id: SocketId) -> Started {
        let known = self.connections.borrow().get(&id).and_then(Weak::upgrade);
        let start = known.unwrap_or_else(|| {
            let start = Rc::new(Start {
                id,
                all: self.connections.clone(),
                fresh: self.fresh.clone(),
                own_fresh: Cell::new(0),
                most: Cell::new(FIRST),
                untaken: Cell::new(0),
                requests: Lane::default(),
                uploads: Lane::default(),
            });
            self.connections.borrow_mut().insert(id, Rc::downgrade(&start));
            start
        });
        let mut waiting = Waiting { start: start.clone(), kind, ticket: None };
        let mut turns = if start.most.get() > FIRST || kind == Kind::Upload { 0 } else { TURNS };
        poll_fn(|cx| {
            if turns > 0 {
                turns -= 1;
                context::wake_next_turn(cx.waker());
                return Poll::Pending;
            }
            let lane = start.lane(kind);
            if start.has_room(kind) {
                waiting.ticket.take().iter().for_each(|ticket| ticket.has_left.set(true));
                lane.running.set(lane.running.get() + 1);
                start.count_fresh();
                start.wake_next(kind);
                return Poll::Ready(());
            }
            // One that was woken although another request was faster waits anew.
            let known = waiting.ticket.take().filter(|ticket| !ticket.has_left.get());
            let ticket = known.unwrap_or_else(|| {
                let ticket = Rc::new(Ticket::default());
                lane.waiting.borrow_mut().push_back(ticket.clone());
                ticket
            });
            *ticket.waker.borrow_mut() = Some(cx.waker().clone());
            waiting.ticket = Some(ticket);
            Poll::Pending
        })
        .await;
        let is_sparing = start.is_fresh() && start.fresh.get() > FRESH;
        Started { start, kind, is_sparing }
    }
}

impl Started {
    /// Returns true if little of the answer shall be received before the client takes it.
    pub(super) fn is_sparing(&self) -> bool {
        self.is_sparing
    }

    pub(super) fn connection(&self) -> Connection {
        Connection { start: self.start.clone() }
    }
}

/// A connection with a request.
pub(super) struct Connection {
    start: Rc<Start>,
}

impl Connection {
    /// Records that an upstream has answered the request. The result is dropped when the client has taken the first part of
    /// the answer's body.
    pub(super) fn answered(&self) -> Untaken {
        self.start.untaken.set(self.start.untaken.get() + 1);
        self.start.count_fresh();
        Untaken { start: self.start.clone(), has_given: false, silence: None, counts: true }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let running = &self.start.lane(self.kind).running;
        running.set(running.get() - 1);
        self.start.count_fresh();
        self.start.wake_next(self.kind);
    }
}

impl Untaken {
    /// Returns true if the client asks for more after the first part. `is_ready` is true if a part is given now, or the body
    /// ends. While the upstream is silent, the answer does not count.
    pub(super) fn is_over(&mut self, is_ready: bool, cx: &mut Context<'_>) -> bool {
        if self.has_given {
            return true;
        }
        self.has_given = is_ready;
        if is_ready {
            self.count(true);
        } else if self.counts && Pin::new(self.silence.get_or_insert_with(|| sleep(SILENCE))).poll(cx).is_ready() {
            self.count(false);
            self.start.wake_next(Kind::Request);
        }
        false
    }

    fn count(&mut self, counts: bool) {
        let (before, untaken) = (std::mem::replace(&mut self.counts, counts), &self.start.untaken);
        untaken.set(untaken.get() + u32::from(counts) - u32::from(before));
        self.start.count_fresh();
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.count(false);
        self.start.most.set(self.start.most.get().saturating_add(MORE));
        self.start.count_fresh();
        (0..MORE).for_each(|_| self.start.wake_next(Kind::Request));
    }
}

impl Start {
    fn lane(&self, kind: Kind) -> &Lane {
        match kind {
            Kind::Request => &self.requests,
            Kind::Upload => &self.uploads,
        }
    }

    fn has_room(&self, kind: Kind) -> bool {
        let (running, untaken) = (self.lane(kind).running.get(), self.untaken.get());
        match kind {
            Kind::Request => running + untaken < self.most.get() && untaken < UNTAKEN,
            Kind::Upload => running < UPLOADS,
        }
    }

    /// Returns true if the client has taken no answer yet.
    fn is_fresh(&self) -> bool {
        self.most.get() == FIRST
    }

    /// Counts this connection's part in `fresh`.
    fn count_fresh(&self) {
        let now = if self.is_fresh() { self.requests.running.get() + self.untaken.get() } else { 0 };
        self.fresh.set(self.fresh.get() + now - self.own_fresh.replace(now));
    }

    fn wake_next(&self, kind: Kind) {
        while self.has_room(kind) {
            let next = self.lane(kind).waiting.borrow_mut().pop_front();
            let Some(next) = next else { return };
            if !next.has_left.replace(true) {
                return next.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        self.fresh.set(self.fresh.get() - self.own_fresh.get());
        self.all.borrow_mut().remove(&self.id);
    }
}

/// A request that waits. It leaves the queue when this is dropped. If it was woken and has not begun, the next one is woken.
struct Waiting {
    start: Rc<Start>,
    kind: Kind,
    ticket: Option<Rc<Ticket>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(ticket) = &self.ticket else { return };
        if ticket.has_left.replace(true) {
            return self.start.wake_next(self.kind);
        }
        self.start.lane(self.kind).waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, ticket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::block_on;
    use std::pin::pin;

    const CONNECTION: SocketId = SocketId { index: 1, generation: 0 };

    type Entering<'s> = Pin<Box<dyn Future<Output = Started> + 's>>;

    /// Lets requests begin until no more can, and returns them. Those that wait stay in `waiting`.
    async fn begun(waiting: &mut Vec<Entering<'_>>) -> Vec<Started> {
        let mut all = Vec::new();
        for _ in 0..2 * TURNS {
            let turn = poll_fn(|cx| {
                waiting.retain_mut(|entering| match entering.as_mut().poll(cx) {
                    Poll::Ready(started) => {
                        all.push(started);
                        false
                    }
                    Poll::Pending => true,
                });
                Poll::Ready(())
            });
            turn.await;
        }
        all
    }

    fn entering(starts: &Starts, number: usize) -> Vec<Entering<'_>> {
        (0..number).map(|_| Box::pin(starts.enter(CONNECTION)) as Entering<'_>).collect()
    }

    #[test]
    fn a_connection_begins_with_few_requests_and_has_more_with_each_answer_that_it_takes() {
        block_on(async {
            let starts = Starts::default();
            let mut waiting = entering(&starts, 30);
            let mut started = begun(&mut waiting).await;
            assert_eq!(started.len(), FIRST as usize);
            drop(started.pop().expect("a request").connection().answered());
            assert_eq!(begun(&mut waiting).await.len(), 1 + MORE as usize);
        })
        .expect("a worker");
    }

    #[test]
    fn a_connection_that_takes_no_answer_begins_no_more_requests() {
        block_on(async {
            let starts = Starts::default();
            let mut waiting = entering(&starts, 30);
            let mut untaken: Vec<Untaken> =
                begun(&mut waiting).await.iter().map(|started| started.connection().answered()).collect();
            assert_eq!(begun(&mut waiting).await.len(), 0);
            let first = untaken.first_mut().expect("an answer");
            let is_over = poll_fn(|cx| Poll::Ready([first.is_over(true, cx), first.is_over(true, cx)])).await;
            assert_eq!(is_over, [false, true], "the next part is asked for when the first is taken");
            untaken.remove(0);
            assert_eq!(begun(&mut waiting).await.len(), 1 + MORE as usize);
        })
        .expect("a worker");
    }

    #[test]
    fn little_is_received_for_many_connections_that_have_taken_no_answer() {
        block_on(async {
            let (starts, mut all) = (Starts::default(), Vec::new());
            for index in 0..20 {
                let id = SocketId { index, generation: 0 };
                let mut waiting: Vec<_> = (0..30).map(|_| Box::pin(starts.enter(id)) as Entering<'_>).collect();
                let mut started = begun(&mut waiting).await;
                assert_eq!(started.len(), FIRST as usize);
                let others = started.iter().filter(|request| !request.is_sparing()).count();
                assert_eq!(others, if index == 0 { FRESH as usize } else { 0 }, "connection {index}");
                if index > 0 {
                    drop(started.pop().expect("a request").connection().answered());
                    let next = begun(&mut waiting).await;
                    assert!(!next.iter().any(Started::is_sparing), "the client has taken an answer");
                }
                all.push((started, waiting));
            }
            drop(all);
            assert_eq!(starts.fresh.get(), 0);
        })
        .expect("a worker");
    }

    #[test]
    fn a_silent_answer_counts_again_when_its_first_part_comes() {
        block_on(async {
            let starts = Starts::default();
            let mut waiting = entering(&starts, 30);
            let mut untaken: Vec<Untaken> =
                begun(&mut waiting).await.iter().map(|started| started.connection().answered()).collect();
            let mut looks = async |is_ready: bool| {
                poll_fn(|cx| {
                    assert!(!untaken.iter_mut().any(|answer| answer.is_over(is_ready, cx)));
                    Poll::Ready(())
                })
                .await;
            };
            looks(false).await;
            sleep(2 * SILENCE).await;
            looks(false).await;
            let others = begun(&mut waiting).await;
            assert_eq!(others.len(), FIRST as usize, "the answers are silent");
            drop(others);
            looks(true).await;
            assert_eq!(begun(&mut waiting).await.len(), 0);
        })
        .expect("a worker");
    }

    #[test]
    fn a_connection_has_a_bounded_number_of_uploads_and_others_wait_for_some_time() {
        block_on(async {
            let starts = Starts::default();
            let mut all = Vec::new();
            for _ in 0..UPLOADS {
                all.push(starts.enter_upload(CONNECTION).await.expect("an upload"));
            }
            assert!(starts.enter_upload(CONNECTION).await.is_none());
            assert!(!begun(&mut entering(&starts, 1)).await.is_empty(), "other requests do not wait for uploads");
            let mut next = pin!(starts.enter_upload(CONNECTION));
            assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
            all.pop();
            assert!(next.await.is_some());
        })
        .expect("a worker");
    }

    #[test]
    fn a_request_that_leaves_after_it_was_woken_wakes_the_next_one() {
        block_on(async {
            let starts = Starts::default();
            let mut running = entering(&starts, FIRST as usize);
            let started = begun(&mut running).await;
            // They are polled with wakers of their own, as tasks are.
            let woken = std::sync::Arc::new(Flag::default());
            let waker = Waker::from(woken.clone());
            let mut leaving = entering(&starts, FIRST as usize);
            begun(&mut leaving).await;
            let mut last = pin!(starts.enter(CONNECTION));
            for _ in 0..=TURNS {
                assert!(last.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            woken.0.store(false, std::sync::atomic::Ordering::Relaxed);
            drop(started);
            drop(leaving);
            assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
            assert!(last.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        })
        .expect("a worker");
    }

    #[derive(Default)]
    struct Flag(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Flag {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
