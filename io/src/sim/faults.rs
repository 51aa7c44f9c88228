//! Which faults a simulated network has, and how often: one in so many chances, 0 for never.

/// The faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Received bytes come in pieces of any size.
    pub split: bool,
    /// A send takes only a part, though there is room.
    pub short_send: u32,
    /// A send takes nothing now, as for want of kernel memory (ENOBUFS, ENOMEM) or room.
    pub no_send: u32,
    /// What has arrived is not delivered in this turn.
    pub stall: u32,
    /// What arrives after receiving was paused is delivered all the same: a kernel may have handed it over before.
    pub late: u32,
    /// The connection breaks.
    pub reset: u32,
    /// A connection attempt of the driver fails.
    pub connect: u32,
    /// Accepting fails for want of descriptors (EMFILE) or memory.
    pub accept: u32,
}

impl Faults {
    /// Every fault, often enough that each run of a few hundred operations meets several.
    pub fn all() -> Faults {
        Faults { split: true, short_send: 4, no_send: 8, stall: 3, late: 4, reset: 2000, connect: 6, accept: 10 }
    }
}
