//! Request bodies in parts. A body belongs to its request's worker, so only that thread may ask for a part.

use crate::current::defer;
use crate::data::Data;
use crate::request::highwire_request;
use crate::result::{
    Failed, HIGHWIRE_GONE, HIGHWIRE_OK, HIGHWIRE_WRONG_STATE, HIGHWIRE_WRONG_THREAD, failed, guarded, highwire_result,
};
use bytes::Bytes;
use highwire::body::BodyError;
use highwire::{Body, BodyUse};
use highwire_engine::context::Spawner;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;

/// Gets a part of a request's body, which is valid until the callback returns. After the last part `length` is 0. If
/// the body ends early, `result` is `HIGHWIRE_GONE`, and `highwire_last_error` has the reason.
pub type highwire_part_callback = Option<
    unsafe extern "C" fn(
        request: highwire_request,
        result: highwire_result,
        part: *const c_void,
        length: usize,
        data: *mut c_void,
    ),
>;

/// A body, and the worker that receives it. The program may ask for a part between the worker's turns.
pub(crate) struct Waiting {
    pub(crate) body: Body,
    pub(crate) spawner: Option<Spawner>,
}

thread_local! {
    /// The bodies of this worker's deferred requests. `None` while a task waits for a part.
    static BODIES: RefCell<HashMap<highwire_request, Option<Waiting>>> = RefCell::default();
}

/// Marks that a task waits for a body. The task drops this at its end, or when its thread ends earlier.
pub(crate) struct Awaiting {
    request: highwire_request,
    /// True if the task has put the body back.
    is_kept: bool,
}

impl Awaiting {
    pub(crate) fn new(request: highwire_request) -> Awaiting {
        Awaiting { request, is_kept: false }
    }

    /// Puts the body back for the next call.
    pub(crate) fn keep(&mut self, waiting: Waiting) {
        self.is_kept = true;
        keep_for(self.request, waiting);
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        if !self.is_kept {
            forget(self.request);
        }
        crate::deferred::end_body(self.request);
    }
}

/// The number of bodies above which the worker searches for dead ones. If another thread answers a request after its
/// client is gone, the worker is not told.
const MANY: usize = 64;

/// Keeps the body of a request that is being deferred.
pub(crate) fn keep(handle: highwire_request, body: Body) {
    keep_for(handle, Waiting { body, spawner: Spawner::here() });
}

fn keep_for(handle: highwire_request, waiting: Waiting) {
    let dropped: Vec<Option<Waiting>> = BODIES.with_borrow_mut(|bodies| {
        let is_full = bodies.len() >= MANY && bodies.len() == bodies.capacity();
        let dead =
            |handle: &highwire_request, _: &mut Option<Waiting>| is_full && crate::deferred::get(*handle).is_none();
        let dropped = bodies.extract_if(dead).map(|(_, body)| body).collect();
        bodies.insert(handle, Some(waiting));
        dropped
    });
    drop(dropped);
}

/// Drops the body of an answered request, if this is its worker's thread. If it is not, the worker calls this when it
/// makes the response.
pub(crate) fn forget(handle: highwire_request) {
    let body = BODIES.try_with(|bodies| bodies.borrow_mut().remove(&handle));
    drop(body);
}

/// Asks for the next part of a request's body. The route must take the body in parts. The callback is called once,
/// later, on the worker's thread, unless the program first answers the request or ends the response's stream. For
/// another part, call this again, in the callback or later. Until you do, the library buffers a limited amount, and then
/// receives nothing more from the client.
///
/// The request is deferred, so it must be answered later. It may be answered by `highwire_respond_stream` before its body has ended; the
/// rest of the body can then be read until the stream has ended.
///
/// # Safety
/// `callback` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_read(
    request: highwire_request,
    callback: highwire_part_callback,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(callback) = callback else { return crate::result::null("callback") };
        let data = Data(data);
        let deferred = defer(request)?;
        if deferred.body_use != BodyUse::Parts {
            return failed(HIGHWIRE_WRONG_STATE, "the route does not take the body in parts");
        }
        if deferred.is_gone() {
            return failed(HIGHWIRE_GONE, "the client is gone");
        }
        let mut waiting = take(request)?;
        let Some(spawner) = waiting.spawner.clone() else {
            return failed(HIGHWIRE_WRONG_THREAD, "the body was received without a worker");
        };
        let mut awaiting = Awaiting::new(request);
        spawner.spawn(async move {
            let part = waiting.body.next().await;
            // The request may have been answered meanwhile. Its body then ends here.
            if crate::deferred::get(request).is_some() {
                awaiting.keep(waiting);
                tell(request, part, callback, data);
            }
        });
        Ok(())
    })
}

/// Returns true if the program waits for a part of a body of this worker.
pub(crate) fn is_awaited(handle: highwire_request) -> bool {
    BODIES.try_with(|bodies| matches!(bodies.borrow().get(&handle), Some(None))).unwrap_or(false)
}

/// Takes the body of a deferred request, on its worker's thread.
pub(crate) fn take(handle: highwire_request) -> Result<Waiting, Failed> {
    match BODIES.with_borrow_mut(|bodies| bodies.get_mut(&handle).map(Option::take)) {
        Some(Some(waiting)) => Ok(waiting),
        Some(None) => failed(HIGHWIRE_WRONG_STATE, "the program waits for a part of this body already"),
        None => failed(HIGHWIRE_WRONG_THREAD, "only the request's worker may read its body"),
    }
}

fn tell(
    request: highwire_request,
    part: Option<Result<Bytes, BodyError>>,
    callback: unsafe extern "C" fn(highwire_request, highwire_result, *const c_void, usize, *mut c_void),
    data: Data,
) {
    let (result, part) = match part {
        Some(Ok(part)) => (HIGHWIRE_OK, part),
        None => (HIGHWIRE_OK, Bytes::new()),
        Some(Err(error)) => (guarded(|| failed(HIGHWIRE_GONE, error.to_string())), Bytes::new()),
    };
    let pointer = if part.is_empty() { ptr::null() } else { part.as_ptr() };
    // SAFETY: the program has given the function as one of this type. It is C's and does not unwind. The bytes live until it
    // returns.
    unsafe { callback(request, result, pointer.cast(), part.len(), data.0) };
}
