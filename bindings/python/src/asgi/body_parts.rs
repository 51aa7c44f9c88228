//! The body of a response that an application sends in parts, as a stream for the engine.

use super::answer::Answer;
use super::exchange::{Exchange, MOST_WAITING};
use bytes::Bytes;
use futures_core::Stream;
use pyo3::prelude::*;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The parts of a response's body.
pub(super) struct BodyParts(pub(super) Rc<Exchange>);

impl Stream for BodyParts {
    type Item = Result<Bytes, &'static str>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let exchange = &self.0;
        let mut answer = exchange.answer.borrow_mut();
        let Answer::Streaming(parts) = &mut *answer else { return Poll::Ready(None) };
        let Some(part) = parts.waiting.pop_front() else {
            return match parts.end {
                None => {
                    parts.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                Some(end) => {
                    *answer = Answer::Over;
                    Poll::Ready(end.err().map(|()| Err("the application has not completed its response")))
                }
            };
        };
        parts.bytes -= part.len();
        let resumes = parts.bytes <= MOST_WAITING / 2;
        drop(answer);
        if resumes && !exchange.senders.is_empty() {
            Python::attach(|py| exchange.resume_senders(py));
        }
        Poll::Ready(Some(Ok(part)))
    }
}

impl Drop for BodyParts {
    fn drop(&mut self) {
        let exchange = &self.0;
        let mut answer = exchange.answer.borrow_mut();
        let has_left = match &mut *answer {
            Answer::Streaming(parts) if parts.has_no_body => {
                // The client has its response, and the application goes on sending.
                (parts.is_dropped, parts.bytes) = (true, 0);
                parts.waiting.clear();
                false
            }
            Answer::Streaming(parts) => parts.end != Some(Ok(())) || !parts.waiting.is_empty(),
            Answer::Over => return,
            _ => true,
        };
        drop(answer);
        Python::attach(|py| if has_left { exchange.leave(py) } else { exchange.resume_senders(py) });
    }
}
