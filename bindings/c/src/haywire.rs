//! The interface of Haywire, for programs that were written for it: `include/haywire.h`.
//!
//! A response is a number, which the program holds as a pointer. While a handler runs, its response is on the stack of
//! the call (`Call`); one that the handler does not send stays in a table until it is sent. So sending a response
//! twice, or after it was freed, does nothing.

mod heads;
mod left;
mod settings;

use crate::current::{Handler, Role, handle_of_current, with_request};
use crate::data::Data;
use crate::deferred;
use crate::log::complain;
use crate::request::highwire_request;
use crate::response::{Draft, answer, answer_here, answer_with};
use crate::result::guarded;
use bytes::Bytes;
use highwire::server::{Balance, Engine, Runtime, Server};
use highwire::{App, BodyUse, IntoResponse, Response, StatusCode, direct};
use left::{Completion, Early, LEFT, Owned};
use settings::Settings;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::io::Write as _;
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Bytes of the program or of the library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_string {
    value: *mut c_char,
    length: usize,
}

/// cbindgen:ignore
pub type hw_http_response = c_void;

/// The settings of the program.
#[repr(C)]
#[derive(Debug)]
pub struct configuration {
    http_listen_address: *mut c_char,
    http_listen_port: c_uint,
    thread_count: c_uint,
    balancer: *mut c_char,
    parser: *mut c_char,
    tcp_nodelay: bool,
    listen_backlog: c_uint,
    max_request_size: c_uint,
}

/// A request as the program sees it.
#[repr(C)]
#[derive(Debug)]
pub struct http_request {
    http_major: c_ushort,
    http_minor: c_ushort,
    method: c_uchar,
    keep_alive: c_int,
    url: *mut hw_string,
    headers: *mut c_void,
    body: *mut hw_string,
    body_length: usize,
    state: c_int,
}

type Callback = Option<unsafe extern "C" fn(*mut http_request, *mut hw_http_response, *mut c_void)>;
type Completed = Option<unsafe extern "C" fn(*mut c_void)>;

/// The settings and routes of a program, before it opens the server.
#[derive(Default)]
struct Program {
    settings: Settings,
    /// The routes, with the last callback of each.
    routes: Vec<(String, unsafe extern "C" fn(*mut http_request, *mut hw_http_response, *mut c_void), usize)>,
}

static PROGRAM: LazyLock<Mutex<Program>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A response that is being made: pointers to the program's bytes, which live until it is sent.
#[derive(Default)]
struct Making {
    status: Option<hw_string>,
    fields: SmallVec<[(hw_string, hw_string); 8]>,
    body: Option<hw_string>,
}

// SAFETY: the pointers are followed only in `hw_http_response_send`, by the thread that calls it. The program promises that
// their bytes live until then.
unsafe impl Send for Making {}

/// The response of a handler that runs.
struct Call {
    handle: highwire_request,
    making: Making,
    /// True after the response was sent or freed.
    is_over: bool,
    /// The values that `hw_get_header` has returned.
    #[expect(clippy::vec_box, reason = "the program has pointers to the values")]
    given: Vec<Box<hw_string>>,
    /// The callback after the response was sent. It runs after the handler, never inside it.
    completed: Option<(unsafe extern "C" fn(*mut c_void), Data)>,
    previous: *mut Call,
}

thread_local! {
    static CALL: Cell<*mut Call> = const { Cell::new(ptr::null_mut()) };
}

/// Calls `act` with the call of this thread that has this response.
fn with_call<R>(handle: highwire_request, act: impl FnOnce(&mut Call) -> R) -> Option<R> {
    let mut place = CALL.get();
    while !place.is_null() {
        // SAFETY: the cell and each `previous` point to calls that have not returned, and `act` does not call the program.
        let call = unsafe { &mut *place };
        if call.handle == handle {
            return Some(act(call));
        }
        place = call.previous;
    }
    None
}

/// Returns the request of a program's pointer, which is the number of the request.
fn handle_of<T>(pointer: *const T) -> highwire_request {
    highwire_request { id: pointer as usize as u64 }
}

