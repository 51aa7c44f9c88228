//! Fuzzes an HTTP/2 client and server that are joined, with operations of their callers: see
//! `highwire_proto::testing::http2_operations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::http2_operations(input));
