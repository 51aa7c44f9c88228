//! The engine of an HTTP server: connections, exchanges, workers. A [`Service`] answers the requests. Routing, kinds of
//! handlers and folders of files are not part of the engine.
//!
//! A worker owns a driver, its share of the connections, their timers and an executor. Workers share only [`Shared`],
//! the TLS configurations, the [`MakeService`], and the inboxes through which threads wake each other. A request takes
//! these steps:
//!
//! 1. `worker` gets a completion from the driver and finds the connection;
//! 2. `connection` decrypts TLS, reads the PROXY header, and passes plaintext to `connection/http1` or
//!    `connection/http2`, whose parsers (in the crate `proto`) turn it into events;
//! 3. the events drive an exchange (`exchange`), which is the same for all protocols except for its `Carrier`;
//! 4. the exchange gets the route, the use of the body and the [`Response`] from the [`Service`];
//! 5. the carrier encodes the response into the worker's output, and the driver sends it.
//!
//! A request that this process makes itself (`call`, with the feature of that name) takes steps 3 and 4, and its caller
//! gets the response as a value of the crate `http`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `tls` | [`tls`], [`Server::listen_tls`] |
//! | `call` | `call`: requests of this process, without a connection |
//! | `tokio` | each worker of a server runs inside a tokio runtime of its thread |
// docs.rs builds with nightly: each item that needs a feature shows it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod body;
#[cfg(feature = "call")]
pub mod call;
pub mod client;
pub mod raw;
#[cfg(feature = "tls")]
pub mod tls;

mod connection;
mod error;
mod exchange;
mod message;
mod runtime;
mod secure;
mod server;
mod service;
mod worker;

pub use body::Body;
pub use bytes;
pub use error::{Error, Result};
pub use exchange::disconnect::{Disconnect, OnDisconnect};
pub use highwire_io as io;
pub use highwire_io::{Driver, Peer};
pub use highwire_proto as proto;
pub use http;
pub use message::caller::{ClientCertificate, Tls};
pub use message::request::BodyUse;
pub use message::response::Response;
pub use message::{file_part, reply, request, response};
pub use runtime::context::spawn;
pub use runtime::driver::Runtime;
pub use runtime::free_list::FreeList;
pub use runtime::panics::{Cause, drop_safely, truncate};
pub use runtime::promise::{Asked, Promise, promise};
pub use runtime::spawn_blocking::{SpawnBlockingError, spawn_blocking};
pub use runtime::{connect, context, memory, rate_limited, time};
use secure::Secure;
pub use server::config::{Balance, Config, Engine, Limits, Timeouts};
pub use server::listen::Listen;
pub use server::run::{Handle, Server};
pub use server::serve::Serve;
pub use server::shared::Shared;
pub use server::stats::Stats;
pub use service::{Begin, Finished, Hook, MakeService, Observer, Outcome, Service};
#[doc(hidden)]
pub use tracing as __tracing;
pub use worker::Worker;

/// Raises this process's soft limit of descriptors to its hard limit, but at most to 1,048,576, so that the process can
/// hold more connections. The library never calls this function. A program may call it when it starts.
pub fn raise_descriptor_limit() {
    highwire_io::memory::raise_descriptors();
}

/// Limits the number of heaps of the C library (glibc) to the number of processors, or to one if the address space is
/// limited. [`Server::run`] then also returns freed memory to the system. Does nothing without glibc. The library never
/// calls this function. A program may call it when it starts, before it creates threads.
pub fn share_heap() {
    highwire_io::memory::share_heap();
}
