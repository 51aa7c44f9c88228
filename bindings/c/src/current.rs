//! The requests whose handlers run on this thread.
//!
//! While a handler runs, its request is borrowed from the connection. A `Current` is on the stack of the function that
//! calls the handler, and a cell of the thread points to it, so that reading and answering a request needs no table and
//! no copy. Handlers may nest, because one may run a turn of another loop, so each `Current` points to the one around
//! it.

use crate::data::Data;
use crate::deferred::{self, Deferred};
use crate::handles::{kind_bits, missing};
use crate::request::{highwire_request, highwire_string};
use crate::result::{Failed, HIGHWIRE_WRONG_STATE, failed};
use bytes::Bytes;
use highwire::{BodyUse, Request, Response, StatusCode};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A handler of the program.
#[derive(Clone, Copy)]
pub(crate) struct Handler {
    pub(crate) function: unsafe extern "C" fn(highwire_request, *mut c_void),
    pub(crate) data: Data,
    pub(crate) body: BodyUse,
    /// Decides what happens to the request before and after the function.
    pub(crate) role: Role,
}

/// What the program does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Answers it, now or later.
    Answers,
    /// Answers it later: it is deferred before the function is called.
    AnswersLater,
    /// Reads it before its handler, as a hook, and may answer it at once.
    Looks,
}

/// The request whose handler runs.
pub(crate) struct Current {
    handle: highwire_request,
    /// The request. It lives until [`call`] returns.
    request: *mut Request<'static>,
    pub(crate) answer: Option<Response>,
    /// The request's copy, if it was deferred.
    pub(crate) deferred: Option<Arc<Deferred>>,
    pub(crate) body_use: BodyUse,
    role: Role,
    /// The whole body, after it was taken from the request.
    body: Option<Bytes>,
    /// Decoded values that were given to the handler.
    decoded: Vec<Box<[u8]>>,
    previous: *mut Current,
}

thread_local! {
    static CURRENT: Cell<*mut Current> = const { Cell::new(ptr::null_mut()) };
    /// The next number of a request, and the end of the numbers that this thread has reserved.
    static NUMBERS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// The kind of these handles: see [`handles`](crate::handles).
const KIND: u64 = kind_bits::<highwire_request>();

/// How many numbers a thread reserves at a time.
const BLOCK: u64 = 1 << 16;

pub(crate) fn next_handle() -> highwire_request {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NUMBERS.with(|numbers| {
        let (mut next, mut end) = numbers.get();
        if next == end {
            next = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
            end = next + BLOCK;
        }
        numbers.set((next + 1, end));
        highwire_request { id: KIND | (next & ((1 << 56) - 1)) }
    })
}

/// Calls the program's handler for a request. Returns the answer, or `None` if the request was deferred, or only looked at.
pub(crate) fn call(handler: &Handler, request: &mut Request<'_>) -> Option<Response> {
    let mut current = Current {
        handle: next_handle(),
        request: ptr::from_mut(request).cast(),
        answer: None,
        deferred: None,
        body_use: handler.body,
        role: handler.role,
        body: None,
        decoded: Vec::new(),
        previous: CURRENT.get(),
    };
    if handler.role == Role::AnswersLater
        && let Err(response) = current.defer()
    {
        return Some(response);
    }
    let handle = current.handle;
    let place = &raw mut current;
    CURRENT.set(place);
    // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
    unsafe { (handler.function)(handle, handler.data.0) };
    // SAFETY: `place` points to `current`, which nothing else uses now.
    let current = unsafe { &mut *place };
    CURRENT.set(current.previous);
    if current.answer.is_none() && current.deferred.is_none() && handler.role != Role::Looks {
        // The program will answer later on this thread.
        if let Err(response) = current.defer() {
            return Some(response);
        }
    }
    current.answer.take()
}

impl Current {
    pub(crate) fn request(&mut self) -> &mut Request<'static> {
        // SAFETY: the request lives until `call` returns, and `CURRENT` names this value only until then. The reference is
        // not given to anything that lives longer.
        unsafe { &mut *self.request }
    }

    /// Defers the request: it can then be answered later.
    fn defer(&mut self) -> Result<Arc<Deferred>, Response> {
        if let Some(deferred) = &self.deferred {
            return Ok(deferred.clone());
        }
        if self.role == Role::Looks {
            return Err(Response::new(StatusCode::INTERNAL_SERVER_ERROR));
        }
        let (handle, body_use, body) = (self.handle, self.body_use, self.body.take());
        let deferred = deferred::keep(handle, self.request(), body_use, body)?;
        self.deferred = Some(deferred.clone());
        Ok(deferred)
    }

    /// Takes the whole body from the request, if the route has one and it was not taken.
    fn take_body(&mut self) {
        if self.deferred.is_none() && self.body.is_none() && self.body_use == BodyUse::Whole {
            self.body = self.request().take_body().ok();
        }
    }

    pub(crate) fn body(&mut self) -> Bytes {
        self.take_body();
        match &self.deferred {
            Some(deferred) => deferred.body.clone(),
            None => self.body.clone().unwrap_or_default(),
        }
    }

    /// Keeps a decoded value until the handler returns.
    pub(crate) fn keep(&mut self, value: impl Into<Vec<u8>>) -> highwire_string {
        self.decoded.push(value.into().into_boxed_slice());
        self.decoded.last().map_or(highwire_string::NONE, |value| highwire_string::of(value))
    }
}

