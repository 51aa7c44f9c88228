//! Apps: routes, files and settings, before a server exists.

use crate::current::{Handler, Role, call};
use crate::data::Data;
use crate::handles::Table;
use crate::request::highwire_handler;
use crate::result::{
    Failed, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_WRONG_STATE, failed, give, guarded, highwire_result, null, text,
};
use highwire::server::{Balance, Config, Engine};
use highwire::{App, BodyUse, Method, direct};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An app: routes and settings.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_app {
    /// Its number; 0 is none.
    pub id: u64,
}

/// How a route takes the body of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum highwire_body_use {
    /// The handler takes no body. The library reads and drops one.
    HIGHWIRE_BODY_NONE = 0,
    /// The whole body is received before the handler is called: `highwire_request_body`.
    HIGHWIRE_BODY_WHOLE = 1,
    /// The handler asks for parts of the body: `highwire_request_read`.
    HIGHWIRE_BODY_PARTS = 2,
    /// A flag, added to one of the others: the library defers each request before it calls the handler, as
    /// `highwire_request_defer` does. For languages whose callbacks run on another thread.
    HIGHWIRE_DEFERRED = 16,
}

/// A setting for `highwire_app_set`. Times are in milliseconds; 0 turns the limit off, but for `HIGHWIRE_LINGER_MS` and
/// `HIGHWIRE_SHUTDOWN_MS` it means no waiting. Sizes are in bytes. docs/limits.md has the reasons for the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum highwire_option {
    /// The number of workers; 0, the default, means one for each CPU.
    HIGHWIRE_WORKERS = 1,
    /// 1 pins each worker to a CPU; 0 by default.
    HIGHWIRE_PIN = 2,
    /// The interface to the kernel: 0, the default, for io_uring, or epoll if that is unavailable; 1 for io_uring only;
    /// 2 for epoll; 3 for a thread per connection.
    HIGHWIRE_ENGINE = 3,
    /// How connections reach the workers: 0, the default, for a listening socket per worker (SO_REUSEPORT); 1 for one
    /// thread that accepts for all workers.
    HIGHWIRE_BALANCE = 4,
    /// The length of the queue of each listening socket; 4,096 by default.
    HIGHWIRE_BACKLOG = 5,
    /// 1 serves HTTP/1; the default.
    HIGHWIRE_HTTP1 = 6,
    /// 1 serves HTTP/2 without TLS; the default.
    HIGHWIRE_HTTP2_CLEARTEXT = 7,
    /// 1 offers HTTP/2 under TLS; the default.
    HIGHWIRE_HTTP2_TLS = 8,
    /// The most bytes that the server holds for all clients, at least 65,536. By default, half of the memory that the
    /// process may use, or a quarter if that memory is less than 128 MiB.
    HIGHWIRE_MEMORY = 9,
    /// The most open connections. By default, the process's limit of open files minus 32.
    HIGHWIRE_CONNECTIONS = 10,
    /// The most open connections from one IP address; 16,384 by default.
    HIGHWIRE_CONNECTIONS_A_PEER = 11,
    /// The most requests on one connection; 0, the default, means no limit.
    HIGHWIRE_REQUESTS_A_CONNECTION = 12,
    /// The longest body that a handler takes whole; 1 MiB by default.
    HIGHWIRE_BODY_BYTES = 13,
    /// The longest body that a handler takes in parts; 1 TiB by default.
    HIGHWIRE_STREAMED_BODY_BYTES = 14,
    /// The longest head of a request, at most 65,535; 32,768 by default.
    HIGHWIRE_HEAD_BYTES = 15,
    /// 1 logs each request, as a line of level 3: see `highwire_set_log` and docs/operating.md. 0 by default.
    HIGHWIRE_ACCESS_LOG = 16,
    /// The time for the TLS handshake; 10 seconds by default.
    HIGHWIRE_HANDSHAKE_MS = 20,
    /// The time for the head of a request; 15 seconds by default.
    HIGHWIRE_HEAD_MS = 21,
    /// The period over which the rate of a request's body is measured; 30 seconds by default.
    HIGHWIRE_BODY_MS = 22,
    /// The lowest rate of a request's body, in bytes per second; 500 by default.
    HIGHWIRE_BODY_RATE = 23,
    /// The time after which a connection without a request closes; 75 seconds by default.
    HIGHWIRE_IDLE_MS = 24,
    /// The time after which the server disconnects a client that reads nothing of its response; 60 seconds by default.
    HIGHWIRE_WRITE_MS = 25,
    /// The time in which the program must answer a deferred request, and write each part of a stream; 60 seconds by
    /// default.
    HIGHWIRE_HANDLER_MS = 26,
    /// The longest time for which a closing connection reads what its client still sends; 2 seconds by default.
    HIGHWIRE_LINGER_MS = 27,
    /// The longest time that a graceful shutdown waits; 30 seconds by default.
    HIGHWIRE_SHUTDOWN_MS = 28,
    /// 1 lets several processes with this setting listen on one port; the kernel spreads its connections. 0 by default.
    HIGHWIRE_SHARE_PORT = 29,
    /// 1 compresses responses with Brotli, zstd or gzip if the client accepts it and the media type gains by it. 0 by
    /// default.
    HIGHWIRE_COMPRESS = 30,
}

