//! The context of a worker's thread for tasks and handlers: clock, timers, spawned tasks.

use crate::runtime::memory::kept::Kept;
use crate::runtime::promise::Asked;
use crate::runtime::rate_limited;
use crate::server::shared::Shared;
use highwire_io::wake::{self, InTurn, TaskInbox, TaskNumber};
use highwire_io::{Instant, SocketId, clock};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, SystemTime};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A worker's clock, timers and tasks, which the code that the worker runs can reach.
pub(crate) struct Context {
    /// See [`current_worker`].
    number: u64,
    pub(crate) inbox: TaskInbox,
    pub(crate) now: Cell<Instant>,
    /// The number of nanoseconds to add to `now` to get the time since 1970.
    pub(crate) unix_offset: Cell<u64>,
    shared: Arc<Shared>,
    timers: RefCell<BTreeMap<TimerKey, Waker>>,
    tasks: RefCell<Tasks>,
    /// What tasks want of the worker and it has not begun: attempts to connect ([`crate::connect`]), of which this file knows
    /// nothing.
    wanted: RefCell<VecDeque<Box<dyn Any>>>,
    /// True if a task may have cancelled an attempt.
    has_cancelled: Cell<bool>,
    /// The values that programs keep for the worker, each with its owner.
    locals: RefCell<Vec<Local>>,
    /// True if the future of [`Worker::block_on`](crate::Worker::block_on) must be polled.
    root_woken: Cell<bool>,
    /// The memory of bodies that the worker keeps for others.
    kept: RefCell<Kept>,
    /// True if the worker serves many connections, and not one after the other.
    serves_many: bool,
    /// The number of the worker's turn.
    turn: Cell<u32>,
    /// The tasks that are woken when the next turn begins.
    next_turn: RefCell<Vec<Waker>>,
    /// True if the server stops, and the tasks that wait for that.
    stops: Cell<bool>,
    await_stop: RefCell<BTreeMap<u64, Waker>>,
    /// The number of [`HeldShutdown`]s.
    holds: Cell<usize>,
    /// The stopwatch at the end of the last turn, while the worker waits in a loop in which other code of this thread runs.
    waits_since: Cell<Option<u64>>,
    /// Returns nanoseconds, to measure durations within a turn; see [`Driver::stopwatch`](highwire_io::Driver::stopwatch).
    pub(crate) stopwatch: Cell<fn() -> u64>,
    /// What the stopwatch showed when the turn began; `None` unless the worker measures.
    turn_began: Cell<Option<u64>>,
}

/// A timer: its moment, and a number that distinguishes it from other timers of the same moment.
pub(crate) type TimerKey = (Instant, u64);

#[derive(Default)]
struct Tasks {
    slots: Vec<(u32, Option<Task>)>,
    free: Vec<u32>,
    /// The generation of new slots.
    first: u32,
    living: usize,
    timers: u64,
}

/// The number of slots of tasks above which their memory is freed when there are no tasks.
const TASKS_KEPT: usize = 1024;

impl Tasks {
    /// Records that a task has ended. Frees the slots of a peak.
    fn ended(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.0 = next_generation(slot.0);
        self.free.push(index);
        self.living -= 1;
        if self.living == 0 && self.slots.len() > TASKS_KEPT {
            // It is higher than the generation of every slot freed now, so that late wakes find no task.
            let generations = self.slots.iter().map(|(generation, _)| *generation);
            self.first = next_generation(generations.max().unwrap_or(0).max(self.first));
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
    }
}

/// The meaning of a task number. Numbers have 52 bits: a kind (2), a generation (24) and an index (26). In a stream's
/// number, the stream's place takes half of the generation's bits, so a very late wake may reach a later connection
/// with the same index. Such a wake is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskKind {
    Connection {
        index: u32,
        generation: u32,
    },
    Stream {
        index: u32,
        generation: u32,
        place: u32,
    },
    Spawned {
        index: u32,
        generation: u32,
    },
    /// A request of this process.
    Call {
        index: u32,
        generation: u32,
    },
}

