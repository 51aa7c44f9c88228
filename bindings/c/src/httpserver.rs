//! The interface of httpserver.h, for programs that were written for it: `include/httpserver.h`.
//!
//! A request of that interface is a connection: the program gets the same pointer for all requests of a connection.
//! Servers, requests and responses are numbers here, which the program holds as pointers (`connections`, `responses`),
//! so that using one that is gone does nothing; only the pointer of a server is real memory, because programs free it.
//!
//! A server runs over epoll inside the thread that listens (`server`), with a descriptor on which the program registers its own
//! events.

mod connections;
mod elsewhere;
pub mod responses;
pub mod server;

use crate::current::defer;
use crate::deferred::HeadCopy;
use crate::receive;
use crate::result::guarded;
use connections::{Chunks, Connection, with_connection};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// Bytes that the program must not free.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct http_string_s {
    buf: *const c_char,
    len: c_int,
}

impl http_string_s {
    const NONE: http_string_s = http_string_s { buf: ptr::null(), len: 0 };

    fn of(bytes: &[u8]) -> http_string_s {
        let len = bytes.len().min(c_int::MAX as usize) as c_int;
        http_string_s { buf: bytes.as_ptr().cast(), len }
    }
}

/// A request: the number of its connection.
pub type http_request_s = c_void;
/// A server.
pub type http_server_s = c_void;
/// A response.
pub type http_response_s = c_void;

pub(crate) type RequestCallback = Option<unsafe extern "C" fn(*mut http_request_s)>;

const HTTP_KEEP_ALIVE: c_int = 1;
const HTTP_CLOSE: c_int = 0;
const HTTP_FLG_STREAMED: c_int = 1;

/// Returns a part of the head of a connection's current request.
fn text_part(request: *mut http_request_s, find: fn(&HeadCopy) -> &str) -> http_string_s {
    let find = |head: &HeadCopy| Some(http_string_s::of(find(head).as_bytes()));
    with_connection(request, |connection| connection.head(find)).flatten().unwrap_or(http_string_s::NONE)
}

/// Returns the method.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_method(request: *mut http_request_s) -> http_string_s {
    text_part(request, HeadCopy::method)
}

/// Returns the target as it was sent, with the query.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_target(request: *mut http_request_s) -> http_string_s {
    text_part(request, HeadCopy::target)
}

/// Returns the whole body, or nothing if there is none or it is streamed.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_body(request: *mut http_request_s) -> http_string_s {
    let found = with_connection(request, |connection| match &connection.body {
        body if body.is_empty() => http_string_s::NONE,
        body => http_string_s::of(body),
    });
    found.unwrap_or(http_string_s::NONE)
}

/// Returns the chunk that `http_request_read_chunk` has read.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_chunk(request: *mut http_request_s) -> http_string_s {
    let found = with_connection(request, |connection| match &connection.chunk {
        chunk if chunk.is_empty() => http_string_s::NONE,
        chunk => http_string_s::of(chunk),
    });
    found.unwrap_or(http_string_s::NONE)
}

/// Returns the value of the first header field of that name, or nothing.
///
/// # Safety
/// `key` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_request_header(request: *mut http_request_s, key: *const c_char) -> http_string_s {
    if key.is_null() {
        return http_string_s::NONE;
    }
    // SAFETY: as the caller promises.
    let Ok(key) = unsafe { CStr::from_ptr(key) }.to_str() else { return http_string_s::NONE };
    let find = |head: &HeadCopy| head.header(key).map(http_string_s::of);
    with_connection(request, |connection| connection.head(find)).flatten().unwrap_or(http_string_s::NONE)
}

/// Gives the next header field. `iter` must be 0 at first. Returns 0 after the last one.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_request_iterate_headers(
    request: *mut http_request_s,
    key: *mut http_string_s,
    value: *mut http_string_s,
    iter: *mut c_int,
) -> c_int {
    if key.is_null() || value.is_null() || iter.is_null() {
        return 0;
    }
    // SAFETY: as the caller promises.
    let Ok(at) = usize::try_from(unsafe { *iter }) else { return 0 };
    let strings = |(name, value): (&str, &[u8])| (http_string_s::of(name.as_bytes()), http_string_s::of(value));
    let find = |head: &HeadCopy| head.headers().nth(at).map(strings);
    let found = with_connection(request, |connection| connection.head(find)).flatten();
    let Some((its_key, its_value)) = found else { return 0 };
    // SAFETY: as the caller promises.
    unsafe {
        *key = its_key;
        *value = its_value;
        *iter += 1;
    }
    1
}

