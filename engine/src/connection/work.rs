//! How much work a connection may cause in one turn of its worker, so that every connection has its turn.
//!
//! The drivers bound a turn in bytes, but a byte costs from a tenth of a nanosecond (a large body) to 40 ns (chunks of one byte).
//! So each thing that a peer can ask for has a price here, in about the nanoseconds that it takes, and each connection has the
//! same allowance for each turn, whichever version of HTTP it speaks. A connection that has used it up keeps what it has
//! received, goes on in a later turn, and stops receiving meanwhile if that is much. All such connections of a worker together get
//! a bounded time of each turn, so that a client with little to do waits for that time and not for all of them.

/// What one connection may cause in one turn, in nanoseconds: 50 small requests, or 256 KiB of a body in large parts.
/// A hundred connections that use it up make a turn of some milliseconds on each of two workers.
pub(crate) const WORK_A_TURN: u32 = 40_000;

/// A request, beside the size of its head: its route found, its handler called, its response written.
const REQUEST: u32 = 700;

/// A field of a head: validated, kept, perhaps inserted into the table of HPACK.
const FIELD: u32 = 25;

/// Bytes of a head in HTTP/1 that are scanned in a nanosecond.
const SCANNED_BYTES: u32 = 4;

/// A head in HTTP/1 of so many bytes and fields.
#[inline]
pub(super) fn scanned_head(bytes: usize, fields: usize) -> u32 {
    REQUEST + FIELD * fields as u32 + bytes as u32 / SCANNED_BYTES
}

/// A head in HTTP/2 whose fields have so many bytes. Decoding the Huffman code takes about a nanosecond for each.
#[inline]
pub(super) fn decoded_head(bytes: usize, fields: usize) -> u32 {
    REQUEST + FIELD * fields as u32 + bytes as u32
}

/// A chunk of a body in HTTP/1, or its end.
pub(super) const CHUNK: u32 = 40;

/// A frame of HTTP/2 that is no head.
pub(super) const FRAME: u32 = 200;

/// A handler's future polled, which is seldom in a cache when a connection has many.
pub(super) const POLL: u32 = 500;

/// Bytes of a body that are copied to its handler in a nanosecond.
const BYTES: u32 = 8;

/// The price of so many bytes of a body, beside the event that brings them.
#[inline]
pub(super) fn bytes(count: usize) -> u32 {
    count as u32 / BYTES
}

/// How many turns' allowances a connection may owe.
const MOST_TURNS_OWED: i32 = 100;

/// What a connection leaves for its next turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Left {
    #[default]
    Nothing,
    /// What it has received and could not read.
    Unread,
    /// That, and what was woken.
    Woken,
}

/// What a connection may still do in the present turn, and what it leaves for the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    turn: u32,
    /// Nanoseconds of its allowance. Below zero, it is a debt.
    allowance: i32,
    left: Left,
}

impl Work {
    /// Begins with a turn; a connection may do so several times in the same one.
    #[inline]
    pub(super) fn begin(&mut self, turn: u32, allowance: u32) {
        if self.turn != turn {
            let allowance = i32::try_from(allowance).unwrap_or(i32::MAX);
            // What is owed has a bound: one handler that was slow once must not cost its connection its turns for seconds.
            let owed = self.allowance.clamp(allowance.saturating_mul(-MOST_TURNS_OWED), 0);
            *self = Work { turn, allowance: owed.saturating_add(allowance), left: self.left };
        }
    }

    /// Uses up a part of the allowance. What is over it comes off that of the next turn.
    #[inline]
    pub(super) fn spend(&mut self, price: u32) {
        self.allowance = self.allowance.saturating_sub_unsigned(price);
    }

    /// Uses up what was measured.
    #[inline]
    pub(super) fn spend_since(&mut self, begun: u64, stopwatch: fn() -> u64) {
        self.spend(u32::try_from(stopwatch().saturating_sub(begun)).unwrap_or(u32::MAX));
    }

    /// Returns true if nothing is left for this turn.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.allowance <= 0
    }

    /// Returns true if it goes on in a later turn.
    #[inline]
    pub(super) fn is_unfinished(&self) -> bool {
        self.left != Left::Nothing
    }

    /// What was received is read on in a later turn. Returns true if nothing was left for one before.
    pub(super) fn leave_unread(&mut self) -> bool {
        let is_first = self.left == Left::Nothing;
        if is_first {
            self.left = Left::Unread;
        }
        is_first
    }

    /// What was woken is moved on in a later turn, too.
    pub(super) fn leave_woken(&mut self) {
        self.left = Left::Woken;
    }

    /// Takes what the last turn has left.
    pub(super) fn take_left(&mut self) -> Left {
        std::mem::take(&mut self.left)
    }
}

