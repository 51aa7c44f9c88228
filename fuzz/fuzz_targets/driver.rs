//! Fuzzes sequences of operations on the simulated driver: see `highwire_io::testing::driver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_io::testing::driver(input));
