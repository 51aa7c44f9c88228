//! Operations to completions: every system call of Highwire, behind one contract.
//!
//! [`driver`] holds the contract. Three drivers keep it: [`Uring`] (io_uring), [`Readiness`] (epoll or kqueue, through
//! mio) and [`sim`] (a network in memory, with virtual time and every fault that a kernel can deliver). Beside them
//! stand what a loop needs of its system: listeners, wakes across threads, clocks, signals, randomness, CPU affinity.
//!
//! This crate does not know HTTP.
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

mod connecting;
mod outgoing;
mod readiness;
mod slots;
mod socket;
mod sys;
#[cfg(target_os = "linux")]
mod uring;

pub use clock::Instant;
pub use driver::{Driver, Sink};
pub use listen::{Address, Listener, Options};
pub use op::{Completion, ListenerId, Op, Peer, Queue, SocketId};
pub use readiness::Readiness;
pub use socket::{Socket, blocking};
pub use sys::Waitable;
#[cfg(not(target_os = "linux"))]
pub use sys::uring::Uring;
#[cfg(target_os = "linux")]
pub use uring::Uring;