const INDEX_BITS: u32 = 26;
const GENERATION_BITS: u32 = 24;
/// The number of bits for a stream's place in its task number. The other bits of the generation hold the connection's
/// generation.
const PLACE_BITS: u32 = 12;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
/// The number of streams of a connection that have tasks of their own.
pub(crate) const STREAM_TASKS: usize = 1 << PLACE_BITS;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

impl TaskKind {
    pub(crate) fn number(self) -> TaskNumber {
        let (kind, index, generation) = match self {
            TaskKind::Connection { index, generation } => (0, index, generation),
            TaskKind::Spawned { index, generation } => (1, index, generation),
            TaskKind::Stream { index, generation, place } => {
                (2, index, (generation & PLACE_MASK) << PLACE_BITS | place & PLACE_MASK)
            }
            TaskKind::Call { index, generation } => (3, index, generation),
        };
        kind << (INDEX_BITS + GENERATION_BITS)
            | (u64::from(generation) & GENERATION_MASK) << INDEX_BITS
            | (u64::from(index) & INDEX_MASK)
    }

    /// Returns the task of a stream, or the task of its connection if the stream's place has too many bits.
    pub(crate) fn stream(socket: SocketId, place: u32) -> TaskKind {
        let SocketId { index, generation } = socket;
        match place <= PLACE_MASK {
            true => TaskKind::Stream { index, generation: generation & PLACE_MASK, place },
            false => TaskKind::Connection { index, generation },
        }
    }

    /// Returns true if a stream's task with this generation may belong to this connection.
    pub(crate) fn is_of(generation: u32, socket: SocketId) -> bool {
        socket.generation & PLACE_MASK == generation
    }

    pub(crate) fn of(number: TaskNumber) -> TaskKind {
        let index = (number & INDEX_MASK) as u32;
        let generation = (number >> INDEX_BITS & GENERATION_MASK) as u32;
        match number >> (INDEX_BITS + GENERATION_BITS) {
            0 => TaskKind::Connection { index, generation },
            2 => TaskKind::Stream { index, generation: generation >> PLACE_BITS, place: generation & PLACE_MASK },
            3 => TaskKind::Call { index, generation },
            _ => TaskKind::Spawned { index, generation },
        }
    }
}

/// The task of the future of [`Worker::block_on`](crate::Worker::block_on). No spawned task has this index.
const ROOT: TaskKind = TaskKind::Spawned { index: (1 << INDEX_BITS) - 1, generation: 0 };

/// Returns the generation for the next user of the same index.
pub(crate) fn next_generation(generation: u32) -> u32 {
    (generation + 1) & GENERATION_MASK as u32
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Context>>> = const { RefCell::new(None) };
}

impl Context {
    pub(crate) fn new(inbox: TaskInbox, shared: Arc<Shared>, serves_many: bool) -> Rc<Context> {
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        Rc::new(Context {
            number: NEXT.replace(NEXT.get() + 1),
            inbox,
            now: Cell::new(Instant::default()),
            unix_offset: Cell::default(),
            kept: RefCell::new(Kept::new(shared.budget.limit())),
            shared,
            timers: RefCell::default(),
            tasks: RefCell::default(),
            wanted: RefCell::default(),
            has_cancelled: Cell::default(),
            locals: RefCell::default(),
            root_woken: Cell::default(),
            serves_many,
            turn: Cell::default(),
            next_turn: RefCell::default(),
            stops: Cell::default(),
            await_stop: RefCell::default(),
            holds: Cell::default(),
            waits_since: Cell::default(),
            stopwatch: Cell::new(|| 0),
            turn_began: Cell::default(),
        })
    }

    /// Begins a turn: wakes the tasks that have waited for it.
    pub(crate) fn begin_turn(&self, turn: u32) {
        self.turn.set(turn);
        for waker in self.next_turn.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Records that the server begins to stop, and wakes the tasks that wait for that.
    pub(crate) fn stop(&self) {
        self.stops.set(true);
        self.await_stop.borrow().values().for_each(Waker::wake_by_ref);
    }

    /// Records that the worker waits in a loop in which other code of this thread runs, or no longer does. Returns true if it has
    /// waited until now.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_waiting(&self, waits: bool) -> bool {
        self.waits_since.replace(waits.then(clock::stopwatch)).is_some()
    }

