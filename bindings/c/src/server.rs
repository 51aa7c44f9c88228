//! Servers: addresses, start and stop.

use crate::app::{highwire_app, take};
use crate::handles::Table;
use crate::result::{
    Failed, HIGHWIRE_NOT_FOUND, HIGHWIRE_WRONG_STATE, HIGHWIRE_WRONG_THREAD, engine, failed, give, guarded,
    highwire_result, null, text,
};
use crate::tls::{self, highwire_tls};
use highwire::server::{Handle, Server, Stats};
use std::ffi::{CString, c_char};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The interval at which [`highwire_server_join`] checks whether the server has ended.
const GLANCE: Duration = Duration::from_millis(10);

/// The longest time for which a function waits for a server that is starting.
const PATIENCE: Duration = Duration::from_secs(2);

/// A server.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_server {
    /// Its number; 0 is none.
    pub id: u64,
}

/// The counts of a server since its start.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct highwire_stats {
    /// The number of connections that are open.
    pub connections: u64,
    /// The number of connections that were accepted.
    pub accepted: u64,
    /// The number of connections that were refused, because there were too many.
    pub refused: u64,
    /// The number of requests and connections that a deadline has ended.
    pub cut: u64,
    /// The number of requests.
    pub requests: u64,
    /// The number of those requests that came over HTTP/2.
    pub streams: u64,
    /// The number of TLS handshakes that were completed.
    pub handshakes: u64,
    /// The number of TLS handshakes that failed.
    pub handshakes_failed: u64,
}

/// What a server is waiting for.
enum State {
    /// Its addresses, or its start.
    Idle(Server),
    /// The start of its workers, of which some may serve already.
    Starting,
    /// Its end.
    Running(Handle),
    /// The end of the function that runs it.
    Serving(Arc<Handle>),
    /// Nothing: it has ended, or it runs inside another loop.
    Elsewhere,
}

struct Shared {
    state: Mutex<State>,
    /// The server has started, or has failed to.
    started: Condvar,
    addresses: Mutex<Vec<CString>>,
}

impl Shared {
    /// Returns the state. If the server is starting, first waits, but at most [`PATIENCE`]: a start that fails waits
    /// for the workers, and a handler of theirs may be the caller.
    fn settled(&self) -> MutexGuard<'_, State> {
        let is_starting = |state: &mut State| matches!(state, State::Starting);
        let wait = self.started.wait_timeout_while(lock(&self.state), PATIENCE, is_starting);
        wait.unwrap_or_else(PoisonError::into_inner).0
    }

    fn set(&self, state: State) {
        let before = std::mem::replace(&mut *lock(&self.state), state);
        self.started.notify_all();
        drop(before);
    }
}

/// Sets the state of a server after its end, also after a panic.
struct Ending<'s>(&'s Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.set(State::Elsewhere);
    }
}

static SERVERS: Table<highwire_server, Shared> = Table::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a server from an app. The app's handle is then invalid, even on failure.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_server`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_server_new(app: highwire_app, out: *mut highwire_server) -> highwire_result {
    guarded(|| {
        let server = engine(take(app)?.server())?;
        if out.is_null() {
            return null("out");
        }
        let state = Mutex::new(State::Idle(server));
        let shared = Shared { state, started: Condvar::new(), addresses: Mutex::default() };
        let handle = SERVERS.add(Arc::new(shared));
        // SAFETY: as the caller promises.
        unsafe { give(out, handle, "out") }
    })
}

/// Changes a server that has not started.
fn change(server: highwire_server, act: impl FnOnce(Server) -> highwire::Result<Server>) -> Result<(), Failed> {
    let shared = SERVERS.get(server)?;
    let mut state = lock(&shared.state);
    let idle = match std::mem::replace(&mut *state, State::Elsewhere) {
        State::Idle(idle) => idle,
        other => {
            *state = other;
            return failed(HIGHWIRE_WRONG_STATE, "the server has started already, or a call to it has failed");
        }
    };
    // A server that fails to listen is gone, as in Rust.
    let changed = engine(act(idle))?;
    let texts = changed.addresses().into_iter().map(|address| CString::new(address).unwrap_or_default());
    *lock(&shared.addresses) = texts.collect();
    *state = State::Idle(changed);
    Ok(())
}

