//! The client: requests to other servers, from handlers, from callbacks, and from any other thread.
//!
//! A call on a worker's thread runs on that worker, next to the server's connections. Any other call runs on the client's
//! own thread, which starts with the first of them.

use crate::handles::{Kind, Table};
use crate::request::{Data, highwire_string};
use crate::response::field;
use crate::result::{
    Failed, HIGHWIRE_FAILED, HIGHWIRE_GONE, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_NOT_FOUND, HIGHWIRE_TIMED_OUT,
    HIGHWIRE_WRONG_STATE, HIGHWIRE_WRONG_THREAD, bytes, failed, give, guarded, highwire_result, null, text,
};
use bytes::Bytes;
use highwire::client::{self, Background, Client, ClientBuilder, Proxy, Redirects, Response};
use highwire::server::Engine;
use highwire::{HeaderName, HeaderValue, Method};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// A client: settings, and connections that its calls share.
pub type highwire_client = u64;

/// A request to another server, until it is sent.
pub type highwire_call = u64;

/// The response of another server.
pub type highwire_reply = u64;

/// A setting of a client that is a number. Times are in milliseconds. The value 0 changes nothing, except for
/// `HIGHWIRE_CLIENT_REDIRECTS` and `HIGHWIRE_CLIENT_RETRIES`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum highwire_client_option {
    /// The time for a whole call, from the look-up of the name to the end of the body. There is no limit by default.
    HIGHWIRE_CLIENT_TIMEOUT_MS = 1,
    /// The time for the connection, without its TLS handshake; 10 seconds by default.
    HIGHWIRE_CLIENT_CONNECT_MS = 2,
    /// The most bytes of a body that is received whole; 64 MiB by default.
    HIGHWIRE_CLIENT_BODY_BYTES = 3,
    /// The most redirects that are followed; 10 by default. More are an error. With 0, the redirect itself is the reply.
    HIGHWIRE_CLIENT_REDIRECTS = 4,
    /// The most further attempts after lost connections; 3 by default.
    HIGHWIRE_CLIENT_RETRIES = 5,
    /// The version of HTTP: 10, 11, or 20, also without TLS. By default, 11 without TLS, and 11 or 20 with TLS, as the server likes.
    HIGHWIRE_CLIENT_HTTP = 6,
    /// 1 refuses URLs without TLS, also in redirects.
    HIGHWIRE_CLIENT_HTTPS_ONLY = 7,
    /// The interface to the kernel of the client's own thread: 1 for io_uring, 2 for epoll. By default, io_uring or else epoll.
    HIGHWIRE_CLIENT_ENGINE = 8,
}

/// A setting of a client that is a text.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum highwire_client_text {
    /// The URL against which those of all calls are resolved.
    HIGHWIRE_CLIENT_BASE_URL = 1,
    /// The value of `User-Agent`.
    HIGHWIRE_CLIENT_USER_AGENT = 2,
    /// The address of a proxy for all calls: `http://host:port` or `socks5://host:port`.
    HIGHWIRE_CLIENT_PROXY = 3,
    /// The path of a unix socket to which all calls connect.
    HIGHWIRE_CLIENT_UNIX_SOCKET = 4,
    /// A file in the format PEM with certificates that are trusted besides those of the system.
    HIGHWIRE_CLIENT_ROOT_FILE = 5,
}

/// Gets the result of a call. `reply` is 0 unless `result` is `HIGHWIRE_OK`; free it with `highwire_reply_free`. Otherwise
/// `highwire_last_error` has the reason.
pub type highwire_reply_callback =
    Option<unsafe extern "C" fn(result: highwire_result, reply: highwire_reply, data: *mut c_void)>;

/// Gets a part of a response's body, which is valid until the callback returns. The server waits meanwhile. Returns 0 to go on;
/// another value ends the call with `HIGHWIRE_GONE`.
pub type highwire_reply_part_callback =
    Option<unsafe extern "C" fn(part: *const c_void, length: usize, data: *mut c_void) -> i32>;

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

static CLIENTS: Table<Mutex<State>> = Table::new(Kind::Client);
static CALLS: Table<Mutex<Option<Call>>> = Table::new(Kind::Call);
static REPLIES: Table<Reply> = Table::new(Kind::Reply);

