//! Fuzzes request bodies with a content coding: see `highwire::compress::testing::bodies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::compress::testing::bodies(input));
