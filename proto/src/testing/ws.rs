//! Compares our WebSocket connection with one that follows RFC 6455 byte by byte, and our two ends with each other.

use crate::Role;
use crate::ws::{Bounds, Connection, Event, Kind, Misuse, apply_mask_naive, is_close_code};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// A whole message or a control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Message {
        is_text: bool,
        compressed: bool,
        bytes: Vec<u8>,
    },
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    /// The connection fails with this code.
    Failed(u16),
}

/// The choices that the first bytes of an input make.
struct Setup {
    role: Role,
    has_deflate: bool,
    bounds: Bounds,
    cuts: [usize; 2],
}

impl Setup {
    /// Returns the setup of an input and the received bytes.
    fn from_input(input: &[u8]) -> Option<(Setup, &[u8])> {
        let (&[options, first, second], bytes) = input.split_first_chunk::<3>()?;
        let role = if options & 1 == 0 { Role::Server } else { Role::Client };
        let bounds = match options & 4 {
            0 => Bounds::default(),
            _ => Bounds { message_bytes: 200, small_frames: 3 },
        };
        let cuts = [first, second].map(|size| usize::from(size) + 1);
        Some((Setup { role, has_deflate: options & 2 != 0, bounds, cuts }, bytes))
    }

    fn connection(&self) -> Connection {
        match self.role {
            Role::Server => Connection::server(self.bounds, self.has_deflate),
            Role::Client => Connection::client(self.bounds, self.has_deflate, || [1, 2, 3, 4]),
        }
    }
}

/// Receives frames as a whole, in pieces and byte by byte. Asserts that all ways give the same messages, and that a slow
/// decoder gives them too.
///
/// # Panics
/// Panics if the results differ.
pub fn websocket(input: &[u8]) {
    let Some((setup, bytes)) = Setup::from_input(input) else { return };
    let expected = Slow { setup: &setup, bytes, at: 0, items: Vec::new() }.decode();
    let whole = receive(&setup, [bytes]);
    assert_eq!(whole, expected, "we (left) and the slow decoder (right)");
    assert_eq!(receive(&setup, bytes.chunks(1)), expected, "single bytes");
    let mut rest = bytes;
    let pieces = (0..).map_while(|number: usize| {
        let (piece, behind) = rest.split_at(rest.len().min(setup.cuts[number % 2]));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    });
    assert_eq!(receive(&setup, pieces), expected, "pieces of {:?}", setup.cuts);
}

fn receive<'b>(setup: &Setup, pieces: impl IntoIterator<Item = &'b [u8]>) -> Vec<Item> {
    let mut receiver = Receiver::new(setup.connection());
    pieces.into_iter().for_each(|piece| receiver.add(piece));
    receiver.items
}

/// Joins the events of a connection to items.
struct Receiver {
    connection: Connection,
    window: Vec<u8>,
    message: Vec<u8>,
    items: Vec<Item>,
}

impl Receiver {
    fn new(connection: Connection) -> Receiver {
        Receiver { connection, window: Vec::new(), message: Vec::new(), items: Vec::new() }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.window.extend_from_slice(bytes);
        loop {
            let before = self.window.len();
            let received = match self.connection.receive(&mut self.window) {
                Ok(received) => received,
                Err(failure) => {
                    assert!(is_close_code(failure.code) && failure.text.len() <= 123, "{failure:?}");
                    self.items.push(Item::Failed(failure.code));
                    self.window.clear();
                    return;
                }
            };
            let consumed = received.consumed;
            assert!(consumed <= before);
            match received.event {
                Event::NeedMore => {
                    self.window.drain(..consumed);
                    return;
                }
                Event::Data { kind, compressed, bytes, is_last } => {
                    self.message.extend_from_slice(bytes);
                    if is_last {
                        let (is_text, bytes) = (kind == Kind::Text, core::mem::take(&mut self.message));
                        self.items.push(Item::Message { is_text, compressed, bytes });
                    }
                }
                Event::Ping(bytes) => self.items.push(Item::Ping(bytes.to_vec())),
                Event::Pong(bytes) => self.items.push(Item::Pong(bytes.to_vec())),
                Event::Close { code, reason } => self.items.push(Item::Close(code, reason.to_string())),
            }
            assert!(consumed > 0, "an event without bytes could be returned for ever");
            self.window.drain(..consumed);
        }
    }
}