    /// Sets the time of the turn. If `measures` is true, [`precise_now`](Self::precise_now) measures from here.
    pub(crate) fn set_now(&self, now: Instant, measures: bool) {
        self.now.set(now);
        self.turn_began.set(measures.then(|| self.stopwatch.get()()));
    }

    /// Returns the present time if the worker measures, or else that of the turn.
    pub(crate) fn precise_now(&self) -> Instant {
        match self.turn_began.get() {
            Some(began) => self.now.get() + Duration::from_nanos(self.stopwatch.get()().saturating_sub(began)),
            None => self.time(),
        }
    }

    /// Returns the time: that of the turn, or the present one if the worker waits in another loop.
    fn time(&self) -> Instant {
        match self.waits_since.get() {
            None => self.now.get(),
            Some(since) => self.now.get() + Duration::from_nanos(clock::stopwatch().saturating_sub(since)),
        }
    }

    /// Returns the number of tasks for which a graceful shutdown waits.
    pub(crate) fn holds(&self) -> usize {
        self.holds.get()
    }

    /// Returns true if tasks wait for the next turn.
    pub(crate) fn awaits_turn(&self) -> bool {
        !self.next_turn.borrow().is_empty()
    }

    /// Makes this the current thread's context until the guard is dropped. One thread may run several workers
    /// alternately, as the simulator and embedding hosts do.
    pub(crate) fn enter(self: &Rc<Context>) -> Entered {
        Entered { _in_turn: self.inbox.enter(), previous: CURRENT.replace(Some(self.clone())) }
    }

    /// Returns the time of day, in nanoseconds since 1970.
    pub(crate) fn unix_nanoseconds(&self) -> u64 {
        self.now.get().nanoseconds.saturating_add(self.unix_offset.get())
    }

    /// Frees the memory of bodies that has not been used for a time.
    pub(crate) fn let_go_of_memory(&self) {
        self.kept.borrow_mut().drop_safely(self.now.get());
    }

    /// Returns the moment for the next call of [`let_go_of_memory`](Self::let_go_of_memory).
    pub(crate) fn memory_due(&self) -> Option<Instant> {
        self.kept.borrow().due()
    }