/// Returns 1 if the request has a flag: `HTTP_FLG_STREAMED`.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_has_flag(request: *mut http_request_s, flag: c_int) -> c_int {
    let is_streamed = with_connection(request, |connection| connection.is_streamed()).unwrap_or(false);
    c_int::from(flag & HTTP_FLG_STREAMED != 0 && is_streamed)
}

/// Sets whether the connection closes after the response. Values other than `HTTP_KEEP_ALIVE` and `HTTP_CLOSE` have no
/// effect.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_connection(request: *mut http_request_s, directive: c_int) {
    with_connection(request, |connection| match directive {
        HTTP_CLOSE => connection.known.set_closes(true),
        HTTP_KEEP_ALIVE => connection.known.set_closes(false),
        _ => {}
    });
}

/// Sets a value of the program for the connection.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_set_userdata(request: *mut http_request_s, data: *mut c_void) {
    with_connection(request, |connection| connection.userdata = data);
}

/// Returns the value of the program for the connection; NULL at first.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_userdata(request: *mut http_request_s) -> *mut c_void {
    with_connection(request, |connection| connection.userdata).unwrap_or(ptr::null_mut())
}

/// Returns the value of the program for the server.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_server_userdata(request: *mut http_request_s) -> *mut c_void {
    with_connection(request, |connection| connection.server.userdata.load(std::sync::atomic::Ordering::Relaxed))
        .unwrap_or(ptr::null_mut())
}

/// Frees the body of a request before it is answered.
#[unsafe(no_mangle)]
pub extern "C" fn http_request_free_buffer(request: *mut http_request_s) {
    with_connection(request, Connection::free);
}

/// Reads the next chunk of a streamed body, and then calls the callback, never before this function returns. After the
/// last chunk, the callback gets an empty one. A body that is not streamed is one chunk.
///
/// # Safety
/// The callback must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_request_read_chunk(request: *mut http_request_s, callback: RequestCallback) {
    let Some(callback) = callback else { return };
    guarded(|| {
        read_chunk(request, callback);
        Ok(())
    });
}

fn read_chunk(request: *mut http_request_s, callback: unsafe extern "C" fn(*mut http_request_s)) {
    let number = request as usize as u64;
    let next = with_connection(request, |connection| {
        (connection.request, connection.spawner.clone(), connection.next_chunks())
    });
    let Some((handle, Some(spawner), chunks)) = next else { return };
    if defer(handle).is_err() {
        return;
    }
    match chunks {
        Chunks::Whole(chunk) => spawner.spawn(async move {
            connections::call_back(number, handle, callback, |connection| connection.chunk = chunk);
        }),
        Chunks::Parts => {
            let Ok(mut waiting) = receive::take(handle) else { return };
            let mut awaiting = receive::Awaiting::new(handle);
            spawner.spawn(async move {
                let part = waiting.body.next().await;
                // The program may have ended the response meanwhile.
                if crate::deferred::get(handle).is_none() {
                    return;
                }
                awaiting.keep(waiting);
                let chunk = match part {
                    Some(Ok(part)) => part,
                    None => bytes::Bytes::new(),
                    // The body was cut short, so the program is not called back, and will not answer.
                    Some(Err(error)) => {
                        connections::answered(number as usize as *mut http_request_s);
                        return server::refuse(handle, error.status());
                    }
                };
                connections::call_back(number, handle, callback, |connection| connection.chunk = chunk);
            });
        }
    }
}

impl Connection {
    /// Returns how the next chunk is read.
    fn next_chunks(&mut self) -> Chunks {
        match &mut self.whole_chunk {
            None => Chunks::Parts,
            Some(chunk) => Chunks::Whole(std::mem::take(chunk)),
        }
    }

    fn is_streamed(&self) -> bool {
        self.whole_chunk.is_none()
    }
}
