//! Conditional fields: see `highwire::testing::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::testing::fuzz::conditions(input));
