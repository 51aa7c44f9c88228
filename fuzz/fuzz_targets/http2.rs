//! Frames for a server of HTTP/2, whole and cut: see `highwire_proto::testing::http2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::http2(input));
