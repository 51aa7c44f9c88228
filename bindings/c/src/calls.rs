//! Calls: requests to other servers, which handlers, callbacks and any other thread can send.

use crate::client::{Place, fault, highwire_client, lock, runs_calls, with_client};
use crate::data::Data;
use crate::handles::Table;
use crate::replies::{self, Reply, highwire_reply};
use crate::response::field;
use crate::result::{
    Failed, HIGHWIRE_GONE, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_WRONG_STATE, HIGHWIRE_WRONG_THREAD, bytes, failed, give,
    guarded, guarded_task, highwire_result, null, text,
};
use crate::stream::{self, Reading, highwire_stream, highwire_stream_callback};
use bytes::Bytes;
use highwire::client::{Body, Client, Response};
use highwire::header::AUTHORIZATION;
use highwire::ws::{Connect, ConnectError};
use highwire::{HeaderName, HeaderValue, Method};
use std::borrow::Cow;
use std::ffi::{c_char, c_void};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A call: a request to another server, until its result is there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_call {
    /// Its number; 0 is none.
    pub id: u64,
}

/// Gets the result of a call to another server. If `result` is `HIGHWIRE_OK`, free `reply` with `highwire_reply_free`;
/// otherwise its id is 0, and `highwire_last_error` has the reason.
pub type highwire_reply_callback =
    Option<unsafe extern "C" fn(result: highwire_result, reply: highwire_reply, data: *mut c_void)>;

/// Gets a part of the body of another server's response. The part is valid until the callback returns. Returns 0 to go
/// on; another value ends the call with `HIGHWIRE_GONE`.
pub type highwire_reply_part_callback =
    Option<unsafe extern "C" fn(part: *const c_void, length: usize, data: *mut c_void) -> i32>;

static CALLS: Table<highwire_call, Mutex<Entry>> = Table::new();

/// A call in its table.
struct Entry {
    /// The request, until it is sent.
    call: Option<Call>,
    told: Told,
}

/// The program's commands to a running call.
#[derive(Default)]
struct Told {
    is_cancelled: bool,
    is_paused: bool,
    /// The task of the call.
    waker: Option<Waker>,
}

/// A request that is being built, on any thread.
struct Call {
    client: highwire_client,
    method: Method,
    url: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Upload,
    timeout: Option<Duration>,
    on_part: Option<OnPart>,
}

/// The body of a call.
enum Upload {
    Bytes(Bytes),
    Stream(Reading),
}

impl Upload {
    fn into_body(self) -> Body {
        match self {
            Upload::Bytes(bytes) => bytes.into(),
            Upload::Stream(reading) => reading.into_upload(),
        }
    }
}

#[derive(Clone, Copy)]
struct OnPart {
    callback: unsafe extern "C" fn(*const c_void, usize, *mut c_void) -> i32,
    data: Data,
}

/// Takes the request out of a call. The call stays in its table.
fn take(call: highwire_call) -> Result<(Call, Arc<Mutex<Entry>>), Failed> {
    let entry = CALLS.get(call)?;
    let taken = lock(&entry).call.take();
    match taken {
        Some(taken) => Ok((taken, entry)),
        None => was_sent(),
    }
}

fn was_sent<T>() -> Result<T, Failed> {
    failed(HIGHWIRE_WRONG_STATE, "the call was sent already")
}

/// Makes a call with a method such as `GET` and a URL. For `highwire_call_websocket`, the URL may begin with `ws:` or
/// `wss:`. It may be relative to `HIGHWIRE_CLIENT_BASE_URL`; but even then a full URL, or one that begins with `//`,
/// names another host: encode text that a user has typed.
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
        // Reports an invalid URL at once.
        with_client(client, |client, _| client.get(&as_http(url)).build().map_err(|error| fault(&error)))?;
        let (fields, body) = (Vec::new(), Upload::Bytes(Bytes::new()));
        let call = Call { client, method, url: url.to_string(), fields, body, timeout: None, on_part: None };
        let entry = Entry { call: Some(call), told: Told::default() };
        // SAFETY: as the caller promises.
        unsafe { give(out, CALLS.add(Arc::new(Mutex::new(entry))), "out") }
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

/// Returns a URL of HTTP as one of a WebSocket.
fn as_websocket(url: &str) -> Cow<'_, str> {
    match url.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => format!("ws:{rest}").into(),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => format!("wss:{rest}").into(),
        _ => url.into(),
    }
}

fn change_call(call: highwire_call, act: impl FnOnce(&mut Call)) -> Result<(), Failed> {
    let entry = CALLS.get(call)?;
    match &mut lock(&entry).call {
        Some(call) => act(call),
        None => return was_sent(),
    }
    Ok(())
}

/// Sets the body of a call. Dropping an earlier body calls no callback of the program, because its stream is not armed.
fn set_body(call: highwire_call, body: Upload) -> Result<(), Failed> {
    change_call(call, |call| call.body = body)
}

