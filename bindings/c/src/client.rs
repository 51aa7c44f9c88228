//! Clients of other servers: settings, outgoing connections that calls share, and the threads that run calls.
//!
//! A call that is sent on a worker's thread runs on that worker, beside the server's incoming connections. Any other
//! call runs on the client's own thread, which starts with the first such call.

use crate::handles::Table;
use crate::result::{
    Failed, HIGHWIRE_FAILED, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_TIMED_OUT, HIGHWIRE_WRONG_STATE, failed, give,
    guarded, highwire_result, null, text,
};
use highwire::HeaderValue;
use highwire::client::{self, Background, Client, ClientBuilder, Proxy, Redirects};
use highwire::server::Engine;
use std::cell::Cell;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A client of other servers: settings, and outgoing connections that its calls share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_client {
    /// Its number; 0 is none.
    pub id: u64,
}

/// A setting of a client that is a number. Times are in milliseconds. The value 0 changes nothing, except for
/// `HIGHWIRE_CLIENT_REDIRECTS` and `HIGHWIRE_CLIENT_RETRIES`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum highwire_client_option {
    /// The time for a whole call, from the look-up of the name to the end of the response's body. There is no limit by
    /// default.
    HIGHWIRE_CLIENT_TIMEOUT_MS = 1,
    /// The time to connect, without the TLS handshake; 10 seconds by default.
    HIGHWIRE_CLIENT_CONNECT_MS = 2,
    /// The most bytes of a body that is received whole; 64 MiB by default.
    HIGHWIRE_CLIENT_BODY_BYTES = 3,
    /// The most redirects that are followed; 10 by default. More are an error. With 0, the redirect itself is the reply.
    HIGHWIRE_CLIENT_REDIRECTS = 4,
    /// The most retries after lost connections; 3 by default.
    HIGHWIRE_CLIENT_RETRIES = 5,
    /// The version of HTTP: 10, 11 or 20, with and without TLS. By default, 11 without TLS, and 11 or 20 by ALPN with
    /// TLS.
    HIGHWIRE_CLIENT_HTTP = 6,
    /// 1 refuses URLs without TLS, also in redirects.
    HIGHWIRE_CLIENT_HTTPS_ONLY = 7,
    /// The interface of the client's own thread to the kernel: 1 for io_uring, 2 for epoll. By default, io_uring, or
    /// epoll if that is unavailable.
    HIGHWIRE_CLIENT_ENGINE = 8,
}

/// A setting of a client that is a text.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum highwire_client_text {
    /// The base against which the URLs of all calls are resolved.
    HIGHWIRE_CLIENT_BASE_URL = 1,
    /// The value of `User-Agent`.
    HIGHWIRE_CLIENT_USER_AGENT = 2,
    /// The address of a proxy for all calls: `http://host:port` or `socks5://host:port`.
    HIGHWIRE_CLIENT_PROXY = 3,
    /// The path of a unix socket to which all calls connect.
    HIGHWIRE_CLIENT_UNIX_SOCKET = 4,
    /// A file in the format PEM with certificates that are trusted besides those of the system.
    HIGHWIRE_CLIENT_ROOT_FILE = 5,
    /// A file in the format PEM with the certificate that the client shows to servers, its chain, and its private key.
    HIGHWIRE_CLIENT_IDENTITY_FILE = 6,
}

/// A client before its first call, and after.
enum State {
    Building {
        builder: ClientBuilder,
        tls: Tls,
    },
    Ready {
        client: Client,
        background: Option<Background>,
    },
    /// Its settings contradict each other.
    Broken,
}

#[cfg(feature = "tls")]
type Tls = Option<highwire::tls::ClientTls>;
#[cfg(not(feature = "tls"))]
type Tls = ();

static CLIENTS: Table<highwire_client, Mutex<State>> = Table::new();

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts an error of the client.
pub(crate) fn fault(error: &client::Error) -> Failed {
    let code = match error {
        error if error.is_builder() => HIGHWIRE_INVALID_ARGUMENT,
        error if error.is_timeout() => HIGHWIRE_TIMED_OUT,
        _ => HIGHWIRE_FAILED,
    };
    (code, error.to_string())
}

/// Makes a client with the default settings. Set others before its first call.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_client`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_client_new(out: *mut highwire_client) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return null("out");
        }
        let state = State::Building { builder: Client::builder(), tls: Tls::default() };
        // SAFETY: as the caller promises.
        unsafe { give(out, CLIENTS.add(Arc::new(Mutex::new(state))), "out") }
    })
}

