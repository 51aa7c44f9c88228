//! A simple HTTP/2 client for tests. It sends any request as frames, even an invalid one, and collects the server's
//! answers by stream.
//!
//! It shares only the decoder of header blocks with the engine, and reports many kinds of frames that a server must not
//! send (RFC 9113). Its own windows are too large for a test to use them up, and it respects the server's windows.

use crate::answers::Answer;
use highwire_proto::hpack::Decoder;
use std::collections::BTreeMap;
use testkit::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_BYTES, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block_of_bytes, frame, section, settings, window_update,
};

/// The name and value of a field or pseudo-field, as bytes.
pub type Field = (Vec<u8>, Vec<u8>);

/// A part of a request after its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The payload of one or more DATA frames.
    Data(Vec<u8>),
    /// Trailer fields.
    Trailers(Vec<Field>),
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The fields of the request's head, pseudo-fields among them.
    pub fields: Vec<Field>,
    /// The parts after the head.
    pub parts: Vec<Part>,
    /// True if the client does not end the stream.
    pub open: bool,
}

/// The server's answer on a stream so far.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The statuses of interim responses.
    pub interim: Vec<u16>,
    /// The final response, as far as received.
    pub answer: Option<Answer>,
    /// True if the response is complete.
    pub ended: bool,
    /// The error code, if the server has reset the stream.
    pub reset: Option<u32>,
}

/// The parts of a request that the windows do not allow yet.
struct Waiting {
    stream: u32,
    parts: Vec<Part>,
    open: bool,
}

/// An HTTP/2 client without I/O.
pub struct Client {
    /// The server's answers, by stream.
    pub heard: BTreeMap<u32, Heard>,
    /// The code of the last GOAWAY.
    pub goaway: Option<u32>,
    /// The number of answered pings.
    pub pongs: usize,
    /// True if the client gives what it has read back to the connection's window, as real clients do.
    gives_back: bool,
    out: Vec<u8>,
    unread: Vec<u8>,
    decoder: Decoder,
    /// An incomplete field block: its stream, flags and bytes.
    block: Option<(u32, u8, Vec<u8>)>,
    window: i64,
    first_window: i64,
    windows: BTreeMap<u32, i64>,
    waiting: Vec<Waiting>,
    heads: Vec<u32>,
    /// The number of bytes that were read and not given back to the connection's window.
    owed: u32,
    next: u32,
}

/// The least number of bytes that are given back to the connection's window.
const GIVEN_BACK: u32 = 4096;

/// Encodes fields as HEADERS, followed by CONTINUATION if they do not fit one frame.
fn headers(stream: u32, fields: &[Field], ends: bool) -> Vec<u8> {
    let block = block_of_bytes(fields.iter().map(|(name, value)| (&name[..], &value[..])));
    section(if ends { END_STREAM } else { 0 }, stream, &block)
}

impl Default for Client {
    fn default() -> Client {
        Client::new()
    }
}

impl Client {
    /// Creates a client whose preface and SETTINGS are ready to send.
    pub fn new() -> Client {
        let most = 0x7fff_ffff_u32;
        let mut out = PREFACE.to_vec();
        // Push is disabled, and the windows are too large to be used up.
        out.extend(settings(&[(2, 0), (4, most)]));
        out.extend(window_update(0, most - 65_535));
        Client {
            heard: BTreeMap::new(),
            goaway: None,
            pongs: 0,
            gives_back: false,
            out,
            unread: Vec::new(),
            decoder: Decoder::new(4096),
            block: None,
            window: 65_535,
            first_window: 65_535,
            windows: BTreeMap::new(),
            waiting: Vec::new(),
            heads: Vec::new(),
            owed: 0,
            next: 1,
        }
    }

    /// Creates a client that gives what it has read back to the connection's window, as real clients do.
    pub fn giving_back() -> Client {
        Client { gives_back: true, ..Client::new() }
    }

    /// Takes the bytes to send.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Sends a request on the next stream and returns the stream's number.
    pub fn ask(&mut self, request: &Request) -> u32 {
        let stream = self.next;
        self.next += 2;
        let ends = request.parts.is_empty() && !request.open;
        self.out.extend(headers(stream, &request.fields, ends));
        if request.fields.iter().any(|(name, value)| name == b":method" && value == b"HEAD") {
            self.heads.push(stream);
        }
        self.windows.insert(stream, self.first_window);
        let mut parts = request.parts.clone();
        parts.reverse();
        self.waiting.push(Waiting { stream, parts, open: request.open });
        self.send_waiting();
        stream
    }