    /// Returns the moment of the next timer.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.borrow().first_key_value().map(|(&(at, _), _)| at)
    }

    /// Wakes the tasks whose timers are due.
    pub(crate) fn fire_timers(&self) {
        loop {
            let due = {
                let mut timers = self.timers.borrow_mut();
                match timers.first_key_value() {
                    Some((&(at, _), _)) if at <= self.now.get() => timers.pop_first(),
                    _ => None,
                }
            };
            match due {
                Some((_, waker)) => waker.wake(),
                None => return,
            }
        }
    }

    /// Adds a timer that wakes a task at `at`. If `at` is not in the future, the worker wakes the task when it next
    /// checks its timers.
    pub(crate) fn wake_at(&self, at: Instant, waker: Waker) {
        self.add_timer(at, waker);
    }

    fn add_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        let mut tasks = self.tasks.borrow_mut();
        tasks.timers += 1;
        self.timers.borrow_mut().insert((at, tasks.timers), waker);
        wake::wake_waiting();
        (at, tasks.timers)
    }

    pub(crate) fn spawn(&self, task: Task) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.living += 1;
        let index = match tasks.free.pop() {
            Some(index) => index,
            None => {
                let first = tasks.first;
                tasks.slots.push((first, None));
                tasks.slots.len() as u32 - 1
            }
        };
        let slot = &mut tasks.slots[index as usize];
        slot.1 = Some(task);
        let number = TaskKind::Spawned { index, generation: slot.0 }.number();
        drop(tasks);
        self.inbox.waker(number).wake();
    }

    /// Takes the first thing that a task wants of the worker.
    pub(crate) fn take_wanted(&self) -> Option<Box<dyn Any>> {
        let mut wanted = self.wanted.borrow_mut();
        let next = wanted.pop_front();
        if wanted.is_empty() {
            // Frees what a burst has taken.
            *wanted = VecDeque::new();
        }
        next
    }

    /// Returns true if a task may have cancelled an attempt to connect since the last call.
    pub(crate) fn take_cancelled(&self) -> bool {
        self.has_cancelled.take()
    }

    /// Returns true if the worker must begin or cancel an attempt to connect.
    pub(crate) fn has_connects(&self) -> bool {
        self.has_cancelled.get() || !self.wanted.borrow().is_empty()
    }

    /// Returns the waker of the future of [`Worker::block_on`](crate::Worker::block_on).
    pub(crate) fn root_waker(&self) -> Waker {
        self.inbox.waker(ROOT.number())
    }

    /// Sets whether the future of [`Worker::block_on`](crate::Worker::block_on) must be polled.
    pub(crate) fn set_root_woken(&self, is_woken: bool) {
        self.root_woken.set(is_woken);
    }

    /// Returns true if the future of [`Worker::block_on`](crate::Worker::block_on) must be polled.
    pub(crate) fn is_root_woken(&self) -> bool {
        self.root_woken.get()
    }

    /// Polls a spawned task. A panic ends the task and is logged.
    pub(crate) fn poll(&self, index: u32, generation: u32) {
        if (TaskKind::Spawned { index, generation }) == ROOT {
            return self.root_woken.set(true);
        }
        let taken = match self.tasks.borrow_mut().slots.get_mut(index as usize) {
            Some((known, task)) if *known == generation => task.take(),
            _ => None,
        };
        let Some(mut task) = taken else { return };
        let waker = self.inbox.waker(TaskKind::Spawned { index, generation }.number());
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            task.as_mut().poll(&mut TaskContext::from_waker(&waker))
        }));
        let finished = !matches!(polled, Ok(Poll::Pending));
        if polled.is_err() {
            rate_limited::log!(Panic, error, "a spawned task panicked");
            // Dropping a task that has panicked may panic again, so the task is leaked.
            std::mem::forget(task);
        } else if !finished {
            self.tasks.borrow_mut().slots[index as usize].1 = Some(task);
            return;
        } else {
            drop(task);
        }
        self.tasks.borrow_mut().ended(index);
    }

    /// Returns the number of spawned tasks that have not finished.
    pub(crate) fn living_tasks(&self) -> usize {
        self.tasks.borrow().living
    }

    /// Drops every spawned task and timer, because the worker ends.
    pub(crate) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
        drop(self.locals.take());
        self.next_turn.borrow_mut().clear();
        self.await_stop.borrow_mut().clear();
        self.timers.borrow_mut().clear();
    }
}

/// Restores the previous context when dropped.
pub(crate) struct Entered {
    _in_turn: InTurn,
    previous: Option<Rc<Context>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.previous.take());
    }
}

fn current() -> Rc<Context> {
    let context = CURRENT.with_borrow(Clone::clone);
    context.expect("no Highwire worker runs on this thread; call this function in a handler, a task of `spawn` or a future of `block_on`")
}

fn with<T>(use_it: impl FnOnce(&Context) -> T) -> T {
    use_it(&current())
}

/// A value that is kept for a worker as long as its owner lives.
struct Local {
    owner: Weak<()>,
    value: Rc<dyn Any>,
}

/// Returns the value that the current worker keeps for `owner`. The first call makes it. The worker drops it when it ends,
/// or some time after the last clone of `owner` was dropped.
///
/// # Panics
/// Panics if no worker runs on this thread, or if an earlier call with the same owner has made a value of another type.
pub fn local<T: 'static>(owner: &Arc<()>, make: impl FnOnce() -> T) -> Rc<T> {
    with(|context| {
        let known = |local: &&Local| std::ptr::eq(local.owner.as_ptr(), Arc::as_ptr(owner));
        let value = context.locals.borrow().iter().find(known).map(|local| local.value.clone());
        let value = value.unwrap_or_else(|| {
            let value: Rc<dyn Any> = Rc::new(make());
            let mut locals = context.locals.borrow_mut();
            let dead: Vec<Local> = locals.extract_if(.., |local| local.owner.strong_count() == 0).collect();
            locals.push(Local { owner: Arc::downgrade(owner), value: value.clone() });
            drop(locals);
            drop(dead);
            value
        });
        value.downcast().expect("the owner has one value on each worker")
    })
}

