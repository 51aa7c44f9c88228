//! The connections of a thread, each with its request. Their numbers are the pointers that the program has.

use super::elsewhere::Known;
use super::server::Server;
use super::{RequestCallback, http_request_s};
use crate::deferred::{self, Deferred, HeadCopy};
use crate::request::{any_part, highwire_request};
use crate::response::{Draft, LateTrailers};
use crate::stream::highwire_stream;
use bytes::Bytes;
use highwire::Request;
use highwire::server::SocketId;
use highwire_engine::context::Spawner;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// How the next chunk of a request's body is read.
pub(super) enum Chunks {
    /// From the connection, as it arrives.
    Parts,
    /// The whole body at once, and then nothing.
    Whole(Bytes),
}

/// A connection, and its current request.
pub(super) struct Connection {
    pub(super) server: Arc<Server>,
    /// The handle of the request.
    pub(super) request: highwire_request,
    /// The value of the program, which lives as long as the connection.
    pub(super) userdata: *mut c_void,
    /// A copy of the request's head, made when the program first asks for a part of it.
    head: Option<Box<HeadCopy>>,
    pub(super) body: Bytes,
    pub(super) chunk: Bytes,
    /// The body as a chunk, if it is not streamed.
    pub(super) whole_chunk: Option<Bytes>,
    /// The response body that is being sent in chunks, and its trailers.
    pub(super) stream: Option<(highwire_stream, LateTrailers)>,
    pub(super) waits_for_room: RequestCallback,
    /// Runs callbacks on the connection's worker, also for calls between its turns.
    pub(super) spawner: Option<Spawner>,
    /// True if another connection has its slot.
    has_ended: bool,
    /// The part of its state that all threads share.
    pub(super) known: Arc<Known>,
    /// A request that was deferred before its handler began, so that the handler can read it even if another thread has
    /// answered it.
    held: Option<Arc<Deferred>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.known.forget();
    }
}

/// The most buffers in a thread's free list for copies of heads, and the largest capacity of each in bytes.
const SPARE_HEADS: usize = 64;
const SPARE_HEAD_BYTES: usize = 4096;

impl Connection {
    /// Calls `find` with a copy of the request's head. The copy does not move or change until the program has answered the
    /// request: what `find` returns may point into it.
    pub(super) fn head<R>(&mut self, find: impl FnOnce(&HeadCopy) -> Option<R>) -> Option<R> {
        if self.head.is_none() {
            let spare = SPARE_HEADS_HERE.with_borrow_mut(Vec::pop).unwrap_or_default();
            let copy = RefCell::new(spare);
            let of_deferred = |deferred: &Deferred| {
                **copy.borrow_mut() = HeadCopy::clone(deferred);
                Some(())
            };
            let of_request = |request: &Request<'_>| {
                copy.borrow_mut().copy(request);
                Some(())
            };
            match &self.held {
                Some(held) => of_deferred(held),
                None => any_part(self.request, of_request, of_deferred),
            }?;
            self.head = Some(copy.into_inner());
        }
        find(self.head.as_ref()?)
    }

    /// Records that the program has answered the request, and frees the parts of it.
    fn answered(&mut self) {
        self.known.set_answered();
        self.free();
        if let Some(head) = self.head.take().filter(|head| head.capacity() <= SPARE_HEAD_BYTES) {
            SPARE_HEADS_HERE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_HEADS {
                    spare.push(head);
                }
            });
        }
    }

    /// Frees the body of the request.
    pub(super) fn free(&mut self) {
        (self.body, self.chunk) = (Bytes::new(), Bytes::new());
        if let Some(whole) = &mut self.whole_chunk {
            *whole = Bytes::new();
        }
    }
}

/// The connections of this thread.
#[derive(Default)]
struct Connections {
    by_number: HashMap<u64, Connection>,
    /// The number of the connection in each slot of each server, so that a later connection in the slot ends the earlier one.
    by_slot: HashMap<(u32, u32), u64>,
    /// Connections that have ended before the program has answered.
    unanswered: Vec<u64>,
}

thread_local! {
    static CONNECTIONS: RefCell<Connections> = RefCell::default();
    #[expect(clippy::vec_box, reason = "the program has pointers into the copies, so they do not move")]
    static SPARE_HEADS_HERE: RefCell<Vec<Box<HeadCopy>>> = const { RefCell::new(Vec::new()) };
}