    /// Sends any bytes.
    pub fn say(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Sends PING.
    pub fn ping(&mut self) {
        self.out.extend(frame(PING, 0, 0, b"are you?"));
    }

    /// Sends as many waiting parts as the windows allow.
    fn send_waiting(&mut self) {
        for Waiting { stream, parts, open } in &mut self.waiting {
            let over = self.heard.get(stream).is_some_and(|heard| heard.reset.is_some());
            if over {
                parts.clear();
            }
            while let Some(part) = parts.last_mut() {
                let window = self.windows.get_mut(stream).expect("the window of an open stream");
                match part {
                    Part::Trailers(fields) => {
                        self.out.extend(headers(*stream, fields, !*open));
                        parts.pop();
                    }
                    Part::Data(bytes) => {
                        let most = self.window.min(*window).clamp(0, FRAME_BYTES as i64) as usize;
                        if most == 0 && !bytes.is_empty() {
                            break;
                        }
                        let rest = bytes.split_off(bytes.len().min(most));
                        let sent = std::mem::replace(bytes, rest);
                        *window -= sent.len() as i64;
                        self.window -= sent.len() as i64;
                        let whole = bytes.is_empty();
                        if whole {
                            parts.pop();
                        }
                        let ends = whole && parts.is_empty() && !*open;
                        self.out.extend(frame(DATA, u8::from(ends), *stream, &sent));
                    }
                }
            }
        }
        self.waiting.retain(|waiting| !waiting.parts.is_empty());
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// Returns an error if a server must not send these frames.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.unread.extend_from_slice(bytes);
        while let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = self.unread.first_chunk::<9>() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > FRAME_BYTES {
                return Err(format!("a frame of {length} bytes, more than the {FRAME_BYTES} that are allowed"));
            }
            if self.unread.len() < 9 + length {
                break;
            }
            let payload = self.unread[9..9 + length].to_vec();
            self.unread.drain(..9 + length);
            let stream = u32::from_be_bytes([s0, s1, s2, s3]);
            self.frame(kind, flags, stream, &payload)
                .map_err(|error| format!("a frame of kind {kind} on stream {stream}: {error}"))?;
        }
        self.send_waiting();
        Ok(())
    }

