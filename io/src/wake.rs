//! Wakes threads: a [`Notifier`] ends the wait of a driver's turn, and a [`Waker`] wakes a task that belongs to one
//! thread.
//!
//! A [`Waker`] of this module consists of two numbers, an inbox and a task, and owns no memory. Cloning copies it and
//! dropping does nothing, so a waiting task costs no reference count. The inboxes are in a table that exists until the
//! process ends, and are reused. A waker that outlives its inbox may wake a task of the inbox's next owner; futures
//! must allow such spurious wakes.

use crate::sys::Waitable;
use crate::sys::wake::Bell;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// Ends the wait of a driver's turn, from any thread.
#[derive(Clone, Debug)]
pub struct Notifier {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bell: Bell,
    /// True from a notification until it is acknowledged, so that many notifications cost one system call.
    pending: AtomicBool,
    /// True from a notification until it is acknowledged, even if the bell could not be rung. The simulator polls this
    /// flag, because it cannot wait for the descriptor.
    woken: AtomicBool,
}

impl Notifier {
    /// Creates a notifier with its own descriptor.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn new() -> io::Result<Notifier> {
        let (pending, woken) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Notifier { shared: Arc::new(Shared { bell: Bell::new()?, pending, woken }) })
    }

    /// Ends the current wait of the driver, or its next one.
    pub fn notify(&self) {
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            self.shared.woken.store(true, Ordering::Release);
            if !self.shared.bell.ring() {
                // The next call tries again.
                self.shared.pending.store(false, Ordering::Release);
            }
        }
    }

    /// Clears the notification, so that a later one ends a wait again. Drivers call this, and loops that wait for the
    /// descriptor.
    pub fn acknowledge(&self) {
        self.shared.bell.silence();
        self.shared.woken.store(false, Ordering::Release);
        self.shared.pending.store(false, Ordering::Release);
    }

    /// Returns true if a notification is pending, without a system call. The simulator uses this.
    pub fn is_notified(&self) -> bool {
        self.shared.woken.load(Ordering::Acquire)
    }

    /// Returns the descriptor that is readable while a notification is pending.
    pub fn descriptor(&self) -> Waitable {
        self.shared.bell.waitable()
    }

    /// Returns the descriptor that a signal handler writes to.
    #[cfg(unix)]
    pub(crate) fn to_ring(&self) -> Waitable {
        self.shared.bell.to_ring()
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.shared.bell
    }
}

/// The number of a task, assigned by the executor of its thread.
pub type TaskNumber = u64;

/// The number of bits in a task number. The other bits of a waker are the inbox's number.
pub const TASK_BITS: u32 = 52;

const TASK_MASK: u64 = (1 << TASK_BITS) - 1;

const INBOXES: usize = 1 << (64 - TASK_BITS);

#[derive(Debug)]
struct Inbox {
    taken: AtomicBool,
    from_elsewhere: Mutex<(Vec<TaskNumber>, Option<Notifier>)>,
}

static TABLE: OnceLock<Box<[Inbox]>> = OnceLock::new();

fn inbox(number: usize) -> &'static Inbox {
    let table = TABLE.get_or_init(|| {
        (0..INBOXES)
            .map(|_| Inbox { taken: AtomicBool::new(false), from_elsewhere: Mutex::new((Vec::new(), None)) })
            .collect()
    });
    &table[number]
}

/// The most wakes for which a thread keeps memory. After a burst of more, growing again costs a few reallocations.
pub const WAKES_KEPT: usize = 1024;

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(usize::MAX) };
    static LOCAL: RefCell<Vec<TaskNumber>> = const { RefCell::new(Vec::new()) };
    static WAITING: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Collects the woken tasks of one thread. Belongs to the thread that opened it.
///
/// While the thread is inside a turn ([`enter`](TaskInbox::enter)), its own wakes go to a list that the loop must check
/// before it waits. At all other times, such as between the turns of an embedded loop, they notify as wakes of other
/// threads do, because nothing else would end the wait of the outer loop.
#[derive(Debug)]
pub struct TaskInbox {
    number: usize,
    /// Makes the type not `Send`, because the thread-local list belongs to this thread.
    _local: std::marker::PhantomData<*const ()>,
}

