//! Handles the frames that carry no message: windows, resets, settings, pings, priorities, GOAWAY (RFC 9113 section 6).

use super::budget::Kind;
use super::connection::{Away, Connection, Event, Failure, Phase, failure};
use super::frame::{self, Code, FrameHead, flag, kind};
use super::schedule::Priority;
use super::streams::{End, StreamRef};
use crate::Role;
use alloc::vec::Vec;

impl Connection {
    pub(super) fn window_update(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, Failure> {
        self.count(Kind::WindowUpdates)?;
        let more = frame::number(payload) & 0x7fff_ffff;
        if head.stream == 0 {
            if more == 0 {
                return Err(failure(Code::Protocol, "WINDOW_UPDATE by nothing"));
            }
            if !self.windows.opened(more) {
                return Err(failure(Code::FlowControl, "the connection's window is too large"));
            }
            return Ok(Some(Event::AllOpened));
        }
        let Some(stream) = self.streams.find(head.stream) else {
            return match self.is_idle(head.stream) {
                true => Err(failure(Code::Protocol, "WINDOW_UPDATE for a stream that was not begun")),
                // An increment of 0 is an error even if the stream is over.
                false if more == 0 => self.refuse(head.stream, Code::Protocol, out),
                false => Ok(None),
            };
        };
        let grown = self.streams.get(stream).is_some_and(|found| found.send.grow(i64::from(more)));
        let code = match (more, grown) {
            (0, _) => Code::Protocol,
            (_, false) => Code::FlowControl,
            _ => return Ok(Some(Event::Opened(stream))),
        };
        self.reset_because(stream, code, out)?;
        Ok(Some(Event::Reset(stream, code)))
    }

    pub(super) fn peer_reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Event<'static>>, Failure> {
        if self.is_idle(head.stream) {
            return Err(failure(Code::Protocol, "RST_STREAM for a stream that was not begun"));
        }
        self.count(Kind::PeerResets)?;
        let Some(stream) = self.streams.find(head.stream) else {
            // While this is remembered, HEADERS and DATA on this stream are errors.
            self.streams.remember(head.stream, End::Peer);
            return Ok(None);
        };
        self.streams.remove(stream, End::Peer);
        Ok(Some(Event::Reset(stream, Code::of(frame::number(payload)))))
    }

    pub(super) fn settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, Failure> {
        if head.has(flag::ACK) {
            return match payload.len() {
                0 => {
                    let Some((less, more)) = self.windows.acknowledge() else {
                        self.count(Kind::Settings)?;
                        return Ok(None);
                    };
                    // All our SETTINGS have the same table size, so that this changes nothing after the first ones.
                    self.decoder.set_most_table_bytes(self.ours.table_bytes);
                    self.streams.each().for_each(|(_, stream)| stream.receive.settings_known(less));
                    more.into_iter().for_each(|more| frame::write_window_update(0, more, out));
                    Ok(None)
                }
                _ => Err(failure(Code::FrameSize, "an acknowledgement of SETTINGS has content")),
            };
        }
        self.count(Kind::Settings)?;
        let before = self.peer.window;
        let is_client = self.role == Role::Server;
        self.peer
            .read(payload, is_client)
            .map_err(|code| failure(code, "a setting has a value that is not allowed"))?;
        self.phase = Phase::Running;
        // The encoder must announce both sizes, the smallest and the last one (RFC 7541 section 4.2).
        self.encoder.set_most_table_bytes(self.peer.least_table_bytes);
        self.encoder.set_most_table_bytes(self.peer.table_bytes);
        let change = i64::from(self.peer.window) - i64::from(before);
        if change != 0 && !self.streams.each().all(|(_, stream)| stream.send.grow(change)) {
            return Err(failure(Code::FlowControl, "a stream's window is too large"));
        }
        FrameHead { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.write(out);
        Ok(Some(Event::AllOpened))
    }

    pub(super) fn ping(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, Failure> {
        self.count(Kind::Pings)?;
        if !head.has(flag::ACK) {
            frame::write_ping(payload, true, out);
        }
        Ok(None)
    }

    /// Checks a PRIORITY frame of RFC 7540, and ignores its content.
    pub(super) fn old_priority(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, Failure> {
        self.count(Kind::Priorities)?;
        let code = match payload.len() {
            5 if frame::number(payload) & 0x7fff_ffff != head.stream => return Ok(None),
            5 => Code::Protocol,
            _ => Code::FrameSize,
        };
        match self.streams.find(head.stream) {
            Some(stream) => {
                self.reset_because(stream, code, out)?;
                Ok(Some(Event::Reset(stream, code)))
            }
            // The stream is not open, so it cannot be reset.
            None => Err(failure(code, "PRIORITY of a wrong size, or of a stream on itself")),
        }
    }

    /// Changes the priority of a stream in progress (RFC 9218 section 7.1).
    pub(super) fn priority_update(&mut self, payload: &[u8]) -> Result<Option<Event<'static>>, Failure> {
        if self.role == Role::Client {
            return Err(failure(Code::Protocol, "PRIORITY_UPDATE of a server"));
        }
        self.count(Kind::Priorities)?;
        let number = frame::number(payload) & 0x7fff_ffff;
        if number == 0 {
            return Err(failure(Code::Protocol, "PRIORITY_UPDATE for no stream"));
        }
        if let Some(stream) = self.streams.find(number)
            && let Some(found) = self.streams.get(stream)
        {
            found.priority = Priority::read(&payload[4..]);
        }
        Ok(None)
    }

    pub(super) fn peer_away(&mut self, payload: &[u8]) -> Result<Option<Event<'static>>, Failure> {
        let away = Away { last: frame::number(payload) & 0x7fff_ffff, code: Code::of(frame::number(&payload[4..])) };
        if let Some(before) = self.peer_goes {
            self.count(Kind::Unknown)?;
            // The caller may have sent the requests above the earlier number elsewhere.
            if away.last > before.last {
                return Err(failure(Code::Protocol, "a later GOAWAY names a later stream"));
            }
        }
        self.peer_goes = Some(away);
        self.unserved = self.role == Role::Client;
        Ok(Some(Event::GoingAway))
    }

    /// Removes one of our streams that the peer will not process, and returns it.
    #[cold]
    pub(super) fn next_unserved(&mut self) -> Option<StreamRef> {
        let last = self.peer_goes.map_or(u32::MAX, |away| away.last);
        let found = self.streams.refs().find(|stream| stream.number > last);
        match found {
            Some(stream) => self.streams.remove(stream, End::Own),
            None => self.unserved = false,
        }
        found
    }
}
