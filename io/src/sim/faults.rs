//! The faults of a simulated network, and how often they occur.

/// The faults of a network. A number n means a probability of 1/n each time that the fault could occur; 0 means never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// True if received bytes arrive in pieces of random sizes.
    pub split: bool,
    /// A send takes only a part of the bytes, although there is room for more.
    pub short_send: u32,
    /// A send takes nothing, as if there were no kernel memory (ENOBUFS, ENOMEM) or no room.
    pub no_send: u32,
    /// In this turn, a connection receives nothing, or a connection attempt gets no answer.
    pub stall: u32,
    /// The turn that pauses receiving still delivers bytes, because a kernel may have passed them to the driver before.
    pub late: u32,
    /// The connection breaks. There is one chance per connection and turn.
    pub reset: u32,
    /// A connection attempt of the driver fails, because the host is unreachable.
    pub connect: u32,
    /// Accepting fails, because no descriptor is left (EMFILE).
    pub accept: u32,
}

impl Faults {
    /// Returns faults of all kinds, with probabilities at which several usually occur in a few hundred operations.
    pub fn all() -> Faults {
        Faults { split: true, short_send: 4, no_send: 8, stall: 3, late: 4, reset: 2000, connect: 6, accept: 10 }
    }
}