/// Listens on an address: `127.0.0.1:8080`, `[::1]:8080`, `:8080` for all addresses, port 0 for any free port,
/// `unix:/path`, `fd:3` for an inherited listening socket. A server may have several addresses. If this function fails,
/// free the server.
///
/// # Safety
/// `address` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_server_listen(server: highwire_server, address: *const c_char) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let address = unsafe { text(address, "address") }?;
        change(server, |server| server.listen(address))
    })
}

/// Listens on an address with TLS. The files are in PEM format, and the server reloads them when they change. If both
/// are NULL, the server makes a certificate for `localhost`, which no client trusts.
///
/// # Safety
/// The texts must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_server_listen_tls(
    server: highwire_server,
    address: *const c_char,
    certificate_file: *const c_char,
    key_file: *const c_char,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let address = unsafe { text(address, "address") }?;
        let files = if certificate_file.is_null() && key_file.is_null() {
            None
        } else {
            // SAFETY: as the caller promises.
            Some(unsafe { (text(certificate_file, "certificate_file")?, text(key_file, "key_file")?) })
        };
        listen_tls(server, address, files)
    })
}

/// Listens on an address with these TLS settings, and frees the settings, even on failure.
///
/// # Safety
/// `address` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_server_listen_tls_with(
    server: highwire_server,
    address: *const c_char,
    tls: highwire_tls,
) -> highwire_result {
    guarded(|| {
        let settings = tls::take(tls)?;
        // SAFETY: as the caller promises.
        let address = unsafe { text(address, "address") }?;
        listen_with(server, address, settings)
    })
}

fn listen_tls(server: highwire_server, address: &str, files: Option<(&str, &str)>) -> Result<(), Failed> {
    let settings = match files {
        Some((certificate, key)) => tls::with_certificate(certificate, key)?,
        None => tls::with_own_certificate("localhost")?,
    };
    listen_with(server, address, settings)
}

#[cfg(feature = "tls")]
fn listen_with(server: highwire_server, address: &str, settings: tls::Settings) -> Result<(), Failed> {
    change(server, |server| server.listen_tls(address, settings))
}

#[cfg(not(feature = "tls"))]
fn listen_with(_: highwire_server, _: &str, _: tls::Settings) -> Result<(), Failed> {
    tls::unsupported()
}

/// Returns the address with this index, from 0 on, with the port that was chosen, or NULL after the last. The text is
/// valid until the server is freed or gets another address.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_server_address(server: highwire_server, index: usize) -> *const c_char {
    let mut found = std::ptr::null();
    let _ = guarded(|| {
        let shared = SERVERS.get(server)?;
        match lock(&shared.addresses).get(index) {
            Some(address) => found = address.as_ptr(),
            None => return failed(HIGHWIRE_NOT_FOUND, "the server has fewer addresses"),
        }
        Ok(())
    });
    found
}

/// Takes a server that has not started.
pub(crate) fn begin(server: highwire_server) -> Result<Server, Failed> {
    idle(&mut lock(&SERVERS.get(server)?.state), State::Elsewhere)
}

/// Takes a server that has not started out of its state.
fn idle(state: &mut State, next: State) -> Result<Server, Failed> {
    match std::mem::replace(state, next) {
        State::Idle(idle) => Ok(idle),
        other => {
            *state = other;
            failed(HIGHWIRE_WRONG_STATE, "the server has started already, or a call to it has failed")
        }
    }
}

/// Starts the server in threads of its own, and returns. It installs no signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_server_start(server: highwire_server) -> highwire_result {
    guarded(|| {
        let shared = SERVERS.get(server)?;
        let idle = idle(&mut lock(&shared.state), State::Starting)?;
        let ending = Ending(&shared);
        let handle = engine(idle.start())?;
        std::mem::forget(ending);
        shared.set(State::Running(handle));
        Ok(())
    })
}

/// Runs the server until SIGINT, SIGTERM or SIGQUIT, for which it installs handlers, or until
/// `highwire_server_shutdown`. The first signal begins a graceful shutdown, the second closes all connections at once.
/// The signal handlers stay installed after the end.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_server_run(server: highwire_server) -> highwire_result {
    run_here(server, |server, keep| server.run_with(keep).map(|report| tracing::info!(%report, "stopped")))
}

