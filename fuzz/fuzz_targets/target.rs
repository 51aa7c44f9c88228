//! Request targets and hosts: see `proto::testing::target`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| proto::testing::target(input));
