//! Fuzzes the sending of WebSocket frames: see `highwire_proto::testing::websocket_operations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::websocket_operations(input));
