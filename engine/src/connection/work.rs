//! Limits the work that a connection may cause in one turn of its worker, so that no connection keeps others waiting
//! for long.
//!
//! The drivers limit the bytes per turn, but a byte costs between a tenth of a nanosecond (in a large body) and 40 ns
//! (in chunks of one byte). Therefore the most frequent events that a peer can cause have prices here, roughly their
//! costs in nanoseconds. Each connection has the same allowance per turn, in every version of HTTP. A connection that
//! has used it up keeps its unread bytes, continues in a later turn, and pauses receiving if the unread bytes are many.
//! All such connections of a worker share a limited time per turn, so the other connections wait for little more than
//! that time.

/// The work allowance of one connection per turn, in nanoseconds. It is enough for about 50 small requests, or 256 KiB
/// of a body in large parts. If a hundred connections use it up on two workers, a turn takes a few milliseconds.
pub(crate) const WORK_A_TURN: u32 = 40_000;

/// The reserve of a worker's turn, in nanoseconds, from which connections that have used up their allowance draw
/// another one. Without it, a batch of 100 requests on a connection of HTTP/2 would need three turns and three sends,
/// although no other connection waits. The reserve adds this time to a turn at most once, however many connections draw
/// from it.
pub(crate) const RESERVE_A_TURN: u32 = 4 * WORK_A_TURN;

/// The price of finding a request's route, calling its handler and writing its response. The price of the request's
/// head is added.
const REQUEST: u32 = 700;

/// The price of validating and storing a header field, and perhaps inserting it into the HPACK table.
const FIELD: u32 = 25;

/// The number of bytes of an HTTP/1 head that are scanned per nanosecond.
const SCANNED_BYTES: u32 = 4;

/// Returns the price of an HTTP/1 request whose head has `bytes` bytes and `fields` fields.
#[inline]
pub(super) fn scanned_head(bytes: usize, fields: usize) -> u32 {
    REQUEST + FIELD * fields as u32 + bytes as u32 / SCANNED_BYTES
}

/// Returns the price of an HTTP/2 request whose `fields` decoded fields have `bytes` bytes. Decoding the Huffman code
/// takes about a nanosecond per byte.
#[inline]
pub(super) fn decoded_head(bytes: usize, fields: usize) -> u32 {
    REQUEST + FIELD * fields as u32 + bytes as u32
}

/// The price of a received part of an HTTP/1 body, without its bytes, or of the body's end, without the poll of its
/// handler.
pub(super) const CHUNK: u32 = 40;

/// The price of an HTTP/2 frame that carries body bytes (without those bytes), ends or resets a stream, or opens a
/// window.
pub(super) const FRAME: u32 = 200;

/// The price of polling a handler's future, which is rarely in the CPU's cache if the connection has many futures.
pub(super) const POLL: u32 = 500;

/// The number of body bytes that are copied for a handler per nanosecond.
const BYTES: u32 = 8;

/// Returns the price of `count` body bytes, without the price of the event that carries them.
#[inline]
pub(super) fn bytes(count: usize) -> u32 {
    count as u32 / BYTES
}

/// The largest debt that a connection takes into its next turn, in multiples of a turn's allowance.
const MOST_TURNS_OWED: i32 = 100;

/// The work that a connection leaves for a later turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Left {
    #[default]
    Nothing,
    /// Received bytes that the connection has not parsed.
    Unread,
    /// Received bytes, and woken tasks that the connection has not run.
    Woken,
}

/// The rest of a connection's allowance in the current turn, and the work that the connection leaves for a later turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    turn: u32,
    /// The number of nanoseconds left of the allowance. A negative number is a debt.
    allowance: i32,
    left: Left,
}

