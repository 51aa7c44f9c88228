//! Twenty everyday tasks, each on Highwire and on axum. docs/everyday.md shows them, and the tests send the same requests to both.
#![expect(clippy::unwrap_used, missing_docs, reason = "as in the documentation of both")]

pub mod axum;
pub mod highwire;
