//! Tests of the whole server in one thread, over a simulated network, in virtual time.
//!
//! [`corpus`] and [`corpus_http2`] parse the behaviour cases, and [`translate`] turns HTTP/1 cases into HTTP/2.
//! [`answers`] and [`frames`] parse a server's bytes independently of the engine, and [`tls`] is the client's side of
//! TLS. [`app`] is the app under test, and [`web`] is the app for tests of the framework's features. [`script`] plays
//! seeded clients, and [`client`] a client, a proxy and a server whose connections are cut; docs/simulation.md explains how
//! to replay a failing seed. [`nodes`] are the workers of such a run, and [`asks`] turns cases into requests of the client.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod answers;
pub mod app;
pub mod asks;
pub mod client;
pub mod corpus;
pub mod corpus_http2;
pub mod frames;
pub mod nodes;
pub mod script;
pub mod tls;
pub mod translate;
pub mod web;
