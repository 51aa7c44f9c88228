//! How a body crosses threads: a channel that is bounded, so that whoever reads slowly slows whoever writes.

use crate::body::BodyError;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Bytes of an answer's body that wait between a worker and whoever asked; one part may go beyond them.
pub const CROSSING_BYTES: usize = 64 * 1024;

/// What waits between both ends.
#[derive(Debug)]
struct Crossing<E> {
    parts: VecDeque<Bytes>,
    held: usize,
    /// How it ended, with its trailers.
    end: Option<Result<HeaderMap, E>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The writer goes on when the reader asks for a part.
    writer_waits: bool,
    reader_gone: bool,
}

/// Wakes the reader without holding the lock: its executor may drop it there and then, and that takes the lock.
fn wake_reader<E>(mut crossing: MutexGuard<'_, Crossing<E>>) {
    let reader = crossing.reader.take();
    drop(crossing);
    reader.into_iter().for_each(Waker::wake);
}

/// Nobody reads any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderGone;

/// The writing end. Dropped without an end, the body is cut short.
#[derive(Debug)]
pub struct Writer<E: From<BodyError>> {
    crossing: Arc<Mutex<Crossing<E>>>,
}

/// The reading end.
#[derive(Debug)]
pub struct Reader<E> {
    crossing: Arc<Mutex<Crossing<E>>>,
}

fn locked<E>(crossing: &Mutex<Crossing<E>>) -> MutexGuard<'_, Crossing<E>> {
    crossing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ends of an empty one.
pub fn crossing<E: From<BodyError>>() -> (Writer<E>, Reader<E>) {
    let crossing = Arc::new(Mutex::new(Crossing {
        parts: VecDeque::new(),
        held: 0,
        end: None,
        reader: None,
        writer: None,
        writer_waits: false,
        reader_gone: false,
    }));
    (Writer { crossing: crossing.clone() }, Reader { crossing })
}

impl<E: From<BodyError>> Writer<E> {
    /// Waits until there is room for a part; an error where nobody reads. The task is also woken when the reader goes.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), ReaderGone>> {
        self.poll_until(cx, |crossing| crossing.held < CROSSING_BYTES)
    }

    /// The same, until the reader waits for a part: for a writer that takes nothing out of the account before that.
    pub fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<Result<(), ReaderGone>> {
        self.poll_until(cx, |crossing| {
            crossing.writer_waits = crossing.reader.is_none();
            !crossing.writer_waits
        })
    }

    fn poll_until(
        &self,
        cx: &mut Context<'_>,
        may_go_on: impl FnOnce(&mut Crossing<E>) -> bool,
    ) -> Poll<Result<(), ReaderGone>> {
        let mut crossing = locked(&self.crossing);
        if crossing.reader_gone {
            return Poll::Ready(Err(ReaderGone));
        }
        if !crossing.writer.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            crossing.writer = Some(cx.waker().clone());
        }
        if may_go_on(&mut crossing) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Puts a part behind the others.
    pub fn push(&self, part: Bytes) {
        let mut crossing = locked(&self.crossing);
        if !crossing.reader_gone && !part.is_empty() {
            crossing.held += part.len();
            crossing.parts.push_back(part);
            wake_reader(crossing);
        }
    }

    /// Bytes that nobody has taken yet.
    pub fn held(&self) -> usize {
        locked(&self.crossing).held
    }

    /// Whether there is no room for another part.
    pub fn is_full(&self) -> bool {
        self.held() >= CROSSING_BYTES
    }

    /// Says how the body ended.
    pub fn end(self, end: Result<HeaderMap, E>) {
        locked(&self.crossing).end = Some(end);
    }
}

impl<E: From<BodyError>> Drop for Writer<E> {
    fn drop(&mut self) {
        let mut crossing = locked(&self.crossing);
        crossing.writer = None;
        crossing.end.get_or_insert_with(|| Err(BodyError::CutShort.into()));
        wake_reader(crossing);
    }
}

impl<E> Body for Reader<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        let mut crossing = locked(&self.crossing);
        if let Some(part) = crossing.parts.pop_front() {
            let was_full = crossing.held >= CROSSING_BYTES;
            crossing.held -= part.len();
            if was_full && crossing.held < CROSSING_BYTES {
                crossing.writer.iter().for_each(Waker::wake_by_ref);
            }
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        match crossing.end.take() {
            None => {
                crossing.reader = Some(cx.waker().clone());
                if std::mem::take(&mut crossing.writer_waits) {
                    crossing.writer.iter().for_each(Waker::wake_by_ref);
                }
                Poll::Pending
            }
            Some(end) => {
                crossing.end = Some(Ok(HeaderMap::new()));
                match end {
                    Ok(trailers) if trailers.is_empty() => Poll::Ready(None),
                    Ok(trailers) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                    Err(error) => Poll::Ready(Some(Err(error))),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let crossing = locked(&self.crossing);
        crossing.parts.is_empty() && matches!(&crossing.end, Some(Ok(trailers)) if trailers.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl<E> Drop for Reader<E> {
    fn drop(&mut self) {
        let mut crossing = locked(&self.crossing);
        crossing.reader_gone = true;
        crossing.parts = VecDeque::new();
        crossing.writer.take().into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    /// An executor that is going down: what is woken is dropped there and then.
    struct Dropping(Mutex<Option<Reader<BodyError>>>);

    impl Wake for Dropping {
        fn wake(self: Arc<Self>) {
            let reader = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(reader);
        }
    }

    #[test]
    fn a_reader_may_be_dropped_by_its_own_wake() {
        for ends in [false, true] {
            let (writer, reader) = crossing::<BodyError>();
            let kept = Arc::new(Dropping(Mutex::new(Some(reader))));
            let waker = Waker::from(kept.clone());
            let mut place = kept.0.lock().expect("no panic");
            let reader = Pin::new(place.as_mut().expect("it is there"));
            assert!(reader.poll_frame(&mut Context::from_waker(&waker)).is_pending());
            drop(place);
            if !ends {
                writer.push(Bytes::from_static(b"part"));
                assert!(writer.crossing.lock().expect("no panic").reader_gone);
            }
            drop(writer);
            assert!(kept.0.lock().expect("no panic").is_none(), "it was woken");
        }
    }
}
