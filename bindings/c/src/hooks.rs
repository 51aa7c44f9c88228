//! Hooks of an app: functions that see all requests, all answers and all errors. And the value that a program keeps for a request.

use crate::app::{add_hook, change, highwire_app};
use crate::context::{Context, Value};
use crate::current::{Handler, Role, call, next_handle, with_current};
use crate::data::Data;
use crate::deferred::{self, Deferred};
use crate::request::{highwire_handler, highwire_request};
use crate::response::{self, Draft, highwire_response};
use crate::result::{HIGHWIRE_NOT_FOUND, failed, give, guarded, highwire_result, null};
use highwire::middleware::Middleware;
use highwire::{BodyUse, Request, Response};
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// Gets a response before it is sent, and may change its status, its header fields and its body. The callback may read
/// the head of `request`, but not its body, and cannot answer it. Both handles are valid until the callback returns.
pub type highwire_response_hook =
    Option<unsafe extern "C" fn(request: highwire_request, response: highwire_response, data: *mut c_void)>;

/// Fills in the response to an error outside of handlers. `text` is a short reason, which ends with a NUL. `response`
/// has the status `status`, such as 404, which the callback cannot change, and is valid until the callback returns.
pub type highwire_error_hook =
    Option<unsafe extern "C" fn(status: u32, text: *const c_char, response: highwire_response, data: *mut c_void)>;

/// Called around a wait of a worker's thread; see `highwire_app_on_wait`.
pub type highwire_wait_hook = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// Frees the value that a program keeps for a request. It may be called on any thread.
pub type highwire_request_data_callback = Option<unsafe extern "C" fn(value: *mut c_void)>;

/// Adds a hook that is called with each request before its handler, and also with requests that then get 404, 405 or
/// the app's response to OPTIONS; let OPTIONS pass if the app serves other origins (CORS). The hook may read the
/// request, but not its body, keep a value for the handler (`highwire_request_set_data`), and answer the request at
/// once; then no later hook and no handler is called. It cannot defer the request. Hooks are called in the order in
/// which they were added, on several workers' threads at the same time.
///
/// # Safety
/// `hook` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_on_request(
    app: highwire_app,
    hook: highwire_handler,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(function) = hook else { return null("hook") };
        let handler = Handler { function, data: Data(data), body: BodyUse::None, role: Role::Looks };
        add_hook(app, move |app| app.with(OnRequest(handler)))
    })
}

/// Sets functions that are called just before and just after a worker's thread blocks until something happens, on that
/// thread. They are not called when the worker only looks whether something has. A program whose handlers need a lock, such
/// as that of an interpreter, lets it go in `before` and takes it again in `after`. Later calls replace earlier ones.
///
/// # Safety
/// `before` and `after` must be functions with the signature of their type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_on_wait(
    app: highwire_app,
    before: highwire_wait_hook,
    after: highwire_wait_hook,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let (Some(before), Some(after)) = (before, after) else { return null("before or after") };
        let data = Data(data);
        let call = move |function: unsafe extern "C" fn(*mut c_void)| {
            move || {
                // Captures the whole `Data`, which is `Sync`, and not only its pointer.
                let data = &data;
                // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
                unsafe { function(data.0) }
            }
        };
        change(app, |app| app.on_wait(call(before), call(after)))
    })
}

struct OnRequest(Handler);

impl Middleware for OnRequest {
    type State = ();

    fn before(&self, request: &mut Request<'_>) -> Result<(), Response> {
        call(&self.0, request).map_or(Ok(()), Err)
    }

    fn after(&self, (): (), _: &mut Response) {}
}

/// Adds a hook that is called with each response: of handlers, of later hooks, of files, and to requests without a
/// route. It does not get the engine's own responses: to malformed requests, 413, time limits. Add header fields to
/// these in `highwire_app_on_error`, too. The hook must not free the response, and cannot add trailers. The hook that
/// was added last is called first, and all hooks before the response is compressed.
///
/// # Safety
/// `hook` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_on_response(
    app: highwire_app,
    hook: highwire_response_hook,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(function) = hook else { return null("hook") };
        let hook = OnResponse { function, data: Data(data) };
        add_hook(app, move |app| app.with(hook))
    })
}

struct OnResponse {
    function: unsafe extern "C" fn(highwire_request, highwire_response, *mut c_void),
    data: Data,
}

impl Middleware for OnResponse {
    /// A copy of the request, because the request itself is gone when the hook is called.
    type State = Arc<Deferred>;

    fn before(&self, request: &mut Request<'_>) -> Result<Arc<Deferred>, Response> {
        // So that the hook gets the value that the handler keeps.
        Context::of_or_new(request);
        Ok(Arc::new(Deferred::copy(request)))
    }

    fn after(&self, state: Arc<Deferred>, response: &mut Response) {
        let (request, draft) = (next_handle(), response::add_draft(Draft::of_response(response)));
        deferred::insert(request, state);
        // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
        unsafe { (self.function)(request, draft, self.data.0) };
        deferred::remove(request);
        // If the hook has freed the response, nothing changes.
        if let Ok(draft) = response::take(draft) {
            draft.change(response);
        }
    }
}

/// Sets the hook that fills in the responses to errors outside of handlers: requests without a route, malformed
/// requests, bodies that are too long, time limits. Without it, these responses are short texts.
///
/// # Safety
/// `hook` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_on_error(
    app: highwire_app,
    hook: highwire_error_hook,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(function) = hook else { return null("hook") };
        let data = Data(data);
        change(app, |app| {
            app.on_error(move |status, text| {
                // Captures the whole `Data`, which is `Sync`, and not only its pointer.
                let data = &data;
                let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
                let draft = response::add_draft(Draft::of(status));
                // SAFETY: the program has given the function as one of this type. It is C's and does not unwind. The text lives
                // until it returns.
                unsafe { function(status.as_u16().into(), text.as_ptr(), draft, data.0) };
                response::take(draft).unwrap_or_else(|_| Draft::of(status))
            })
        })
    })
}

/// Keeps a value for a request: for example what a hook has found out for the handlers. `release` may be NULL; the
/// library calls it once with the value, when another value replaces it or when the request has ended, even if its
/// client has disconnected. If this function fails, the program still owns the value.
///
/// # Safety
/// `release` must be NULL or a function of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_set_data(
    request: highwire_request,
    value: *mut c_void,
    release: highwire_request_data_callback,
) -> highwire_result {
    guarded(|| {
        let undeferred = with_current(request, |current| match &current.deferred {
            None => Some(Context::of_or_new(current.request())),
            Some(_) => None,
        });
        let context = match undeferred.flatten() {
            Some(context) => context,
            None => crate::current::deferred_request(request)?.context.get_or_init(Context::new).clone(),
        };
        context.set(Value { data: Data(value), release });
        Ok(())
    })
}

/// Gives the value that was kept for a request, or `HIGHWIRE_NOT_FOUND`.
///
/// # Safety
/// `out` must be NULL or point to a `void *`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_data(request: highwire_request, out: *mut *mut c_void) -> highwire_result {
    guarded(|| {
        let undeferred = with_current(request, |current| match &current.deferred {
            None => Some(Context::of(current.request())),
            Some(_) => None,
        });
        let found = match undeferred.flatten() {
            Some(found) => found,
            None => crate::current::deferred_request(request)?.context.get().cloned(),
        };
        let Some(value) = found.map(|context| context.get()).filter(|value| !value.is_null()) else {
            return failed(HIGHWIRE_NOT_FOUND, "no value is kept for the request");
        };
        // SAFETY: as the caller promises.
        unsafe { give(out, value, "out") }
    })
}
