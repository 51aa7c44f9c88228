//! Calls: requests to other servers, from handlers, from callbacks, and from any other thread.

use crate::client::{Place, fault, highwire_client, lock, runs_calls, with_client};
use crate::handles::{Kind, Table};
use crate::replies::{self, Reply, highwire_reply};
use crate::request::Data;
use crate::response::field;
use crate::result::{
    Failed, HIGHWIRE_GONE, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_WRONG_STATE, HIGHWIRE_WRONG_THREAD, bytes, failed, give,
    guarded, highwire_result, null, text,
};
use bytes::Bytes;
use highwire::client::{Client, Response};
use highwire::header::AUTHORIZATION;
use highwire::ws::{Connect, ConnectError};
use highwire::{HeaderName, HeaderValue, Method};
use std::borrow::Cow;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A request to another server, until it is sent.
pub type highwire_call = u64;

/// Gets the result of a call. `reply` is 0 unless `result` is `HIGHWIRE_OK`; free it with `highwire_reply_free`. Otherwise
/// `highwire_last_error` has the reason.
pub type highwire_reply_callback =
    Option<unsafe extern "C" fn(result: highwire_result, reply: highwire_reply, data: *mut c_void)>;

/// Gets a part of a response's body, which is valid until the callback returns. The server waits meanwhile. Returns 0 to go on;
/// another value ends the call with `HIGHWIRE_GONE`.
pub type highwire_reply_part_callback =
    Option<unsafe extern "C" fn(part: *const c_void, length: usize, data: *mut c_void) -> i32>;

static CALLS: Table<Mutex<Option<Call>>> = Table::new(Kind::Call);

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

/// Takes a call out of its table.
fn take(call: highwire_call) -> Result<Call, Failed> {
    let place = CALLS.remove(call)?;
    let taken = lock(&place).take();
    taken.map_or_else(|| failed(HIGHWIRE_WRONG_STATE, "the call was sent already"), Ok)
}

/// Begins a call: a method such as `GET`, and a URL, which for `highwire_call_websocket` may begin with `ws:` or `wss:`. With
/// `HIGHWIRE_CLIENT_BASE_URL` it may be relative to that, but a full URL, or one that begins with `//`, still names another host: encode
/// what a user has typed.
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
        with_client(client, |client, _| client.get(&as_http(url)).build().map_err(|error| fault(&error)))?;
        let (fields, body) = (Vec::new(), Bytes::new());
        let call = Call { client, method, url: url.to_string(), fields, body, timeout: None, on_part: None };
        // SAFETY: as the caller promises.
        unsafe { give(out, CALLS.add(Arc::new(Mutex::new(Some(call)))), "out") }
    })
}

/// Returns a URL of a WebSocket as one of HTTP, and any other as it is.
fn as_http(url: &str) -> Cow<'_, str> {
    match url.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ws") => format!("http:{rest}").into(),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("wss") => format!("https:{rest}").into(),
        _ => url.into(),
    }
}

/// The other way round.
fn as_websocket(url: &str) -> Cow<'_, str> {
    match url.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => format!("ws:{rest}").into(),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => format!("wss:{rest}").into(),
        _ => url.into(),
    }
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
                    reply = replies::add(result?);
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
    let call = take(call)?;
    let place = Place::of(call.client)?;
    let promise = Promise { receiver: Some(receiver) };
    place.spawn(|client| run(client, call, promise));
    Ok(())
}

/// Makes a call the opening handshake of a WebSocket.
pub(crate) fn take_websocket(call: highwire_call) -> Result<(Place, Connect), Failed> {
    let call = take(call)?;
    if call.method != Method::GET || !call.body.is_empty() || call.on_part.is_some() {
        return failed(
            HIGHWIRE_INVALID_ARGUMENT,
            "a WebSocket is opened by GET, without a body and highwire_call_on_part",
        );
    }
    let place = Place::of(call.client)?;
    let request = place.client.get(&as_http(&call.url)).build().map_err(|error| fault(&error))?;
    let url = request.uri().to_string();
    let wrong = |error: ConnectError| (HIGHWIRE_INVALID_ARGUMENT, error.to_string());
    let mut connect = Connect::new(&as_websocket(&url)).map_err(wrong)?.client(&place.client);
    // The credentials of the URL.
    let credentials = request.headers().iter().filter(|(name, _)| *name == AUTHORIZATION).cloned();
    for (name, value) in credentials.chain(call.fields) {
        connect = connect.header(name, value);
    }
    if let Some(timeout) = call.timeout {
        connect = connect.timeout(timeout);
    }
    Ok((place, connect))
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
        if runs_calls() {
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
        unsafe { give(out, replies::add(reply), "out") }
    })
}