/// Frees a client. Calls that were sent go on, and their callbacks are still called.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_client_free(client: highwire_client) -> highwire_result {
    guarded(|| CLIENTS.remove(client).map(drop))
}

/// Changes the settings of a client that was not used yet.
fn change(
    client: highwire_client,
    act: impl FnOnce(ClientBuilder, &mut Tls) -> Result<ClientBuilder, Failed>,
) -> Result<(), Failed> {
    let client = CLIENTS.get(client)?;
    let mut state = lock(&client);
    match std::mem::replace(&mut *state, State::Broken) {
        State::Building { builder, mut tls } => {
            *state = State::Building { builder: act(builder, &mut tls)?, tls };
            Ok(())
        }
        other => {
            *state = other;
            failed(HIGHWIRE_WRONG_STATE, "the settings of a client cannot change after its first call")
        }
    }
}

/// Changes a setting of a client: see [`highwire_client_option`].
#[unsafe(no_mangle)]
pub extern "C" fn highwire_client_set(client: highwire_client, option: i32, value: u64) -> highwire_result {
    use highwire_client_option as o;
    guarded(|| {
        let is = |wanted: highwire_client_option| option == wanted as i32;
        let (size, time) = (usize::try_from(value).unwrap_or(usize::MAX), Duration::from_millis(value));
        let known = o::HIGHWIRE_CLIENT_TIMEOUT_MS as i32..=o::HIGHWIRE_CLIENT_ENGINE as i32;
        if !known.contains(&option) {
            return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{option} is not a highwire_client_option"));
        }
        if is(o::HIGHWIRE_CLIENT_HTTP) && !matches!(value, 0 | 10 | 11 | 20) {
            return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{value} is not a version of HTTP: 0, 10, 11 or 20"));
        }
        if is(o::HIGHWIRE_CLIENT_ENGINE) && value > 2 {
            return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{value} is not a HIGHWIRE_CLIENT_ENGINE, 0 to 2"));
        }
        change(client, |builder, _| {
            let counts = is(o::HIGHWIRE_CLIENT_REDIRECTS) || is(o::HIGHWIRE_CLIENT_RETRIES);
            if value == 0 && !counts {
                return Ok(builder);
            }
            Ok(match () {
                () if is(o::HIGHWIRE_CLIENT_ENGINE) => match value {
                    1 => builder.engine(Engine::Uring),
                    2 => builder.engine(Engine::Readiness),
                    _ => builder,
                },
                () if is(o::HIGHWIRE_CLIENT_TIMEOUT_MS) => builder.timeout(time),
                () if is(o::HIGHWIRE_CLIENT_CONNECT_MS) => builder.connect_timeout(time),
                () if is(o::HIGHWIRE_CLIENT_BODY_BYTES) => builder.max_body_bytes(size),
                () if is(o::HIGHWIRE_CLIENT_REDIRECTS) => builder.redirects(Redirects::limited(size)),
                () if is(o::HIGHWIRE_CLIENT_RETRIES) => builder.retries(size),
                () if is(o::HIGHWIRE_CLIENT_HTTPS_ONLY) => builder.https_only(),
                () if is(o::HIGHWIRE_CLIENT_HTTP) => match value {
                    10 => builder.http10_only(),
                    11 => builder.http1_only(),
                    20 => builder.http2_prior_knowledge(),
                    _ => builder,
                },
                () => builder,
            })
        })
    })
}

/// Changes a setting of a client that is a text: see [`highwire_client_text`].
///
/// # Safety
/// `value` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_client_set_text(
    client: highwire_client,
    option: i32,
    value: *const c_char,
) -> highwire_result {
    use highwire_client_text as t;
    guarded(|| {
        // SAFETY: as the caller promises.
        let value = unsafe { text(value, "value") }?;
        let is = |wanted: highwire_client_text| option == wanted as i32;
        let invalid = |what: &str| failed(HIGHWIRE_INVALID_ARGUMENT, format!("{value:?} is not {what}"));
        match () {
            () if is(t::HIGHWIRE_CLIENT_BASE_URL) => change(client, |builder, _| Ok(builder.base_url(value))),
            () if is(t::HIGHWIRE_CLIENT_USER_AGENT) => {
                let Ok(name) = HeaderValue::from_str(value) else { return invalid("a value of a header field") };
                change(client, |builder, _| Ok(builder.user_agent(name)))
            }
            () if is(t::HIGHWIRE_CLIENT_PROXY) => {
                let proxy = Proxy::all(value).map_err(|error| fault(&error))?;
                change(client, |builder, _| Ok(builder.proxy(proxy)))
            }
            () if is(t::HIGHWIRE_CLIENT_UNIX_SOCKET) => change(client, |builder, _| Ok(builder.unix_socket(value))),
            () if is(t::HIGHWIRE_CLIENT_ROOT_FILE) => change_tls(client, |tls| tls.root_file(value)),
            () if is(t::HIGHWIRE_CLIENT_IDENTITY_FILE) => change_tls(client, |tls| tls.identity_files(value, value)),
            () => failed(HIGHWIRE_INVALID_ARGUMENT, format!("{option} is not a highwire_client_text")),
        }
    })
}

