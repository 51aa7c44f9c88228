//! Chunked bodies: see `proto::testing::chunked`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| proto::testing::chunked(input));