/// The events of one connection in one go, timed now and then: what a handler does has no price of its own, and can take as long
/// as a thousand other things.
///
/// In a small window the first event is not timed, so that a client that sends one request at a time does not pay for the clock.
/// The stopwatch is read again after one more event, then after four and so on up to [`MOST_EVENTS`], as long as the events take
/// about what they were priced at. In a large window even a single request can take long, so the whole window is timed.
#[derive(Debug)]
pub(super) struct Timing {
    events: u32,
    /// The number of the event before which the stopwatch is looked at next, and how many events that is after the last look.
    next: u32,
    step: u32,
    began: u64,
    /// What the connection had of its allowance then.
    allowance: i32,
    /// All events are timed, with the last one.
    is_whole: bool,
}

/// A window from this size on is timed whole: two looks at the stopwatch are little beside what it takes to read it.
const TIMED_BYTES: usize = 2048;

/// Events between two looks at the stopwatch.
const MOST_EVENTS: u32 = 32;

impl Timing {
    /// Begins with a window of so many bytes.
    #[inline]
    pub(super) fn new(bytes: usize, work: &Work, stopwatch: fn() -> u64) -> Timing {
        let is_whole = bytes >= TIMED_BYTES;
        let began = if is_whole { stopwatch() } else { 0 };
        Timing { events: 0, next: 1, step: 1, began, allowance: work.allowance, is_whole }
    }

    /// Before another event: has the work cost what was measured, if that is more than its price.
    #[inline]
    pub(super) fn event(&mut self, work: &mut Work, stopwatch: fn() -> u64) {
        if self.events == self.next {
            self.look(work, stopwatch());
        }
        self.events += 1;
    }

    /// After the last event.
    #[inline]
    pub(super) fn end(mut self, work: &mut Work, stopwatch: fn() -> u64) {
        if self.is_whole {
            self.look(work, stopwatch());
        }
    }

    fn look(&mut self, work: &mut Work, now: u64) {
        if self.events > 1 || self.is_whole {
            let priced = self.allowance.saturating_sub(work.allowance);
            let took = i32::try_from(now.saturating_sub(self.began)).unwrap_or(i32::MAX);
            self.step = if took > priced.saturating_mul(2) { 1 } else { (self.step * 4).min(MOST_EVENTS) };
            work.allowance = work.allowance.min(self.allowance.saturating_sub(took));
        }
        (self.began, self.allowance, self.next) = (now, work.allowance, self.events + self.step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays events that are priced at 10 and take so long: how many fit an allowance of 1000.
    fn fit(nanoseconds: u64) -> u32 {
        thread_local!(static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        let (mut work, mut events) = (Work::default(), 0);
        work.begin(1, 1000);
        let mut timing = Timing::new(0, &work, || NOW.get());
        loop {
            timing.event(&mut work, || NOW.get());
            if work.is_spent() {
                return events;
            }
            work.spend(10);
            NOW.set(NOW.get() + nanoseconds);
            events += 1;
        }
    }

    #[test]
    fn what_takes_longer_than_its_price_costs_what_it_takes() {
        for (nanoseconds, fits) in [(0, 100), (10, 100), (1_000, 3), (100_000, 2), (1 << 40, 2)] {
            let events = fit(nanoseconds);
            assert!(events.abs_diff(fits) <= 1, "{events} of {nanoseconds} ns");
        }
    }

    #[test]
    fn a_large_window_is_timed_from_its_first_event_to_its_last() {
        thread_local!(static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        for (bytes, left) in [(100, 990), (TIMED_BYTES, -4000)] {
            let mut work = Work::default();
            work.begin(1, 1000);
            let mut timing = Timing::new(bytes, &work, || NOW.get());
            timing.event(&mut work, || NOW.get());
            work.spend(10);
            NOW.set(NOW.get() + 5000);
            timing.end(&mut work, || NOW.get());
            assert_eq!(work.allowance, left, "{bytes} bytes");
        }
    }

    #[test]
    fn each_turn_has_its_own_allowance() {
        let mut work = Work::default();
        work.begin(1, 100);
        work.spend(99);
        work.begin(1, 100);
        assert!(!work.is_spent());
        work.spend(51);
        assert!(work.is_spent());
        work.begin(1, 100);
        assert!(work.is_spent());
        work.begin(2, 100);
        assert!(!work.is_spent());
        work.spend(50);
        assert!(work.is_spent(), "50 were owed");
        work.spend(1000);
        for turn in 3..13 {
            work.begin(turn, 100);
            assert!(work.is_spent(), "turn {turn}");
        }
        work.begin(13, 100);
        assert!(!work.is_spent());
    }
}
