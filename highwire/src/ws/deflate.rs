//! permessage-deflate (RFC 7692): compressed messages.
//!
//! Without context takeover, each message is compressed on its own, so all connections of a worker share its deflaters
//! and its inflater, and a connection holds no memory for them. With context takeover, the connection keeps its own.

use super::message::Failure;
use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use highwire_proto::ws::deflate::{Agreement, Parameters, TAIL, WINDOW_BITS_MOST, WINDOW_BITS_TO_SEND};
use highwire_proto::ws::{Kind, Utf8, code};
use std::cell::{Cell, RefCell};

/// The length in bytes from which messages are compressed by default. Compressing shorter messages saves little.
const THRESHOLD_BYTES: usize = 128;

/// A longer message is deflated in slices of this many bytes, each of which takes about half a millisecond, so that
/// other connections have their turn in between. A message of a topic is deflated at once, because all its receivers
/// wait for it, and sent uncompressed above [`SHARED_BYTES`].
const SLICE_BYTES: usize = 16 * 1024;
const SHARED_BYTES: usize = 2 * SLICE_BYTES;

/// From this length on, a message is deflated at the lowest level, which takes a quarter of the time: a peer may cause
/// such a message with few bytes.
const LONG_BYTES: usize = 4 * SLICE_BYTES;
const LONG_LEVEL: u32 = 1;

/// The most such messages that a worker deflates at the same time. It sends others uncompressed, because each holds up
/// to a megabyte of deflated bytes and state, and takes 20 ms per MiB.
const MOST_LONG: usize = 16;

/// The default level.
pub(super) const LEVEL: u32 = 6;

/// The most deflaters in a worker's free list, for connections without context takeover: one per level and window.
const SPARE_DEFLATERS: usize = 4;

/// The most final blocks of deflate in a message. After each of them, the inflater starts again, which takes time.
const FINAL_BLOCKS: usize = 64;

/// The number of inflated bytes at which a part of a message ends.
pub(super) const PART_BYTES: usize = 64 * 1024;

/// The number of bytes by which the output grows at least.
const ROOM_BYTES: usize = 1024;

thread_local! {
    #[expect(clippy::vec_box, reason = "a connection takes the box")]
    static DEFLATERS: RefCell<Vec<Box<Deflater>>> = const { RefCell::new(Vec::new()) };
    static INFLATER: RefCell<Option<Box<Decompress>>> = const { RefCell::new(None) };
}

/// Settings of permessage-deflate for [`WebSocketUpgrade::deflate`](super::WebSocketUpgrade::deflate).
///
/// By default, neither end refers to its earlier messages (no context takeover), messages of 128 bytes or more are
/// compressed, and the level is 6. From 64 KiB on, the level is 1, and a worker compresses up to 16 such messages at
/// the same time and sends others uncompressed. A message of a [topic](crate::topics) of up to 32 KiB is compressed
/// once, at level 6, for all connections without context takeover and with the full window; other connections get it
/// uncompressed. Of the WebSockets on one HTTP/2 connection, four may have context takeover. A secret and text of an
/// attacker should not be in the same compressed message, because its length can then reveal the secret; with context
/// takeover, this also holds for different messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Deflate {
    pub(super) wishes: Parameters,
    level: u32,
    threshold: usize,
}

impl Default for Deflate {
    fn default() -> Deflate {
        Deflate::new()
    }
}

impl Deflate {
    /// Creates the default settings.
    pub fn new() -> Deflate {
        let wishes = Parameters { server_takeover: false, client_takeover: false, ..Parameters::default() };
        Deflate { wishes, level: LEVEL, threshold: THRESHOLD_BYTES }
    }

    /// Lets the server's messages refer to its earlier ones, if the client agrees. Small and similar messages then
    /// become much shorter, but each connection holds up to 300 KB for it (about 20 KB with a window of 2^9 bytes, plus
    /// 64 KB that do not depend on the window).
    pub fn server_context_takeover(mut self, takeover: bool) -> Deflate {
        self.wishes.server_takeover = takeover;
        self
    }

    /// Lets the client's messages refer to its earlier ones. Each connection then holds about 50 KB for it.
    pub fn client_context_takeover(mut self, takeover: bool) -> Deflate {
        self.wishes.client_takeover = takeover;
        self
    }

