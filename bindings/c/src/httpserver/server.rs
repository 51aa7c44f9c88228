//! Servers of a program: inside the thread that listens, with a descriptor for the program's own events.

use super::connections::{begin, call_back, end_handler};
use super::{RequestCallback, http_server_s};
use crate::current::{Handler, Role, defer, is_unanswered, with_request_mut};
use crate::data::Data;
use crate::embed::{self, highwire_loop};
use crate::log::complain;
use crate::receive;
use crate::request::highwire_request;
use crate::response::{Draft, answer};
use crate::result::{Failed, HIGHWIRE_SYSTEM, engine, guarded};
use bytes::Bytes;
use highwire::server::SocketId;
use highwire::{App, BodyUse, StatusCode, direct};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The knobs of the header, which each program sets for itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct http_server_knobs {
    request_timeout: c_int,
    keep_alive_timeout: c_int,
    max_total_est_mem_usage: i64,
    max_token_length: i64,
    max_request_buf_size: i64,
}

const DEFAULTS: http_server_knobs = http_server_knobs {
    request_timeout: 20,
    keep_alive_timeout: 120,
    max_total_est_mem_usage: 4 << 30,
    max_token_length: 8192,
    max_request_buf_size: 8 << 20,
};

impl http_server_knobs {
    /// Returns the knobs with the default in place of each that is 0, and of each negative size. A negative time means
    /// no limit.
    fn positive(self) -> http_server_knobs {
        fn time(name: &str, value: c_int, default: c_int) -> c_int {
            if value == 0 {
                complain("httpserver", format_args!("{name} is 0; using {default}"));
            }
            if value == 0 { default } else { value }
        }
        fn or<T: PartialOrd + Default + std::fmt::Display>(name: &str, value: T, default: T) -> T {
            if value > T::default() {
                return value;
            }
            complain("httpserver", format_args!("{name} is {value}, which is not positive; using {default}"));
            default
        }
        http_server_knobs {
            request_timeout: time("HTTP_REQUEST_TIMEOUT", self.request_timeout, DEFAULTS.request_timeout),
            keep_alive_timeout: time("HTTP_KEEP_ALIVE_TIMEOUT", self.keep_alive_timeout, DEFAULTS.keep_alive_timeout),
            max_total_est_mem_usage: or(
                "HTTP_MAX_TOTAL_EST_MEM_USAGE",
                self.max_total_est_mem_usage,
                DEFAULTS.max_total_est_mem_usage,
            ),
            max_token_length: or("HTTP_MAX_TOKEN_LENGTH", self.max_token_length, DEFAULTS.max_token_length),
            max_request_buf_size: or(
                "HTTP_MAX_REQUEST_BUF_SIZE",
                self.max_request_buf_size,
                DEFAULTS.max_request_buf_size,
            ),
        }
    }
}

/// A server.
pub(super) struct Server {
    pub(super) number: u32,
    port: c_int,
    handler: unsafe extern "C" fn(*mut super::http_request_s),
    knobs: http_server_knobs,
    pub(super) userdata: AtomicPtr<c_void>,
    /// The descriptor on which the program registers its events.
    epoll: c_int,
    /// The loop of the thread that listens, or 0.
    running: AtomicU64,
    /// The target of the pointer in the server's own event.
    event: Event,
}

/// The target of an event's pointer. The first member is the function that the program calls for the event, as httpserver.h says.
#[repr(C)]
struct Event {
    handler: unsafe extern "C" fn(*mut libc::epoll_event),
    server: u32,
}

/// The servers of all threads, because a program may make one in one thread and listen in another. None is ever freed.
static SERVERS: LazyLock<Mutex<HashMap<u32, Arc<Server>>>> = LazyLock::new(Mutex::default);

fn servers() -> MutexGuard<'static, HashMap<u32, Arc<Server>>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn running(&self) -> Option<highwire_loop> {
        Some(self.running.load(Ordering::Relaxed)).filter(|running| *running != 0).map(|id| highwire_loop { id })
    }
}

/// A server as a program holds it: memory that the program may free.
#[repr(C)]
struct Memory {
    number: u32,
}

/// Returns the server of a pointer.
///
/// # Safety
/// The pointer is NULL, or one of `http_server_init` that was not freed.
unsafe fn server_of(pointer: *mut http_server_s) -> Option<Arc<Server>> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller promises memory of `http_server_init_with`.
    let number = unsafe { (*pointer.cast::<Memory>()).number };
    servers().get(&number).cloned()
}

/// Makes a server for a port.
#[unsafe(no_mangle)]
pub extern "C" fn http_server_init(port: c_int, handler: RequestCallback) -> *mut http_server_s {
    http_server_init_with(port, handler, DEFAULTS)
}

