//! Fuzzes request targets and hosts: see `highwire_proto::testing::target`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::target(input));
