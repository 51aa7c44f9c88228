//! The parts of the command `highwire` that tests and the simulator also use.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod bench;
pub mod chat;
pub mod demo;