/// A decoder of whole inputs that is written after the RFC and knows nothing of our connection.
struct Slow<'b> {
    setup: &'b Setup,
    bytes: &'b [u8],
    at: usize,
    items: Vec<Item>,
}

/// The reason why the slow decoder stops.
enum Stop {
    Incomplete,
    Failed(u16),
}

impl Slow<'_> {
    fn decode(mut self) -> Vec<Item> {
        if let Err(Stop::Failed(code)) = self.frames() {
            self.items.push(Item::Failed(code));
        }
        self.items
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self, bytes: usize) -> Result<u64, Stop> {
        (0..bytes).try_fold(0, |number, _| Ok(number << 8 | u64::from(self.byte()?)))
    }

    /// Reads frames until a Close frame.
    fn frames(&mut self) -> Result<(), Stop> {
        const PROTOCOL: Stop = Stop::Failed(1002);
        // The message that has begun: text or not, compressed or not, its bytes, its announced bytes, its small frames.
        let mut message: Option<(bool, bool, Vec<u8>, u64, u32)> = None;
        loop {
            let first = self.byte()?;
            let (is_last, opcode) = (first >= 128, first % 16);
            if !matches!(opcode, 0..=2 | 8..=10) {
                return Err(PROTOCOL);
            }
            let (compressed, reserved) = (first / 64 % 2 == 1, first / 16 % 4);
            if reserved != 0 || (compressed && (!self.setup.has_deflate || !matches!(opcode, 1 | 2))) {
                return Err(PROTOCOL);
            }
            if opcode >= 8 && !is_last {
                return Err(PROTOCOL);
            }
            let second = self.byte()?;
            let is_masked = second >= 128;
            if is_masked != (self.setup.role == Role::Server) {
                return Err(PROTOCOL);
            }
            let length = match second % 128 {
                126 | 127 if opcode >= 8 => return Err(PROTOCOL),
                126 => self.number(2).and_then(|length| if length < 126 { Err(PROTOCOL) } else { Ok(length) })?,
                127 => {
                    let length = self.number(8)?;
                    if length <= 65_535 || length >= 1 << 63 {
                        return Err(PROTOCOL);
                    }
                    length
                }
                length => u64::from(length),
            };
            let mut key = [0; 4];
            if is_masked {
                for byte in &mut key {
                    *byte = self.byte()?;
                }
            }
            match (opcode, &message) {
                (0, None) | (1 | 2, Some(_)) => return Err(PROTOCOL),
                _ => {}
            }
            if opcode >= 8 {
                if (self.bytes.len() - self.at) < length as usize {
                    return Err(Stop::Incomplete);
                }
                let mut payload = self.bytes[self.at..self.at + length as usize].to_vec();
                self.at += length as usize;
                apply_mask_naive(&mut payload, key);
                match opcode {
                    9 => self.items.push(Item::Ping(payload)),
                    10 => self.items.push(Item::Pong(payload)),
                    _ => return self.close(&payload),
                }
                continue;
            }
            let (is_text, compressed, mut bytes, announced, mut small) =
                message.take().unwrap_or((opcode == 1, compressed, vec![], 0, 0));
            if length < 16 && !(opcode != 0 && is_last) {
                small += 1;
                if small > self.setup.bounds.small_frames {
                    return Err(Stop::Failed(1008));
                }
            }
            let announced = announced + length;
            if announced > self.setup.bounds.message_bytes {
                return Err(Stop::Failed(1009));
            }
            for place in 0..length {
                let byte = self.byte()?;
                bytes.push(byte ^ key[place as usize % 4]);
                if is_text && !compressed {
                    match core::str::from_utf8(&bytes) {
                        Err(error) if error.error_len().is_some() => return Err(Stop::Failed(1007)),
                        _ => {}
                    }
                }
            }
            if !is_last {
                message = Some((is_text, compressed, bytes, announced, small));
                continue;
            }
            if is_text && !compressed && core::str::from_utf8(&bytes).is_err() {
                return Err(Stop::Failed(1007));
            }
            self.items.push(Item::Message { is_text, compressed, bytes });
        }
    }

    fn close(&mut self, payload: &[u8]) -> Result<(), Stop> {
        let (code, reason) = match payload {
            [] => (None, &[][..]),
            [_] => return Err(Stop::Failed(1002)),
            [high, low, reason @ ..] => (Some(u16::from(*high) * 256 + u16::from(*low)), reason),
        };
        if let Some(code) = code
            && matches!(code, 0..=999 | 1004..=1006 | 1015..=2999 | 5000..)
        {
            return Err(Stop::Failed(1002));
        }
        let reason = core::str::from_utf8(reason).map_err(|_| Stop::Failed(1007))?;
        self.items.push(Item::Close(code, reason.to_string()));
        Ok(())
    }
}