/// Changes a response that is being made. Does nothing if it was sent.
fn change(response: *mut hw_http_response, act: impl FnOnce(&mut Making)) {
    let handle = handle_of(response);
    let mut act = Some(act);
    let found = with_call(handle, |call| {
        if let Some(act) = act.take_if(|_| !call.is_over) {
            act(&mut call.making);
        }
    });
    if found.is_none()
        && let Some(act) = act
    {
        left::change(handle, act);
    }
}

/// Takes a response, to send or to free it. Returns `None` if it was sent or freed. If its handler still runs on
/// another thread, also returns `None`; when that handler returns, the result of `own` is sent.
fn take(handle: highwire_request, own: impl FnOnce(&Making) -> Owned) -> Option<Making> {
    let take = |call: &mut Call| {
        let was_over = std::mem::replace(&mut call.is_over, true);
        (!was_over).then(|| std::mem::take(&mut call.making))
    };
    match with_call(handle, take) {
        Some(making) => making,
        None => left::take(handle, own),
    }
}

/// The bytes of a string of the program.
///
/// # Safety
/// The pointer is NULL, or points to a string whose bytes stay as they are while the result is used.
unsafe fn bytes_of<'b>(string: *const hw_string) -> &'b [u8] {
    if string.is_null() {
        return &[];
    }
    // SAFETY: the caller promises a string.
    let string = unsafe { *string };
    if string.value.is_null() || string.length == 0 || string.length > isize::MAX as usize {
        return &[];
    }
    // SAFETY: the caller promises the bytes of the string.
    unsafe { std::slice::from_raw_parts(string.value.cast(), string.length) }
}

/// The text of a pointer of the program, or nothing for NULL.
///
/// # Safety
/// The pointer is NULL or points to a text that ends with a NUL.
unsafe fn text_of(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller promises a text that ends with a NUL.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Reads the settings from a file.
///
/// # Safety
/// The name is NULL or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_init_from_config(file: *mut c_char) -> c_int {
    // SAFETY: as the caller promises.
    let Some(file) = (unsafe { text_of(file) }) else { return 1 };
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            lock(&PROGRAM).settings = Settings::parse(&text);
            0
        }
        Err(error) => {
            complain("haywire", format_args!("cannot read {file}: {error}"));
            1
        }
    }
}

/// Takes the settings.
///
/// # Safety
/// The pointer is NULL or points to settings whose texts are NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_init_with_config(config: *const configuration) -> c_int {
    if config.is_null() {
        return 1;
    }
    // SAFETY: the caller promises settings.
    let config = unsafe { &*config };
    let default = Settings::default();
    lock(&PROGRAM).settings = Settings {
        // SAFETY: as the caller promises.
        address: unsafe { text_of(config.http_listen_address) }.unwrap_or(default.address),
        port: config.http_listen_port,
        threads: config.thread_count,
        // SAFETY: as the caller promises.
        balancer: unsafe { text_of(config.balancer) }.unwrap_or_default(),
        backlog: config.listen_backlog,
        most_bytes: config.max_request_size,
    };
    0
}

/// Adds a route.
///
/// # Safety
/// The route is NULL or ends with a NUL, and the callback is a function of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_http_add_route(route: *const c_char, callback: Callback, user_data: *mut c_void) {
    // SAFETY: as the caller promises.
    let (Some(route), Some(callback)) = (unsafe { text_of(route) }, callback) else { return };
    print(format_args!("Added route {route}"));
    let mut program = lock(&PROGRAM);
    let pattern = settings::pattern(&route);
    program.routes.retain(|(known, ..)| *known != pattern);
    program.routes.push((pattern, callback, user_data as usize));
}

/// Listens and serves until the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn hw_http_open() -> c_int {
    hw_http_open_with(0)
}

/// Listens and serves until the process ends, with this number of threads unless it is 0.
#[unsafe(no_mangle)]
pub extern "C" fn hw_http_open_with(threads: c_int) -> c_int {
    if let Ok(threads @ 1..) = u32::try_from(threads) {
        lock(&PROGRAM).settings.threads = threads;
    }
    let mut status = 0;
    guarded(|| {
        if let Err(error) = open() {
            complain("haywire", format_args!("{error}"));
            status = 1;
        }
        Ok(())
    });
    status
}

