//! Replaces `calls` in builds without the feature `call`, in which all requests arrive over connections.

use super::remote::Remote;
use super::worker::context::WorkerContext;
use crate::service::Service;

/// The requests of this process: none.
pub(super) struct Calls;

impl Calls {
    pub(super) fn new(_: &Remote) -> Calls {
        Calls
    }

    pub(super) fn is_empty(&self) -> bool {
        true
    }

    pub(super) fn next(&self) -> Option<highwire_io::Instant> {
        None
    }

    pub(super) fn begin(&mut self, _: &mut WorkerContext<impl Service>) {}

    pub(super) fn woken(&mut self, _: u32, _: u32, _: &mut WorkerContext<impl Service>) {}

    pub(super) fn expire(&mut self, _: &mut WorkerContext<impl Service>) {}

    pub(super) fn cut(&mut self, _: &mut WorkerContext<impl Service>) {}

    pub(super) fn close(&mut self, _: &mut WorkerContext<impl Service>) {}
}