impl Work {
    /// Grants the allowance of a new turn, less the debt. Does nothing if `turn` is still the same.
    #[inline]
    pub(super) fn begin(&mut self, turn: u32, allowance: u32) {
        if self.turn != turn {
            let allowance = i32::try_from(allowance).unwrap_or(i32::MAX);
            // The debt is limited, so that one slow call of a handler does not stop its connection for seconds.
            let owed = self.allowance.clamp(allowance.saturating_mul(-MOST_TURNS_OWED), 0);
            *self = Work { turn, allowance: owed.saturating_add(allowance), left: self.left };
        }
    }

    /// Subtracts `price` from the allowance. The next turn's allowance is reduced by any debt.
    #[inline]
    pub(super) fn spend(&mut self, price: u32) {
        self.allowance = self.allowance.saturating_sub_unsigned(price);
    }

    /// Subtracts the nanoseconds that have passed since `begun`.
    #[inline]
    pub(super) fn spend_since(&mut self, begun: u64, stopwatch: fn() -> u64) {
        self.spend(u32::try_from(stopwatch().saturating_sub(begun)).unwrap_or(u32::MAX));
    }

    /// Returns true if the allowance of this turn is used up.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.allowance <= 0
    }

    /// Pays the debt and another allowance of [`WORK_A_TURN`] from the turn's reserve, unless the reserve has less than
    /// both. Returns the sum paid.
    fn draw(&mut self, reserve: &mut u32) -> i32 {
        let wanted = WORK_A_TURN.saturating_add(self.allowance.min(0).unsigned_abs());
        let Some(left) = reserve.checked_sub(wanted) else { return 0 };
        (*reserve, self.allowance) = (left, WORK_A_TURN as i32);
        i32::try_from(wanted).unwrap_or(i32::MAX)
    }

    /// Returns true if the connection has left work for a later turn.
    #[inline]
    pub(super) fn is_unfinished(&self) -> bool {
        self.left != Left::Nothing
    }

    /// Records that the unparsed bytes were dropped.
    pub(super) fn drop_unread(&mut self) {
        if self.left == Left::Unread {
            self.left = Left::Nothing;
        }
    }

    /// Records that unparsed bytes are left for a later turn. Returns true if no work had been left yet.
    pub(super) fn leave_unread(&mut self) -> bool {
        let is_first = self.left == Left::Nothing;
        if is_first {
            self.left = Left::Unread;
        }
        is_first
    }

    /// Records that woken tasks are left for a later turn, besides unparsed bytes.
    pub(super) fn leave_woken(&mut self) {
        self.left = Left::Woken;
    }

    /// Returns the work that an earlier turn has left, and clears it.
    pub(super) fn take_left(&mut self) -> Left {
        std::mem::take(&mut self.left)
    }
}

/// Measures the time of some of the events in one window of received bytes, because a handler has no fixed price and
/// can take a thousand times as long as other events.
///
/// In a small window the first event is not timed, so that a client that sends one request at a time does not pay for
/// the clock. The intervals between two readings of the stopwatch then have 1, 4, 16, and later [`MOST_EVENTS`] events.
/// After an interval that took more than twice its price, the next interval has one event. A large window is timed from
/// its first event to its last, because even a single request in it can take long.
#[derive(Debug)]
pub(super) struct Timing {
    events: u32,
    /// The count of events at which the stopwatch is read next, and the number of events in the current interval.
    next: u32,
    step: u32,
    began: u64,
    /// The connection's allowance at the time `began`.
    allowance: i32,
    /// The most events in an interval.
    most: u32,
    /// True if the window is timed from its first event to its last.
    is_whole: bool,
}

/// The least size in bytes of a window that is timed from its first event to its last. Two readings of the stopwatch
/// cost little compared with parsing so many bytes.
const TIMED_BYTES: usize = 2048;

/// The most events between two readings of the stopwatch.
const MOST_EVENTS: u32 = 32;

impl Timing {
    /// Starts to measure the events of a window of `bytes` bytes.
    #[inline]
    pub(super) fn new(bytes: usize, work: &Work, stopwatch: fn() -> u64) -> Timing {
        let is_whole = bytes >= TIMED_BYTES;
        let began = if is_whole { stopwatch() } else { 0 };
        Timing { events: 0, next: 1, step: 1, began, allowance: work.allowance, most: MOST_EVENTS, is_whole }
    }

