//! Example programs, each with one topic, in the parent folder. `cargo run -p examples --example hello` runs one, and
//! `tests/answers.rs` tests all of them.
