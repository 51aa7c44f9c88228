//! Topics: messages that are published to all WebSockets that have subscribed, on all workers.

use crate::handles::Table;
use crate::result::{
    Failed, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_WRONG_THREAD, bytes, failed, give, guarded, highwire_result, null, text,
};
use crate::websocket::{highwire_websocket, message, with_sender};
use highwire::topics::{Start, SubscribeError, Topic, Topics};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// A set of topics.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_topics {
    /// Its number; 0 is none.
    pub id: u64,
}

static TOPICS: Table<highwire_topics, Topics> = Table::new();

/// Makes a set of topics. Each topic keeps its last `history` messages for late subscribers; 0 keeps none. They are
/// kept in memory, at most 4 MiB per topic.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_topics`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_topics_new(history: usize, out: *mut highwire_topics) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return null("out");
        }
        let topics = Topics::builder().topic("#", Topic::new().history(history)).build();
        // SAFETY: as the caller promises.
        unsafe { give(out, TOPICS.add(Arc::new(topics)), "out") }
    })
}

/// Frees the handle of a set of topics. WebSockets that have subscribed keep their subscriptions.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_topics_free(topics: highwire_topics) -> highwire_result {
    guarded(|| TOPICS.remove(topics).map(drop))
}

/// Publishes a message, whose kind is `HIGHWIRE_WEBSOCKET_TEXT` or `HIGHWIRE_WEBSOCKET_BINARY`, to a topic such as `chat/lobby`. Any
/// thread may do that. The bytes are copied, once for all subscribers.
///
/// # Safety
/// `topic` must be NULL or end with a NUL; `bytes` must point to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_topics_publish(
    topics: highwire_topics,
    topic: *const c_char,
    kind: i32,
    bytes: *const c_void,
    length: usize,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (topic, bytes) = unsafe { (text(topic, "topic")?, self::bytes(bytes.cast(), length, "bytes")?) };
        let published = TOPICS.get(topics)?.publish(topic, message(kind, bytes)?);
        published.map(drop).or_else(|error| failed(HIGHWIRE_INVALID_ARGUMENT, error.to_string()))
    })
}

/// Sends the messages of a filter's topics to a WebSocket until it ends. `chat/lobby` is one topic; `chat/+` matches
/// all topics one level below `chat`, and `chat/#` those any number of levels below. First sends up to `last` messages
/// of the topic's history. Only the thread of the socket's worker may call this, so call it in a handler or a callback.
///
/// # Safety
/// `filter` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_websocket_subscribe(
    socket: highwire_websocket,
    topics: highwire_topics,
    filter: *const c_char,
    last: usize,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let filter = unsafe { text(filter, "filter") }?;
        let topics = TOPICS.get(topics)?;
        if !highwire_engine::context::is_on_worker() {
            return failed(HIGHWIRE_WRONG_THREAD, "only a handler or a callback can subscribe a WebSocket");
        }
        let start = if last == 0 { Start::Next } else { Start::Last(last) };
        with_sender(socket, |sender| sender.subscribe(&topics, filter, start))?.or_else(refused)
    })
}

fn refused(error: SubscribeError) -> Result<(), Failed> {
    failed(HIGHWIRE_INVALID_ARGUMENT, error.to_string())
}

/// Ends a subscription. Returns `HIGHWIRE_NOT_FOUND` if there is none to this filter.
///
/// # Safety
/// As [`highwire_websocket_subscribe`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_websocket_unsubscribe(
    socket: highwire_websocket,
    topics: highwire_topics,
    filter: *const c_char,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let filter = unsafe { text(filter, "filter") }?;
        let topics = TOPICS.get(topics)?;
        if with_sender(socket, |sender| sender.unsubscribe(&topics, filter))? {
            return Ok(());
        }
        failed(highwire_result::HIGHWIRE_NOT_FOUND, format!("there is no subscription to {filter:?}"))
    })
}
