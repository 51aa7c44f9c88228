//! Responses that a program gives on another thread than that of the connection.
//!
//! Another thread knows only the pointer of a request, which is the number of its connection. It finds the request itself here, and
//! answers it if its handler has returned. Otherwise the response waits here until then.

use crate::deferred;
use crate::request::highwire_request;
use crate::response::{Draft, answer};
use crate::result::Failed;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// What all threads know of a connection.
#[derive(Debug)]
pub(super) struct Known {
    number: u64,
    request: AtomicU64,
    /// True if the connection closes after the response.
    closes: AtomicBool,
    /// True if the program has answered the request.
    is_answered: AtomicBool,
}

/// The connections of all threads.
static KNOWN: LazyLock<Mutex<HashMap<u64, Arc<Known>>>> = LazyLock::new(Mutex::default);

/// The responses whose handlers have not returned, by their requests. Each handler that runs has at most one.
static EARLY: LazyLock<Mutex<HashMap<highwire_request, Draft>>> = LazyLock::new(Mutex::default);

/// How many these are, so that a handler without one need not look for it.
static EARLY_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The most of them. A server has one handler at a time; what is beyond this is a second response of a program to one request.
const MOST_EARLY: usize = 1024;

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
        });
        lock(&KNOWN).insert(number, known.clone());
        known
    }

    /// Begins a request.
    pub(super) fn begin(&self, request: highwire_request) {
        self.request.store(request.id, Ordering::Relaxed);
        self.closes.store(false, Ordering::Relaxed);
        self.is_answered.store(false, Ordering::Release);
    }

    pub(super) fn set_closes(&self, closes: bool) {
        self.closes.store(closes, Ordering::Relaxed);
    }

    /// Records that the program has answered the request.
    pub(super) fn set_answered(&self) {
        self.is_answered.store(true, Ordering::Release);
    }

    /// Returns true if the program has answered the request.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
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
    let draft = make(known.closes.load(Ordering::Relaxed));
    let request = highwire_request { id: known.request.load(Ordering::Relaxed) };
    // Under this lock the handler cannot return unnoticed.
    let mut early = lock(&EARLY);
    if known.is_answered.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    if deferred::get(request).is_none() {
        if early.len() < MOST_EARLY {
            early.insert(request, draft);
            EARLY_COUNT.store(early.len(), Ordering::Release);
        }
        return Ok(());
    }
    drop(early);
    answer(request, draft)
}

/// Sends the response that another thread has given before the handler of this request has returned. The request was deferred
/// before.
pub(super) fn send_early(request: highwire_request) {
    if let Some(draft) = take_early(request) {
        let _ = answer(request, draft);
    }
}

fn take_early(request: highwire_request) -> Option<Draft> {
    let mut early = lock(&EARLY);
    let draft = early.remove(&request);
    EARLY_COUNT.store(early.len(), Ordering::Release);
    draft
}

/// Drops such a response, because the handler has answered itself.
pub(super) fn drop_early(request: highwire_request) {
    if EARLY_COUNT.load(Ordering::Acquire) > 0 {
        drop(take_early(request));
    }
}
