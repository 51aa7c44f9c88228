//! libhighwire: the server for C, C++ and every language that calls C. `include/highwire.h` is made from this crate.
//!
//! The conventions, which docs/c-abi.md explains to users:
//!
//! 1. A function returns a [`highwire_result`]; results come through pointers, which are the last arguments.
//! 2. Objects are 64-bit handles. A handle is a kind, a slot and a generation, or a number that is never used again, so a
//!    handle whose object is gone is an error and no crash (`handles`).
//! 3. No panic leaves a function (`result::guarded`).
//! 4. A request that is being handled is borrowed from its connection; its handle is looked up in a cell of the thread
//!    (`request`). Only a request that is answered later costs a copy and an entry in a table (`deferred`).
#![deny(missing_docs)]
#![allow(non_camel_case_types, reason = "the types have the names that C programs see")]

pub mod allocator;
pub mod app;
mod backlog;
pub mod calls;
pub mod client;
mod context;
mod current;
mod data;
pub mod deferred;
pub mod embed;
pub mod files;
pub mod handles;
pub mod haywire;
pub mod hooks;
pub mod httpserver;
mod kinds;
pub mod log;
pub mod multipart;
pub mod receive;
pub mod replies;
pub mod request;
pub mod response;
pub mod result;
pub mod server;
pub mod stream;
pub mod tls;
pub mod topics;
pub mod values;
pub mod websocket;

pub use result::highwire_result;
