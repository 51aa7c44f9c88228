//! Clients that the tests of several crates share.
//!
//! `http1` is a client for raw HTTP/1 bytes, `frames` builds and splits HTTP/2 frames, `http2` (feature `http2`) is an
//! HTTP/2 client, `tls` (feature `tls`) is a rustls configuration that accepts every certificate, `ports` finds free
//! ports, and `postgresql` runs a database. These modules may panic, as tests do. This crate is not published; a published crate may use it as a dev-dependency only.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod frames;
pub mod http1;
#[cfg(feature = "http2")]
pub mod http2;
pub mod ports;
pub mod postgresql;
#[cfg(feature = "tls")]
pub mod tls;
