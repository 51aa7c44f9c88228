//! Responses of the program, and how they are sent: at once, or in chunks.

use super::connections::{answered, call_back, with_connection};
use super::elsewhere;
use super::{RequestCallback, http_request_s, http_response_s};
use crate::data::Data;
use crate::response::{self, Draft, LateTrailers, answer};
use crate::result::{HIGHWIRE_OK, guarded, highwire_result};
use crate::stream::{self, highwire_stream, highwire_stream_abort, highwire_stream_end};
use bytes::Bytes;
use http::StatusCode;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A response as the program makes it: pointers to its bytes, which live until it is sent.
#[derive(Default)]
struct Making {
    status: Option<c_int>,
    fields: Vec<(*const c_char, *const c_char)>,
    body: Option<(*const c_char, c_int)>,
}

#[derive(Default)]
struct Responses {
    last: u64,
    making: HashMap<u64, Making>,
}

// SAFETY: the pointers are followed only when the response is sent. The program promises that their bytes live until then.
unsafe impl Send for Making {}

/// The responses of all threads, because a program may fill one on another thread than the one that sends it.
static RESPONSES: LazyLock<Mutex<Responses>> = LazyLock::new(Mutex::default);

fn responses() -> MutexGuard<'static, Responses> {
    RESPONSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a response. It is freed when it is sent.
#[unsafe(no_mangle)]
pub extern "C" fn http_response_init() -> *mut http_response_s {
    let mut responses = responses();
    responses.last += 1;
    let last = responses.last;
    responses.making.insert(last, Making::default());
    // No number is the address of an allocation, and none is NULL.
    (last << 1 | 1) as usize as *mut http_response_s
}

fn change(response: *mut http_response_s, act: impl FnOnce(&mut Making)) {
    let number = response as usize as u64 >> 1;
    responses().making.get_mut(&number).map(act);
}

fn take(response: *mut http_response_s) -> Option<Making> {
    responses().making.remove(&(response as usize as u64 >> 1))
}

/// Sets the status; the default is 200. A status outside 200 to 599 becomes 500.
#[unsafe(no_mangle)]
pub extern "C" fn http_response_status(response: *mut http_response_s, status: c_int) {
    change(response, |making| making.status = Some(status));
}

/// Adds a header field. The texts must live until the response is sent.
///
/// # Safety
/// The texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_response_header(
    response: *mut http_response_s,
    key: *const c_char,
    value: *const c_char,
) {
    if !key.is_null() && !value.is_null() {
        change(response, |making| making.fields.push((key, value)));
    }
}

/// Sets the body. The bytes must live until the response is sent.
///
/// # Safety
/// The body has this many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_response_body(response: *mut http_response_s, body: *const c_char, length: c_int) {
    if !body.is_null() && length >= 0 {
        change(response, |making| making.body = Some((body, length)));
    }
}

impl Making {
    fn status(&self) -> StatusCode {
        let status = self.status.unwrap_or(200);
        // An interim status is no final response.
        let code = u16::try_from(status).ok().filter(|code| (200..=599).contains(code));
        code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the fields, the last one first, as in the original.
    ///
    /// # Safety
    /// The program's texts are still there.
    unsafe fn fields<'f>(&self) -> impl Iterator<Item = (&'f CStr, &'f CStr)> {
        // SAFETY: the program promises texts that end with a NUL and live until the response is sent.
        self.fields.iter().rev().map(|&(key, value)| unsafe { (CStr::from_ptr(key), CStr::from_ptr(value)) })
    }

    /// Returns the bytes of the body.
    ///
    /// # Safety
    /// The program's bytes are still there.
    unsafe fn body<'b>(&self) -> &'b [u8] {
        match self.body {
            // SAFETY: the program promises this many bytes, which live until the response is sent.
            Some((body, length)) => unsafe { std::slice::from_raw_parts(body.cast(), length as usize) },
            None => &[],
        }
    }

    /// Returns the head of the response.
    ///
    /// # Safety
    /// The program's texts are still there.
    unsafe fn draft(&self, closes: bool) -> Draft {
        let mut draft = Draft::of(self.status());
        // SAFETY: as the caller promises.
        for (key, value) in unsafe { self.fields() } {
            // A field that would split the response is left out.
            let _ = draft.add_header(&key.to_string_lossy(), value.to_bytes());
        }
        if closes {
            draft.set_closes(true);
        }
        draft
    }
}

