//! Responses that the program uses outside of their handlers: after the handler has returned, or on another thread.

use super::{Completed, Making, bytes_of, complete, hw_string, lock};
use crate::data::Data;
use crate::request::highwire_request;
use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex};

/// The responses that the program uses outside of their handlers.
pub(super) static LEFT: LazyLock<Mutex<Left>> = LazyLock::new(Mutex::default);

#[derive(Default)]
pub(super) struct Left {
    /// Responses whose handlers have returned.
    pub(super) making: HashMap<highwire_request, Making>,
    /// What other threads have done with responses whose handlers have not returned. It takes effect when they return.
    early: HashMap<highwire_request, Early>,
    /// The handles in `early`, the oldest first.
    order: VecDeque<highwire_request>,
}

/// The most entries in `early`. A server has no more workers, and each runs one handler at a time, so if there are
/// more, the program has used a response after it was sent. The oldest entry is then evicted.
const MOST_EARLY: usize = 1024;

/// What other threads have done with a response whose handler has not returned.
#[derive(Default)]
pub(super) struct Early {
    pub(super) making: Making,
    pub(super) sent: Option<Owned>,
}

impl Left {
    /// Returns the entry of a response in `early`, possibly a new one.
    fn early(&mut self, handle: highwire_request) -> &mut Early {
        if !self.early.contains_key(&handle) {
            if self.order.len() >= MOST_EARLY
                && let Some(Early { sent: Some(mut sent), .. }) =
                    self.order.pop_front().and_then(|oldest| self.early.remove(&oldest))
            {
                // The program has sent a response twice; the first one has called the callback.
                sent.completion.is_owed = false;
            }
            self.order.push_back(handle);
        }
        self.early.entry(handle).or_default()
    }

    pub(super) fn take_early(&mut self, handle: highwire_request) -> Option<Early> {
        let early = self.early.remove(&handle)?;
        self.order.retain(|known| *known != handle);
        Some(early)
    }
}

/// A response with bytes of its own, which another thread has sent before the handler has returned.
pub(super) struct Owned {
    pub(super) status: Option<Vec<u8>>,
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) completion: Completion,
}

impl Owned {
    /// Copies what another thread has made of a response.
    ///
    /// # Safety
    /// The strings have their bytes.
    pub(super) unsafe fn of(making: &Making, completion: Completion) -> Owned {
        // SAFETY: as the caller promises.
        let bytes = |string: &hw_string| unsafe { bytes_of(string) }.to_vec();
        Owned {
            status: making.status.as_ref().map(bytes),
            fields: making.fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            body: making.body.as_ref().map(bytes),
            completion,
        }
    }

    /// Returns the response with what the handler has made of it. It points to the bytes of this value.
    pub(super) fn over(&self, handler: Making) -> Making {
        let string = |bytes: &Vec<u8>| hw_string { value: bytes.as_ptr().cast_mut().cast(), length: bytes.len() };
        let own = Making {
            status: self.status.as_ref().map(string),
            fields: self.fields.iter().map(|(name, value)| (string(name), string(value))).collect(),
            body: self.body.as_ref().map(string),
        };
        handler.and(own)
    }
}

impl Making {
    /// Returns this response with later changes.
    pub(super) fn and(mut self, later: Making) -> Making {
        self.fields.extend(later.fields);
        Making { status: later.status.or(self.status), fields: self.fields, body: later.body.or(self.body) }
    }
}

/// The callback of a response.
pub(super) struct Completion {
    pub(super) callback: Completed,
    pub(super) data: Data,
    /// True if the callback must be called, at the latest when this is dropped, on the thread that drops it.
    pub(super) is_owed: bool,
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.is_owed {
            complete(self.callback, Data(self.data.0));
        }
    }
}

/// Changes a response outside of its handler.
pub(super) fn change(handle: highwire_request, act: impl FnOnce(&mut Making)) {
    let mut left = lock(&LEFT);
    match left.making.get_mut(&handle) {
        Some(making) => act(making),
        None => act(&mut left.early(handle).making),
    }
}

/// Takes a response, to send it, if its handler has returned. Otherwise keeps the result of `own` until the handler
/// returns. Both happen under one lock, because the handler may return at any time.
pub(super) fn take(handle: highwire_request, own: impl FnOnce(&Making) -> Owned) -> Option<Making> {
    let mut left = lock(&LEFT);
    if let Some(making) = left.making.remove(&handle) {
        return Some(making);
    }
    let early = left.early(handle);
    if early.sent.is_none() {
        early.sent = Some(own(&early.making));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Completion, Left, MOST_EARLY, Owned};
    use crate::data::Data;
    use crate::request::highwire_request;
    use std::ffi::c_void;
    use std::ptr;

    #[test]
    fn responses_that_are_used_after_they_were_sent_are_forgotten_without_a_call() {
        extern "C" fn is_not_called(_: *mut c_void) {
            std::process::abort();
        }
        let mut left = Left::default();
        for id in 0..2 * MOST_EARLY as u64 {
            let completion = Completion { callback: Some(is_not_called), data: Data(ptr::null_mut()), is_owed: true };
            left.early(highwire_request { id }).sent =
                Some(Owned { status: None, fields: Vec::new(), body: None, completion });
            let is_forgotten =
                id.checked_sub(MOST_EARLY as u64).is_some_and(|id| !left.early.contains_key(&highwire_request { id }));
            assert_eq!(is_forgotten, id >= MOST_EARLY as u64, "{id}");
        }
        assert_eq!((left.early.len(), left.order.len()), (MOST_EARLY, MOST_EARLY));
        for (_, early) in left.early.drain() {
            early.sent.expect("a response").completion.is_owed = false;
        }
    }
}
