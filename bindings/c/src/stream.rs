//! Bodies that a program writes in parts, on any thread: of responses, and of calls to other servers.
//!
//! The program writes into a `Backlog`, which the connection's worker reads, or the task of a call to another server. A
//! write that does not fit fails with `HIGHWIRE_AGAIN`, and the worker calls the program when there is room again.

use crate::backlog::Backlog;
use crate::current::{body_use, defer};
use crate::data::Data;
use crate::deferred;
use crate::handles::Table;
use crate::receive;
use crate::request::highwire_request;
use crate::response::{self, Draft, highwire_response};
use crate::result::{
    Failed, HIGHWIRE_AGAIN, HIGHWIRE_GONE, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_OK, HIGHWIRE_WRONG_STATE, bytes, failed,
    give, guarded, highwire_result,
};
use bytes::Bytes;
use futures_core::Stream;
use highwire::body::BodyError;
use highwire::client;
use highwire::{BodyUse, Response};
use std::ffi::c_void;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A body that is being written.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_stream {
    /// Its number; 0 is none.
    pub id: u64,
}

/// Gets `HIGHWIRE_OK` when there is room for more bytes again, and `HIGHWIRE_GONE` once, when the peer has disconnected
/// or the call to another server has ended. The callback runs on the thread of the worker, or of that call; never if
/// the call is not sent, and never after the program has ended the stream. If another thread ends the stream, the
/// callback may still be running, so do not free `data` before it has returned; ending the stream in the callback
/// avoids that.
pub type highwire_stream_callback =
    Option<unsafe extern "C" fn(stream: highwire_stream, result: highwire_result, data: *mut c_void)>;

struct Queue {
    parts: Backlog<Bytes>,
    /// The bytes that the program has written, and those that the connection has taken.
    written: u64,
    taken: u64,
    /// Set when the program ends the body: true if it is whole.
    ended: Option<bool>,
    /// True if the connection reads no more, although the body is not complete.
    is_gone: bool,
    /// True if the program has the stream's handle, so that its callback may be called.
    is_armed: bool,
    /// The request whose body may be read meanwhile, if this is a response.
    beside: Option<highwire_request>,
}

/// A body between the program and the connection.
pub(crate) struct Writing {
    queue: Mutex<Queue>,
    callback: highwire_stream_callback,
    data: Data,
    length: Option<u64>,
}

static STREAMS: Table<highwire_stream, Writing> = Table::new();

impl Queue {
    /// Returns true if the connection has taken all of a body with an announced length.
    fn is_complete(&self, length: Option<u64>) -> bool {
        length == Some(self.taken)
    }
}

impl Writing {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, handle: highwire_stream, result: highwire_result) {
        if let Some(callback) = self.callback {
            if result != HIGHWIRE_OK {
                let _ = guarded(gone);
            }
            // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
            unsafe { callback(handle, result, self.data.0) };
        }
    }
}

fn gone<T>() -> Result<T, Failed> {
    failed(HIGHWIRE_GONE, "the peer is gone, or takes no more")
}

/// The end that the connection reads.
pub(crate) struct Reading {
    writing: Arc<Writing>,
    handle: highwire_stream,
}

impl Reading {
    pub(crate) fn into_response(self) -> Response {
        match self.writing.length {
            Some(length) => Response::stream_of(length, self),
            None => Response::stream(self),
        }
    }

    /// Allows the library to tell the program that the connection has dropped the body.
    pub(crate) fn arm(&self) {
        self.writing.lock().is_armed = true;
    }

    /// Returns the body of a call.
    pub(crate) fn into_upload(self) -> client::Body {
        let length = self.writing.length;
        let body = client::Body::stream(Upload(self));
        match length {
            Some(length) => body.with_length(length),
            None => body,
        }
    }
}

impl Stream for Reading {
    type Item = Result<Bytes, BodyError>;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = self.writing.lock();
        if let Some(part) = queue.parts.pop(Bytes::len) {
            queue.taken += part.len() as u64;
            // After ending the stream, the program may have freed the callback's data.
            let has_room = queue.ended.is_none() && queue.parts.tells_of_room();
            drop(queue);
            if has_room {
                self.writing.tell(self.handle, HIGHWIRE_OK);
            }
            return Poll::Ready(Some(Ok(part)));
        }
        match queue.ended {
            Some(true) => Poll::Ready(None),
            Some(false) => Poll::Ready(Some(Err(BodyError::CutShort))),
            None => {
                queue.parts.wait(cx);
                Poll::Pending
            }
        }
    }
}

