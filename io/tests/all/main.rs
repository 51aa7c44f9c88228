//! The integration tests of this crate, in one program, because each program links everything.

mod connecting;
mod contract;
mod resets;
mod watching;
