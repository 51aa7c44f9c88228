//! What a task asks its worker for.

use crate::raw::RawStream;
use crate::runtime::context::Context;
use crate::runtime::promise::Promise;
use highwire_io::Address;
use std::io;

/// An attempt to connect that the worker must begin.
pub(crate) struct Attempt {
    pub(crate) address: Address,
    pub(crate) promise: Promise<io::Result<RawStream>>,
}

impl Attempt {
    /// Takes the first attempt that the worker has not begun and whose task still waits for it.
    pub(crate) fn take(context: &Context) -> Option<Attempt> {
        let attempts =
            std::iter::from_fn(|| context.take_wanted()).filter_map(|wanted| wanted.downcast::<Attempt>().ok());
        attempts.map(|attempt| *attempt).find(|attempt| !attempt.promise.is_abandoned())
    }
}