/// Makes a server with the knobs of the program.
#[unsafe(no_mangle)]
pub extern "C" fn http_server_init_with(
    port: c_int,
    handler: RequestCallback,
    knobs: http_server_knobs,
) -> *mut http_server_s {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let Some(handler) = handler else { return ptr::null_mut() };
    // SAFETY: the call has no preconditions.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    // SAFETY: the size is not 0. The program frees it with `free`.
    let memory: *mut Memory = unsafe { libc::malloc(size_of::<Memory>()) }.cast();
    if epoll < 0 || memory.is_null() {
        // SAFETY: this function has made both, and nobody else has them. `free` accepts NULL, and `close` refuses -1.
        unsafe {
            libc::free(memory.cast());
            libc::close(epoll);
        }
        return ptr::null_mut();
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `malloc` has given memory for it.
    unsafe { memory.write(Memory { number }) };
    let server = Server {
        number,
        port,
        handler,
        knobs: knobs.positive(),
        userdata: AtomicPtr::default(),
        epoll,
        running: AtomicU64::new(0),
        event: Event { handler: turn, server: number },
    };
    servers().insert(number, Arc::new(server));
    memory.cast()
}

/// Sets a value of the program for the server.
///
/// # Safety
/// The pointer is one of `http_server_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_server_set_userdata(server: *mut http_server_s, data: *mut c_void) {
    // SAFETY: as the caller promises.
    if let Some(server) = unsafe { server_of(server) } {
        server.userdata.store(data, Ordering::Relaxed);
    }
}

/// Returns the epoll descriptor of the server.
///
/// # Safety
/// The pointer is one of `http_server_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_server_loop(server: *mut http_server_s) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { server_of(server) }.map_or(-1, |server| server.epoll)
}

/// Listens on all addresses, and serves for ever.
///
/// # Safety
/// The pointer is one of `http_server_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_server_listen(server: *mut http_server_s) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { http_server_listen_addr(server, ptr::null()) }
}

/// Listens on an address, and serves for ever. Returns -1 if it cannot listen.
///
/// # Safety
/// The pointer is one of `http_server_init`; the address is NULL or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_server_listen_addr(server: *mut http_server_s, address: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let Some(found) = (unsafe { server_of(server) }) else { return -1 };
    // SAFETY: as the caller promises.
    if unsafe { http_server_listen_addr_poll(server, address) } != 0 {
        return -1;
    }
    // The program may free the pointer meanwhile, so only the server itself is used.
    loop {
        if handle_event(&found, -1) < 0 {
            return -1;
        }
    }
}

/// Listens on all addresses, and returns. `http_server_poll` serves.
///
/// # Safety
/// The pointer is one of `http_server_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_server_listen_poll(server: *mut http_server_s) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { http_server_listen_addr_poll(server, ptr::null()) }
}

/// Listens on an address, and returns 0, or -1 if it cannot listen.
///
/// # Safety
/// As [`http_server_listen_addr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_server_listen_addr_poll(server: *mut http_server_s, address: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let Some(server) = (unsafe { server_of(server) }) else { return -1 };
    let address = if address.is_null() {
        "0.0.0.0".to_string()
    } else {
        // SAFETY: as the caller promises.
        unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned()
    };
    let mut status = -1;
    guarded(|| {
        match listen(&server, &address) {
            Ok(()) => status = 0,
            Err((_, text)) => complain("httpserver", format_args!("{text}")),
        }
        Ok(())
    });
    status
}

/// Handles at most one event, without waiting. Returns 1 if there was one, 0 if not, and -1 after an error. In a handler of the same
/// server it may return 0 while other events wait; these are handled afterwards.
///
/// # Safety
/// The pointer is one of `http_server_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_server_poll(server: *mut http_server_s) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { server_of(server) }.map_or(-1, |server| handle_event(&server, 0))
}

/// Waits for one event, and calls its function.
fn handle_event(server: &Server, timeout: c_int) -> c_int {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: there is room for one event.
    match unsafe { libc::epoll_wait(server.epoll, &raw mut event, 1, timeout) } {
        1 => {
            let pointer = event.u64 as usize as *const Event;
            if ptr::eq(pointer, &server.event) && server.running().is_some_and(embed::is_in_turn) {
                // A handler of this server polls it. Its turn goes on afterwards.
                return 0;
            }
            // SAFETY: as documented, each pointer that is registered points to a struct whose first member is the function.
            // Ours do.
            unsafe { ((*pointer).handler)(&raw mut event) };
            1
        }
        0 => 0,
        _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => 0,
        _ => -1,
    }
}

/// Runs a turn of the server whose event it is.
///
/// # Safety
/// The event points to the [`Event`] of a server, and servers are never freed.
unsafe extern "C" fn turn(event: *mut libc::epoll_event) {
    // SAFETY: as the caller promises.
    let number = unsafe { (*((*event).u64 as usize as *const Event)).server };
    let running = servers().get(&number).and_then(|server| server.running());
    // If a turn runs already, it goes on afterwards.
    let _ = guarded(|| running.map_or(Ok(false), embed::turn).map(drop));
}