    /// Sets the largest window of the server's messages as an exponent of two, from 9 to 15 (the default).
    pub fn server_max_window_bits(mut self, bits: u8) -> Deflate {
        self.wishes.server_window_bits = bits.clamp(WINDOW_BITS_TO_SEND, WINDOW_BITS_MOST);
        self
    }

    /// Sets the largest window of the client's messages as an exponent of two, from 9 to 15 (the default). It applies
    /// only to clients that offer `client_max_window_bits`.
    pub fn client_max_window_bits(mut self, bits: u8) -> Deflate {
        self.wishes.client_window_bits = bits.clamp(WINDOW_BITS_TO_SEND, WINDOW_BITS_MOST);
        self
    }

    /// Sets the level, from 1 (fast) to 9 (small); the default is 6.
    pub fn level(mut self, level: u32) -> Deflate {
        self.level = level.clamp(1, 9);
        self
    }

    /// Sets the length in bytes from which messages are compressed; the default is 128.
    pub fn threshold(mut self, bytes: usize) -> Deflate {
        self.threshold = bytes;
        self
    }
}

/// Compresses sent and decompresses received messages at one end of a connection that has negotiated permessage-deflate.
pub(super) struct Codec {
    level: u32,
    threshold: usize,
    sends_takeover: bool,
    receives_takeover: bool,
    sent_window_bits: u8,
    received_window_bits: u8,
    /// With context takeover, the state after the last message.
    deflater: Option<Box<Deflater>>,
    /// The state after the last message, or within a message that is inflated in parts.
    inflater: Option<Box<Decompress>>,
    /// The most inflated bytes of a message.
    message_bytes: u64,
    message: Incomplete,
    /// The message that is being deflated in slices.
    deflating: Option<Box<Deflating>>,
}

/// A message that is being deflated in slices.
struct Deflating {
    kind: Kind,
    message: Bytes,
    at: usize,
    out: Vec<u8>,
    deflater: Box<Deflater>,
    /// Counts a long message.
    _long: Option<Long>,
}

thread_local! {
    /// The number of long messages that this worker is deflating.
    static LONG: Cell<usize> = const { Cell::new(0) };
}

/// One of the long messages that this worker is deflating.
struct Long;

impl Long {
    /// Returns `None` if there are [`MOST_LONG`] already.
    fn new() -> Option<Long> {
        let count = LONG.get();
        (count < MOST_LONG).then(|| {
            LONG.set(count + 1);
            Long
        })
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        LONG.set(LONG.get().saturating_sub(1));
    }
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As it is.
    Plain,
    /// Deflated at once.
    Whole,
    /// Deflated in slices, which has begun.
    Slices,
}

/// A message that was deflated in slices.
pub(super) struct Deflated {
    pub(super) kind: Kind,
    pub(super) message: Bytes,
    /// The deflated bytes; `None` if the message should be sent as it is.
    pub(super) deflated: Option<Vec<u8>>,
}

/// The part of a message that was inflated.
struct Incomplete {
    kind: Kind,
    bytes: u64,
    final_blocks: usize,
    text: Utf8,
    /// The bytes of the message that have arrived and are not inflated.
    rest: Option<Box<Rest>>,
}

impl Default for Incomplete {
    fn default() -> Incomplete {
        Incomplete { kind: Kind::Binary, bytes: 0, final_blocks: 0, text: Utf8::default(), rest: None }
    }
}

struct Rest {
    bytes: Vec<u8>,
    at: usize,
    /// True if the message ends with these bytes.
    is_last: bool,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").field("level", &self.level).finish_non_exhaustive()
    }
}

/// A deflater and the settings that it was created with.
struct Deflater {
    level: u32,
    window_bits: u8,
    compress: Compress,
}

impl Codec {
    pub(super) fn server(settings: &Deflate, agreement: Agreement, message_bytes: u64) -> Codec {
        let agreed = agreement.parameters;
        Codec {
            level: settings.level,
            threshold: settings.threshold,
            sends_takeover: agreed.server_takeover,
            receives_takeover: agreed.client_takeover,
            sent_window_bits: agreed.server_window_bits,
            received_window_bits: agreed.client_window_bits.max(WINDOW_BITS_TO_SEND),
            deflater: None,
            inflater: None,
            message_bytes,
            message: Incomplete::default(),
            deflating: None,
        }
    }

