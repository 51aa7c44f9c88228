//! A tunnel: another protocol that replaces the request's and the response's bodies, by Upgrade or CONNECT.

use super::abort::Abort;
use crate::raw::{Ended, Raw, RawStream, Switch};
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Another protocol on an HTTP/1 connection or on a stream of HTTP/2.
pub(crate) struct Tunnel {
    pub(crate) raw: Rc<RefCell<Raw>>,
    /// The protocol's task; `None` before the handler accepts a CONNECT, after the task has finished or panicked, and if
    /// we have opened the connection.
    task: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Tunnel {
    /// Returns a tunnel that keeps the peer's bytes until the handler accepts the protocol.
    pub(super) fn proposed(raw: Rc<RefCell<Raw>>) -> Tunnel {
        Tunnel { raw, task: None }
    }

    /// Returns a tunnel whose stream belongs to a task that does not run as a part of the connection.
    pub(super) fn attached(raw: Rc<RefCell<Raw>>) -> Tunnel {
        Tunnel { raw, task: None }
    }

    /// Creates the task of an accepted protocol.
    pub(super) fn start(raw: Rc<RefCell<Raw>>, switch: Switch, is_draining: bool) -> Result<Tunnel, Abort> {
        let start = AssertUnwindSafe(|| (switch.start)(RawStream::new(raw.clone())));
        let task = catch_unwind(start).map_err(|_| Abort::TaskPanicked.logged())?;
        if is_draining {
            raw.borrow_mut().drain();
        }
        Ok(Tunnel { raw, task: Some(task) })
    }

    /// Polls the task, if it has not finished.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Result<(), Abort> {
        let Some(task) = &mut self.task else { return Ok(()) };
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut Context::from_waker(waker)))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) => self.task = None,
            Err(_) => {
                std::mem::forget(self.task.take());
                return Err(Abort::TaskPanicked.logged());
            }
        }
        Ok(())
    }

    /// Returns the task, if it has not finished.
    pub(super) fn into_task(self) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        self.task
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
    pub(super) fn held(&self) -> usize {
        let raw = self.raw.borrow();
        raw.held() + raw.kept() + raw.outgoing_held()
    }
}
