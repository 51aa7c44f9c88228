//! A tunnel: another protocol that replaces the request's and the response's bodies, by Upgrade or CONNECT.

use super::abort::Abort;
use crate::raw::{Ended, Raw, RawStream, Switch, Task};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Another protocol on an HTTP/1 connection or on a stream of HTTP/2.
pub(crate) struct Tunnel {
    /// It has the protocol's task, which saves an allocation for each tunnel. The task has the same `Raw` as its stream, so
    /// the tunnel drops the task when it is dropped itself.
    pub(crate) raw: Rc<RefCell<Raw>>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let task = self.raw.borrow_mut().task.take();
        drop(task);
    }
}

impl Tunnel {
    /// Returns a tunnel without a task: one that the handler has not accepted yet, or whose stream belongs to a task that
    /// does not run as a part of the connection.
    pub(crate) fn new(raw: Raw) -> Tunnel {
        Tunnel { raw: Rc::new(RefCell::new(raw)) }
    }

    /// Returns the stream for a task that does not run as a part of the connection.
    pub(crate) fn stream(&self) -> RawStream {
        RawStream::new(self.raw.clone())
    }

    /// Creates the task of an accepted protocol.
    pub(super) fn start(&self, switch: Switch, is_draining: bool) -> Result<(), Abort> {
        let task = catch_unwind(AssertUnwindSafe(|| (switch.start)(self.stream())));
        self.raw.borrow_mut().task = Some(task.map_err(|_| Abort::TaskPanicked.logged())?);
        if is_draining {
            self.drain();
        }
        Ok(())
    }

    /// Polls the task, if it has not finished.
    pub(crate) fn poll(&self, waker: &Waker) -> Result<(), Abort> {
        // The task uses its stream, so nothing is borrowed while it is polled.
        let Some(mut task) = self.raw.borrow_mut().task.take() else { return Ok(()) };
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut Context::from_waker(waker)))) {
            Ok(Poll::Pending) => self.raw.borrow_mut().task = Some(task),
            Ok(Poll::Ready(())) => {}
            Err(_) => {
                std::mem::forget(task);
                return Err(Abort::TaskPanicked.logged());
            }
        }
        Ok(())
    }

    /// Returns the task, if it has not finished. No connection moves its bytes any more.
    pub(super) fn into_task(self) -> Option<Task> {
        let mut raw = self.raw.borrow_mut();
        raw.detach();
        raw.task.take()
    }

    /// Ends the bytes from the peer, and wakes the task.
    pub(crate) fn end(&self, why: Ended) {
        self.raw.borrow_mut().end(why);
    }

    /// Records that the peer has ended its direction. If `is_said` is false, only the TCP stream has ended, without the
    /// close_notify that TLS requires, and the task sees a broken connection.
    pub(crate) fn peer_ended(&self, is_said: bool) {
        self.end(if is_said { Ended::Peer } else { Ended::Broken });
    }

    /// Signals the task that no byte has passed for too long. Returns false if it was signaled before.
    pub(crate) fn tell_idle(&self) -> bool {
        self.raw.borrow_mut().tell_idle()
    }

    /// Signals the task that the server is stopping.
    pub(crate) fn drain(&self) {
        self.raw.borrow_mut().drain();
    }

    /// Returns true if the task has dropped both halves of its stream.
    pub(crate) fn is_finished(&self) -> bool {
        self.raw.borrow().is_finished()
    }

    /// Returns the memory cost, in bytes, of the data that waits for the task or for the peer, or that the task keeps.
    pub(crate) fn held(&self) -> usize {
        let raw = self.raw.borrow();
        raw.held() + raw.kept() + raw.outgoing_held()
    }
}