/// Sends a response, and frees it. Any thread may do that.
///
/// # Safety
/// The bytes that the response refers to are still there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_respond(request: *mut http_request_s, response: *mut http_response_s) {
    guarded(|| {
        let Some(making) = take(response) else { return Ok(()) };
        let draft = |closes| {
            // SAFETY: as the caller promises.
            let (mut draft, body) = unsafe { (making.draft(closes), making.body()) };
            draft.set_body(Bytes::copy_from_slice(body));
            draft
        };
        let Some((handle, closes)) =
            with_connection(request, |connection| (connection.request, connection.known.closes()))
        else {
            return elsewhere::respond(request as usize as u64, draft);
        };
        let draft = draft(closes);
        let result = answer(handle, draft);
        answered(request);
        result
    });
}

/// Sends the head with the first chunk, and later chunks. The callback is called when the next one can be sent, never before this
/// function returns.
///
/// # Safety
/// The bytes that the response refers to are still there, and the callback is NULL or a function of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_respond_chunk(
    request: *mut http_request_s,
    response: *mut http_response_s,
    callback: RequestCallback,
) {
    guarded(|| {
        let Some(making) = take(response) else { return Ok(()) };
        let known = with_connection(request, |connection| {
            (connection.request, connection.known.closes(), connection.stream.as_ref().map(|(stream, _)| *stream))
        });
        let Some((handle, closes, stream)) = known else { return Ok(()) };
        let stream = match stream {
            Some(stream) => stream,
            None => {
                // SAFETY: as the caller promises.
                let mut draft = unsafe { making.draft(closes) };
                let trailers: LateTrailers = Arc::new(Mutex::new(Vec::new()));
                draft.late_trailers = Some(trailers.clone());
                let stream = stream::begin(handle, draft, None, Some(has_room), Data(request))?;
                with_connection(request, |connection| connection.stream = Some((stream, trailers)));
                stream
            }
        };
        // SAFETY: as the caller promises.
        let body = unsafe { making.body() };
        // The program waits for the callback before the next chunk, so at most one is above the bound.
        let has_room = stream::push(stream, body)?;
        let Some(callback) = callback else { return Ok(()) };
        let spawner = with_connection(request, |connection| {
            if !has_room {
                connection.waits_for_room = Some(callback);
            }
            connection.spawner.clone().filter(|_| has_room)
        });
        if let Some(Some(spawner)) = spawner {
            let number = request as usize as u64;
            spawner.spawn(async move { call_back(number, handle, callback, |_| {}) });
        }
        Ok(())
    });
}

/// Is called by the stream of a connection when it has room, or when its client is gone.
///
/// # Safety
/// There are no conditions: `data` is the number of a connection and is not followed.
unsafe extern "C" fn has_room(stream: highwire_stream, result: highwire_result, data: *mut c_void) {
    let request: *mut http_request_s = data;
    if result != HIGHWIRE_OK {
        highwire_stream_abort(stream);
        let was_waiting = with_connection(request, |connection| {
            connection.stream.take_if(|(its, _)| *its == stream);
            connection.waits_for_room.take().is_some()
        });
        if was_waiting == Some(true) {
            // The program is not called back, and will not end the response.
            answered(request);
        }
        return;
    }
    let waiting = with_connection(request, |connection| {
        Some((connection.request, connection.waits_for_room.take()?, connection.spawner.clone()?))
    });
    if let Some(Some((handle, callback, spawner))) = waiting {
        let number = data as usize as u64;
        spawner.spawn(async move { call_back(number, handle, callback, |_| {}) });
    }
}

/// Ends a response in chunks. The header fields of the response become trailers.
///
/// # Safety
/// The bytes that the response refers to are still there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn http_respond_chunk_end(request: *mut http_request_s, response: *mut http_response_s) {
    guarded(|| {
        let Some(making) = take(response) else { return Ok(()) };
        let stream = with_connection(request, |connection| connection.stream.take());
        let Some(Some((stream, trailers))) = stream else {
            // The client is gone.
            answered(request);
            return Ok(());
        };
        let mut all = trailers.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as the caller promises.
        for (key, value) in unsafe { making.fields() } {
            all.extend(response::field(&key.to_string_lossy(), value.to_bytes()));
        }
        drop(all);
        highwire_stream_end(stream);
        answered(request);
        Ok(())
    });
}
