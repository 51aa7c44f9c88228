//! Fuzzes cookies: see `highwire::testing::fuzz::cookies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::testing::fuzz::cookies(input));