/// An app that has no server yet.
struct Making {
    app: App,
    /// True if answers are compressed.
    compresses: bool,
    /// The hooks around all routes, the outermost first.
    hooks: Vec<Box<dyn FnOnce(App) -> App + Send + Sync>>,
}

static APPS: Table<highwire_app, Mutex<Option<Making>>> = Table::new();

/// Makes an app without routes.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_app`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_new(out: *mut highwire_app) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return null("out");
        }
        let handle =
            APPS.add(Arc::new(Mutex::new(Some(Making { app: App::new(), compresses: false, hooks: Vec::new() }))));
        // SAFETY: as the caller promises.
        unsafe { give(out, handle, "out") }
    })
}

/// Frees an app for which no server was made.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_app_free(app: highwire_app) -> highwire_result {
    guarded(|| APPS.remove(app).map(drop))
}

/// Changes an app.
pub(crate) fn change(app: highwire_app, act: impl FnOnce(App) -> App) -> Result<(), Failed> {
    change_making(app, |making| Making { app: act(making.app), ..making })
}

fn change_making(app: highwire_app, act: impl FnOnce(Making) -> Making) -> Result<(), Failed> {
    let app = APPS.get(app)?;
    let mut place = app.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(before) = place.take() else {
        return failed(HIGHWIRE_WRONG_STATE, "the app belongs to a server already");
    };
    *place = Some(act(before));
    Ok(())
}

/// Adds a hook around all routes of an app, inside the earlier hooks.
pub(crate) fn add_hook(app: highwire_app, hook: impl FnOnce(App) -> App + Send + Sync + 'static) -> Result<(), Failed> {
    change_making(app, |mut making| {
        making.hooks.push(Box::new(hook));
        making
    })
}

#[cfg(feature = "compress")]
fn set_compresses(app: highwire_app, compresses: bool) -> Result<(), Failed> {
    change_making(app, |making| Making { compresses, ..making })
}

#[cfg(not(feature = "compress"))]
fn set_compresses(_: highwire_app, compresses: bool) -> Result<(), Failed> {
    if compresses {
        failed(highwire_result::HIGHWIRE_UNSUPPORTED, "this library was built without compression")
    } else {
        Ok(())
    }
}

#[cfg(feature = "compress")]
fn compressed(app: App) -> App {
    app.with(highwire::compress::Compression::new())
}

#[cfg(not(feature = "compress"))]
fn compressed(app: App) -> App {
    app
}

/// Removes an app from its table, for its server.
pub(crate) fn take(app: highwire_app) -> Result<App, Failed> {
    let app = APPS.remove(app)?;
    let taken = app.lock().unwrap_or_else(PoisonError::into_inner).take();
    match taken {
        Some(Making { app, compresses, hooks }) => {
            let app = if compresses { compressed(app) } else { app };
            Ok(hooks.into_iter().fold(app, |app, hook| hook(app)))
        }
        None => failed(HIGHWIRE_WRONG_STATE, "the app belongs to a server already"),
    }
}

/// Returns an error for a path that no route can have. `highwire_server_new` reports all other mistakes.
pub(crate) fn check_path(path: &str) -> Result<(), Failed> {
    if path.starts_with('/') {
        return Ok(());
    }
    failed(HIGHWIRE_INVALID_ARGUMENT, format!("the path {path:?} does not begin with a slash"))
}

/// Returns the program's handler as a handler of an app.
pub(crate) fn handler(
    function: highwire_handler,
    data: *mut c_void,
    body: i32,
) -> Result<impl highwire::Handler<highwire::Directly>, Failed> {
    let Some(function) = function else { return null("handler") };
    let defers = body & highwire_body_use::HIGHWIRE_DEFERRED as i32 != 0;
    let body = match body & !(highwire_body_use::HIGHWIRE_DEFERRED as i32) {
        0 => BodyUse::None,
        1 => BodyUse::Whole,
        2 => BodyUse::Parts,
        other => return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{other} is not a highwire_body_use")),
    };
    let role = if defers { Role::AnswersLater } else { Role::Answers };
    let handler = Handler { function, data: Data(data), body, role };
    Ok(direct(body, move |request| call(&handler, request)))
}

/// Adds a route: a method, or `*` for all methods, and a path such as `/users/{id}` or `/files/{*rest}`. `body` is a
/// `highwire_body_use`. The handler may be called on every worker's thread at the same time, and `data` must be valid
/// until the server has ended. A GET route also answers HEAD.
///
/// # Safety
/// `method` and `path` must be NULL or end with a NUL; `handler` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_route(
    app: highwire_app,
    method: *const c_char,
    path: *const c_char,
    body: i32,
    handler: highwire_handler,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (method, path) = unsafe { (text(method, "method")?, text(path, "path")?) };
        check_path(path)?;
        let handler = self::handler(handler, data, body)?;
        if method == "*" {
            return change(app, |app| app.any(path, handler));
        }
        let Ok(method) = Method::from_bytes(method.as_bytes()) else {
            return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{method:?} is not a method"));
        };
        change(app, |app| app.route(method, path, handler))
    })
}

