//! Programs of operations on the simulated driver: see `io::testing::driver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| io::testing::driver(input));