fn open() -> highwire::Result<()> {
    let program = std::mem::take(&mut *lock(&PROGRAM));
    let settings = program.settings.clone();
    let mut app = App::new();
    for (pattern, callback, data) in program.routes {
        let data = Data(data as *mut c_void);
        let handler = move || direct(BodyUse::Whole, move |request| call(callback, data, request));
        app = app.any(&pattern, handler());
        // A route with its method is found by one look-up.
        app = app.get(&pattern, handler()).post(&pattern, handler());
        // A slash at the end makes no difference.
        if pattern != "/" {
            app = app.any(&format!("{pattern}/"), handler());
        }
    }
    let app = app.fallback(|| error_page(StatusCode::NOT_FOUND)).on_error(|status, _| error_page(status)).configure(
        |config| {
            config.workers = settings.threads.max(1) as usize;
            config.server_name = Some("Haywire/master".to_string());
            match &*settings.balancer {
                "ipc" => config.balance = Balance::Handoff,
                "reuseport" => config.balance = Balance::ReusePort,
                _ => {}
            }
            // As in the original, several processes may listen on the port.
            config.socket.reuse_port = true;
            if settings.backlog > 0 {
                config.socket.backlog = settings.backlog.min(i32::MAX as u32) as _;
            }
            if settings.most_bytes > 0 {
                config.limits.body_bytes = settings.most_bytes.into();
            }
        },
    );
    let server = app.listen(&format!("{}:{}", settings.address, settings.port))?;
    print(format_args!(
        "Address: {}\nPort: {}\nThreads: {}\nListening...",
        settings.address, settings.port, settings.threads
    ));
    let _ = std::io::stdout().flush();
    serve(server, settings.threads)
}

/// Serves in threads, or in this thread if there are none. Installs no signal handlers.
fn serve(server: Server, threads: u32) -> highwire::Result<()> {
    if threads > 0 {
        return server.serve_with(drop);
    }
    server.into_worker(Runtime::new(Engine::Auto)?)?.run()
}

fn error_page(status: StatusCode) -> Response {
    Response::html(format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default())).with_status(status)
}

/// Calls the program's handler. Returns the response if it was sent before the handler returned.
fn call(
    callback: unsafe extern "C" fn(*mut http_request, *mut hw_http_response, *mut c_void),
    data: Data,
    request: &mut highwire::Request<'_>,
) -> Option<Response> {
    let handler = Inner { callback, data };
    let handler = Handler {
        function: inner,
        data: Data(ptr::from_ref(&handler).cast_mut().cast()),
        body: BodyUse::Whole,
        role: Role::Answers,
    };
    crate::current::call(&handler, request)
}

/// The program's handler, for [`inner`].
struct Inner {
    callback: unsafe extern "C" fn(*mut http_request, *mut hw_http_response, *mut c_void),
    data: Data,
}

/// Makes the request of this interface, and calls the program's handler.
///
/// # Safety
/// `data` points to an [`Inner`] that lives until this function returns.
unsafe extern "C" fn inner(handle: highwire_request, data: *mut c_void) {
    // SAFETY: `call` passes a pointer to an `Inner` that lives until this function returns.
    let handler = unsafe { &*data.cast::<Inner>() };
    let Some((mut url, mut body, head)) = with_request(handle, |request, body| {
        let string = |bytes: &[u8]| hw_string { value: bytes.as_ptr().cast_mut().cast(), length: bytes.len() };
        (string(request.target_bytes()), string(body), settings::head(request))
    }) else {
        return;
    };
    let mut call = Call {
        handle,
        making: Making::default(),
        is_over: false,
        given: Vec::new(),
        completed: None,
        previous: CALL.get(),
    };
    let mut request = http_request {
        http_major: head.major,
        http_minor: head.minor,
        method: head.method,
        keep_alive: c_int::from(head.keeps_alive),
        url: &raw mut url,
        headers: handle.id as usize as *mut c_void,
        body: &raw mut body,
        body_length: body.length,
        state: 0,
    };
    let place = &raw mut call;
    CALL.set(place);
    // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
    unsafe { (handler.callback)(&raw mut request, handle.id as usize as *mut c_void, handler.data.0) };
    // SAFETY: `place` points to `call`, which nothing else uses now.
    let call = unsafe { &mut *place };
    CALL.set(call.previous);
    if !call.is_over {
        let mut left = lock(&LEFT);
        let Early { making, sent } = left.take_early(handle).unwrap_or_default();
        let own = std::mem::take(&mut call.making);
        match sent {
            // Another thread has sent it already.
            Some(mut sent) => {
                drop(left);
                let whole = sent.over(own);
                // SAFETY: the strings of the handler live until the response is sent, which is now, and `sent` has the others.
                answer_here(handle, || unsafe { heads::response(&whole) });
                sent.completion.is_owed = false;
                let data = Data(sent.completion.data.0);
                call.completed = sent.completion.callback.map(|callback| (callback, data));
            }
            // The program sends it later, also from another thread, which needs the deferred request.
            None => {
                let _ = crate::current::defer(handle);
                left.making.insert(handle, own.and(making));
            }
        }
    }
    if let Some((completed, data)) = call.completed.take() {
        complete(Some(completed), data);
    }
}

