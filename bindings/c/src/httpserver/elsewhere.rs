//! Responses that a program gives on another thread than that of the connection.
//!
//! Another thread knows only the pointer of a request, which is the number of its connection. It finds the request itself here, and
//! answers it if its handler has returned. Otherwise the response waits here until then.

use crate::request::highwire_request;
use crate::response::{Draft, answer};
use crate::result::Failed;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// What all threads know of a connection.
#[derive(Debug)]
pub(super) struct Known {
    number: u64,
    request: AtomicU64,
    /// True if the connection closes after the response.
    closes: AtomicBool,
    /// True if the program has answered the request. Until then, the strings that it has got stay valid, even if the
    /// client has disconnected.
    is_answered: AtomicBool,
    /// The state of the handler: one of the constants below.
    handler: AtomicU8,
}

/// The connections of all threads.
static KNOWN: LazyLock<Mutex<HashMap<u64, Arc<Known>>>> = LazyLock::new(Mutex::default);

/// The responses whose handlers have not returned, by their requests. Each handler that runs has at most one.
static EARLY: LazyLock<Mutex<HashMap<highwire_request, Draft>>> = LazyLock::new(Mutex::default);

/// The handler of a request runs.
const RUNS: u8 = 0;
/// It runs, and another thread has given the response, which is in [`EARLY`].
const HAS_EARLY: u8 = 1;
/// It has returned.
const HAS_RETURNED: u8 = 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// Makes a connection known.
    pub(super) fn new(number: u64) -> Arc<Known> {
        let known = Arc::new(Known {
            number,
            request: AtomicU64::new(0),
            closes: AtomicBool::new(false),
            is_answered: AtomicBool::new(false),
            handler: AtomicU8::new(HAS_RETURNED),
        });
        lock(&KNOWN).insert(number, known.clone());
        known
    }

    /// Begins a request.
    pub(super) fn begin(&self, request: highwire_request) {
        self.request.store(request.id, Ordering::Relaxed);
        self.closes.store(false, Ordering::Relaxed);
        self.handler.store(RUNS, Ordering::Relaxed);
        self.is_answered.store(false, Ordering::Release);
    }

    pub(super) fn set_closes(&self, closes: bool) {
        self.closes.store(closes, Ordering::Relaxed);
    }

    pub(super) fn closes(&self) -> bool {
        self.closes.load(Ordering::Relaxed)
    }

    /// Records that the program has answered the request.
    pub(super) fn set_answered(&self) {
        self.is_answered.store(true, Ordering::Release);
    }

    /// Returns true if the program has answered the request.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    /// Records that the handler has returned. Returns the response that another thread has given before.
    pub(super) fn end_handler(&self) -> Option<Draft> {
        if self.handler.swap(HAS_RETURNED, Ordering::AcqRel) != HAS_EARLY {
            return None;
        }
        let request = highwire_request { id: self.request.load(Ordering::Relaxed) };
        lock(&EARLY).remove(&request)
    }

    /// Forgets the connection.
    pub(super) fn forget(&self) {
        let mut known = lock(&KNOWN);
        // A later connection may have the number.
        if known.get(&self.number).is_some_and(|its| std::ptr::eq(&**its, self)) {
            known.remove(&self.number);
        }
    }
}

/// Answers the request of a connection of another thread.
pub(super) fn respond(number: u64, make: impl FnOnce(bool) -> Draft) -> Result<(), Failed> {
    let Some(known) = lock(&KNOWN).get(&number).cloned() else { return Ok(()) };
    let draft = make(known.closes());
    let request = highwire_request { id: known.request.load(Ordering::Relaxed) };
    if known.is_answered.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // A handler that returns meanwhile waits for this lock.
    let mut early = lock(&EARLY);
    if known.handler.compare_exchange(RUNS, HAS_EARLY, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        early.insert(request, draft);
        return Ok(());
    }
    drop(early);
    answer(request, draft)
}
