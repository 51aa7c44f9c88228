//! Chooses the stream that sends next, by the priorities of RFC 9218.

use super::streams::StreamRef;
use alloc::collections::VecDeque;

/// A stream's urgency, and whether a part of its response is useful before the whole has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// True if the stream shares the connection with others of its urgency. If false, the stream is sent whole before
    /// the next one, unless its window is closed.
    pub incremental: bool,
}

/// The number of urgencies.
const URGENCIES: usize = 8;

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Parses a `Priority` field such as `u=2, i`. Ignores unknown members, as RFC 9218 section 4 requires.
    pub fn read(value: &[u8]) -> Priority {
        let mut priority = Priority::default();
        for member in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

/// The streams that have something to send, in the order in which they send.
#[derive(Debug, Default)]
pub struct Schedule {
    waiting: [VecDeque<(StreamRef, bool)>; URGENCIES],
    count: usize,
}

impl Schedule {
    /// Adds a stream that has something to send. A caller adds it once, and again after [`take_next`](Self::take_next)
    /// returned it.
    pub fn add(&mut self, stream: StreamRef, priority: Priority) {
        self.waiting[usize::from(priority.urgency.min(7))].push_back((stream, priority.incremental));
        self.count += 1;
    }

    /// Puts back a stream that [`take_next`](Self::take_next) returned and that has more to send: behind the other
    /// streams of its urgency if it is incremental, else before them.
    pub fn put_back(&mut self, stream: StreamRef, priority: Priority) {
        let queue = &mut self.waiting[usize::from(priority.urgency.min(7))];
        if priority.incremental {
            queue.push_back((stream, true));
        } else {
            queue.push_front((stream, false));
        }
        self.count += 1;
    }

    /// Removes and returns the stream that sends next.
    pub fn take_next(&mut self) -> Option<StreamRef> {
        if self.count == 0 {
            return None;
        }
        let (stream, _) = self.waiting.iter_mut().find_map(VecDeque::pop_front)?;
        self.count -= 1;
        Some(stream)
    }

    /// Removes a stream from the schedule, if it is in it.
    pub fn remove(&mut self, stream: StreamRef) {
        for queue in &mut self.waiting {
            if let Some(at) = queue.iter().position(|(other, _)| *other == stream) {
                queue.remove(at);
                self.count -= 1;
                return;
            }
        }
    }

    /// Returns true if no stream waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn fields_are_read_and_what_is_not_understood_is_ignored() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?0,u=5", 5, false),
            ("u=9, i=?1", 3, true),
            ("x, u=-1, i;q", 3, false),
        ] {
            assert_eq!(Priority::read(value.as_bytes()), Priority { urgency, incremental }, "{value}");
        }
    }

    #[test]
    fn the_urgent_go_first_the_incremental_share_and_the_others_finish() {
        let stream = |number| StreamRef { place: number, number };
        let mut schedule = Schedule::default();
        let usual = Priority::default();
        let shared = Priority { urgency: 3, incremental: true };
        schedule.add(stream(1), usual);
        schedule.add(stream(3), usual);
        schedule.add(stream(5), Priority { urgency: 1, incremental: false });
        assert_eq!(schedule.take_next(), Some(stream(5)));
        assert_eq!(schedule.take_next(), Some(stream(1)));
        schedule.put_back(stream(1), usual);
        assert_eq!(schedule.take_next(), Some(stream(1)), "stream 1 continues");
        assert_eq!(schedule.take_next(), Some(stream(3)));
        assert!(schedule.is_empty() && schedule.take_next().is_none());
        schedule.add(stream(1), shared);
        schedule.add(stream(3), shared);
        let mut order = Vec::new();
        for _ in 0..4 {
            let next = schedule.take_next().expect("a stream waits");
            order.push(next.number);
            schedule.put_back(next, shared);
        }
        assert_eq!(order, [1, 3, 1, 3]);
        schedule.remove(stream(1));
        schedule.remove(stream(7));
        assert_eq!(schedule.take_next(), Some(stream(3)));
        assert!(schedule.is_empty());
    }
}