    #[cfg(any(test, feature = "client"))]
    pub(super) fn client(settings: &Deflate, agreement: Agreement, message_bytes: u64) -> Codec {
        let agreed = agreement.parameters;
        Codec {
            sends_takeover: agreed.client_takeover,
            receives_takeover: agreed.server_takeover,
            sent_window_bits: agreed.client_window_bits,
            received_window_bits: agreed.server_window_bits.max(WINDOW_BITS_TO_SEND),
            ..Codec::server(settings, agreement, message_bytes)
        }
    }

    /// Returns true if a message of this length can be sent as one that was deflated for all connections.
    pub(super) fn takes_shared(&self, length: usize) -> bool {
        let is_of_length = (self.threshold..=SHARED_BYTES).contains(&length);
        !self.sends_takeover && self.sent_window_bits == WINDOW_BITS_MOST && is_of_length
    }

    /// Returns true if the connection holds states between messages.
    pub(super) fn has_takeover(&self) -> bool {
        self.sends_takeover || self.receives_takeover
    }

    /// Returns about how many bytes the states for context takeover hold.
    pub(super) fn held(&self) -> usize {
        // zlib's own estimates, for its default memory level.
        let deflater = self.deflater.as_ref().map_or(0, |_| (1 << (self.sent_window_bits + 2)) + (1 << 17) + 6000);
        let inflater = self.inflater.as_ref().map_or(0, |_| (1 << self.received_window_bits) + 10_000);
        deflater + inflater + self.message.rest.as_ref().map_or(0, |rest| rest.bytes.len())
    }

    /// Returns the length of the message that is being deflated, and about how many bytes are held besides it; zeros if there
    /// is none.
    pub(super) fn deflating(&self) -> (usize, usize) {
        // It holds a deflater, too.
        let deflating = self.deflating.as_ref();
        deflating.map_or((0, 0), |deflating| (deflating.message.len(), deflating.out.capacity() + (1 << 18)))
    }

    /// Chooses how a message is sent. Begins to deflate a long one; [`deflate_slice`](Self::deflate_slice) goes on.
    pub(super) fn begin(&mut self, kind: Kind, length: usize, message: impl FnOnce() -> Bytes) -> Way {
        if length < self.threshold.max(1) {
            return Way::Plain;
        }
        if length <= SLICE_BYTES {
            return Way::Whole;
        }
        let long = if length < LONG_BYTES { None } else { Long::new() };
        if length >= LONG_BYTES && long.is_none() {
            return Way::Plain;
        }
        let deflater = match self.sends_takeover {
            true => self.deflater.take().unwrap_or_else(|| Box::new(Deflater::new(self.level, self.sent_window_bits))),
            false => {
                let level = if length < LONG_BYTES { self.level } else { LONG_LEVEL };
                take_deflater(level, self.sent_window_bits)
            }
        };
        let (message, out) = (message(), Vec::with_capacity(SLICE_BYTES));
        self.deflating = Some(Box::new(Deflating { kind, message, at: 0, out, deflater, _long: long }));
        Way::Slices
    }

    /// Returns true if a message is being deflated.
    pub(super) fn is_deflating(&self) -> bool {
        self.deflating.is_some()
    }

    /// Drops the message that is being deflated. No other may follow.
    pub(super) fn give_up(&mut self) {
        self.deflating = None;
    }

    /// Deflates another slice of the message. Returns the message after the last one.
    pub(super) fn deflate_slice(&mut self) -> Option<Deflated> {
        let deflating = self.deflating.as_mut()?;
        let end = deflating.message.len().min(deflating.at + SLICE_BYTES);
        let is_last = end == deflating.message.len();
        let flush = if is_last { FlushCompress::Sync } else { FlushCompress::None };
        deflating.deflater.add(&deflating.message[deflating.at..end], flush, &mut deflating.out);
        deflating.at = end;
        if !is_last {
            return None;
        }
        let Deflating { kind, message, mut out, deflater, .. } = *self.deflating.take()?;
        without_tail(&mut out);
        // With context takeover it is sent even if it has not become shorter, because later messages may refer to it.
        let is_sent = self.sends_takeover || out.len() < message.len();
        match self.sends_takeover {
            true => self.deflater = Some(deflater),
            false => keep_deflater(deflater),
        }
        Some(Deflated { kind, message, deflated: is_sent.then_some(out) })
    }