/// Calls `act` with the current request of this thread that has this handle, if there is one. `act` must not call the
/// program.
pub(crate) fn with_current<R>(handle: highwire_request, act: impl FnOnce(&mut Current) -> R) -> Option<R> {
    let mut place = CURRENT.get();
    while !place.is_null() {
        // SAFETY: the cell and each `previous` point to values of calls that have not returned. Nothing else refers to them
        // while `act` runs, because `act` does not call the program.
        let current = unsafe { &mut *place };
        if current.handle == handle {
            return Some(act(current));
        }
        place = current.previous;
    }
    None
}

/// Calls `act` with the request whose handler runs on this thread, and its whole body. `act` must not call the program. The
/// bytes of both live until the handler returns.
pub(crate) fn with_request<R>(handle: highwire_request, act: impl FnOnce(&Request<'_>, &[u8]) -> R) -> Option<R> {
    with_current(handle, |current| {
        current.take_body();
        // SAFETY: as in `Current::request`. No other reference to it exists while `act` runs.
        let request = unsafe { &*current.request };
        let kept = current.deferred.as_ref().map(|deferred| &deferred.body);
        act(request, kept.or(current.body.as_ref()).map_or(&[], |body| body))
    })
}

/// Calls `act` with the request whose handler runs on this thread. `act` must not call the program.
pub(crate) fn with_request_mut<R>(handle: highwire_request, act: impl FnOnce(&mut Request<'_>) -> R) -> Option<R> {
    with_current(handle, |current| act(current.request()))
}

/// Returns true if the handler of a request runs on this thread.
pub(crate) fn handle_of_current(handle: highwire_request) -> bool {
    with_current(handle, |_| ()).is_some()
}

/// Returns true if the program has not answered a request. Unlike [`defer`], formats no error.
pub(crate) fn is_unanswered(handle: highwire_request) -> bool {
    let here = with_current(handle, |current| current.answer.is_none() && current.deferred.is_none());
    here == Some(true) || deferred::get(handle).is_some()
}

/// Returns the deferred request of a handle that `with_current` did not find.
pub(crate) fn deferred_request(handle: highwire_request) -> Result<Arc<Deferred>, Failed> {
    deferred::get(handle).ok_or_else(|| missing(handle))
}

/// Returns how the route of a request takes its body.
pub(crate) fn body_use(handle: highwire_request) -> Result<BodyUse, Failed> {
    match with_current(handle, |current| current.body_use) {
        Some(body_use) => Ok(body_use),
        None => Ok(deferred_request(handle)?.body_use),
    }
}

/// Returns the deferred request of a handle, and defers it first if its handler runs on this thread.
pub(crate) fn defer(handle: highwire_request) -> Result<Arc<Deferred>, Failed> {
    match with_current(handle, |current| if current.answer.is_some() { None } else { Some(current.defer()) }) {
        Some(None) => failed(HIGHWIRE_WRONG_STATE, "the request was answered already"),
        Some(Some(Ok(deferred))) => Ok(deferred),
        Some(Some(Err(_))) => failed(HIGHWIRE_WRONG_STATE, "the request cannot be answered later"),
        None => deferred_request(handle),
    }
}
