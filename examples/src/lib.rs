//! Example programs, each with one topic, in the parent folder. `cargo run -p examples --example hello` runs one; some
//! need a feature. `tests/answers.rs` tests each of them.
