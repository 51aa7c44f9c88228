//! Passes the answer to a request of this process from its worker to the caller, who may be on another thread.

use super::crossing::Reader;
use crate::body::BoxError;
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

type Answer = http::Response<ResponseBody>;

/// The state that both ends share.
#[derive(Default)]
struct Slot {
    answer: Option<Answer>,
    asker: Option<Waker>,
    worker: Option<Waker>,
    asker_gone: bool,
}

fn locked(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sending end of an answer. If it is dropped without an answer, for example because the worker has ended, the
/// caller gets 503.
pub(crate) struct Answerer {
    slot: Arc<Mutex<Slot>>,
}

/// Creates both ends of a new answer.
pub(crate) fn answer() -> (Answerer, ResponseFuture) {
    let slot = Arc::new(Mutex::new(Slot::default()));
    (Answerer { slot: slot.clone() }, ResponseFuture { slot })
}

impl Answerer {
    /// Returns true if the caller still waits for the answer. Later wakes `task` if the caller stops waiting.
    pub(crate) fn is_wanted(&self, task: &Waker) -> bool {
        let mut slot = locked(&self.slot);
        if slot.worker.is_none() {
            slot.worker = Some(task.clone());
        }
        !slot.asker_gone
    }

    /// Sends the answer.
    pub(crate) fn send(self, answer: Answer) {
        locked(&self.slot).answer = Some(answer);
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        let mut slot = locked(&self.slot);
        slot.worker = None;
        if slot.asker_gone {
            // The answer is dropped without the lock, because it may hold a body whose drop wakes other tasks.
            let answer = slot.answer.take();
            drop(slot);
            return drop(answer);
        }
        slot.answer.get_or_insert_with(|| {
            let mut answer = http::Response::new(ResponseBody::default());
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            answer
        });
        let asker = slot.asker.take();
        // Wakes without the lock, because the asker's executor may drop the future during the wake, which takes the
        // lock.
        drop(slot);
        asker.into_iter().for_each(Waker::wake);
    }
}

/// The future that returns the answer. If it is dropped before the answer arrives, the handler is cancelled.
#[must_use = "dropping this future cancels the request"]
pub struct ResponseFuture {
    slot: Arc<Mutex<Slot>>,
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

impl Future for ResponseFuture {
    type Output = Result<Answer, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = locked(&self.slot);
        match slot.answer.take() {
            Some(answer) => Poll::Ready(Ok(answer)),
            None => {
                slot.asker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        let mut slot = locked(&self.slot);
        slot.asker_gone = true;
        slot.worker.take().into_iter().for_each(Waker::wake);
        let answer = slot.answer.take();
        drop(slot);
        drop(answer);
    }
}

/// The body of an answer. If it is dropped before its end, the rest is not made.
pub struct ResponseBody {
    content: Content,
}

enum Content {
    Whole(Bytes),
    Parts { reader: Reader<BoxError>, left: Option<u64> },
}

impl ResponseBody {
    /// Creates a body that is complete.
    pub(crate) fn of(bytes: Bytes) -> ResponseBody {
        ResponseBody { content: Content::Whole(bytes) }
    }

    /// Creates a body that is still being made, with its length if that is known.
    pub(crate) fn parts(reader: Reader<BoxError>, length: Option<u64>) -> ResponseBody {
        ResponseBody { content: Content::Parts { reader, left: length } }
    }
}

/// Returns an empty body. Layers that answer in place of the service, such as those of tower-http, need one.
impl Default for ResponseBody {
    fn default() -> ResponseBody {
        ResponseBody::of(Bytes::new())
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("size", &self.size_hint()).finish_non_exhaustive()
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Parts { reader, left } => {
                let polled = Pin::new(reader).poll_frame(cx);
                if let (Poll::Ready(Some(Ok(frame))), Some(left)) = (&polled, left) {
                    *left -= frame.data_ref().map_or(0, |data| data.len() as u64).min(*left);
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Parts { reader, .. } => reader.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Parts { left: Some(left), .. } => SizeHint::with_exact(*left),
            Content::Parts { reader, left: None } => reader.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_body_is_empty() {
        let mut body = ResponseBody::default();
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(None)));
    }
}