/// Adds a header field. The library itself writes `Host` and the fields that frame the message.
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
        set_body(call, Upload::Bytes(body))
    })
}

/// Gives a call a body in parts, which `highwire_stream_write` writes before or after the call is sent. `length` is the
/// length of the body, or -1 if it is not known. `callback` may be NULL; it runs on the call's thread: see
/// [`highwire_call_send`].
///
/// The program must end the stream with `highwire_stream_end` or `highwire_stream_abort`, even after the call has
/// ended, and even if the call is never sent. At the end of the call, the callbacks of the stream (with
/// `HIGHWIRE_GONE`) and of the call come in either order; if they share `data`, end the stream in the callback of the
/// call, and then free `data`.
///
/// After a part was sent, the library does not retry the call on a lost connection, and a redirect that needs the body
/// again is itself the reply. HTTP/1.0 needs a length.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_stream`; `callback` must be NULL or a function of its type that may be called on any
/// thread until the stream has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_stream(
    call: highwire_call,
    length: i64,
    callback: highwire_stream_callback,
    data: *mut c_void,
    out: *mut highwire_stream,
) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return null("out");
        }
        let place = |reading| set_body(call, Upload::Stream(reading));
        let handle = stream::open(stream::announced(length)?, callback, Data(data), place)?;
        // SAFETY: as the caller promises.
        unsafe { give(out, handle, "out") }
    })
}

/// Sets the time limit of this call in milliseconds, in place of the client's. 0 restores the client's.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_call_timeout(call: highwire_call, milliseconds: u64) -> highwire_result {
    guarded(|| {
        change_call(call, |call| {
            call.timeout = Some(Duration::from_millis(milliseconds)).filter(|time| !time.is_zero())
        })
    })
}

/// Passes the response's body to a callback part by part, so that the body may have any length; only a compressed body
/// is still limited, after decoding, to `HIGHWIRE_CLIENT_BODY_BYTES`. The reply's own body is then empty. The callback
/// runs on the call's thread: see [`highwire_call_send`]. If parts come faster than the program can take them, see
/// [`highwire_call_pause`].
///
/// # Safety
/// `callback` must be a function with the signature of its type.
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
    guarded(|| free(call))
}

fn free(call: highwire_call) -> Result<(), Failed> {
    drop(take(call)?);
    CALLS.remove(call).map(drop)
}

/// Frees a call that cannot be sent, and returns why. If the handle is invalid or its call was sent, returns that error
/// instead.
fn free_and(call: highwire_call, result: Result<(), Failed>) -> Result<(), Failed> {
    free(call).and(result)
}

/// Passes a command to a running call, and wakes its task.
fn tell(call: highwire_call, act: impl FnOnce(&mut Told)) -> highwire_result {
    guarded(|| {
        let entry = CALLS.get(call)?;
        let mut entry = lock(&entry);
        if entry.call.is_some() {
            return failed(HIGHWIRE_WRONG_STATE, "the call was not sent yet");
        }
        act(&mut entry.told);
        let waker = entry.told.waker.take();
        drop(entry);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    })
}

/// Cancels a call that was sent. Any thread may do that. The program still gets a result, later: `HIGHWIRE_GONE`, or
/// the call's own result if it has ended meanwhile. It gets no further part of the response; but if this is not the
/// call's thread, the callback for a part may still be running.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_call_cancel(call: highwire_call) -> highwire_result {
    tell(call, |told| told.is_cancelled = true)
}

/// Pauses the parts of the response's body. Any thread may do that. After the current part, the callback of
/// `highwire_call_on_part` gets no other until [`highwire_call_resume`], and the other server must wait once a buffer
/// is full. The call's time limit keeps running. If no part follows, the result arrives despite the pause; so does the
/// result of a call without such a callback.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_call_pause(call: highwire_call) -> highwire_result {
    tell(call, |told| told.is_paused = true)
}

/// Resumes a call after [`highwire_call_pause`]. Any thread may do that.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_call_resume(call: highwire_call) -> highwire_result {
    tell(call, |told| told.is_paused = false)
}

/// The receiver of a call's result.
enum Receiver {
    Callback(unsafe extern "C" fn(highwire_result, highwire_reply, *mut c_void), Data),
    Thread(mpsc::SyncSender<Result<Reply, Failed>>),
}

/// Passes the result of a call to its receiver once, even if the call is dropped.
struct Promise {
    call: highwire_call,
    receiver: Option<Receiver>,
}