    /// Deflates a message. Returns `None` if it should be sent as it is.
    pub(super) fn deflate(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        if self.sends_takeover {
            let own = self.deflater.take();
            let deflater =
                self.deflater.insert(own.unwrap_or_else(|| Box::new(Deflater::new(self.level, self.sent_window_bits))));
            // This message is sent even if it has not become shorter, because later messages may refer to it.
            return Some(deflater.deflate(message));
        }
        let deflated = deflate_alone(message, self.level, self.sent_window_bits);
        (deflated.len() < message.len()).then_some(deflated)
    }

    /// Inflates bytes of a message up to [`PART_BYTES`] of output. The rest of the bytes waits for
    /// [`inflate_rest`](Self::inflate_rest), and no others may be given before.
    ///
    /// # Errors
    /// Returns an error if the bytes are not in the format, if a text is not UTF-8, or if the message is too large.
    pub(super) fn inflate(&mut self, kind: Kind, bytes: &[u8], is_last: bool) -> Result<Inflated, Failure> {
        let mut out = Vec::new();
        self.message.kind = kind;
        let taken = self.inflate_some(bytes, &mut out)?;
        let mut taken_tail = 0;
        let mut has_room = out.len() < PART_BYTES;
        if is_last && has_room && taken == bytes.len() {
            taken_tail = self.inflate_some(&TAIL, &mut out)?;
            has_room = out.len() < PART_BYTES;
        }
        let tail = if is_last { &TAIL[taken_tail..] } else { &[] };
        if has_room && taken == bytes.len() && tail.is_empty() {
            return self.end_part(out, is_last);
        }
        self.message.rest = Some(Box::new(Rest { bytes: [&bytes[taken..], tail].concat(), at: 0, is_last }));
        self.end_part(out, false)
    }

    /// Returns the next part of the bytes that [`inflate`](Self::inflate) has left, or `None` if there are none.
    ///
    /// # Errors
    /// As [`inflate`](Self::inflate).
    pub(super) fn inflate_rest(&mut self) -> Option<Result<Inflated, Failure>> {
        let mut rest = self.message.rest.take()?;
        let mut out = Vec::new();
        let taken = match self.inflate_some(&rest.bytes[rest.at..], &mut out) {
            Ok(taken) => taken,
            Err(failure) => return Some(Err(failure)),
        };
        rest.at += taken;
        if out.len() < PART_BYTES && rest.at == rest.bytes.len() {
            return Some(self.end_part(out, rest.is_last));
        }
        self.message.rest = Some(rest);
        Some(self.end_part(out, false))
    }

    /// Appends inflated bytes to `out` until it has [`PART_BYTES`]. Returns the number of bytes that were read.
    fn inflate_some(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Failure> {
        let mut inflater = self.inflater.take().unwrap_or_else(|| match self.receives_takeover {
            true => Box::new(Decompress::new_with_window_bits(false, self.received_window_bits)),
            false => shared_inflater(),
        });
        let taken = inflate_part(&mut inflater, bytes, &mut self.message.final_blocks, out)?;
        self.inflater = Some(inflater);
        Ok(taken)
    }

    /// Checks a part, and gives the inflater back at the end of a message.
    fn end_part(&mut self, bytes: Vec<u8>, is_last: bool) -> Result<Inflated, Failure> {
        let message = &mut self.message;
        message.bytes += bytes.len() as u64;
        if message.bytes > self.message_bytes {
            return Err(Failure { code: code::TOO_LARGE, text: "a message is too large" });
        }
        let is_text = message.kind == Kind::Text;
        if is_text && (message.text.check(&bytes).is_err() || (is_last && !message.text.is_whole())) {
            return Err(Failure { code: code::NOT_UTF8, text: "a text is not UTF-8" });
        }
        if is_last {
            self.message = Incomplete::default();
            if !self.receives_takeover
                && let Some(inflater) = self.inflater.take()
            {
                INFLATER.set(Some(inflater));
            }
        }
        Ok(Inflated { kind: if is_text { Kind::Text } else { Kind::Binary }, bytes, is_last })
    }
}

/// A part of an inflated message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inflated {
    pub(super) kind: Kind,
    /// The bytes, possibly none.
    pub(super) bytes: Vec<u8>,
    pub(super) is_last: bool,
}