/// The reading end of the body of a call to another server.
struct Upload(Reading);

impl Stream for Upload {
    type Item = Result<Bytes, &'static str>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let part = Pin::new(&mut self.0).poll_next(cx);
        part.map(|part| part.map(|part| part.map_err(|_| "the program has aborted the body")))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut queue = self.writing.lock();
        // The other server may respond after the announced length, before the program has ended the stream.
        queue.is_gone = !queue.is_complete(self.writing.length);
        let parts = queue.parts.discard();
        let is_cut = queue.is_gone && queue.ended.is_none() && queue.is_armed;
        let (beside, is_ended) = (queue.beside.take(), queue.ended.is_some());
        drop(queue);
        drop(parts);
        match beside {
            // The request is removed already, but its body is still with its worker, which runs this.
            Some(request) if is_ended => receive::forget(request),
            Some(request) => deferred::end_stream(request),
            None => {}
        }
        if is_cut {
            self.writing.tell(self.handle, HIGHWIRE_GONE);
        }
    }
}

/// Answers a request with a response whose body follows in parts, with `highwire_stream_write`. Frees the response,
/// even on failure. `length` is the length of the body, or -1 if it is not known. `callback` may be NULL.
///
/// The program must end the stream with `highwire_stream_end` or `highwire_stream_abort`, even after the client is
/// gone.
///
/// If the route takes the request's body in parts, `highwire_request_read` can read it until the stream has ended. The
/// client may wait until the body is read: if you want no more of it, end the stream soon.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_stream`; `callback` must be NULL or a function of its type that may be called
/// on any thread until the stream has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_respond_stream(
    request: highwire_request,
    response: highwire_response,
    length: i64,
    callback: highwire_stream_callback,
    data: *mut c_void,
    out: *mut highwire_stream,
) -> highwire_result {
    guarded(|| {
        let draft = response::take(response)?;
        if out.is_null() {
            return crate::result::null("out");
        }
        let handle = begin(request, draft, announced(length)?, callback, Data(data))?;
        // SAFETY: as the caller promises.
        unsafe { give(out, handle, "out") }
    })
}

/// Returns the length of a body, or `None` for -1.
pub(crate) fn announced(length: i64) -> Result<Option<u64>, Failed> {
    match u64::try_from(length) {
        Ok(length) => Ok(Some(length)),
        Err(_) if length == -1 => Ok(None),
        Err(_) => {
            failed(HIGHWIRE_INVALID_ARGUMENT, format!("{length} is neither a length nor -1 for an unknown length"))
        }
    }
}

/// Answers a request with a body in parts.
pub(crate) fn begin(
    request: highwire_request,
    mut draft: Draft,
    length: Option<u64>,
    callback: highwire_stream_callback,
    data: Data,
) -> Result<highwire_stream, Failed> {
    // The program may want to read the request's body while it answers.
    let reads = body_use(request)? == BodyUse::Parts;
    if reads && !defer(request)?.has_reply() {
        return failed(HIGHWIRE_WRONG_STATE, "the request was answered already");
    }
    let opened = open(length, callback, data, |reading| {
        draft.stream = Some(reading);
        if reads { response::answer_beside_body(request, draft) } else { response::answer(request, draft) }
    });
    let handle = match opened {
        Err((HIGHWIRE_GONE, text)) => {
            // The request is answered, and its body is not read any more.
            deferred::remove(request);
            return Err((HIGHWIRE_GONE, text));
        }
        opened => opened?,
    };
    // Another thread may answer while the worker already drops the request.
    let is_gone = STREAMS.get(handle).is_ok_and(|writing| {
        let mut queue = writing.lock();
        (queue.is_armed, queue.beside) = (true, reads.then_some(request));
        queue.is_gone
    });
    if is_gone {
        if reads {
            deferred::remove(request);
        }
        let _ = STREAMS.remove(handle);
        return gone();
    }
    Ok(handle)
}

