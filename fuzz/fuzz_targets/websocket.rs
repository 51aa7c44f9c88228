//! Fuzzes the receiving of WebSocket frames: see `highwire_proto::testing::websocket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::websocket(input));