/// Sets the handler of requests that match no route. Without it, they get 404.
///
/// # Safety
/// `handler` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_fallback(
    app: highwire_app,
    body: i32,
    handler: highwire_handler,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let handler = self::handler(handler, data, body)?;
        change(app, |app| app.fallback(handler))
    })
}

/// Changes a setting: see [`highwire_option`]. `highwire_server_new` reports settings that contradict each other.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_app_set(app: highwire_app, option: i32, value: u64) -> highwire_result {
    guarded(|| {
        if option == highwire_option::HIGHWIRE_COMPRESS as i32 {
            return set_compresses(app, value != 0);
        }
        let mut result = Ok(());
        change(app, |app| app.configure(|config| result = set(config, option, value)))?;
        result
    })
}

/// Sets the value of the `Server` field; NULL means no such field.
///
/// # Safety
/// `name` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_server_name(app: highwire_app, name: *const c_char) -> highwire_result {
    guarded(|| {
        let name = if name.is_null() {
            None
        } else {
            // SAFETY: as the caller promises.
            Some(unsafe { text(name, "name") }?.to_string())
        };
        change(app, |app| app.configure(|config| config.server_name = name))
    })
}

fn set(config: &mut Config, option: i32, value: u64) -> Result<(), Failed> {
    use highwire_option as o;
    let size = usize::try_from(value).unwrap_or(usize::MAX);
    let number = u32::try_from(value).unwrap_or(u32::MAX);
    let (is_on, time) = (value != 0, Duration::from_millis(value));
    let is = |wanted: highwire_option| option == wanted as i32;
    match () {
        () if is(o::HIGHWIRE_WORKERS) => config.workers = size,
        () if is(o::HIGHWIRE_PIN) => config.pin = is_on,
        () if is(o::HIGHWIRE_ENGINE) => {
            config.engine = match value {
                0 => Engine::Auto,
                1 => Engine::Uring,
                2 => Engine::Readiness,
                3 => Engine::Threads,
                _ => return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{value} is not a HIGHWIRE_ENGINE, 0 to 3")),
            }
        }
        () if is(o::HIGHWIRE_BALANCE) => {
            config.balance = match value {
                0 => Balance::ReusePort,
                1 => Balance::Handoff,
                _ => return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{value} is not a HIGHWIRE_BALANCE, 0 or 1")),
            }
        }
        () if is(o::HIGHWIRE_BACKLOG) => config.socket.backlog = number.min(i32::MAX as u32) as _,
        () if is(o::HIGHWIRE_SHARE_PORT) => config.socket.reuse_port = is_on,
        () if is(o::HIGHWIRE_HTTP1) => config.http1 = is_on,
        () if is(o::HIGHWIRE_HTTP2_CLEARTEXT) => config.http2_cleartext = is_on,
        () if is(o::HIGHWIRE_HTTP2_TLS) => config.http2_tls = is_on,
        () if is(o::HIGHWIRE_MEMORY) => config.memory = Some(size),
        () if is(o::HIGHWIRE_CONNECTIONS) => config.limits.connections = Some(number),
        () if is(o::HIGHWIRE_CONNECTIONS_A_PEER) => config.limits.connections_a_peer = number,
        () if is(o::HIGHWIRE_REQUESTS_A_CONNECTION) => config.limits.requests_a_connection = number,
        () if is(o::HIGHWIRE_BODY_BYTES) => config.limits.body_bytes = value,
        () if is(o::HIGHWIRE_STREAMED_BODY_BYTES) => config.limits.streamed_body_bytes = value,
        () if is(o::HIGHWIRE_HEAD_BYTES) => config.parser.head_bytes = number,
        () if is(o::HIGHWIRE_ACCESS_LOG) => config.access_log = is_on,
        () if is(o::HIGHWIRE_HANDSHAKE_MS) => config.timeouts.handshake = time,
        () if is(o::HIGHWIRE_HEAD_MS) => config.timeouts.head = time,
        () if is(o::HIGHWIRE_BODY_MS) => config.timeouts.body = time,
        () if is(o::HIGHWIRE_BODY_RATE) => config.timeouts.body_rate = number,
        () if is(o::HIGHWIRE_IDLE_MS) => config.timeouts.idle = time,
        () if is(o::HIGHWIRE_WRITE_MS) => config.timeouts.write = time,
        () if is(o::HIGHWIRE_HANDLER_MS) => config.timeouts.handler = time,
        () if is(o::HIGHWIRE_LINGER_MS) => config.timeouts.linger = time,
        () if is(o::HIGHWIRE_SHUTDOWN_MS) => config.timeouts.shutdown = time,
        () => return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{option} is not a highwire_option")),
    }
    Ok(())
}