/// Opens a stream, and passes its reading end to `place`. If `place` fails, there is no stream. Until the stream is
/// armed, the program is not told if the connection ends.
pub(crate) fn open(
    length: Option<u64>,
    callback: highwire_stream_callback,
    data: Data,
    place: impl FnOnce(Reading) -> Result<(), Failed>,
) -> Result<highwire_stream, Failed> {
    let queue = Queue {
        parts: Backlog::new(),
        written: 0,
        taken: 0,
        ended: None,
        is_gone: false,
        is_armed: false,
        beside: None,
    };
    let writing = Arc::new(Writing { queue: Mutex::new(queue), callback, data, length });
    let handle = STREAMS.add(writing.clone());
    if let Err(error) = place(Reading { writing, handle }) {
        let _ = STREAMS.remove(handle);
        return Err(error);
    }
    Ok(handle)
}

/// Sends a part of the body even if the queue is full. Returns false if the writer must wait for the callback.
pub(crate) fn push(stream: highwire_stream, part: &[u8]) -> Result<bool, Failed> {
    write(stream, part, false)
}

/// Adds a part to a body. If `is_bounded`, refuses a part that does not fit; otherwise, returns false if more bytes
/// wait than should.
fn write(stream: highwire_stream, part: &[u8], is_bounded: bool) -> Result<bool, Failed> {
    let writing = STREAMS.get(stream)?;
    let mut queue = writing.lock();
    if queue.is_gone {
        return gone();
    }
    if queue.ended.is_some() {
        return failed(HIGHWIRE_WRONG_STATE, "the stream has ended");
    }
    let written = queue.written + part.len() as u64;
    if let Some(length) = writing.length.filter(|length| written > *length) {
        return failed(
            HIGHWIRE_INVALID_ARGUMENT,
            format!("the body would have {written} bytes, and {length} were announced"),
        );
    }
    if is_bounded && !queue.parts.has_room_for(part.len()) {
        return failed(HIGHWIRE_AGAIN, "too many bytes wait for the peer");
    }
    queue.written = written;
    if !part.is_empty() {
        queue.parts.push(Bytes::copy_from_slice(part), part.len());
    }
    let has_room = is_bounded || !queue.parts.is_overfull();
    let reader = queue.parts.take_reader();
    drop(queue);
    reader.into_iter().for_each(Waker::wake);
    Ok(has_room)
}

/// Sends a part of the body. The bytes are copied. Any thread may call this, but not two at the same time: the order
/// would be undefined.
///
/// Returns `HIGHWIRE_INVALID_ARGUMENT` if the body would be longer than announced. Returns `HIGHWIRE_AGAIN`, and takes
/// nothing, if the part does not fit into the 256 KiB that may wait for the peer; the callback is called when there is
/// room, maybe before this function has returned. A part of any length fits if nothing waits. Returns `HIGHWIRE_GONE`
/// if the peer is gone, or the call to another server has ended.
///
/// # Safety
/// `part` must point to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_stream_write(
    stream: highwire_stream,
    part: *const c_void,
    length: usize,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let part = unsafe { bytes(part.cast(), length, "part") }?;
        write(stream, part, true).map(drop)
    })
}

/// Ends the body. The handle is invalid from now on. Returns `HIGHWIRE_INVALID_ARGUMENT` if the body is shorter than
/// announced; it is then cut short, as by `highwire_stream_abort`.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_stream_end(stream: highwire_stream) -> highwire_result {
    end(stream, true)
}

/// Cuts the body short: the client of a response sees that it is incomplete; a call to another server fails. The handle
/// is invalid from now on.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_stream_abort(stream: highwire_stream) -> highwire_result {
    end(stream, false)
}

fn end(stream: highwire_stream, is_whole: bool) -> highwire_result {
    guarded(|| {
        let writing = STREAMS.remove(stream)?;
        let mut queue = writing.lock();
        queue.ended = Some(is_whole);
        let (reader, is_gone, beside) = (queue.parts.take_reader(), queue.is_gone, queue.beside);
        let (written, length) = (queue.written, writing.length.unwrap_or(queue.written));
        drop(queue);
        // The program is not called back for the request's body after this.
        beside.into_iter().for_each(deferred::remove);
        reader.into_iter().for_each(Waker::wake);
        if is_gone && is_whole {
            return gone();
        }
        if is_whole && written < length {
            let text = format!("the body has {written} bytes, and {length} were announced, so it is cut short");
            return failed(HIGHWIRE_INVALID_ARGUMENT, text);
        }
        Ok(())
    })
}
