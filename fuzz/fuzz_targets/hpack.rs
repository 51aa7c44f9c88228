//! HTTP/2 header blocks: see `proto::testing::hpack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| proto::testing::hpack(input));
