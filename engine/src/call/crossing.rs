//! Carries a body between threads through a bounded channel, so that a slow reader slows the writer down.

use crate::body::BodyError;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The number of bytes of a response's body that may wait between a worker and the caller of a request. The last part
/// may exceed this number.
pub const CROSSING_BYTES: usize = 64 * 1024;

/// The state that both ends share.
#[derive(Debug)]
struct Crossing<E> {
    parts: VecDeque<Bytes>,
    held: usize,
    /// The end of the body: its trailers or an error.
    end: Option<Result<HeaderMap, E>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// True if the writer waits until the reader asks for a part.
    writer_waits: bool,
    reader_gone: bool,
}

/// Releases the lock and then wakes the reader. The reader's executor may drop the reader during the wake, which takes
/// the lock again.
fn wake_reader<E>(mut crossing: MutexGuard<'_, Crossing<E>>) {
    let reader = crossing.reader.take();
    drop(crossing);
    reader.into_iter().for_each(Waker::wake);
}

/// The error of a [`Writer`] whose [`Reader`] was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderGone;

/// The writing end. If it is dropped without [`end`](Self::end), the reader gets [`BodyError::CutShort`].
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

/// Creates an empty channel and returns both ends.
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
    /// Returns ready if the channel has room for a part, or with [`ReaderGone`] if the reader was dropped. Otherwise
    /// wakes the task later, when either happens.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), ReaderGone>> {
        self.poll_until(cx, |crossing| crossing.held < CROSSING_BYTES)
    }

    /// Returns ready if the reader waits for a part, or with [`ReaderGone`] as [`poll_room`](Self::poll_room) does.
    /// This serves a writer whose parts must stay charged to the connection until the reader needs them.
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

    /// Appends a part and wakes the reader. Drops the part if it is empty or the reader is gone.
    pub fn push(&self, part: Bytes) {
        let mut crossing = locked(&self.crossing);
        if !crossing.reader_gone && !part.is_empty() {
            crossing.held += part.len();
            crossing.parts.push_back(part);
            wake_reader(crossing);
        }
    }

    /// Returns the number of bytes that the reader has not taken.
    pub fn held(&self) -> usize {
        locked(&self.crossing).held
    }

    /// Returns true if there is no room for another part.
    pub fn is_full(&self) -> bool {
        self.held() >= CROSSING_BYTES
    }

    /// Ends the body, with its trailers or an error.
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

    /// The waker of an executor that is shutting down. A wake drops the reader.
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
            let reader = Pin::new(place.as_mut().expect("the reader"));
            assert!(reader.poll_frame(&mut Context::from_waker(&waker)).is_pending());
            drop(place);
            if !ends {
                writer.push(Bytes::from_static(b"part"));
                assert!(writer.crossing.lock().expect("no panic").reader_gone);
            }
            drop(writer);
            assert!(kept.0.lock().expect("no panic").is_none(), "the reader was not woken");
        }
    }
}
