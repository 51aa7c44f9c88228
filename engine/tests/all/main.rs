//! The integration tests of this crate, in one program, because each program links everything.

#[cfg(feature = "self-signed")]
mod client;
mod service;
#[cfg(feature = "self-signed")]
mod signed;
#[cfg(feature = "self-signed")]
mod tls_sides;
