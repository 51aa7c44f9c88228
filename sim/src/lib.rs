//! The whole server in one thread, over a simulated network, in virtual time.
//!
//! [`corpus`] and [`corpus_http2`] read the behaviour cases, [`translate`] turns those of HTTP/1 into HTTP/2; [`answers`]
//! and [`frames`] read what a server sends, naively and on their own, [`tls`] is the client's side of TLS. [`app`] is the
//! server under test, [`web`] that of what stands on top of the protocol, [`script`] plays seeded clients against it. docs/simulation.md says how a failing seed is replayed.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod answers;
pub mod app;
pub mod corpus;
pub mod corpus_http2;
pub mod frames;
pub mod script;
pub mod tls;
pub mod translate;
pub mod web;
