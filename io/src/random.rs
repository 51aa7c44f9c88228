//! Random numbers, from the system or from a seed.

/// A SplitMix64 generator. It is small and fast, and generates the same numbers on every system for the same seed. The
/// numbers are predictable, so do not use them for secrets.
#[derive(Clone, Debug)]
pub struct Seeded {
    state: u64,
}

impl Seeded {
    /// Creates a generator with a seed.
    pub fn new(seed: u64) -> Seeded {
        Seeded { state: seed }
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "an endless sequence gains nothing from Option")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `bound`. A `bound` of 0 counts as 1.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Returns true with a probability of one in `odds`; never if `odds` is 0.
    pub fn one_in(&mut self, odds: u32) -> bool {
        odds != 0 && self.next().is_multiple_of(u64::from(odds))
    }
}

/// Returns a number from the system's secure generator.
///
/// # Panics
/// Panics if the system cannot provide random bytes, because there is no secure substitute.
pub fn system() -> u64 {
    getrandom::u64().unwrap_or_else(|error| panic!("cannot get random bytes from the system: {error}"))
}