/// A request that is being made. Any thread may do that.
struct Call {
    client: highwire_client,
    method: Method,
    url: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    timeout: Option<Duration>,
    on_part: Option<OnPart>,
}

#[derive(Clone, Copy)]
struct OnPart {
    callback: unsafe extern "C" fn(*const c_void, usize, *mut c_void) -> i32,
    data: Data,
}

/// A response.
struct Reply {
    status: u16,
    version: http::Version,
    fields: Vec<(Box<str>, Box<[u8]>)>,
    body: Bytes,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an error of the client.
fn fault(error: &client::Error) -> Failed {
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
            failed(HIGHWIRE_WRONG_STATE, "the client has settings already, because it was used")
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
            return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{value} is not an engine of a client, 0 to 2"));
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
            () if is(t::HIGHWIRE_CLIENT_ROOT_FILE) => root_file(client, value),
            () => failed(HIGHWIRE_INVALID_ARGUMENT, format!("{option} is not a highwire_client_text")),
        }
    })
}

#[cfg(feature = "tls")]
fn root_file(client: highwire_client, path: &str) -> Result<(), Failed> {
    change(client, |builder, tls| {
        *tls = Some(tls.take().unwrap_or_default().root_file(path));
        Ok(builder)
    })
}

#[cfg(not(feature = "tls"))]
fn root_file(_: highwire_client, _: &str) -> Result<(), Failed> {
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

/// Calls `act` with a client whose settings are complete, and the place of its own thread.
fn with_client<R>(
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
        _ => failed(HIGHWIRE_WRONG_STATE, "the settings of this client were refused"),
    }
}

/// Begins a call: a method such as `GET`, and a URL. With `HIGHWIRE_CLIENT_BASE_URL` it may be relative to that, but a full URL, or one
/// that begins with `//`, still names another host: encode what a user has typed.
///
/// # Safety
/// `method` and `url` must be NULL or end with a NUL; `out` must be NULL or point to a `highwire_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_new(
    client: highwire_client,
    method: *const c_char,
    url: *const c_char,
    out: *mut highwire_call,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (method, url) = unsafe { (text(method, "method")?, text(url, "url")?) };
        if out.is_null() {
            return null("out");
        }
        let Ok(method) = Method::from_bytes(method.as_bytes()) else {
            return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{method:?} is not a method"));
        };
        // Shows an invalid URL at once.
        with_client(client, |client, _| client.get(url).build().map_err(|error| fault(&error)))?;
        let (fields, body) = (Vec::new(), Bytes::new());
        let call = Call { client, method, url: url.to_string(), fields, body, timeout: None, on_part: None };
        // SAFETY: as the caller promises.
        unsafe { give(out, CALLS.add(Arc::new(Mutex::new(Some(call)))), "out") }
    })
}

fn change_call(call: highwire_call, act: impl FnOnce(&mut Call)) -> Result<(), Failed> {
    let call = CALLS.get(call)?;
    match &mut *lock(&call) {
        Some(call) => act(call),
        None => return failed(HIGHWIRE_WRONG_STATE, "the call was sent already"),
    }
    Ok(())
}

/// Adds a header field. The library writes `Host` and the fields that frame the message itself.
///
/// # Safety
/// `name` and `value` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_header(
    call: highwire_call,
    name: *const c_char,
    value: *const c_char,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        let field = field(name, value.as_bytes())?;
        change_call(call, |call| call.fields.push(field))
    })
}

/// Sets the body. The bytes are copied.
///
/// # Safety
/// `body` must point to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_body(
    call: highwire_call,
    body: *const c_void,
    length: usize,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let body = Bytes::copy_from_slice(unsafe { bytes(body.cast(), length, "body") }?);
        change_call(call, |call| call.body = body)
    })
}

/// Sets the time for this call in milliseconds, in place of the client's. 0 leaves it as it is.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_call_timeout(call: highwire_call, milliseconds: u64) -> highwire_result {
    guarded(|| {
        change_call(call, |call| {
            call.timeout = Some(Duration::from_millis(milliseconds)).filter(|time| !time.is_zero())
        })
    })
}

