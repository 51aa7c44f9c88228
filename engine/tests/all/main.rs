//! The integration tests of this crate, in one program, because each program links everything.

#[cfg(feature = "tls")]
mod client;
mod service;
#[cfg(feature = "tls")]
mod signed;
#[cfg(feature = "tls")]
mod tls_sides;
