//! What stands for tokio without the feature `tokio`: nothing.

use crate::Result;
use crate::server::shared::Shared;
use crate::service::Service;
use crate::worker::Worker;
use highwire_io::Driver;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Tokio;

impl Tokio {
    pub(crate) fn background(_: &Arc<Shared>) -> Tokio {
        Tokio
    }

    pub(crate) fn own(_: &Arc<Shared>) -> Result<Tokio> {
        Ok(Tokio)
    }

    pub(crate) fn enter(&self) -> impl Sized {
        PhantomData::<&Tokio>
    }

    pub(crate) fn run<D: Driver, S: Service>(&self, worker: &mut Worker<D, S>) -> Result<()> {
        worker.run_alone()
    }

    pub(crate) fn finish(&self) {}

    pub(crate) fn block_on<D: Driver, S: Service, F: Future>(
        &self,
        worker: &mut Worker<D, S>,
        future: F,
    ) -> Result<F::Output> {
        worker.wake_root();
        worker.block_on_alone(pin!(future))
    }
}