/// Gives the response's body to a callback part by part, so that it may have any length; only a compressed one still has at most
/// `HIGHWIRE_CLIENT_BODY_BYTES`, decoded. The reply then has an empty one. The callback runs on the thread on which the call runs: see
/// [`highwire_call_send`].
///
/// # Safety
/// `callback` must be a function of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_on_part(
    call: highwire_call,
    callback: highwire_reply_part_callback,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(callback) = callback else { return null("callback") };
        change_call(call, |call| call.on_part = Some(OnPart { callback, data: Data(data) }))
    })
}

/// Frees a call that was not sent.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_call_free(call: highwire_call) -> highwire_result {
    guarded(|| CALLS.remove(call).map(drop))
}

/// Who gets the result of a call.
enum Receiver {
    Callback(unsafe extern "C" fn(highwire_result, highwire_reply, *mut c_void), Data),
    Thread(mpsc::SyncSender<Result<Reply, Failed>>),
}

/// Gives the result of a call to its receiver once, also if the call is dropped.
struct Promise {
    receiver: Option<Receiver>,
}

impl Promise {
    fn keep(&mut self, result: Result<Reply, Failed>) {
        match self.receiver.take() {
            Some(Receiver::Callback(callback, data)) => {
                let mut reply = 0;
                let result = guarded(|| {
                    reply = REPLIES.add(Arc::new(result?));
                    Ok(())
                });
                // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
                unsafe { callback(result, reply, data.0) };
            }
            // A thread that waits does not go away.
            Some(Receiver::Thread(sender)) => drop(sender.send(result)),
            None => {}
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(failed(HIGHWIRE_GONE, "the worker that ran the call has ended"));
    }
}

thread_local! {
    /// True on the thread of a client.
    static IS_CLIENTS: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if this is the thread of a server's worker, on which calls can run. A worker that has a thread for each
/// connection cannot run them, and the thread of a client ends with that client's own calls.
fn runs_here() -> bool {
    highwire_engine::context::is_on_worker() && highwire_engine::context::serves_many() && !IS_CLIENTS.get()
}

/// Runs a call on its worker.
async fn run(client: Client, call: Call, mut promise: Promise) {
    let result = ask(client, call).await;
    promise.keep(result);
}

async fn ask(client: Client, call: Call) -> Result<Reply, Failed> {
    let mut request = client.request(call.method, &call.url).body(call.body);
    for (name, value) in call.fields {
        request = request.header(name, value);
    }
    if let Some(timeout) = call.timeout {
        request = request.timeout(timeout);
    }
    let mut response = request.send().await.map_err(|error| fault(&error))?;
    let body = match call.on_part {
        None => response.collect().await.map_err(|error| fault(&error))?,
        Some(on_part) => {
            give_parts(&mut response, on_part).await?;
            Bytes::new()
        }
    };
    let fields = response.headers().iter().map(|(name, value)| (name.as_str().into(), value.as_bytes().into()));
    Ok(Reply { status: response.status().as_u16(), version: response.version(), fields: fields.collect(), body })
}

async fn give_parts(response: &mut Response, on_part: OnPart) -> Result<(), Failed> {
    while let Some(part) = response.next().await {
        let part = part.map_err(|error| fault(&error))?;
        // SAFETY: the program has given the function as one of this type. It is C's and does not unwind. The bytes live
        // until it returns.
        let end = unsafe { (on_part.callback)(part.as_ptr().cast(), part.len(), on_part.data.0) };
        if end != 0 {
            return failed(HIGHWIRE_GONE, "the callback has ended the call");
        }
    }
    Ok(())
}

/// Sends a call, for the receiver.
fn send(call: highwire_call, receiver: Receiver) -> Result<(), Failed> {
    let place = CALLS.remove(call)?;
    let Some(call) = lock(&place).take() else {
        return failed(HIGHWIRE_WRONG_STATE, "the call was sent already");
    };
    let mut promise = Promise { receiver: Some(receiver) };
    let is_here = runs_here();
    let sent = with_client(call.client, |client, background| {
        if !is_here && !background.as_ref().is_some_and(Background::is_running) {
            *background = Some(Background::start(client.clone()).map_err(|error| fault(&error))?);
        }
        Ok((client.clone(), background.clone().filter(|_| !is_here)))
    });
    let (client, background) = match sent {
        Ok(sent) => sent,
        Err(error) => {
            promise.receiver = None;
            return Err(error);
        }
    };
    match background {
        Some(background) => background.spawn(move |client| {
            IS_CLIENTS.set(true);
            run(client, call, promise)
        }),
        None => highwire::spawn(run(client, call, promise)),
    }
    Ok(())
}

/// Sends a call, whose handle is invalid from now on. The callback is called once, later. In a handler or a callback on a worker's
/// thread, the call runs on that worker, and the callback is called on its thread; elsewhere, on a thread of the client, maybe before
/// this call has returned. If this call fails, the callback is not called; the call is freed in any case but `HIGHWIRE_NULL`.
///
/// # Safety
/// `callback` must be a function of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_send(
    call: highwire_call,
    callback: highwire_reply_callback,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(callback) = callback else { return null("callback") };
        send(call, Receiver::Callback(callback, Data(data)))
    })
}

