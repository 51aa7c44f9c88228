//! Fuzzes forms: see `highwire::testing::fuzz::form`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::testing::fuzz::form(input));
