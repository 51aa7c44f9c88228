//! Fuzzes the fields of range requests: see `highwire::testing::fuzz::ranges`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::testing::fuzz::ranges(input));
