//! Replaces `calls` in builds without the feature `call`, in which all requests arrive over connections.

use crate::runtime::remote::Remote;
use crate::service::Service;
use crate::worker::context::WorkerContext;

/// The requests of this process: none.
pub(crate) struct Calls;

impl Calls {
    pub(crate) fn new(_: &Remote) -> Calls {
        Calls
    }

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn next(&self) -> Option<highwire_io::Instant> {
        None
    }

    pub(crate) fn begin(&mut self, _: &mut WorkerContext<impl Service>) {}

    pub(crate) fn woken(&mut self, _: u32, _: u32, _: &mut WorkerContext<impl Service>) {}

    pub(crate) fn expire(&mut self, _: &mut WorkerContext<impl Service>) {}

    pub(crate) fn cut(&mut self, _: &mut WorkerContext<impl Service>) {}

    pub(crate) fn close(&mut self, _: &mut WorkerContext<impl Service>) {}
}
