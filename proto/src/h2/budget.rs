//! What a peer may repeat: each kind of frame that costs us more than it costs the peer has an allowance, which useful work
//! refills. A peer that uses one up is told to be calm (RFC 9113 section 10.5), and its connection ends.
//!
//! The published attacks on HTTP/2 are all of this kind; each row names the one that it stops.

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Streams that the peer resets: rapid reset, CVE-2023-44487.
    PeerResets,
    /// Streams that we have to reset because of what the peer sent: MadeYouReset, CVE-2025-8671.
    OwnResets,
    /// SETTINGS, each of which wants an answer: CVE-2019-9515.
    Settings,
    /// PING, each of which wants an answer: CVE-2019-9512.
    Pings,
    /// PRIORITY and PRIORITY_UPDATE: CVE-2019-9513.
    Priorities,
    /// DATA, HEADERS and CONTINUATION without content, and padding without end: CVE-2019-9518, CVE-2024-27316.
    Empty,
    /// WINDOW_UPDATE, where nothing is sent in between: CVE-2019-9511 is made of them.
    WindowUpdates,
    /// Frames of kinds that nobody knows.
    Unknown,
    /// DATA with fewer than 16 bytes of a body, but for the last one: a body sent byte by byte has us do as much for each byte as
    /// for 16 KiB.
    SmallData,
    /// CONTINUATION beyond [`Bounds::continuations`](super::Bounds::continuations), or beyond the bytes of the largest field
    /// section: CVE-2024-27316. There is none to use up.
    Continuations,
    /// Field sections with more bytes or fields than allowed, each of which is decoded to its end and answered with 431. Answers
    /// give none of them back.
    LargeHeads,
}

/// How many kinds there are.
pub const KINDS: usize = 11;

/// Their names, for those who count them.
pub const NAMES: [&str; KINDS] = [
    "peer resets",
    "own resets",
    "settings",
    "pings",
    "priorities",
    "empty frames",
    "window updates",
    "unknown frames",
    "small pieces of bodies",
    "frames of field sections",
    "large field sections",
];

/// What is allowed of each kind before anything useful was done, and what gives it back. Wide enough for every client that was
/// tried, browsers that cancel a page's images among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// At most, and to begin with.
    pub most: u16,
    /// For each request that is answered in full.
    pub refill: u16,
    /// For each second, where the caller has a clock.
    pub a_second: u16,
}

/// The allowances, by [`Kind`]; docs/limits.md lists them.
pub const ALLOWANCES: [Allowance; KINDS] = [
    Allowance { most: 200, refill: 1, a_second: 1 },
    Allowance { most: 100, refill: 1, a_second: 1 },
    Allowance { most: 50, refill: 1, a_second: 1 },
    Allowance { most: 200, refill: 2, a_second: 2 },
    Allowance { most: 500, refill: 4, a_second: 2 },
    Allowance { most: 200, refill: 8, a_second: 4 },
    Allowance { most: 2000, refill: 16, a_second: 64 },
    Allowance { most: 200, refill: 2, a_second: 2 },
    // A quarter of a megabyte, most of which are heads of frames.
    Allowance { most: 20_000, refill: 256, a_second: 256 },
    Allowance { most: 0, refill: 0, a_second: 0 },
    // A browser with too many cookies that loads a page's resources.
    Allowance { most: 100, refill: 0, a_second: 1 },
];

/// What is left of each allowance.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    left: [u16; KINDS],
    fired: Option<Kind>,
    /// The second that it was last, where somebody has said so.
    second: Option<u32>,
}

impl Budget {
    pub(super) const fn new() -> Budget {
        let mut left = [0; KINDS];
        let mut kind = 0;
        while kind < KINDS {
            left[kind] = ALLOWANCES[kind].most;
            kind += 1;
        }
        Budget { left, fired: None, second: None }
    }

    /// Uses one up: whether there was one.
    #[must_use]
    pub(super) fn take(&mut self, kind: Kind) -> bool {
        let left = &mut self.left[kind as usize];
        match left.checked_sub(1) {
            Some(less) => {
                *left = less;
                true
            }
            None => {
                self.fired = Some(kind);
                false
            }
        }
    }

    /// A request was answered in full.
    #[inline]
    pub(super) fn refill(&mut self) {
        for (left, allowance) in self.left.iter_mut().zip(&ALLOWANCES) {
            *left = allowance.most.min(left.saturating_add(allowance.refill));
        }
    }

    #[inline]
    pub(super) fn set_second(&mut self, second: u32) {
        if self.second == Some(second) {
            return;
        }
        if let Some(before) = self.second.replace(second) {
            self.seconds_passed(second.saturating_sub(before));
        }
    }

    fn seconds_passed(&mut self, seconds: u32) {
        for (kind, allowance) in ALLOWANCES.iter().enumerate() {
            self.give_back(kind, seconds.saturating_mul(allowance.a_second.into()));
        }
    }

    /// Bytes of a body went out: window updates that made it possible were of use. Peers send one or two for each 4 KiB;
    /// one for each few bytes is what CVE-2019-9511 does. `tight`: the window let no more go.
    ///
    /// So was a small message that is answered with another, and a PING that measures how fast a download comes.
    pub(super) fn sent_data(&mut self, bytes: usize, tight: bool) {
        let by_itself = if tight { 0 } else { 4 };
        self.give_back(Kind::WindowUpdates as usize, (bytes / 128) as u32 + by_itself);
        self.give_back(Kind::SmallData as usize, by_itself);
        self.give_back(Kind::Pings as usize, (bytes / 4096) as u32 + by_itself.min(1));
    }

    /// Bytes of a body came, in a piece that is not small.
    #[inline]
    pub(super) fn received_data(&mut self, bytes: u32) {
        self.give_back(Kind::SmallData as usize, bytes / 64);
    }

    fn give_back(&mut self, kind: usize, count: u32) {
        let left = u32::from(self.left[kind]).saturating_add(count);
        self.left[kind] = left.min(ALLOWANCES[kind].most.into()) as u16;
    }

    /// Which allowance ran out.
    pub(super) fn fired(&self) -> Option<Kind> {
        self.fired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_runs_out_and_answers_refill_it_to_its_bound() {
        let mut budget = Budget::new();
        let allowance = ALLOWANCES[Kind::PeerResets as usize];
        for _ in 0..allowance.most {
            assert!(budget.take(Kind::PeerResets));
        }
        assert_eq!(budget.fired(), None);
        assert!(!budget.take(Kind::PeerResets));
        assert_eq!(budget.fired(), Some(Kind::PeerResets));
        budget.refill();
        assert!(budget.take(Kind::PeerResets));
        assert!(!budget.take(Kind::PeerResets));
        for _ in 0..1000 {
            budget.refill();
        }
        assert_eq!(budget.left, Budget::new().left);
    }

    #[test]
    fn seconds_refill_an_allowance_to_its_bound_and_not_what_has_none() {
        let mut budget = Budget::new();
        (0..200).for_each(|_| assert!(budget.take(Kind::Pings)));
        for (second, left) in [(1_000, 0), (1_000, 0), (1_003, 6), (1_003, 6), (900, 6), (901, 8)] {
            budget.set_second(second);
            assert_eq!(budget.left[Kind::Pings as usize], left, "{second}");
        }
        budget.set_second(u32::MAX);
        assert_eq!(budget.left, Budget::new().left);
        assert!(!budget.take(Kind::Continuations));
        assert_eq!(budget.fired(), Some(Kind::Continuations));
    }
}