impl TaskInbox {
    /// Opens an inbox for the current thread. Wakes by other threads or between turns notify `notifier`.
    ///
    /// # Errors
    /// Returns an error if 4,096 inboxes are already open in this process.
    pub fn open(notifier: Notifier) -> io::Result<TaskInbox> {
        for number in 0..INBOXES {
            let candidate = inbox(number);
            if !candidate.taken.swap(true, Ordering::AcqRel) {
                let mut content = candidate.from_elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
                *content = (Vec::new(), Some(notifier));
                return Ok(TaskInbox { number, _local: std::marker::PhantomData });
            }
        }
        Err(io::Error::other("this process already has 4,096 event loops, the most that it can have"))
    }

    /// Begins a turn of this inbox on the current thread. Until the guard is dropped, the thread's wakes of this
    /// inbox's tasks go to the thread's local list, which the loop must check ([`has_local`](Self::has_local)) before
    /// it ends the turn.
    pub fn enter(&self) -> InTurn {
        InTurn { previous: HERE.replace(self.number), _local: std::marker::PhantomData }
    }

    /// Returns a waker for one of this thread's tasks. The number must be less than 2 to the power of [`TASK_BITS`].
    pub fn waker(&self, task: TaskNumber) -> Waker {
        debug_assert!(task < 1 << TASK_BITS);
        let packed = (self.number as u64) << TASK_BITS | task;
        // SAFETY: the functions in the vtable use the data pointer only as a number and never dereference it. They keep
        // the contract of `RawWaker`: clone copies, drop does nothing, and wake may be called from any thread.
        unsafe { Waker::from_raw(raw(packed)) }
    }

    /// Returns true if tasks of this inbox that were woken on this thread in a turn wait for
    /// [`take_local`](Self::take_local).
    pub fn has_local(&self) -> bool {
        LOCAL.with_borrow(|local| local.iter().any(|&packed| self.owns(packed)))
    }

    /// Returns true if the packed waker names this inbox. All inboxes of one thread share its local list.
    fn owns(&self, packed: u64) -> bool {
        (packed >> TASK_BITS) as usize == self.number
    }

    /// Moves the tasks that were woken on this thread in a turn to `tasks`.
    pub fn take_local(&self, tasks: &mut Vec<TaskNumber>) {
        LOCAL.with_borrow_mut(|local| {
            local.retain(|&packed| {
                if self.owns(packed) {
                    tasks.push(packed & TASK_MASK);
                }
                !self.owns(packed)
            });
            if local.len() < WAKES_KEPT && local.capacity() > WAKES_KEPT {
                local.shrink_to(WAKES_KEPT);
            }
        });
    }

    /// Moves the tasks that were woken by other threads, or between turns, to `tasks`.
    pub fn take_remote(&self, tasks: &mut Vec<TaskNumber>) {
        let mut content = inbox(self.number).from_elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.append(&mut content.0);
    }
}

impl Drop for TaskInbox {
    fn drop(&mut self) {
        let inbox = inbox(self.number);
        *inbox.from_elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = (Vec::new(), None);
        inbox.taken.store(false, Ordering::Release);
        // This fails if the thread is ending and has already dropped the list.
        let _ = LOCAL.try_with(|local| local.borrow_mut().retain(|&packed| !self.owns(packed)));
    }
}

/// Records that the loop of this thread waits in a loop of another library, although the thread stays inside a turn
/// ([`TaskInbox::enter`]). The next wake of one of its tasks on this thread wakes `waker`, once.
pub fn begin_wait(waker: &Waker) {
    WAITING.set(Some(waker.clone()));
}

/// Ends the wait of [`begin_wait`], because there is something for the loop that wakes no task, such as a new timer.
pub fn wake_waiting() {
    if let Ok(Some(waiting)) = WAITING.try_with(RefCell::take) {
        waiting.wake();
    }
}

