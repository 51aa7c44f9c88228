//! The whole server in one thread, over a simulated network, in virtual time.
//!
//! [`corpus`] reads the behaviour cases, [`answers`] reads what a server sends, naively and on its own, [`app`] is the
//! server under test, [`script`] plays seeded clients against it. docs/simulation.md says how a failing seed is replayed.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod answers;
pub mod app;
pub mod corpus;
pub mod script;
pub mod tls;
