//! Fuzzes an HTTP/2 server with frames, whole and cut: see `highwire_proto::testing::http2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::http2(input));
