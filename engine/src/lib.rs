//! The engine: connections, exchanges, workers. What answers requests is a [`Service`]; the engine knows no routes, handlers or
//! files.
//!
//! A worker owns a driver, its listeners' share of connections, their timers and an executor, and shares nothing with the others
//! but what [`Shared`] holds. The way of a request:
//!
//! 1. `worker` gets a completion from the driver and finds the connection;
//! 2. `connection` opens TLS and the PROXY protocol, and hands plaintext to `connection/http1` or `connection/http2`, whose
//!    parsers (`proto`) make events of it;
//! 3. the events move an exchange (`exchange`): its life is the same for all protocols, and what differs is a `Carrier`;
//! 4. the exchange asks the [`Service`] for a route, for how it takes a body, and for the [`Response`];
//! 5. the carrier encodes the response into the worker's output, and the driver sends it when the turn ends.
//!
//! Requests of this process take the same way from step 3 on (`call`, with the feature of that name).
//!
//! # Features
//!
//! | feature | what it brings |
//! |---|---|
//! | `tls` | [`tls`], [`Server::listen_tls`] |
//! | `call` | `call`: requests of this process, without a connection |
//! | `tokio` | a tokio runtime in the background, for services that need one |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod body;
#[cfg(feature = "call")]
pub mod call;
pub mod context;
pub mod file_part;
pub mod quiet;
pub mod raw;
pub mod reply;
pub mod request;
pub mod response;
pub mod time;
#[cfg(feature = "tls")]
pub mod tls;

mod accept;
mod blocking;
mod budget;
mod caller;
#[cfg_attr(not(feature = "call"), path = "no_calls.rs")]
mod calls;
mod config;
mod connection;
mod date;
mod deadline;
mod error;
mod exchange;
mod fields;
mod listen;
mod panics;
mod peers;
mod pool;
mod remote;
mod run;
mod secure;
mod service;
mod shared;
mod spawn_blocking;
mod stats;
mod trailers;
mod worker;

pub use body::Body;
pub use bytes;
pub use caller::{ClientCertificate, Peer, Tls};
pub use config::{Balance, Config, Engine, Limits, Timeouts};
pub use context::spawn;
pub use error::{Error, Result};
pub use highwire_io as io;
pub use highwire_io::Driver;
pub use highwire_proto as proto;
pub use http;
pub use listen::Listen;
pub use panics::let_go;
pub use pool::Asked;
pub use request::BodyUse;
pub use response::Response;
pub use run::{Handle, Server};
use secure::Secure;
pub use service::{Begin, MakeService, Outcome, Service};
pub use shared::Shared;
pub use spawn_blocking::{SpawnBlockingError, spawn_blocking};
pub use stats::Stats;
#[doc(hidden)]
pub use tracing as __tracing;
pub use worker::Worker;

/// Raises this process's soft limit of descriptors to its hard one, so that it can hold as many connections as it may.
/// The library never calls this function by itself. A program may call it when it starts.
pub fn raise_descriptor_limit() {
    highwire_io::memory::raise_descriptors();
}

/// Sets up the heaps of the C library (glibc): no more than there are processors, and one where the address space is limited.
/// After this call, a running server returns freed memory to the system. The library never calls this function by itself. A
/// program may call it when it starts, before it makes threads.
pub fn share_heap() {
    highwire_io::memory::share_heap();
}
