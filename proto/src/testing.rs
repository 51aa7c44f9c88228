//! For tests: the any-split rule as a function.

use alloc::vec;
use alloc::vec::Vec;

/// Every way in which tests cut an input: whole, in two at each byte, and byte by byte.
pub fn splits(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = vec![vec![input]];
    ways.extend((1..input.len()).map(|at| vec![&input[..at], &input[at..]]));
    ways.push(input.chunks(1).collect());
    ways
}
