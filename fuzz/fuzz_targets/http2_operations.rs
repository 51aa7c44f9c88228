//! A client and a server of HTTP/2 joined, and what their callers may do: see `highwire_proto::testing::http2_operations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::http2_operations(input));