/// Bit 63 is set, so that no number is NULL. A server's number has 13 bits, a generation 24, a slot 26.
fn number(server: u32, id: SocketId) -> u64 {
    1 << 63
        | u64::from(server & 0x1fff) << 50
        | u64::from(id.generation & 0xff_ffff) << 26
        | u64::from(id.index & 0x3ff_ffff)
}

/// Begins a request on a connection. Returns the connection's number.
pub(super) fn begin(server: &Arc<Server>, id: SocketId, request: highwire_request, whole_chunk: Option<Bytes>) -> u64 {
    let number = number(server.number, id);
    let ended = CONNECTIONS.with_borrow_mut(|connections| {
        let before = connections.by_slot.insert((server.number, id.index), number).filter(|before| *before != number);
        let ended = before.and_then(|before| {
            let ended = connections.by_number.get_mut(&before)?;
            ended.has_ended = true;
            if !ended.known.is_answered() {
                // The program may still read the request, so it is copied before the engine drops it.
                ended.head(|_| Some(()));
                connections.unanswered.push(before);
                return Some((ended.request, None));
            }
            connections.by_number.remove(&before).map(|ended| (ended.request, Some(ended)))
        });
        // Other threads may have answered some of these meanwhile.
        let Connections { by_number, unanswered, .. } = &mut *connections;
        unanswered.retain(|number| match by_number.get(number) {
            Some(connection) if connection.known.is_answered() => {
                by_number.remove(number);
                false
            }
            found => found.is_some(),
        });
        let connection = connections.by_number.entry(number).or_insert_with(|| Connection {
            server: server.clone(),
            request,
            userdata: ptr::null_mut(),
            head: None,
            body: Bytes::new(),
            chunk: Bytes::new(),
            whole_chunk: None,
            stream: None,
            waits_for_room: None,
            spawner: Spawner::here(),
            has_ended: false,
            known: Known::new(number),
            held: None,
        });
        connection.answered();
        connection.known.begin(request);
        connection.held = whole_chunk.as_ref().filter(|chunk| !chunk.is_empty()).and_then(|_| deferred::get(request));
        connection.request = request;
        connection.body = whole_chunk.clone().unwrap_or_default();
        connection.whole_chunk = whole_chunk;
        connection.waits_for_room = None;
        let stream = connection.stream.take();
        (ended, stream)
    });
    if let (Some((request, _)), _) = &ended {
        // The program may still answer the earlier connection's request, whose client is gone.
        drop(crate::deferred::take(*request));
    }
    drop(ended);
    number
}

/// Records that the handler of a request has returned. Returns the response that another thread has given before.
pub(super) fn end_handler(number: u64, request: highwire_request) -> Option<Draft> {
    let pointer = number as usize as *mut http_request_s;
    let known =
        with_connection(pointer, |connection| (connection.request == request).then(|| connection.known.clone()));
    known.flatten()?.end_handler()
}

/// Records that the program has answered the request of a pointer.
pub(super) fn answered(request: *mut http_request_s) {
    let number = request as usize as u64;
    // At the end of the thread there are no connections.
    let _ = CONNECTIONS.try_with(|connections| {
        let mut connections = connections.borrow_mut();
        let Some(connection) = connections.by_number.get_mut(&number) else { return };
        connection.answered();
        if connection.has_ended {
            connections.by_number.remove(&number);
        }
    });
}

/// Calls `act` with the connection of a pointer, if there is one. `act` must not call the program.
pub(super) fn with_connection<R>(request: *mut http_request_s, act: impl FnOnce(&mut Connection) -> R) -> Option<R> {
    // At the end of the thread there are no connections.
    let found = CONNECTIONS
        .try_with(|connections| connections.borrow_mut().by_number.get_mut(&(request as usize as u64)).map(act));
    found.ok().flatten()
}

/// Changes a connection, and calls a callback of the program with it, if it still has the same request.
pub(super) fn call_back(
    number: u64,
    request: highwire_request,
    callback: unsafe extern "C" fn(*mut http_request_s),
    change: impl FnOnce(&mut Connection),
) {
    let pointer = number as usize as *mut http_request_s;
    let is_same = with_connection(pointer, |connection| {
        let is_same = connection.request == request;
        if is_same {
            change(connection);
        }
        is_same
    });
    if is_same == Some(true) {
        // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
        unsafe { callback(pointer) };
    }
}