/// Makes one end send what the input chooses, and the other end receive it. Asserts that what was sent arrives, and that
/// what was refused does not.
///
/// # Panics
/// Panics if it does not.
pub fn websocket_operations(input: &[u8]) {
    let Some((setup, choices)) = Setup::from_input(input) else { return };
    let mut sender = setup.connection();
    let mut receiver = Receiver::new(match setup.role {
        Role::Server => Connection::client(Bounds::default(), setup.has_deflate, || [0; 4]),
        Role::Client => Connection::server(Bounds::default(), setup.has_deflate),
    });
    let (mut sent, mut part): (Vec<Item>, Option<(bool, Vec<u8>)>) = (Vec::new(), None);
    let mut is_closed = false;
    for choice in choices.chunks_exact(3) {
        let (action, length, seed) =
            (choice[0] % 8, usize::from(choice[1]) * (1 + usize::from(choice[0] / 32) * 40), choice[2]);
        let bytes: Vec<u8> = (0..length).map(|at| if seed < 200 { b'a' + (at % 26) as u8 } else { seed }).collect();
        let text = core::str::from_utf8(&bytes).ok();
        let mut out = Vec::new();
        let before = sender.outgoing();
        let message = |is_text, compressed, bytes: &[u8]| Item::Message { is_text, compressed, bytes: bytes.to_vec() };
        let result = match action {
            0 => text.map(|text| (sender.send_text(text, &mut out), Some(message(true, false, &bytes)))),
            1 => Some((sender.send_binary(&bytes, &mut out), Some(message(false, false, &bytes)))),
            2 => Some((sender.send_deflated(Kind::Binary, &bytes, &mut out), Some(message(false, true, &bytes)))),
            3 => Some((sender.send_ping(&bytes, &mut out), Some(Item::Ping(bytes.clone())))),
            4 => Some((sender.send_pong(&bytes, &mut out), Some(Item::Pong(bytes.clone())))),
            5 | 6 => {
                let kind = if seed % 2 == 0 { Kind::Text } else { Kind::Binary };
                let is_last = action == 6;
                let result = sender.send_part(kind, &bytes, is_last, &mut out);
                let mut item = None;
                if result.is_ok() {
                    let (is_text, mut all) = part.take().unwrap_or((kind == Kind::Text, Vec::new()));
                    all.extend_from_slice(&bytes);
                    if is_last {
                        item = Some(message(is_text, false, &all));
                    } else {
                        part = Some((is_text, all));
                    }
                }
                Some((result, item))
            }
            _ => {
                let code = (seed % 4 != 0).then_some(u16::from(seed) * 20);
                let reason = text.filter(|_| seed % 3 == 0).unwrap_or("");
                let result = sender.send_close(code, reason, &mut out);
                Some((result, Some(Item::Close(code, reason.to_string()))))
            }
        };
        match result {
            None => {}
            Some((Ok(()), item)) => {
                assert!(!is_closed, "a frame was sent after a Close frame");
                is_closed |= matches!(item, Some(Item::Close(..)));
                sent.extend(item);
            }
            Some((Err(misuse), _)) => {
                assert!(out.is_empty(), "{misuse}, but bytes were appended");
                assert_eq!(sender.outgoing(), before, "{misuse}, but the state has changed");
                assert!(is_closed == (misuse == Misuse::Closed) || misuse != Misuse::Closed, "{misuse}");
            }
        }
        out.chunks(setup.cuts[0]).for_each(|piece| receiver.add(piece));
    }
    let most = Bounds::default();
    let fits = |item: &Item| !matches!(item, Item::Message { bytes, .. } if bytes.len() as u64 > most.message_bytes);
    if sent.iter().all(fits) && !receiver.items.iter().any(|item| matches!(item, Item::Failed(1008 | 1009))) {
        assert_eq!(receiver.items, sent);
    }
}
