//! The native module of the Python package `highwire-server`: a worker of the engine that is the wait of an asyncio event
//! loop, and the ASGI interface between them.
//!
//! The loop's selector calls [`worker::Worker::turn`], which runs one turn of the worker. The turn begins requests as tasks of
//! the loop, in the loop's own thread, and gives the interpreter's lock back only around the system call that waits.
#![deny(unsafe_op_in_unsafe_fn)]

mod asgi;
mod gil;
mod log;
mod mounts;
mod rsgi;
mod thread_bound;
mod vectorcall;
mod worker;
mod wsgi;

use pyo3::prelude::*;

// A build of CPython without its lock takes it while this module is loaded, until one has been tried.
#[pymodule(gil_used = true)]
mod _highwire {
    #[pymodule_export]
    use crate::asgi::channel::{Receive, Send};
    #[pymodule_export]
    use crate::asgi::received::{ProtocolClosed, ProtocolError};
    #[pymodule_export]
    use crate::worker::{Worker, own_process};
}
