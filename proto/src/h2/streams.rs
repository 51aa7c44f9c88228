//! The streams in progress of a connection, and how the most recently closed streams ended.

use super::flow::{ReceiveWindow, SendWindow};
use super::frame::Code;
use super::schedule::Priority;
use super::state::{State, Step};
use crate::Method;
use alloc::vec::Vec;

/// A stream, as the connection and its caller name it. Places are used again, numbers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamRef {
    /// The stream's index. Indexes stay small, so that a caller may keep its own state in a vector.
    pub place: u32,
    /// The stream's number on the wire.
    pub number: u32,
}

/// The number of ended streams that are remembered, so that a late frame can be distinguished from an invalid one.
const REMEMBERED: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) state: State,
    pub(super) send: SendWindow,
    pub(super) receive: ReceiveWindow,
    /// The number of bytes of the peer's body that have not arrived, if the body's length was announced.
    pub(super) announced: Option<u64>,
    /// The number of bytes of our body that have not been sent, if the body's length was announced.
    pub(super) promised: Option<u64>,
    pub(super) priority: Priority,
    /// The request's method. It matters because a response to HEAD has no body, and a 2xx to CONNECT makes a tunnel.
    pub(super) method: Method,
    /// True if a final head was received (client role) or sent (server role).
    pub(super) has_answer: bool,
    /// True if that response made the stream a tunnel: only DATA follows, in both directions.
    pub(super) is_tunnel: bool,
}

impl Stream {
    /// Returns true if a response with this status makes a tunnel (RFC 9110 section 9.3.6, RFC 8441 section 5).
    pub(super) fn tunnels(&self, status: u16) -> bool {
        self.method == Method::Connect && (200..300).contains(&status)
    }

    /// Returns true if one direction may end in trailers. No direction of a tunnel may, and a client's direction of a
    /// CONNECT may not either, because the client cannot know whether a 2xx is already on its way. `is_clients` is true
    /// for the client's direction.
    pub(super) fn may_have_trailers(&self, is_clients: bool) -> bool {
        !(self.is_tunnel || is_clients && self.method == Method::Connect)
    }

    /// Returns true if a response with this status has no body, even if its head announces one (RFC 9110 section
    /// 6.4.1).
    pub(super) fn withholds(&self, status: u16) -> bool {
        !self.tunnels(status) && (self.method == Method::Head || matches!(status, 204 | 304))
    }

