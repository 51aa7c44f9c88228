//! Another protocol in the place of an exchange: by Upgrade, or by CONNECT.

use super::abort::Abort;
use crate::raw::{Ended, Raw, RawStream, Switch};
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Another protocol on this connection, or on this stream.
pub(crate) struct Tunnel {
    pub(crate) raw: Rc<RefCell<Raw>>,
    /// Its task; none where that is over, and where a CONNECT is not answered yet.
    task: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Tunnel {
    /// One whose bytes are kept until the protocol is accepted.
    pub(super) fn proposed(raw: Rc<RefCell<Raw>>) -> Tunnel {
        Tunnel { raw, task: None }
    }

    /// Starts the task of a protocol that was accepted.
    pub(super) fn start(raw: Rc<RefCell<Raw>>, switch: Switch, is_draining: bool) -> Result<Tunnel, Abort> {
        let start = AssertUnwindSafe(|| (switch.start)(RawStream::new(raw.clone())));
        let task = catch_unwind(start).map_err(|_| Abort::TaskPanicked.logged())?;
        if is_draining {
            raw.borrow_mut().drain();
        }
        Ok(Tunnel { raw, task: Some(task) })
    }

    /// Runs the task, if it is not over.
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

    /// Its task, if it is not over.
    pub(super) fn into_task(self) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        self.task
    }

    /// Nothing more comes from the peer.
    pub(crate) fn end(&self, why: Ended) {
        self.raw.borrow_mut().end(why);
    }

    /// The peer ended its direction. `is_said`: by its own word.
    pub(crate) fn peer_ended(&self, is_said: bool) {
        self.end(if is_said { Ended::Peer } else { Ended::Broken });
    }

    /// The server stops.
    pub(crate) fn drain(&self) {
        self.raw.borrow_mut().drain();
    }

    /// Returns true if there is nobody left to read or write.
    pub(crate) fn is_finished(&self) -> bool {
        self.raw.borrow().is_finished()
    }

    /// Bytes that wait for the task, or that it has written.
    pub(super) fn held(&self) -> usize {
        let raw = self.raw.borrow();
        raw.held + raw.outgoing_held
    }
}