    /// Returns true if no part of a request waits for a window.
    pub fn has_said_all(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if the received bytes end neither inside a frame nor inside a field block.
    pub fn is_between_frames(&self) -> bool {
        self.unread.is_empty() && self.block.is_none()
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), String> {
        let goes_on = self.block.as_ref().map(|(of, ..)| *of);
        if goes_on.is_some_and(|of| kind != CONTINUATION || of != stream) {
            return Err("a frame inside a field block".to_string());
        }
        let four = |at: usize| payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        let wrong = || "a wrong size".to_string();
        match kind {
            DATA => {
                let heard = self.heard.get_mut(&stream).ok_or("there is no such request")?;
                let answer = heard.answer.as_mut().ok_or("a body without a head")?;
                if heard.ended || heard.reset.is_some() {
                    return Err("the stream is over".to_string());
                }
                answer.body.extend_from_slice(payload);
                self.owed += payload.len() as u32;
                if self.gives_back && self.owed >= GIVEN_BACK {
                    self.out.extend(window_update(0, std::mem::take(&mut self.owed)));
                }
                if flags & END_STREAM != 0 {
                    self.answer_ended(stream)?;
                }
            }
            HEADERS | CONTINUATION => {
                let (_, first_flags, mut bytes) = match kind {
                    HEADERS => (stream, flags, Vec::new()),
                    _ => self.block.take().ok_or("CONTINUATION without HEADERS")?,
                };
                bytes.extend_from_slice(payload);
                if flags & END_HEADERS == 0 {
                    self.block = Some((stream, first_flags, bytes));
                } else {
                    self.section(stream, first_flags & END_STREAM != 0, &bytes)?;
                }
            }
            RST_STREAM => {
                let heard = self.heard.entry(stream).or_default();
                if heard.reset.replace(four(0).ok_or_else(wrong)?).is_some() || stream >= self.next {
                    return Err("the stream is over".to_string());
                }
            }
            SETTINGS if flags & ACK == 0 => {
                for setting in payload.chunks(6) {
                    let &[a, b, c, d, e, f] = setting else { return Err(wrong()) };
                    if [a, b] == [0, 4] {
                        let window = i64::from(u32::from_be_bytes([c, d, e, f]));
                        self.windows.values_mut().for_each(|its| *its += window - self.first_window);
                        self.first_window = window;
                    }
                }
                self.out.extend(frame(SETTINGS, ACK, 0, b""));
            }
            SETTINGS => {}
            PING if flags & ACK == 0 => self.out.extend(frame(PING, ACK, 0, payload)),
            PING if payload != b"are you?" => return Err("the answer to an unknown ping".to_string()),
            PING => self.pongs += 1,
            GOAWAY => self.goaway = Some(four(4).ok_or_else(wrong)?),
            WINDOW_UPDATE => {
                let more = i64::from(four(0).ok_or_else(wrong)?);
                match stream {
                    0 => self.window += more,
                    _ => *self.windows.entry(stream).or_default() += more,
                }
            }
            _ => return Err("a frame type that servers do not send".to_string()),
        }
        Ok(())
    }

    fn section(&mut self, stream: u32, ends: bool, block: &[u8]) -> Result<(), String> {
        let (mut text, mut lines) = (Vec::new(), Vec::new());
        let decoded = self.decoder.decode(block, &mut text, (u32::MAX, u32::MAX), |line| lines.push(line));
        if decoded.map_err(|error| format!("cannot decode the fields: {error:?}"))?.too_large {
            return Err("too many fields".to_string());
        }
        let of = |range: std::ops::Range<usize>| String::from_utf8_lossy(&text[range]).into_owned();
        let fields: Vec<_> = lines.into_iter().map(|line| (of(line.name), of(line.value))).collect();
        let own = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
        for (name, _) in &fields {
            if own.contains(&name.as_str()) || *name != name.to_ascii_lowercase() || name.is_empty() {
                return Err(format!("the field {name:?} is not allowed"));
            }
        }
        if stream >= self.next {
            return Err("there is no such request".to_string());
        }
        let heard = self.heard.entry(stream).or_default();
        if heard.ended || heard.reset.is_some() {
            return Err("the stream is over".to_string());
        }
        if let Some(answer) = &mut heard.answer {
            if !ends || fields.iter().any(|(name, _)| name.starts_with(':')) {
                return Err("trailers that do not end the stream, or with pseudo-fields".to_string());
            }
            answer.trailers = fields;
            return self.answer_ended(stream);
        }
        let [(name, status), fields @ ..] = &fields[..] else { return Err("no fields".to_string()) };
        let status = status.parse().ok().filter(|status| name == ":status" && (100..1000).contains(status));
        let status = status.ok_or("a head without a status")?;
        if fields.iter().any(|(name, _)| name.starts_with(':')) || status == 101 {
            return Err("a second pseudo-field, or 101".to_string());
        }
        if status < 200 {
            heard.interim.push(status);
            return if ends { Err("an interim response that ends the stream".to_string()) } else { Ok(()) };
        }
        heard.answer = Some(Answer { status, fields: fields.to_vec(), ..Answer::default() });
        if ends { self.answer_ended(stream) } else { Ok(()) }
    }

    fn answer_ended(&mut self, stream: u32) -> Result<(), String> {
        let heard = self.heard.get_mut(&stream).ok_or("there is no such request")?;
        heard.ended = true;
        let answer = heard.answer.as_ref().ok_or("an end without a head")?;
        let bodiless = self.heads.contains(&stream) || matches!(answer.status, 204 | 304);
        if bodiless && !answer.body.is_empty() {
            return Err("a body in an answer that must have none".to_string());
        }
        let length = answer.field("content-length").map(str::parse::<usize>);
        match length {
            Some(Ok(length)) if bodiless || length == answer.body.len() => Ok(()),
            Some(length) => Err(format!("a body of {} bytes, but {length:?} announced", answer.body.len())),
            None => Ok(()),
        }
    }
}