/// Returns true if a worker runs on this thread: in handlers, tasks and callbacks.
pub fn is_on_worker() -> bool {
    CURRENT.try_with(|current| current.borrow().is_some()).unwrap_or(false)
}

/// Asks the worker for something that its loop does.
pub(crate) fn want(wanted: Box<dyn Any>) {
    with(|context| context.wanted.borrow_mut().push_back(wanted));
    wake::wake_waiting();
}

/// Records that an attempt to connect may have been cancelled. Does nothing if no worker runs on this thread.
pub(crate) fn note_cancelled() {
    if let Ok(Some(context)) = CURRENT.try_with(|current| current.borrow().clone()) {
        context.has_cancelled.set(true);
        wake::wake_waiting();
    }
}

/// Returns the time by the worker's clock.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn now() -> Instant {
    with(Context::time)
}

/// Returns the present time by the worker's clock if the worker measures durations within a turn, or else that of the turn. `None` if
/// no worker runs on this thread.
pub(crate) fn precise_now_if_any() -> Option<Instant> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(|context| context.precise_now())).ok().flatten()
}

/// Returns nanoseconds, to measure durations within a turn of the worker; always 0 in simulations.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn stopwatch() -> u64 {
    with(|context| context.stopwatch.get()())
}

/// Returns the number of the worker's turn, which wraps, for code that does a bounded amount of work per turn.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn turn() -> u32 {
    with(|context| context.turn.get())
}

/// Wakes a task when the worker's next turn begins, after other connections and tasks have had theirs. (A task that wakes
/// itself is polled again in the same turn.)
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn wake_next_turn(waker: &Waker) {
    with(|context| context.next_turn.borrow_mut().push(waker.clone()));
    wake::wake_waiting();
}

/// Returns the memory budget of the current worker's server, or `None` if no worker runs on this thread.
pub(crate) fn budget() -> Option<Arc<crate::server::budget::Budget>> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(|context| context.shared.budget.clone())).ok().flatten()
}

/// Returns the time by the worker's clock, or `None` if no worker runs on this thread.
pub fn now_if_any() -> Option<Instant> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(|context| context.time())).ok().flatten()
}

/// Passes the memory that the current worker keeps, and the time, to a closure. Returns `None` if no worker runs on this thread.
pub(crate) fn kept<T>(use_it: impl FnOnce(&mut Kept, Instant) -> T) -> Option<T> {
    let context = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()?;
    Some(use_it(&mut context.kept.borrow_mut(), context.now.get()))
}

/// Returns a number that no other worker of this thread has or had, or `None` if no worker runs on this thread.
pub fn current_worker() -> Option<u64> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(|context| context.number)).ok().flatten()
}

/// Returns true if a worker runs on this thread that serves many connections at the same time. Only there it pays to
/// keep memory for the next connection.
pub fn serves_many() -> bool {
    CURRENT.try_with(|current| current.borrow().as_ref().is_some_and(|context| context.serves_many)).unwrap_or(false)
}

/// Returns the time of day by the worker's clock, which is virtual in the simulator. Uses the system's clock if no
/// worker runs on this thread.
pub fn time_of_day() -> SystemTime {
    let here = CURRENT.try_with(|current| current.borrow().as_ref().map(|context| context.unix_nanoseconds()));
    let since = Duration::from_nanos(here.ok().flatten().unwrap_or_else(highwire_io::clock::unix_nanoseconds));
    SystemTime::UNIX_EPOCH + since
}

pub(crate) fn wake_at(at: Instant, waker: &Waker) -> TimerKey {
    with(|context| context.add_timer(at, waker.clone()))
}

/// Runs a function on the blocking pool of the current worker's server. The caller polls the returned [`Asked`] for the
/// function's result.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn ask<T: Send + 'static>(function: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
    with(|context| context.shared.ask(function))
}

