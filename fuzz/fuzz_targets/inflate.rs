//! Fuzzes compressed WebSocket messages: see `highwire::testing::fuzz::inflate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::testing::fuzz::inflate(input));