fn listen(server: &Arc<Server>, address: &str) -> Result<(), Failed> {
    let knobs = server.knobs;
    // Zero turns a timeout off.
    let seconds = |seconds: c_int| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let bound = |bytes: i64| u32::try_from(bytes).unwrap_or(u32::MAX);
    // The routes must be `Send`, but this server has one thread.
    let number = server.number;
    let handler = direct(BodyUse::Parts, move |request| {
        let handler = Handler {
            function: inner,
            data: Data(number as usize as *mut c_void),
            body: BodyUse::Parts,
            role: Role::Answers,
        };
        crate::current::call(&handler, request)
    });
    let app = App::new().fallback(handler).configure(|config| {
        config.workers = 1;
        // As in the original, several processes may listen on the port.
        config.socket.reuse_port = true;
        // The interface identifies a request by its connection.
        config.http2_cleartext = false;
        config.timeouts.head = seconds(knobs.request_timeout);
        config.timeouts.body = seconds(knobs.request_timeout);
        config.timeouts.handler = seconds(knobs.request_timeout);
        config.timeouts.idle = seconds(knobs.keep_alive_timeout);
        config.parser.field_bytes = bound(knobs.max_token_length);
        config.parser.target_bytes = bound(knobs.max_token_length);
        let most = usize::try_from(knobs.max_total_est_mem_usage).unwrap_or(usize::MAX);
        config.memory = Some(most).filter(|most| *most < highwire_engine::io::memory::available() / 2);
    });
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_string() };
    let listening = engine(app.listen(&format!("{host}:{}", server.port)))?;
    let (running, descriptor) = embed::over_epoll(listening)?;
    let mut event =
        libc::epoll_event { events: libc::EPOLLIN as u32, u64: ptr::from_ref(&server.event) as usize as u64 };
    // SAFETY: both descriptors are open, and the server, to which the event points, is never freed.
    if unsafe { libc::epoll_ctl(server.epoll, libc::EPOLL_CTL_ADD, descriptor, &raw mut event) } != 0 {
        return Err((HIGHWIRE_SYSTEM, std::io::Error::last_os_error().to_string()));
    }
    server.running.store(running.id, Ordering::Relaxed);
    // The worker must run once before the first wait.
    embed::turn(running).map(drop)
}

/// Begins a request: calls the program at once, or after the body has been received.
///
/// # Safety
/// `data` is the number of a server.
unsafe extern "C" fn inner(handle: highwire_request, data: *mut c_void) {
    let number = data as usize as u32;
    let Some(server) = servers().get(&number).cloned() else { return };
    let Some((connection, kind)) = with_request_mut(handle, |request| {
        let length =
            request.header("content-length").and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
        let kind = match (request.header("transfer-encoding"), length) {
            (Some(_), _) => Kind::Streamed,
            (None, None | Some(0)) => Kind::Empty,
            (None, Some(length)) if length > u64::try_from(server.knobs.max_request_buf_size).unwrap_or(0) => {
                Kind::Streamed
            }
            (None, Some(length)) => Kind::Whole(length),
        };
        (request.connection(), kind)
    }) else {
        return;
    };
    let id = connection.unwrap_or(SocketId { index: 0, generation: 0 });
    match kind {
        Kind::Empty => run(&server, id, handle, Some(Bytes::new())),
        Kind::Streamed => run(&server, id, handle, None),
        Kind::Whole(length) => {
            if defer(handle).is_err() {
                return;
            }
            let Ok(body) = receive::take(handle) else { return };
            highwire::spawn(async move {
                match body.body.collect(usize::try_from(length).unwrap_or(usize::MAX)).await {
                    Ok(mut body) => {
                        // Programs pass the body on as a C string.
                        let length = body.len();
                        body.push(0);
                        run(&server, id, handle, Some(Bytes::from(body).slice(..length)));
                    }
                    Err(error) => refuse(handle, error.status()),
                }
            });
        }
    }
}

/// How the body of a request reaches the program.
enum Kind {
    Empty,
    Whole(u64),
    Streamed,
}

fn run(server: &Arc<Server>, id: SocketId, handle: highwire_request, body: Option<Bytes>) {
    let number = begin(server, id, handle, body);
    call_back(number, handle, server.handler, |_| {});
    // Another thread may answer from now on, or has done so.
    let is_unanswered = is_unanswered(handle) && defer(handle).is_ok();
    if let Some(draft) = end_handler(number, handle)
        && is_unanswered
    {
        let _ = guarded(|| answer(handle, draft));
    }
}

/// Answers a request whose body has failed, without the program.
pub(super) fn refuse(handle: highwire_request, status: StatusCode) {
    let _ = guarded(|| answer(handle, Draft::of(status)));
}
