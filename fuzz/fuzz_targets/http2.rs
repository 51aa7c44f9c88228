//! Frames for a server of HTTP/2, whole and cut: see `proto::testing::http2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| proto::testing::http2(input));
