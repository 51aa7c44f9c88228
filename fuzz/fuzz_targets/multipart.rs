//! Fuzzes multipart bodies: see `highwire::testing::fuzz::multipart`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::testing::fuzz::multipart(input));