#[cfg(feature = "tls")]
fn change_tls(
    client: highwire_client,
    act: impl FnOnce(highwire::tls::ClientTls) -> highwire::tls::ClientTls,
) -> Result<(), Failed> {
    change(client, |builder, tls| {
        *tls = Some(act(tls.take().unwrap_or_default()));
        Ok(builder)
    })
}

/// Stands for the TLS settings in a library without TLS.
#[cfg(not(feature = "tls"))]
struct NoTls;

#[cfg(not(feature = "tls"))]
impl NoTls {
    fn root_file(self, _: &str) -> NoTls {
        self
    }

    fn identity_files(self, _: &str, _: &str) -> NoTls {
        self
    }
}

#[cfg(not(feature = "tls"))]
fn change_tls(_: highwire_client, _: impl FnOnce(NoTls) -> NoTls) -> Result<(), Failed> {
    failed(highwire_result::HIGHWIRE_UNSUPPORTED, "this library was built without TLS")
}

#[cfg(feature = "tls")]
fn with_tls(builder: ClientBuilder, tls: Tls) -> ClientBuilder {
    match tls {
        Some(tls) => builder.tls(tls),
        None => builder,
    }
}

#[cfg(not(feature = "tls"))]
fn with_tls(builder: ClientBuilder, (): Tls) -> ClientBuilder {
    builder
}

/// Builds the client if it was not used before, and calls `act` with it and the place of its own thread.
pub(crate) fn with_client<R>(
    client: highwire_client,
    act: impl FnOnce(&Client, &mut Option<Background>) -> Result<R, Failed>,
) -> Result<R, Failed> {
    let client = CLIENTS.get(client)?;
    let mut state = lock(&client);
    if let State::Building { .. } = &*state
        && let State::Building { builder, tls } = std::mem::replace(&mut *state, State::Broken)
    {
        let client = with_tls(builder, tls).build().map_err(|error| fault(&error))?;
        *state = State::Ready { client, background: None };
    }
    match &mut *state {
        State::Ready { client, background } => act(client, background),
        _ => failed(HIGHWIRE_WRONG_STATE, "the settings of this client are invalid"),
    }
}

thread_local! {
    /// True on the thread of a client.
    static IS_CLIENTS: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if this is the thread of a server's worker that can run calls. A worker with a thread per connection
/// cannot, and a client's thread runs only that client's calls, because it ends with them.
fn runs_here() -> bool {
    highwire_engine::context::is_on_worker() && highwire_engine::context::serves_many() && !IS_CLIENTS.get()
}

/// Returns true if this thread runs calls, so that it must not wait for one.
pub(crate) fn runs_calls() -> bool {
    runs_here() || IS_CLIENTS.get()
}

/// The thread that runs a call: this worker's, or the client's own.
pub(crate) struct Place {
    pub(crate) client: Client,
    background: Option<Background>,
}

impl Place {
    pub(crate) fn of(client: highwire_client) -> Result<Place, Failed> {
        let is_here = runs_here();
        with_client(client, |client, background| {
            if !is_here && !background.as_ref().is_some_and(Background::is_running) {
                *background = Some(Background::start(client.clone()).map_err(|error| fault(&error))?);
            }
            Ok(Place { client: client.clone(), background: background.clone().filter(|_| !is_here) })
        })
    }

    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(self, task: impl FnOnce(Client) -> F + Send + 'static) {
        match self.background {
            Some(background) => background.spawn(move |client| {
                IS_CLIENTS.set(true);
                task(client)
            }),
            None => drop(highwire::spawn(task(self.client))),
        }
    }
}