/// Returns the inflater of this worker, ready for another message.
fn shared_inflater() -> Box<Decompress> {
    match INFLATER.take() {
        Some(mut inflater) => {
            inflater.reset(false);
            inflater
        }
        None => Box::new(Decompress::new_with_window_bits(false, WINDOW_BITS_MOST)),
    }
}

/// Inflates bytes until `out` has [`PART_BYTES`]. Counts final blocks, after which the inflater starts again. Returns
/// the number of bytes that were read.
fn inflate_part(
    inflater: &mut Decompress,
    bytes: &[u8],
    final_blocks: &mut usize,
    out: &mut Vec<u8>,
) -> Result<usize, Failure> {
    const INVALID: Failure = Failure { code: code::NOT_UTF8, text: "a message is not in the deflate format" };
    let mut at = 0;
    loop {
        if out.capacity() == out.len() {
            // The room at least doubles.
            let room = out.len().max((bytes.len() - at).saturating_mul(3)).max(ROOM_BYTES);
            out.reserve_exact(room.min(PART_BYTES - out.len()));
        }
        let (taken, length) = (inflater.total_in(), out.len());
        let status = inflater.decompress_vec(&bytes[at..], out, FlushDecompress::Sync).map_err(|_| INVALID)?;
        let taken = (inflater.total_in() - taken) as usize;
        at += taken;
        if status == Status::StreamEnd {
            *final_blocks += 1;
            if *final_blocks > FINAL_BLOCKS {
                return Err(Failure { code: code::POLICY, text: "a message has too many final blocks of deflate" });
            }
            inflater.reset(false);
        }
        let has_room = out.len() < out.capacity();
        if (at == bytes.len() && has_room) || out.len() >= PART_BYTES {
            return Ok(at);
        }
        if taken == 0 && out.len() == length && has_room {
            return Err(INVALID);
        }
    }
}

impl Deflater {
    fn new(level: u32, window_bits: u8) -> Deflater {
        let compress = Compress::new_with_window_bits(Compression::new(level), false, window_bits);
        Deflater { level, window_bits, compress }
    }

    /// Deflates a message, without the [`TAIL`].
    fn deflate(&mut self, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(message.len() / 2 + 64);
        self.add(message, FlushCompress::Sync, &mut out);
        without_tail(&mut out);
        out
    }

    /// Deflates bytes, and appends the result.
    fn add(&mut self, mut bytes: &[u8], flush: FlushCompress, out: &mut Vec<u8>) {
        loop {
            if out.len() == out.capacity() {
                out.reserve(bytes.len() / 2 + ROOM_BYTES);
            }
            let taken = self.compress.total_in();
            // Fails only if the output has no room.
            let _ = self.compress.compress_vec(bytes, out, flush);
            bytes = &bytes[(self.compress.total_in() - taken) as usize..];
            if bytes.is_empty() && out.len() < out.capacity() {
                return;
            }
        }
    }
}

fn without_tail(out: &mut Vec<u8>) {
    out.truncate(out.len() - if out.ends_with(&TAIL) { TAIL.len() } else { 0 });
}

/// Takes a deflater from this worker's free list, or creates one.
fn take_deflater(level: u32, window_bits: u8) -> Box<Deflater> {
    DEFLATERS.with_borrow_mut(|deflaters| {
        let wanted = (level, window_bits);
        match deflaters.iter().position(|deflater| (deflater.level, deflater.window_bits) == wanted) {
            Some(at) => {
                let mut deflater = deflaters.remove(at);
                deflater.compress.reset();
                deflater
            }
            None => Box::new(Deflater::new(level, window_bits)),
        }
    })
}

/// Puts a deflater into this worker's free list.
fn keep_deflater(deflater: Box<Deflater>) {
    DEFLATERS.with_borrow_mut(|deflaters| {
        deflaters.truncate(SPARE_DEFLATERS - 1);
        deflaters.insert(0, deflater);
    });
}

/// Deflates a message without the window of earlier ones, with a deflater of this worker.
pub(super) fn deflate_alone(message: &[u8], level: u32, window_bits: u8) -> Vec<u8> {
    let mut deflater = take_deflater(level, window_bits);
    let deflated = deflater.deflate(message);
    keep_deflater(deflater);
    deflated
}