/// Returns the value of the last header field of this name.
///
/// # Safety
/// The request is one of a handler that runs, and the key is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_get_header(request: *mut http_request, key: *const hw_string) -> *mut hw_string {
    if request.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: as the caller promises.
    let (handle, key) = unsafe { (handle_of((*request).headers), bytes_of(key)) };
    let found = with_request(handle, |request, _| {
        let mut fields = request.headers().filter(|(name, _)| {
            name.len() == key.len() && name.bytes().zip(key).all(|(its, wanted)| its.to_ascii_lowercase() == *wanted)
        });
        let last = fields.by_ref().last();
        last.map(|(_, value)| hw_string { value: value.as_ptr().cast_mut().cast(), length: value.len() })
    });
    let Some(Some(value)) = found else { return ptr::null_mut() };
    let given = with_call(handle, |call| {
        call.given.push(Box::new(value));
        call.given.last_mut().map_or(ptr::null_mut(), |value| &raw mut **value)
    });
    given.unwrap_or(ptr::null_mut())
}

/// Frees a response without sending it. Its client gets 500.
#[unsafe(no_mangle)]
pub extern "C" fn hw_free_http_response(response: *mut hw_http_response) {
    guarded(|| {
        let own = |_: &Making| {
            let completion = Completion { callback: None, data: Data(ptr::null_mut()), is_owed: false };
            let status = Some(b"500 Internal Server Error".to_vec());
            Owned { status, fields: Vec::new(), body: None, completion }
        };
        let handle = handle_of(response);
        if take(handle, own).is_some() { answer(handle, Draft::new(500)?) } else { Ok(()) }
    });
}

/// Has no effect: the connection determines the version.
#[unsafe(no_mangle)]
pub extern "C" fn hw_set_http_version(_: *mut hw_http_response, _: c_ushort, _: c_ushort) {}

/// Sets the status, such as `200 OK`.
///
/// # Safety
/// The bytes of the string live until the response is sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_set_response_status_code(response: *mut hw_http_response, status: *const hw_string) {
    if !status.is_null() {
        // SAFETY: the caller promises a string.
        let status = unsafe { *status };
        change(response, |making| making.status = Some(status));
    }
}

/// Adds a header field.
///
/// # Safety
/// The bytes of the strings live until the response is sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_set_response_header(
    response: *mut hw_http_response,
    name: *const hw_string,
    value: *const hw_string,
) {
    if !name.is_null() && !value.is_null() {
        // SAFETY: the caller promises strings.
        let field = unsafe { (*name, *value) };
        change(response, |making| making.fields.push(field));
    }
}

/// Sets the body.
///
/// # Safety
/// The bytes of the string live until the response is sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_set_body(response: *mut hw_http_response, body: *const hw_string) {
    if !body.is_null() {
        // SAFETY: the caller promises a string.
        let body = unsafe { *body };
        change(response, |making| making.body = Some(body));
    }
}

