//! The server: workers, connections, exchanges.
//!
//! A worker owns a driver, its listeners' share of connections, their timers and an executor, and shares nothing with
//! the others but what `Shared` holds. Its loop is in `worker`; what a connection does with what it receives, in
//! `connection`; who answers, by `service`.

mod accept;
mod blocking;
mod budget;
#[cfg(feature = "tower")]
mod call;
#[cfg_attr(not(feature = "tower"), path = "no_calls.rs")]
mod calls;
mod config;
mod connection;
pub(crate) mod context;
mod date;
mod deadline;
mod exchange;
mod fields;
mod listen;
mod pool;
pub(crate) mod quiet;
mod remote;
mod report;
mod run;
mod secure;
mod service;
mod shared;
mod worker;

#[cfg(feature = "tower")]
pub(crate) use call::Job;
pub use config::{Balance, Caps, Config, Deadlines, Engine};
pub use context::spawn;
pub(crate) use exchange::let_go;
pub use io::Driver;
pub use listen::Listen;
pub(crate) use pool::Asked;
pub use report::Report;
pub use run::{Handle, Server};
pub(crate) use secure::Secure;
pub(crate) use service::Service;
pub(crate) use shared::{Overloaded, Shared};
pub use worker::Worker;

/// Raises this process's soft limit of descriptors to its hard one, so that it can hold as many connections as it may.
/// A program calls it at its start; the library never does so by itself.
pub fn raise_descriptor_limit() {
    io::memory::raise_descriptors();
}

/// Sets up the heaps of the C library (glibc): no more than there are processors, and one where the address space is limited.
/// A running server then gives memory that its peers have freed back to the system. A program calls it at its start, before it makes threads; the library never does so by itself.
pub fn share_heap() {
    io::memory::share_heap();
}
