//! Allowances for each kind of frame that costs us more than it costs the peer. Useful work refills most of them. A
//! connection whose peer exceeds an allowance fails with ENHANCE_YOUR_CALM (RFC 9113 section 10.5).
//!
//! Many published attacks on HTTP/2 are floods of such frames. Most [`Kind`]s name an attack that they stop.

/// The kinds of frames and field sections that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Resets by the peer (rapid reset, CVE-2023-44487).
    PeerResets,
    /// Resets by us because of the peer's frames (MadeYouReset, CVE-2025-8671).
    OwnResets,
    /// SETTINGS, which require an acknowledgement, and repeated acknowledgements (CVE-2019-9515).
    Settings,
    /// PING, which requires a reply, and replies to PING (CVE-2019-9512).
    Pings,
    /// PRIORITY and PRIORITY_UPDATE (CVE-2019-9513).
    Priorities,
    /// DATA, unfinished HEADERS and CONTINUATION without content or with padding only, and HEADERS that we ignore
    /// (CVE-2019-9518, CVE-2024-27316). The DATA frame that ends a stream in progress does not count.
    Empty,
    /// WINDOW_UPDATE. Sending data refills this allowance; CVE-2019-9511 needs many updates for little data.
    WindowUpdates,
    /// Frames of unknown kinds, and repeated GOAWAY.
    Unknown,
    /// DATA with fewer than 16 body bytes, except the last frame of a stream. Each costs us about as much as a frame of
    /// 16 KiB.
    SmallData,
    /// CONTINUATION beyond [`Bounds::continuations`](super::Bounds::continuations) or beyond twice the bytes of the
    /// largest list of fields, and lists that are much too large (CVE-2024-27316). The allowance is 0.
    Continuations,
    /// Field sections with more bytes or fields than allowed. Each is decoded to its end, and a request is answered
    /// with 431. Responses do not refill this allowance.
    LargeHeads,
}

/// The number of kinds.
pub const KINDS: usize = 11;

/// The names of the kinds, for statistics.
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

/// The size of an allowance, and how it is refilled. The values suffice for every client that was tested, including
/// browsers that cancel a page's images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The largest value, which is also the initial one.
    pub most: u16,
    /// The number of frames restored per complete response.
    pub refill: u16,
    /// The number of frames restored per second, if the caller has a clock.
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
    // 20,000 frames of one byte each are 200 KB, most of it frame heads.
    Allowance { most: 20_000, refill: 256, a_second: 256 },
    Allowance { most: 0, refill: 0, a_second: 0 },
    // This is sufficient for a browser with too many cookies that loads a page's resources.
    Allowance { most: 100, refill: 0, a_second: 1 },
];

/// The rest of each allowance.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    left: [u16; KINDS],
    fired: Option<Kind>,
    /// The second at the last call of `set_second`, if there was one.
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

    /// Uses up one frame of an allowance. Returns false if none is left.
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

    /// Refills the allowances after a complete response.
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

    /// Refills allowances after body bytes were sent, because the window updates that allowed these bytes were useful.
    /// Peers usually send one or two per 4 KiB, whereas CVE-2019-9511 sends one for every few bytes. `tight` is true if
    /// the window allowed no more bytes.
    ///
    /// The allowances for small DATA and PING are refilled too, because a small message may be the reply to another,
    /// and a client may measure the speed of a download by PING.
    pub(super) fn sent_data(&mut self, bytes: usize, tight: bool) {
        let by_itself = if tight { 0 } else { 4 };
        self.give_back(Kind::WindowUpdates as usize, (bytes / 128) as u32 + by_itself);
        self.give_back(Kind::SmallData as usize, by_itself);
        self.give_back(Kind::Pings as usize, (bytes / 4096) as u32 + by_itself.min(1));
    }

    /// Refills the allowance for small DATA after body bytes were received in a frame that is not small.
    #[inline]
    pub(super) fn received_data(&mut self, bytes: u32) {
        self.give_back(Kind::SmallData as usize, bytes / 64);
    }

    fn give_back(&mut self, kind: usize, count: u32) {
        let left = u32::from(self.left[kind]).saturating_add(count);
        self.left[kind] = left.min(ALLOWANCES[kind].most.into()) as u16;
    }

    /// Returns the allowance that ran out, if any.
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