    /// Counts a DATA frame of `frame` payload bytes, of which `bytes` belong to the body. Returns an error code if the
    /// window or the announced length does not allow them.
    pub(super) fn take_data(&mut self, frame: u32, bytes: u32, ends: bool) -> Option<Code> {
        if !self.receive.receive(frame) {
            return Some(Code::FlowControl);
        }
        let announced = self.announced?;
        match announced.checked_sub(u64::from(bytes)) {
            Some(rest) if rest == 0 || !ends => {
                self.announced = Some(rest);
                None
            }
            // The body is longer or shorter than announced.
            _ => Some(Code::Protocol),
        }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both directions ended.
    Complete,
    /// The peer reset the stream.
    Peer,
    /// We reset the stream, and the peer may not know this yet.
    Own,
}

#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The stream numbers by place; 0 if the place is free. Kept apart from the streams, so that a search touches
    /// little memory.
    numbers: Vec<u32>,
    streams: Vec<Option<Stream>>,
    free: Vec<u32>,
    ended: Vec<(u32, End)>,
    /// The index in `ended` that is overwritten next.
    next_ended: usize,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.numbers.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, number: u32, stream: Stream) -> StreamRef {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.numbers.push(0);
                self.streams.push(None);
                self.numbers.len() as u32 - 1
            }
        };
        self.numbers[place as usize] = number;
        self.streams[place as usize] = Some(stream);
        StreamRef { place, number }
    }

    /// Returns the stream with this number. Searches the places one after the other, because a connection has few
    /// streams.
    pub(super) fn find(&self, number: u32) -> Option<StreamRef> {
        /// How many numbers are compared at once, without a branch for each.
        const LANES: usize = 16;
        let has = |lanes: &[u32]| lanes.iter().fold(false, |has, &other| has | (other == number));
        let start = LANES * self.numbers.chunks(LANES).position(has)?;
        let place = self.numbers[start..].iter().position(|&other| other == number)?;
        Some(StreamRef { place: (start + place) as u32, number })
    }

    #[inline]
    pub(super) fn get(&mut self, stream: StreamRef) -> Option<&mut Stream> {
        if self.numbers.get(stream.place as usize) != Some(&stream.number) {
            return None;
        }
        self.streams[stream.place as usize].as_mut()
    }

    /// Takes a step. Returns false if it is not permitted. Removes the stream if the step closes it.
    #[inline]
    pub(super) fn step(&mut self, stream: StreamRef, step: Step) -> bool {
        let Some(found) = self.get(stream) else { return false };
        let Some(state) = found.state.after(step) else { return false };
        found.state = state;
        if state == State::Closed {
            self.remove(stream, End::Complete);
        }
        true
    }

    pub(super) fn remove(&mut self, stream: StreamRef, end: End) {
        if self.get(stream).is_none() {
            return;
        }
        self.numbers[stream.place as usize] = 0;
        self.streams[stream.place as usize] = None;
        self.free.push(stream.place);
        self.remember(stream.number, end);
    }

    pub(super) fn remember(&mut self, number: u32, end: End) {
        if self.ended.len() < REMEMBERED {
            self.ended.push((number, end));
        } else {
            self.ended[self.next_ended] = (number, end);
            self.next_ended = (self.next_ended + 1) % REMEMBERED;
        }
    }

    /// Returns how a stream ended, if its end is still remembered.
    pub(super) fn ended(&self, number: u32) -> Option<End> {
        self.ended.iter().rev().find(|(other, _)| *other == number).map(|&(_, end)| end)
    }

    /// Returns the streams in progress with their numbers.
    pub(super) fn each(&mut self) -> impl Iterator<Item = (u32, &mut Stream)> {
        self.numbers.iter().zip(&mut self.streams).filter_map(|(&number, stream)| Some((number, stream.as_mut()?)))
    }

    pub(super) fn refs(&self) -> impl Iterator<Item = StreamRef> {
        let numbered = self.numbers.iter().enumerate().filter(|(_, number)| **number != 0);
        numbered.map(|(place, &number)| StreamRef { place: place as u32, number })
    }

    /// Frees memory that only busy connections need, if no stream is in progress.
    pub(super) fn shrink(&mut self) {
        if self.len() == 0 {
            *self =
                Streams { ended: core::mem::take(&mut self.ended), next_ended: self.next_ended, ..Streams::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream {
            state: State::Open,
            send: SendWindow::new(1),
            receive: ReceiveWindow::new(1),
            announced: None,
            promised: None,
            priority: Priority::default(),
            method: Method::Get,
            has_answer: false,
            is_tunnel: false,
        }
    }

    #[test]
    fn places_are_used_again_and_old_names_find_nothing() {
        let mut streams = Streams::default();
        let (one, three) = (streams.insert(1, stream()), streams.insert(3, stream()));
        assert_eq!((streams.len(), streams.find(3), streams.find(5)), (2, Some(three), None));
        assert!(streams.step(one, Step::SendEnd) && streams.step(one, Step::ReceiveEnd));
        assert!(!streams.step(one, Step::Send));
        let five = streams.insert(5, stream());
        assert_eq!((five.place, streams.len()), (one.place, 2));
        assert!(streams.get(one).is_none());
        assert_eq!((streams.ended(1), streams.ended(3)), (Some(End::Complete), None));
    }

    #[test]
    fn the_last_ones_are_remembered_and_no_more() {
        let mut streams = Streams::default();
        for number in 1..1000 {
            streams.remember(number, End::Peer);
        }
        assert_eq!(streams.ended(999), Some(End::Peer));
        assert_eq!(streams.ended(1), None);
        assert_eq!(streams.ended.len(), REMEMBERED);
    }
}
