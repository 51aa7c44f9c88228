//! Sending frames.

use super::frame::{CONTROL_BYTES, Header, Opcode};
use super::state::{State, Step};
use super::{Connection, Kind, apply_mask, is_close_code, write_frame_header};
use alloc::vec::Vec;
use core::fmt;

/// The reason why a frame cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// A Close frame was sent before.
    Closed,
    /// A message that is sent in parts has not ended.
    InMessage,
    /// The bytes of a Ping or Pong frame are more than 125, or the reason of a Close frame is longer than 123 bytes.
    TooLong,
    /// The code must not be sent, or there is a reason without a code.
    Code,
    /// The parts of a text are not UTF-8.
    NotUtf8,
    /// The handshake has not agreed on permessage-deflate.
    NotCompressed,
    /// A client masks its messages, so their bytes cannot be sent as they are.
    Masked,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misuse::Closed => "a Close frame was sent before",
            Misuse::InMessage => "a message that is sent in parts has not ended",
            Misuse::TooLong => "a control frame has at most 125 bytes, two of which are the code of a Close frame",
            Misuse::Code => "the code must not be sent in a Close frame",
            Misuse::NotUtf8 => "a text that is sent in parts is not UTF-8",
            Misuse::NotCompressed => "the handshake has not agreed on permessage-deflate",
            Misuse::Masked => "a client masks its messages",
        })
    }
}

impl core::error::Error for Misuse {}

impl Connection {
    /// Appends a text message.
    ///
    /// # Errors
    /// Returns an error if a Close frame was sent, or a message that is sent in parts has not ended.
    #[inline]
    pub fn send_text(&mut self, text: &str, out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.send_frame(Step::Whole, Kind::Text.into(), false, text.as_bytes(), out)
    }

    /// Appends a binary message.
    ///
    /// # Errors
    /// As [`send_text`](Self::send_text).
    #[inline]
    pub fn send_binary(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.send_frame(Step::Whole, Kind::Binary.into(), false, bytes, out)
    }

    /// Appends the header of a message whose `length` bytes the caller sends next, as they are. Only a server can do
    /// this, because a client masks its bytes. The caller answers for a text's being UTF-8.
    ///
    /// # Errors
    /// As [`send_text`](Self::send_text), and if this is a client.
    pub fn send_header(&mut self, kind: Kind, length: usize, out: &mut Vec<u8>) -> Result<(), Misuse> {
        if self.mask.is_some() {
            return Err(Misuse::Masked);
        }
        self.outgoing = self.after(Step::Whole)?;
        write_frame_header(kind, false, length, out);
        Ok(())
    }

    /// Appends a message that the caller has deflated (RFC 7692 section 7.2.1). The caller answers for the text's
    /// being UTF-8.
    ///
    /// # Errors
    /// As [`send_text`](Self::send_text), and if the handshake has not agreed on permessage-deflate.
    pub fn send_deflated(&mut self, kind: Kind, deflated: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> {
        if !self.has_deflate {
            return Err(Misuse::NotCompressed);
        }
        self.send_frame(Step::Whole, kind.into(), true, deflated, out)
    }

    /// Appends the next part of a message that is sent in parts. The kind of the first part counts. A part of a text may
    /// end within a character, but the last may not.
    ///
    /// # Errors
    /// Returns an error if a Close frame was sent, or if the parts of a text are not UTF-8. Nothing is appended then.
    pub fn send_part(&mut self, kind: Kind, part: &[u8], is_last: bool, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let is_first = self.outgoing != State::InMessage;
        if is_first {
            self.sent_text = (kind == Kind::Text).then(Default::default);
        }
        if let Some(text) = &mut self.sent_text {
            let mut after = *text;
            after.check(part).map_err(|_| Misuse::NotUtf8)?;
            if is_last && !after.is_whole() {
                return Err(Misuse::NotUtf8);
            }
            *text = after;
        }
        let (step, opcode) = match (is_first, is_last) {
            (true, true) => (Step::Whole, kind.into()),
            (true, false) => (Step::First, kind.into()),
            (false, false) => (Step::Middle, Opcode::Continuation),
            (false, true) => (Step::Last, Opcode::Continuation),
        };
        self.send_frame(step, opcode, false, part, out)
    }

    /// Appends a Ping frame.
    ///
    /// # Errors
    /// Returns an error if a Close frame was sent, or if there are more than 125 bytes.
    pub fn send_ping(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.send_control(Step::Control, Opcode::Ping, bytes, out)
    }

    /// Appends a Pong frame.
    ///
    /// # Errors
    /// As [`send_ping`](Self::send_ping).
    pub fn send_pong(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.send_control(Step::Control, Opcode::Pong, bytes, out)
    }

    /// Appends a Close frame, after which nothing can be sent.
    ///
    /// # Errors
    /// Returns an error if a Close frame was sent, if the code must not be sent, if there is a reason without a code, or
    /// if the reason is longer than 123 bytes.
    pub fn send_close(&mut self, code: Option<u16>, reason: &str, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let mut payload = Vec::with_capacity(CONTROL_BYTES);
        match code {
            Some(code) if is_close_code(code) => payload.extend_from_slice(&code.to_be_bytes()),
            None if reason.is_empty() => {}
            _ => return Err(Misuse::Code),
        }
        payload.extend_from_slice(reason.as_bytes());
        self.send_control(Step::Close, Opcode::Close, &payload, out)
    }

    fn send_control(&mut self, step: Step, opcode: Opcode, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> {
        if bytes.len() > CONTROL_BYTES {
            return Err(Misuse::TooLong);
        }
        self.send_frame(step, opcode, false, bytes, out)
    }

    #[inline]
    fn after(&self, step: Step) -> Result<State, Misuse> {
        let misuse = if self.outgoing == State::InMessage { Misuse::InMessage } else { Misuse::Closed };
        self.outgoing.after(step).ok_or(misuse)
    }

    #[inline]
    fn send_frame(
        &mut self,
        step: Step,
        opcode: Opcode,
        compressed: bool,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        self.outgoing = self.after(step)?;
        let mask = self.mask.map(|mask| mask());
        let is_last = !matches!(step, Step::First | Step::Middle);
        let header = Header { opcode, is_last, compressed, length: payload.len() as u64, mask, size: 0 };
        header.write(out);
        let start = out.len();
        out.extend_from_slice(payload);
        if let Some(mask) = mask {
            apply_mask(&mut out[start..], mask);
        }
        Ok(())
    }
}