/// Sends a response.
///
/// # Safety
/// The strings that were set still have their bytes, and the callback is NULL or a function of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_http_response_send(
    response: *mut hw_http_response,
    user_data: *mut c_void,
    callback: Completed,
) {
    guarded(|| {
        let handle = handle_of(response);
        let sent = with_call(handle, |call| {
            // SAFETY: as the caller promises.
            if call.is_over || !answer_here(handle, || unsafe { heads::response(&call.making) }) {
                return false;
            }
            call.is_over = true;
            call.completed = callback.map(|callback| (callback, Data(user_data)));
            true
        });
        if sent == Some(true) {
            return Ok(());
        }
        let own = |making: &Making| {
            let completion = Completion { callback, data: Data(user_data), is_owed: true };
            // SAFETY: as the caller promises.
            unsafe { Owned::of(making, completion) }
        };
        let Some(making) = take(handle, own) else { return Ok(()) };
        // A response may come after the end of its request, and is then dropped. Its callback is still called, because
        // that frees the program's data. A second response in the handler is a mistake, and its callback is not called.
        let is_owed = !handle_of_current(handle) || deferred::get(handle).is_some();
        let completion = Completion { callback, data: Data(user_data), is_owed };
        // SAFETY: as the caller promises.
        let sending = unsafe { Sending::of(&making, completion) };
        answer_with(handle, sending, Sending::into_response)
    });
}

fn complete(callback: Completed, data: Data) {
    if let Some(callback) = callback {
        // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
        unsafe { callback(data.0) };
    }
}

/// A response with bytes of its own.
struct Sending {
    status: StatusCode,
    reason: Option<String>,
    draft: Draft,
    completion: Completion,
}

impl Sending {
    /// Copies a response.
    ///
    /// # Safety
    /// The strings have their bytes.
    unsafe fn of(making: &Making, completion: Completion) -> Sending {
        let bytes = |string: &hw_string| {
            // SAFETY: as the caller promises.
            unsafe { bytes_of(string) }
        };
        let line = making.status.as_ref().map_or(&b"200 OK"[..], bytes);
        let (status, reason) = settings::status(line);
        let mut draft = Draft::of(status);
        for (name, value) in &making.fields {
            // A field that would split the response is left out.
            let name = String::from_utf8_lossy(bytes(name));
            let _ = draft.add_header(&name, bytes(value));
        }
        draft.set_body(Bytes::copy_from_slice(making.body.as_ref().map_or(&[][..], bytes)));
        Sending { status, reason, draft, completion }
    }

    /// Makes the response, on the request's worker.
    fn into_response(self) -> Response {
        let Sending { status, reason, draft, mut completion } = self;
        let mut response = draft.into_response();
        if let Some(reason) = reason {
            response = response.with_reason(&reason).unwrap_or_else(|_| error_page(status));
        }
        if completion.callback.is_some() {
            // The callback runs after the bytes are on their way, never inside `hw_http_response_send`.
            completion.is_owed = true;
            highwire::spawn(async move { drop(completion) });
        }
        response
    }
}

/// Prints a line. If standard output fails, the line is lost: a panic would end the program.
fn print(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints the header fields of a request.
///
/// # Safety
/// The request is one of a handler that runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_print_request_headers(request: *mut http_request) {
    if request.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    let handle = unsafe { handle_of((*request).headers) };
    let _ = with_request(handle, |request, _| {
        for (name, value) in request.headers() {
            print(format_args!("KEY: {} VALUE: {}", name.to_ascii_lowercase(), String::from_utf8_lossy(value)));
        }
    });
}

/// Prints the body of a request.
///
/// # Safety
/// The request is one of a handler that runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_print_body(request: *mut http_request) {
    if request.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    let body = unsafe { bytes_of((*request).body) };
    print(format_args!("BODY: {}", String::from_utf8_lossy(body)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// # Safety
    /// `calls` points to a cell.
    unsafe extern "C" fn count(calls: *mut c_void) {
        // SAFETY: as the caller promises.
        let calls = unsafe { &*calls.cast::<Cell<u32>>() };
        calls.set(calls.get() + 1);
    }

    #[test]
    fn a_late_response_that_nobody_takes_is_completed() {
        let calls = Cell::new(0);
        let completion =
            |is_owed| Completion { callback: Some(count), data: Data((&raw const calls).cast_mut().cast()), is_owed };
        let making = Making { status: None, fields: SmallVec::new(), body: None };
        // SAFETY: the response has no strings.
        drop(unsafe { Sending::of(&making, completion(false)) });
        assert_eq!(calls.get(), 0, "a second response of a handler");
        // SAFETY: as above.
        drop(unsafe { Sending::of(&making, completion(true)) });
        assert_eq!(calls.get(), 1);
    }
}
