//! The I/O of Highwire. An event loop queues operations, and a driver performs them and reports completions.
//!
//! [`driver`] defines the contract that every driver keeps. There are three drivers: [`Uring`] (io_uring),
//! [`Readiness`] (epoll, kqueue or their Windows equivalent, through mio) and [`sim`] (an in-memory network with
//! virtual time and the faults that a kernel can report). The other modules provide listeners, files, host name lookup,
//! wakes across threads, clocks, signals, randomness, memory limits and CPU affinity.
//!
//! This crate contains no HTTP.
// docs.rs builds with nightly: each item that needs a feature shows it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

pub mod affinity;
pub mod clock;
pub mod driver;
pub mod file;
pub mod limit;
pub mod listen;
pub mod memory;
pub mod op;
pub mod random;
pub mod resolve;
pub mod signal;
pub mod sim;
pub mod testing;
pub mod wake;

mod address;
mod connecting;
mod lent_buffer;
mod outgoing;
mod readiness;
mod slots;
mod socket;
mod sys;
#[cfg(target_os = "linux")]
mod uring;
mod watches;

pub use address::Address;
pub use clock::Instant;
pub use driver::{Driver, Sink};
pub use listen::{Listener, Options};
pub use op::{Completion, Interest, ListenerId, Op, Peer, Queue, SocketId};
pub use readiness::Readiness;
pub use socket::{Socket, blocking};
pub use sys::Waitable;
#[cfg(not(target_os = "linux"))]
pub use sys::uring::Uring;
#[cfg(target_os = "linux")]
pub use uring::Uring;
