//! Programs that each answer one question; they stand beside this folder. `cargo run -p examples --example hello` runs one,
//! and `tests/answers.rs` asks each of them.