/// Runs the server until `highwire_server_shutdown`, which another thread or a handler calls. Installs no signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_server_serve(server: highwire_server) -> highwire_result {
    run_here(server, |server, keep| server.serve_with(keep))
}

/// Runs a server by `run`, which passes on the server's handle when the server has started.
fn run_here(
    server: highwire_server,
    run: impl FnOnce(Server, &mut dyn FnMut(Handle)) -> highwire::Result<()>,
) -> highwire_result {
    guarded(|| {
        not_on_worker()?;
        let shared = SERVERS.get(server)?;
        let idle = idle(&mut lock(&shared.state), State::Starting)?;
        let _ending = Ending(&shared);
        engine(run(idle, &mut |handle| shared.set(State::Serving(Arc::new(handle)))))
    })
}

/// Returns an error on the thread of a worker, which would wait for itself.
fn not_on_worker() -> Result<(), Failed> {
    if highwire_engine::context::is_on_worker() {
        return failed(HIGHWIRE_WRONG_THREAD, "a handler or a callback cannot wait for a server");
    }
    Ok(())
}

fn with_handle<R>(server: highwire_server, act: impl FnOnce(&Handle) -> R) -> Result<R, Failed> {
    match &*SERVERS.get(server)?.settled() {
        State::Running(handle) => Ok(act(handle)),
        State::Serving(handle) => Ok(act(handle)),
        _ => failed(
            HIGHWIRE_WRONG_STATE,
            "the server does not run, or runs inside another loop: use the highwire_loop functions",
        ),
    }
}

/// Begins a graceful shutdown: the server accepts no connections any more, and ends after the requests in progress. Any
/// thread and any handler may call this, but not a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_server_shutdown(server: highwire_server) -> highwire_result {
    guarded(|| with_handle(server, Handle::shutdown))
}

/// Closes all connections at once, and stops the server.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_server_abort(server: highwire_server) -> highwire_result {
    guarded(|| with_handle(server, Handle::abort))
}

/// Waits for the end of a server that `highwire_server_start` has started. A handler must not call this: its worker
/// would wait for itself.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_server_join(server: highwire_server) -> highwire_result {
    guarded(|| {
        not_on_worker()?;
        let shared = SERVERS.get(server)?;
        loop {
            let mut state = shared.settled();
            match std::mem::replace(&mut *state, State::Elsewhere) {
                State::Running(handle) if handle.is_finished() => return engine(handle.join()).map(drop),
                State::Running(handle) => *state = State::Running(handle),
                other => {
                    *state = other;
                    return failed(HIGHWIRE_WRONG_STATE, "the server was not started by highwire_server_start");
                }
            }
            drop(state);
            // The handle must stay in its place meanwhile, so that other threads can stop the server.
            std::thread::sleep(GLANCE);
        }
    })
}

/// Gives the counts of a running server.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_stats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_server_stats(server: highwire_server, out: *mut highwire_stats) -> highwire_result {
    guarded(|| {
        let (stats, connections) = with_handle(server, |handle| (handle.stats(), handle.connections()))?;
        // SAFETY: as the caller promises.
        unsafe { give(out, counts(stats, connections), "out") }
    })
}

pub(crate) fn counts(stats: Stats, connections: usize) -> highwire_stats {
    highwire_stats {
        connections: connections as u64,
        accepted: stats.accepted,
        refused: stats.refused,
        cut: stats.cut,
        requests: stats.requests,
        streams: stats.streams,
        handshakes: stats.handshakes,
        handshakes_failed: stats.handshakes_failed,
    }
}

/// Frees a server. If it runs, first closes its connections and waits for its end, so a handler cannot free it.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_server_free(server: highwire_server) -> highwire_result {
    guarded(|| {
        let shared = SERVERS.get(server)?;
        let mut place = shared.settled();
        match &*place {
            State::Running(_) => not_on_worker()?,
            State::Starting | State::Serving(_) => {
                return failed(HIGHWIRE_WRONG_STATE, "a thread still starts or runs the server; shut it down first");
            }
            State::Idle(_) | State::Elsewhere => {}
        }
        SERVERS.remove(server)?;
        let state = std::mem::replace(&mut *place, State::Elsewhere);
        drop(place);
        if let State::Running(handle) = state {
            handle.abort();
            engine(handle.join())?;
        }
        Ok(())
    })
}
