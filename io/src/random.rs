//! Random numbers: from the system, or from a seed.

/// SplitMix64: small, fast, and the same everywhere for the same seed. Not for secrets.
#[derive(Clone, Debug)]
pub struct Seeded {
    state: u64,
}

impl Seeded {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Seeded {
        Seeded { state: seed }
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "an endless sequence gains nothing from Option")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Whether an event of one in `odds` happens now; never where `odds` is 0.
    pub fn one_in(&mut self, odds: u32) -> bool {
        odds != 0 && self.next().is_multiple_of(u64::from(odds))
    }
}

/// Returns a number from the system's secure generator.
///
/// # Panics
/// If the system has no randomness: then nothing that must not be guessed can be made.
pub fn system() -> u64 {
    getrandom::u64().unwrap_or_else(|error| panic!("the system has no randomness: {error}"))
}