/// Sends a call, whose handle is invalid from now on, and waits for the reply. In a handler or a callback it returns
/// `HIGHWIRE_WRONG_THREAD`.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_reply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_wait(call: highwire_call, out: *mut highwire_reply) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return null("out");
        }
        if runs_here() || IS_CLIENTS.get() {
            return failed(
                HIGHWIRE_WRONG_THREAD,
                "a handler or a callback cannot wait for a call; use highwire_call_send",
            );
        }
        let (sender, result) = mpsc::sync_channel(1);
        send(call, Receiver::Thread(sender))?;
        let reply = match result.recv() {
            Ok(reply) => reply?,
            Err(_) => return failed(HIGHWIRE_GONE, "the thread of the client has ended"),
        };
        // SAFETY: as the caller promises.
        unsafe { give(out, REPLIES.add(Arc::new(reply)), "out") }
    })
}

/// Gives the status of a reply.
///
/// # Safety
/// `out` must be NULL or point to an `unsigned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_status(reply: highwire_reply, out: *mut u32) -> highwire_result {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { give(out, REPLIES.get(reply)?.status.into(), "out") })
}

/// Gives the version of HTTP of a reply: 10, 11 or 20.
///
/// # Safety
/// `out` must be NULL or point to an `unsigned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_version(reply: highwire_reply, out: *mut u32) -> highwire_result {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { give(out, crate::request::version_number(REPLIES.get(reply)?.version), "out") })
}

/// Gives the value of the first header field of that name, or `HIGHWIRE_NOT_FOUND`. The case of the name does not matter. Strings of
/// a reply are valid until it is freed.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_header(
    reply: highwire_reply,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "name") }?;
        let reply = REPLIES.get(reply)?;
        let Some((_, value)) = reply.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
            return failed(HIGHWIRE_NOT_FOUND, format!("the reply has no field {name:?}"));
        };
        // SAFETY: as the caller promises.
        unsafe { give(out, highwire_string::of(value), "out") }
    })
}

/// Gives the name, in lower case, and the value of the header field with this index, from 0 on, or `HIGHWIRE_NOT_FOUND` behind the last
/// one.
///
/// # Safety
/// `name` and `value` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_header_at(
    reply: highwire_reply,
    index: usize,
    name: *mut highwire_string,
    value: *mut highwire_string,
) -> highwire_result {
    guarded(|| {
        let reply = REPLIES.get(reply)?;
        let Some((its_name, its_value)) = reply.fields.get(index) else {
            return failed(HIGHWIRE_NOT_FOUND, "the reply has fewer fields");
        };
        // SAFETY: as the caller promises.
        unsafe { give(name, highwire_string::of(its_name.as_bytes()), "name") }?;
        // SAFETY: as the caller promises.
        unsafe { give(value, highwire_string::of(its_value), "value") }
    })
}

/// Gives the body of a reply.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_body(reply: highwire_reply, out: *mut highwire_string) -> highwire_result {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { give(out, highwire_string::of(&REPLIES.get(reply)?.body), "out") })
}

/// Frees a reply.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_reply_free(reply: highwire_reply) -> highwire_result {
    guarded(|| REPLIES.remove(reply).map(drop))
}