/// Records that the loop of this thread no longer waits.
pub fn leave_wait() {
    drop(WAITING.take());
}

/// Keeps the current thread inside a turn of an inbox until this guard is dropped: see [`TaskInbox::enter`].
#[derive(Debug)]
#[must_use]
pub struct InTurn {
    previous: usize,
    /// Makes the type not `Send`, because the turn belongs to this thread.
    _local: std::marker::PhantomData<*const ()>,
}

impl Drop for InTurn {
    fn drop(&mut self) {
        HERE.set(self.previous);
    }
}

fn raw(packed: u64) -> RawWaker {
    static TABLE: RawWakerVTable =
        RawWakerVTable::new(|data| raw(data as u64), |data| wake(data as u64), |data| wake(data as u64), |_| {});
    RawWaker::new(packed as usize as *const (), &TABLE)
}

const _: () = assert!(usize::BITS == 64, "a waker packs its two numbers into 64 bits");

fn wake(packed: u64) {
    let (number, task) = ((packed >> TASK_BITS) as usize, packed & TASK_MASK);
    if HERE.get() == number
        && LOCAL.try_with(|local| local.try_borrow_mut().map(|mut local| local.push(packed)).is_ok()).unwrap_or(false)
    {
        wake_waiting();
        return;
    }
    let mut content = inbox(number).from_elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
    let (tasks, notifier) = &mut *content;
    if let Some(notifier) = notifier {
        tasks.push(task);
        notifier.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_of_this_thread_are_local_and_of_others_notify() {
        let notifier = Notifier::new().expect("an eventfd");
        let inbox = TaskInbox::open(notifier.clone()).expect("a free inbox");
        let waker = inbox.waker(7);
        let mut tasks = Vec::new();
        {
            let _in_turn = inbox.enter();
            waker.wake_by_ref();
            assert!(inbox.has_local() && !notifier.is_notified());
            inbox.take_local(&mut tasks);
        }
        std::thread::spawn(move || waker.wake()).join().expect("no panic");
        assert!(notifier.is_notified());
        inbox.take_remote(&mut tasks);
        assert_eq!(tasks, [7, 7]);
    }

    #[test]
    fn wakes_of_this_thread_between_turns_notify() {
        let notifier = Notifier::new().expect("an eventfd");
        let inbox = TaskInbox::open(notifier.clone()).expect("a free inbox");
        let waker = inbox.waker(7);
        drop(inbox.enter());
        waker.wake();
        let mut tasks = Vec::new();
        assert!(!inbox.has_local() && notifier.is_notified());
        inbox.take_remote(&mut tasks);
        assert_eq!(tasks, [7]);
    }

    #[test]
    fn wakes_of_this_thread_in_a_wait_of_another_loop_wake_that_loop_once() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let notifier = Notifier::new().expect("an eventfd");
        let inbox = TaskInbox::open(notifier.clone()).expect("a free inbox");
        let count = Arc::new(Count(std::sync::atomic::AtomicUsize::new(0)));
        let woken = || count.0.load(Ordering::Relaxed);
        let waker = inbox.waker(7);
        let _in_turn = inbox.enter();
        waker.wake_by_ref();
        assert_eq!(woken(), 0, "the loop does not wait");
        begin_wait(&count.clone().into());
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!((woken(), notifier.is_notified()), (1, false));
        begin_wait(&count.clone().into());
        leave_wait();
        waker.wake_by_ref();
        assert_eq!(woken(), 1);
        let mut tasks = Vec::new();
        inbox.take_local(&mut tasks);
        assert_eq!(tasks, [7; 4]);
    }

    #[test]
    fn a_waker_of_a_closed_inbox_does_nothing() {
        let notifier = Notifier::new().expect("an eventfd");
        let inbox = TaskInbox::open(notifier.clone()).expect("a free inbox");
        let waker = inbox.waker(1);
        drop(inbox);
        waker.wake();
        assert!(!notifier.is_notified());
    }
}