/// The assertions of the fuzz target `inflate`: bytes of a peer give the same result however they are split, within the
/// bound, and a deflated message comes back.
#[cfg(feature = "testing")]
pub(crate) fn check_inflate(input: &[u8]) {
    const MOST: u64 = 200_000;
    let Some((&[choice, size], bytes)) = input.split_first_chunk::<2>() else { return };
    let (takeover, kind) = (choice & 1 != 0, if choice & 2 != 0 { Kind::Text } else { Kind::Binary });
    let settings = Deflate::new().client_context_takeover(takeover).server_context_takeover(takeover).threshold(0);
    let parameters = Parameters { server_takeover: takeover, client_takeover: takeover, ..Parameters::default() };
    let offer = highwire_proto::ws::deflate::offer(parameters);
    let mut offers = highwire_proto::ws::deflate::extensions(offer.as_bytes(), true);
    let Some(agreed) = offers.next().and_then(|offer| offer.accept(settings.wishes)) else { return };
    let codec = || Codec::server(&settings, agreed, MOST);
    let inflate = |codec: &mut Codec, bytes: &[u8], size: usize| -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for (part, is_last) in bytes.chunks(size).map(|part| (part, false)).chain([(&[][..], true)]) {
            let mut inflated = codec.inflate(kind, part, is_last).ok()?;
            loop {
                assert!(inflated.bytes.len() <= PART_BYTES, "a part is bounded");
                out.extend_from_slice(&inflated.bytes);
                assert!(out.len() as u64 <= MOST, "a message is bounded");
                let Some(rest) = codec.inflate_rest() else { break };
                inflated = rest.ok()?;
            }
        }
        Some(out)
    };
    let whole = inflate(&mut codec(), bytes, usize::MAX);
    assert_eq!(inflate(&mut codec(), bytes, usize::from(size).max(1)), whole, "the result depends on the split");
    let (mut sender, mut receiver) = (codec(), codec());
    for message in bytes.chunks(bytes.len() / 2 + 1) {
        if kind == Kind::Text && std::str::from_utf8(message).is_err() {
            return;
        }
        if let Some(deflated) = sender.deflate(message) {
            assert_eq!(inflate(&mut receiver, &deflated, usize::from(size).max(1)).as_deref(), Some(message));
        }
        if sender.begin(kind, message.len(), || Bytes::copy_from_slice(message)) == Way::Slices {
            let deflated = std::iter::from_fn(|| Some(sender.deflate_slice())).flatten().next();
            if let Some(deflated) = deflated.and_then(|deflated| deflated.deflated) {
                assert_eq!(inflate(&mut receiver, &deflated, usize::from(size).max(1)).as_deref(), Some(message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_proto::ws::deflate::extensions;

    const MOST: u64 = 300_000;

    fn codec(settings: &Deflate) -> Codec {
        let offer = extensions(b"permessage-deflate; client_max_window_bits", true).next().expect("an offer");
        Codec::server(settings, offer.accept(settings.wishes).expect("an agreement"), MOST)
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|at| b"the quick brown fox "[(at * at / 7) % 20]).collect()
    }

    fn inflate_as(codec: &mut Codec, kind: Kind, bytes: &[u8], size: usize) -> Result<Vec<u8>, Failure> {
        let mut out = Vec::new();
        let parts = bytes.chunks(size).map(|part| (part, false)).chain([(&[][..], true)]);
        for (part, is_last) in parts {
            let mut inflated = codec.inflate(kind, part, is_last)?;
            loop {
                assert!(inflated.bytes.len() <= PART_BYTES);
                out.extend_from_slice(&inflated.bytes);
                let Some(rest) = codec.inflate_rest() else { break };
                inflated = rest?;
            }
            assert_eq!(inflated.is_last, is_last);
        }
        Ok(out)
    }

    fn inflate(codec: &mut Codec, bytes: &[u8], size: usize) -> Result<Vec<u8>, Failure> {
        inflate_as(codec, Kind::Text, bytes, size)
    }

    #[test]
    fn messages_come_back_however_their_bytes_are_split() {
        for (takeover, bits) in [(false, 15), (true, 15), (true, 9)] {
            let settings = Deflate::new()
                .server_context_takeover(takeover)
                .client_context_takeover(takeover)
                .server_max_window_bits(bits)
                .client_max_window_bits(bits)
                .threshold(0);
            let mut codec = codec(&settings);
            for length in [1, 100, 1000, 5000, 100_000, 300_000] {
                for size in [1, 7, 1000, usize::MAX] {
                    let message = text(length);
                    let deflated = codec.deflate(&message);
                    assert_eq!(deflated.is_none(), !takeover && length == 1, "{length}");
                    let Some(deflated) = deflated else { continue };
                    assert_eq!(inflate(&mut codec, &deflated, size), Ok(message), "{length} bytes in parts of {size}");
                }
            }
            assert_eq!(codec.held() > 0, takeover, "only context takeover holds memory between messages");
        }
    }

    #[test]
    fn a_worker_deflates_few_long_messages_at_the_same_time() {
        let message = Bytes::from(text(LONG_BYTES));
        let mut codecs: Vec<_> = (0..MOST_LONG + 2).map(|_| codec(&Deflate::new())).collect();
        let mut ways = codecs.iter_mut().map(|codec| codec.begin(Kind::Text, message.len(), || message.clone()));
        assert!(ways.by_ref().take(MOST_LONG).all(|way| way == Way::Slices));
        assert!(ways.all(|way| way == Way::Plain));
        let medium = Bytes::from(text(LONG_BYTES - 1));
        assert_eq!(codecs[MOST_LONG].begin(Kind::Text, medium.len(), || medium.clone()), Way::Slices);
        // One is deflated, one is given up, and the connection of a third has ended.
        while codecs[0].deflate_slice().is_none() {}
        codecs[1].give_up();
        drop(codecs.remove(2));
        for expected in [Way::Slices, Way::Slices, Way::Slices, Way::Plain] {
            let mut codec = codec(&Deflate::new());
            assert_eq!(codec.begin(Kind::Text, message.len(), || message.clone()), expected);
            codecs.push(codec);
        }
    }

    #[test]
    fn with_takeover_a_repeated_message_becomes_short() {
        let mut codec = codec(&Deflate::new().server_context_takeover(true));
        let (first, second) = (codec.deflate(&text(1000)), codec.deflate(&text(1000)));
        assert!(second.expect("deflated").len() * 4 < first.expect("deflated").len());
    }

    #[test]
    fn a_bomb_and_invalid_bytes_are_refused() {
        let bomb = codec(&Deflate::new()).deflate(&vec![0; 10_000_000]).expect("deflated");
        for size in [1, 100, usize::MAX] {
            let failure = inflate_as(&mut codec(&Deflate::new()), Kind::Binary, &bomb, size).expect_err("too large");
            assert_eq!(failure.code, code::TOO_LARGE);
        }
        for (bytes, expected) in
            [(&[0xff; 20][..], "a message is not in the deflate format"), (&BAD_TEXT, "a text is not UTF-8")]
        {
            for size in [1, usize::MAX] {
                let failure = inflate(&mut codec(&Deflate::new()), bytes, size).expect_err("invalid");
                assert_eq!((failure.code, failure.text), (code::NOT_UTF8, expected));
            }
        }
        let next = deflate_alone(b"still works", LEVEL, WINDOW_BITS_MOST);
        assert_eq!(inflate(&mut codec(&Deflate::new()), &next, 3), Ok(b"still works".to_vec()));
    }

    /// The first two bytes of a character of three bytes, in a stored block.
    const BAD_TEXT: [u8; 7] = [0, 2, 0, 0xfd, 0xff, 0xe2, 0x82];

    #[test]
    fn final_blocks_are_permitted_up_to_a_bound() {
        // RFC 7692 section 7.2.3.4: "Hello" in a block with the final bit, and then an empty block.
        let hello = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
        let mut codec = codec(&Deflate::new());
        assert_eq!(inflate(&mut codec, &hello, usize::MAX), Ok(b"Hello".to_vec()));
        let many = [0x03, 0x00].repeat(FINAL_BLOCKS + 1);
        inflate(&mut codec, &many[..2 * FINAL_BLOCKS], 5).expect("permitted");
        inflate(&mut codec, &many[..2 * FINAL_BLOCKS], 5).expect("the bound is per message");
        assert_eq!(inflate(&mut codec, &many, usize::MAX).expect_err("too many").code, code::POLICY);
    }
}
