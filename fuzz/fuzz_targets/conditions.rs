//! Fuzzes the fields of conditional requests: see `highwire::testing::fuzz::conditions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::testing::fuzz::conditions(input));