    /// Starts to measure the polls of tasks, each of them, because any can take long and most do nothing.
    pub(super) fn of_tasks(work: &Work, stopwatch: fn() -> u64) -> Timing {
        Timing { most: 1, ..Timing::new(TIMED_BYTES, work, stopwatch) }
    }

    /// Must be called before each event. Reads the stopwatch if that is due, and charges the measured time if it
    /// exceeds the price of the events. If the allowance is used up, draws on the turn's `reserve`. Returns true if the
    /// event must wait for a later turn, because the reserve is used up, too. If `is_due` is false, no input is left and
    /// the event costs nothing, so it need not wait.
    #[inline]
    pub(super) fn event(&mut self, work: &mut Work, reserve: &mut u32, is_due: bool, stopwatch: fn() -> u64) -> bool {
        if self.events == self.next {
            self.look(work, stopwatch());
        }
        self.events += 1;
        if is_due && work.is_spent() {
            self.allowance = self.allowance.saturating_add(work.draw(reserve));
            return work.is_spent();
        }
        false
    }

    /// Must be called after the last event. Charges the rest of the time of a large window.
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
            self.step = if took > priced.saturating_mul(2) { 1 } else { (self.step * 4).min(self.most) };
            work.allowance = work.allowance.min(self.allowance.saturating_sub(took));
        }
        (self.began, self.allowance, self.next) = (now, work.allowance, self.events + self.step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of events that fit an allowance of 1000 if each has the price 10 and takes `nanoseconds`.
    fn fit(nanoseconds: u64) -> u32 {
        thread_local!(static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        let (mut work, mut events) = (Work::default(), 0);
        work.begin(1, 1000);
        let mut timing = Timing::new(0, &work, || NOW.get());
        loop {
            if timing.event(&mut work, &mut 0, true, || NOW.get()) {
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
            timing.event(&mut work, &mut 0, true, || NOW.get());
            work.spend(10);
            NOW.set(NOW.get() + 5000);
            timing.end(&mut work, || NOW.get());
            assert_eq!(work.allowance, left, "{bytes} bytes");
        }
    }

    #[test]
    fn the_reserve_of_a_turn_pays_debts_and_further_allowances_while_it_lasts() {
        let full = WORK_A_TURN as i32;
        let mut reserve = 3 * WORK_A_TURN + 10;
        for (owed, paid, left) in [
            (10, full + 10, 2 * WORK_A_TURN),
            (WORK_A_TURN + 1, 0, 2 * WORK_A_TURN),
            (0, full, WORK_A_TURN),
            (i32::MAX as u32, 0, WORK_A_TURN),
            (0, full, 0),
            (0, 0, 0),
        ] {
            let mut work = Work::default();
            work.begin(1, WORK_A_TURN);
            work.spend(WORK_A_TURN + owed);
            assert_eq!((work.draw(&mut reserve), reserve), (paid, left), "{owed} were owed");
            assert_eq!(work.is_spent(), paid == 0);
        }
    }

    #[test]
    fn measured_time_is_charged_once_although_the_reserve_has_paid_for_it() {
        thread_local!(static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        let (mut work, mut reserve) = (Work::default(), 2 * WORK_A_TURN);
        work.begin(1, WORK_A_TURN);
        let mut timing = Timing::new(TIMED_BYTES, &work, || NOW.get());
        for _ in 0..30 {
            timing.event(&mut work, &mut reserve, true, || NOW.get());
            work.spend(WORK_A_TURN / 10);
            NOW.set(NOW.get() + u64::from(WORK_A_TURN) / 10);
        }
        timing.event(&mut work, &mut reserve, true, || NOW.get());
        timing.end(&mut work, || NOW.get());
        assert_eq!((work.allowance, reserve), (0, 0), "an allowance and a reserve of two are just used up");
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