/// Removes a timer of the current worker. Does nothing if no worker runs on this thread.
pub(crate) fn forget(timer: TimerKey) {
    if let Ok(Some(context)) = CURRENT.try_with(|current| current.borrow().clone()) {
        context.timers.borrow_mut().remove(&timer);
    }
}

/// Gives a job and its argument to the blocking pool of the current worker's server.
///
/// # Errors
/// Returns the argument as the error if the pool is full or cannot start its first thread.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn offer<T: Send + 'static>(argument: T, job: Box<dyn FnOnce(T) + Send>) -> Result<(), T> {
    with(|context| context.shared.offer(argument, job))
}

/// Gives a job to the blocking pool as [`offer`] does, but does not panic if no worker runs on this thread.
///
/// # Errors
/// Returns the argument as the error if [`offer`] would, or if no worker runs on this thread.
pub fn try_offer<T: Send + 'static>(argument: T, job: Box<dyn FnOnce(T) + Send>) -> Result<(), T> {
    match CURRENT.try_with(|current| current.borrow().clone()) {
        Ok(Some(context)) => context.shared.offer(argument, job),
        _ => Err(argument),
    }
}

/// Lets a graceful shutdown wait, until the deadline of the shutdown, for the task that has this value, of the current worker.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn hold_shutdown() -> HeldShutdown {
    let context = current();
    context.holds.set(context.holds.get() + 1);
    HeldShutdown(Rc::downgrade(&context))
}

/// What [`hold_shutdown`] returns. The shutdown no longer waits when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct HeldShutdown(std::rc::Weak<Context>);

impl Drop for HeldShutdown {
    fn drop(&mut self) {
        if let Some(context) = self.0.upgrade() {
            context.holds.set(context.holds.get().saturating_sub(1));
            wake::wake_waiting();
        }
    }
}

/// Waits until the server begins a graceful shutdown. A task or a body that would go on for ever can end then, so that the
/// shutdown need not wait for its deadline.
///
/// # Panics
/// The future panics if it is polled and no worker runs on this thread.
pub fn stopping() -> Stopping {
    Stopping { registered: None }
}

/// The future that [`stopping`] returns.
#[derive(Debug)]
#[must_use]
pub struct Stopping {
    /// The number of its waker.
    registered: Option<u64>,
}

impl Future for Stopping {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        with(|context| {
            if context.stops.get() {
                return Poll::Ready(());
            }
            let mut waiting = context.await_stop.borrow_mut();
            let next = waiting.last_key_value().map_or(0, |(key, _)| key + 1);
            let key = *self.registered.get_or_insert(next);
            if !waiting.get(&key).is_some_and(|known| known.will_wake(cx.waker())) {
                waiting.insert(key, cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        if let Some(key) = self.registered
            && let Ok(Some(context)) = CURRENT.try_with(|current| current.borrow().clone())
        {
            context.await_stop.borrow_mut().remove(&key);
        }
    }
}

/// Runs a task on the current worker, beside its connections. The task need not be `Send`. It must not block.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    with(|context| context.spawn(Box::pin(task)));
}

/// Runs tasks on the worker of the thread that made it, also between the worker's turns inside another loop.
#[derive(Clone)]
pub struct Spawner {
    context: Rc<Context>,
}

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spawner")
    }
}

impl Spawner {
    /// Returns the spawner of the worker that runs on this thread, if one does.
    pub fn here() -> Option<Spawner> {
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten().map(|context| Spawner { context })
    }

    /// Runs a task as [`spawn`] does.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.context.spawn(Box::pin(task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_numbers_carry_what_they_stand_for() {
        for kind in [
            TaskKind::Connection { index: 0, generation: 0 },
            TaskKind::Connection { index: 67_108_863, generation: 16_777_215 },
            TaskKind::Spawned { index: 5, generation: 9 },
            TaskKind::Call { index: 67_108_863, generation: 16_777_215 },
            TaskKind::Stream { index: 67_108_863, generation: 4095, place: 4095 },
            TaskKind::Stream { index: 3, generation: 2, place: 1 },
        ] {
            assert_eq!(TaskKind::of(kind.number()), kind);
            assert!(kind.number() < 1 << highwire_io::wake::TASK_BITS);
        }
    }
}
