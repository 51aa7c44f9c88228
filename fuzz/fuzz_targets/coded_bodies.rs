//! Encoded bodies of requests: see `highwire::compress::testing::bodies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::compress::testing::bodies(input));