impl Promise {
    fn keep(&mut self, result: Result<Reply, Failed>) {
        let Some(receiver) = self.receiver.take() else { return };
        let _ = CALLS.remove(self.call);
        match receiver {
            Receiver::Callback(callback, data) => {
                let mut reply = highwire_reply::default();
                let result = guarded(|| {
                    reply = replies::add(result?);
                    Ok(())
                });
                // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
                unsafe { callback(result, reply, data.0) };
            }
            // The receiving thread still waits for this.
            Receiver::Thread(sender) => drop(sender.send(result)),
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.receiver.is_some() {
            self.keep(failed(HIGHWIRE_GONE, "the worker that ran the call has ended"));
        }
    }
}

/// Runs a call on its worker, until it ends or is cancelled.
async fn run(client: Client, call: Call, entry: Arc<Mutex<Entry>>, mut promise: Promise) {
    let result = {
        let mut asked = pin!(guarded_task(ask(client, call, &entry)));
        poll_fn(|cx| match poll_cancelled(&entry, cx) {
            Poll::Ready(()) => Poll::Ready(failed(HIGHWIRE_GONE, "the program has cancelled the call")),
            Poll::Pending => asked.as_mut().poll(cx),
        })
        .await
    };
    promise.keep(result);
}

/// Becomes ready when the call is cancelled. The task is also woken when a paused call resumes.
fn poll_cancelled(entry: &Mutex<Entry>, cx: &Context<'_>) -> Poll<()> {
    let told = &mut lock(entry).told;
    if told.is_cancelled {
        return Poll::Ready(());
    }
    if !told.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        told.waker = Some(cx.waker().clone());
    }
    Poll::Pending
}

async fn ask(client: Client, call: Call, entry: &Mutex<Entry>) -> Result<Reply, Failed> {
    let mut request = client.request(call.method, &call.url).body(call.body.into_body());
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
            give_parts(&mut response, on_part, entry).await?;
            Bytes::new()
        }
    };
    let fields = response.headers().iter().map(|(name, value)| (name.as_str().into(), value.as_bytes().into()));
    Ok(Reply { status: response.status().as_u16(), version: response.version(), fields: fields.collect(), body })
}

async fn give_parts(response: &mut Response, on_part: OnPart, entry: &Mutex<Entry>) -> Result<(), Failed> {
    while let Some(part) = response.next().await {
        let part = part.map_err(|error| fault(&error))?;
        poll_fn(|cx| {
            // `run` has stored the task's waker, and ends a cancelled call.
            let waits = matches!(lock(entry).told, Told { is_paused: true, .. } | Told { is_cancelled: true, .. });
            if waits { response.poll_timeout(cx).map(|error| Err(fault(&error))) } else { Poll::Ready(Ok(())) }
        })
        .await?;
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
    let (taken, entry) = take(call)?;
    let place = match as_http(&taken.url) {
        Cow::Borrowed(_) => Place::of(taken.client),
        Cow::Owned(_) => failed(HIGHWIRE_INVALID_ARGUMENT, "ws: and wss: URLs need highwire_call_websocket"),
    };
    let place = place.inspect_err(|_| drop(CALLS.remove(call)))?;
    if let Upload::Stream(reading) = &taken.body {
        reading.arm();
    }
    let promise = Promise { call, receiver: Some(receiver) };
    place.spawn(|client| run(client, taken, entry, promise));
    Ok(())
}

/// Makes a call the opening handshake of a WebSocket.
pub(crate) fn take_websocket(handle: highwire_call) -> Result<(Place, Connect), Failed> {
    let (call, _) = take(handle)?;
    let _ = CALLS.remove(handle);
    let has_body = !matches!(&call.body, Upload::Bytes(bytes) if bytes.is_empty());
    if call.method != Method::GET || has_body || call.on_part.is_some() {
        return failed(
            HIGHWIRE_INVALID_ARGUMENT,
            "a WebSocket needs a GET call with neither a body nor highwire_call_on_part",
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

/// Sends a call. The library calls the callback once, later; the call's handle is then invalid. If a handler or a
/// callback on a worker's thread sends the call, the call and its callback run on that thread; otherwise on the
/// client's own thread, maybe before this function has returned. If this function fails, the callback is not called,
/// and the call is freed unless it was sent before.
///
/// # Safety
/// `callback` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_send(
    call: highwire_call,
    callback: highwire_reply_callback,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(callback) = callback else { return free_and(call, null("callback")) };
        send(call, Receiver::Callback(callback, Data(data)))
    })
}

/// Sends a call, and waits for the reply. The call's handle is then invalid. In a handler or a callback, this function
/// returns `HIGHWIRE_WRONG_THREAD`, and frees the call.
///
/// If the call has a stream, another thread must write and end it meanwhile, unless the program has done so before.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_reply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_wait(call: highwire_call, out: *mut highwire_reply) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return free_and(call, null("out"));
        }
        if runs_calls() {
            let text = "a handler or a callback cannot wait for a call; use highwire_call_send";
            return free_and(call, failed(HIGHWIRE_WRONG_THREAD, text));
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
