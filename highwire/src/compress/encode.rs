//! Encoders, and streams that are encoded as they go.
//!
//! A stream is encoded piece by piece, one piece a turn of the worker. Whenever its source has nothing more for the
//! moment, what the encoder still holds is flushed: nobody waits for an event that has happened, and a source that always
//! has more is never flushed.

use super::{Coding, Hold};
use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status};
use futures_core::Stream;
use highwire_engine::body::{BodyStream, BoxError, Source};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use zstd::stream::raw::{self, CParameter, InBuffer, Operation, OutBuffer};

/// Bytes of a body that are encoded before other connections have their turn: below a millisecond at the default levels.
const PIECE_BYTES: usize = 16 * 1024;

/// Parts of a stream that are taken for one piece: a source of single bytes may not hold the worker either.
const PARTS_A_PIECE: usize = 64;

/// Room that is made for output at once.
const ROOM_BYTES: usize = 8 * 1024;

/// The window of Brotli, as a power of two: 256 KiB. A larger one saves little on what servers send and costs memory for
/// each stream.
const BROTLI_WINDOW_BITS: i32 = 18;

/// Bytes that Brotli collects before it encodes them, as a power of two: the smallest block it has, so that it is never
/// at work for long.
const BROTLI_BLOCK_BITS: i32 = 16;

/// The window of zstd, as a power of two: 512 KiB. Clients have to take 8 MiB (RFC 9659), servers need not send it.
const ZSTD_WINDOW_BITS: u32 = 19;

/// Encoders that a worker keeps for the next answers: setting one up costs more than a small answer.
const SPARE_ENCODERS: usize = 4;

/// The window of gzip and deflate, as a power of two: the format's largest.
const FLATE_WINDOW_BITS: u8 = 15;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static SPARE: RefCell<Vec<Counted>> = const { RefCell::new(Vec::new()) };
}

/// How far an encoder is to go with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// As far as it likes.
    Now,
    /// A decoder can have all of it.
    Flushed,
    /// Nothing follows.
    Ended,
}

/// What encodes, in one of the codings.
pub(super) enum Encoder {
    Flate(Compress),
    Brotli(Option<Box<CompressorWriter<Vec<u8>>>>),
    Zstd(raw::Encoder<'static>),
}

impl Encoder {
    fn new(coding: Coding, level: u32, length: Option<usize>) -> io::Result<Encoder> {
        Ok(match coding {
            Coding::Gzip => Encoder::Flate(Compress::new_gzip(Compression::new(level), FLATE_WINDOW_BITS)),
            Coding::Deflate => {
                Encoder::Flate(Compress::new_with_window_bits(Compression::new(level), true, FLATE_WINDOW_BITS))
            }
            Coding::Brotli => {
                // A window larger than the whole is memory for nothing.
                let needed = length.map_or(BROTLI_WINDOW_BITS, |length| length.max(1024).ilog2() as i32 + 1);
                let params = BrotliEncoderParams {
                    quality: level as i32,
                    lgwin: needed.min(BROTLI_WINDOW_BITS),
                    lgblock: BROTLI_BLOCK_BITS,
                    size_hint: length.unwrap_or(0),
                    ..BrotliEncoderParams::default()
                };
                Encoder::Brotli(Some(Box::new(CompressorWriter::with_params(Vec::new(), ROOM_BYTES, &params))))
            }
            Coding::Zstd => {
                let mut encoder = raw::Encoder::new(level as i32)?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_BITS))?;
                Encoder::Zstd(encoder)
            }
        })
    }

    /// Begins a body of that length. One of Brotli is new.
    fn begin(&mut self, length: Option<usize>) -> io::Result<()> {
        match self {
            Encoder::Flate(encoder) => encoder.reset(),
            Encoder::Brotli(_) => {}
            Encoder::Zstd(encoder) => {
                encoder.reinit()?;
                encoder.set_pledged_src_size(length.map(|length| length as u64))?;
            }
        }
        Ok(())
    }

    /// Encodes `input`, behind what is in `output`.
    pub(super) fn encode(&mut self, input: &[u8], until: Until, output: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Encoder::Flate(encoder) => flate(encoder, input, until, output),
            Encoder::Brotli(encoder) => brotli(encoder, input, until, output),
            Encoder::Zstd(encoder) => zstd(encoder, input, until, output),
        }
    }
}

fn flate(encoder: &mut Compress, mut input: &[u8], until: Until, output: &mut Vec<u8>) -> io::Result<()> {
    let flush = match until {
        Until::Now => FlushCompress::None,
        Until::Flushed => FlushCompress::Sync,
        Until::Ended => FlushCompress::Finish,
    };
    loop {
        output.reserve(ROOM_BYTES);
        let before = encoder.total_in();
        let status = encoder.compress_vec(input, output, flush)?;
        input = &input[(encoder.total_in() - before) as usize..];
        // Room that is left over says that there was nothing more to write.
        let all = input.is_empty() && output.len() < output.capacity() && until != Until::Ended;
        if all || status == Status::StreamEnd {
            return Ok(());
        }
    }
}

fn brotli(
    encoder: &mut Option<Box<CompressorWriter<Vec<u8>>>>,
    input: &[u8],
    until: Until,
    output: &mut Vec<u8>,
) -> io::Result<()> {
    let Some(mut writer) = encoder.take() else { return Err(io::ErrorKind::InvalidInput.into()) };
    writer.write_all(input)?;
    if until == Until::Ended {
        output.append(&mut writer.into_inner());
        return Ok(());
    }
    if until == Until::Flushed {
        writer.flush()?;
    }
    output.append(writer.get_mut());
    *encoder = Some(writer);
    Ok(())
}

fn zstd(encoder: &mut raw::Encoder<'static>, input: &[u8], until: Until, output: &mut Vec<u8>) -> io::Result<()> {
    let mut input = InBuffer::around(input);
    loop {
        output.reserve(ROOM_BYTES);
        let at = output.len();
        let mut room = OutBuffer::around_pos(output, at);
        let all = if input.pos() < input.src.len() {
            encoder.run(&mut input, &mut room)?;
            until == Until::Now && input.pos() == input.src.len()
        } else {
            match until {
                Until::Now => true,
                Until::Flushed => encoder.flush(&mut room)? == 0,
                Until::Ended => encoder.finish(&mut room, true)? == 0,
            }
        };
        if all {
            return Ok(());
        }
    }
}

/// An encoder with the memory that it is counted for.
struct Counted {
    encoder: Encoder,
    coding: Coding,
    level: u32,
    _hold: Hold,
}

impl Counted {
    /// A spare one, or a new one: none where all encoders of this worker would hold more than `most` bytes with it, once
    /// the spare ones that are in the way are freed.
    fn take(coding: Coding, level: u32, length: Option<usize>, most: usize) -> Option<Counted> {
        let spare = SPARE.with_borrow_mut(|spare| {
            let at = spare.iter().position(|kept| (kept.coding, kept.level) == (coding, level));
            let found = at.map(|at| spare.swap_remove(at));
            let more = if found.is_some() { 0 } else { bytes(coding, level) };
            while !spare.is_empty() && HELD.get() + more > most {
                spare.swap_remove(0);
            }
            found
        });
        if let Some(spare) = spare {
            return (HELD.get() <= most).then_some(spare);
        }
        let hold = Hold::take(&HELD, bytes(coding, level), most)?;
        match Encoder::new(coding, level, length) {
            Ok(encoder) => Some(Counted { encoder, coding, level, _hold: hold }),
            Err(error) => {
                highwire_engine::log!(Mistake, error, %error, coding = coding.name(), "there is no encoder");
                None
            }
        }
    }
}

/// An encoder for one body. It is kept for the next answer afterwards.
pub(super) struct Lease(Option<Counted>);

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.0.as_ref().map(|counted| (counted.coding, counted.level));
        f.debug_tuple("Lease").field(&what).finish()
    }
}

impl Lease {
    /// One for a body of that length, if all encoders of this worker hold no more than `most` bytes with it.
    pub(super) fn take(coding: Coding, level: u32, length: Option<usize>, most: usize) -> Option<Lease> {
        let mut counted = Counted::take(coding, level, length, most)?;
        match counted.encoder.begin(length) {
            Ok(()) => Some(Lease(Some(counted))),
            Err(error) => {
                highwire_engine::log!(Mistake, error, %error, coding = coding.name(), "an encoder cannot begin");
                None
            }
        }
    }

    pub(super) fn encode(&mut self, input: &[u8], until: Until, output: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.0 {
            Some(counted) => counted.encoder.encode(input, until, output),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(counted) = self.0.take().filter(|counted| !matches!(counted.encoder, Encoder::Brotli(_))) else {
            return;
        };
        // While a thread ends there is no place to keep it any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() == SPARE_ENCODERS {
                spare.swap_remove(0);
            }
            spare.push(counted);
        });
    }
}

/// Bytes that an encoder is counted for, rounded up from what was measured: see the table in `docs/compression.md`.
fn bytes(coding: Coding, level: u32) -> usize {
    let kibibytes = match (coding, level) {
        (Coding::Gzip | Coding::Deflate, _) => 384,
        (Coding::Brotli, ..=4) | (Coding::Zstd, ..=3) => 2 * 1024,
        (Coding::Brotli, _) | (Coding::Zstd, ..=6) => 4 * 1024,
        (Coding::Zstd, _) => 12 * 1024,
    };
    kibibytes * 1024
}

/// A body that is encoded while it is sent.
pub(super) struct Encoded {
    /// None once it has ended.
    source: Option<BodyStream>,
    /// Bytes of the plain body that are still to come, where its length was announced. The encoded one announces none, so
    /// nobody else would see that they do not.
    left: Option<u64>,
    lease: Lease,
    /// What came from the source and is not encoded yet.
    part: Bytes,
    /// The encoder was given something since it was flushed last.
    holds: bool,
    /// A piece is encoded: the next one is for the next turn.
    rests: bool,
}

impl Encoded {
    /// Of a body that has so many bytes, where that is known.
    pub(super) fn new(source: BodyStream, length: Option<u64>, lease: Lease) -> Encoded {
        Encoded { source: Some(source), left: length, lease, part: Bytes::new(), holds: false, rests: false }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        if std::mem::take(&mut self.rests) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        let (mut output, mut encoded, mut parts) = (Vec::new(), 0, 0);
        while encoded < PIECE_BYTES && parts < PARTS_A_PIECE {
            if self.part.is_empty() {
                parts += 1;
                match source.poll(cx) {
                    Poll::Ready(Some(Ok(part))) if self.left.is_none_or(|left| left >= part.len() as u64) => {
                        self.left = self.left.map(|left| left - part.len() as u64);
                        self.part = part;
                    }
                    Poll::Ready(Some(Err(error))) => {
                        self.source = None;
                        return Poll::Ready(Some(Err(error)));
                    }
                    // It is longer or shorter than it said.
                    Poll::Ready(Some(Ok(_))) => return Poll::Ready(Some(Err(self.misfit()))),
                    Poll::Ready(None) if self.left.is_some_and(|left| left > 0) => {
                        return Poll::Ready(Some(Err(self.misfit())));
                    }
                    Poll::Ready(None) => {
                        self.source = None;
                        self.lease.encode(&[], Until::Ended, &mut output)?;
                        return Poll::Ready(Some(Ok(output.into())));
                    }
                    Poll::Pending if !self.holds => return Poll::Pending,
                    Poll::Pending => {
                        self.holds = false;
                        self.lease.encode(&[], Until::Flushed, &mut output)?;
                        return Poll::Ready(Some(Ok(output.into())));
                    }
                }
            }
            if self.part.is_empty() {
                // An encoder may begin its format with it, which would be lost where the source has no more.
                continue;
            }
            let piece = self.part.split_to(self.part.len().min(PIECE_BYTES - encoded));
            encoded += piece.len();
            self.holds = true;
            self.lease.encode(&piece, Until::Now, &mut output)?;
        }
        if output.is_empty() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.rests = true;
        Poll::Ready(Some(Ok(output.into())))
    }

    /// The body fails as the plain one would.
    fn misfit(&mut self) -> BoxError {
        let error = highwire_proto::Error::LengthMismatch;
        highwire_engine::log!(Mistake, error, %error, "a response's body does not fit what it announced");
        self.source = None;
        error.into()
    }
}

impl Stream for Encoded {
    type Item = Result<Bytes, BoxError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_piece(cx)
    }
}

impl Source for Encoded {
    fn held(&self) -> usize {
        // A part of bytes that are there already is theirs, and leaves with them.
        self.source.as_ref().map_or(0, BodyStream::held)
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::{Fault, Pipeline};
    use super::*;
    use std::collections::VecDeque;
    use std::rc::Rc;
    use std::task::Waker;

    const PLENTY: usize = usize::MAX / 2;

    fn decoded(coding: Coding, encoded: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut pipeline = Pipeline::new(&[coding], u64::MAX, u64::MAX);
        pipeline.push(Bytes::copy_from_slice(encoded));
        let mut all = Vec::new();
        while let Some(part) = pipeline.next()? {
            all.extend_from_slice(&part);
        }
        Ok(all)
    }

    /// Gives what it holds, then waits or ends.
    struct Queued(Rc<RefCell<VecDeque<Option<Bytes>>>>);

    impl Stream for Queued {
        type Item = Result<Bytes, BoxError>;
        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            match self.0.borrow_mut().pop_front() {
                None => Poll::Pending,
                Some(part) => Poll::Ready(part.map(Ok)),
            }
        }
    }

    /// Polls until it waits for its source: how often it rested is told by the count.
    fn drain(encoded: &mut Encoded, into: &mut Vec<u8>) -> usize {
        let mut rests = 0;
        let mut waiting = 0;
        loop {
            match encoded.poll_piece(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(Ok(part))) => {
                    into.extend_from_slice(&part);
                    waiting = 0;
                }
                Poll::Ready(Some(Err(error))) => panic!("{error}"),
                Poll::Ready(None) => return rests,
                // It rests at most once between two pieces, so that twice in a row is the source's.
                Poll::Pending if waiting == 64 => return rests,
                Poll::Pending => {
                    waiting += 1;
                    rests += 1;
                }
            }
        }
    }

    #[test]
    fn each_event_can_be_decoded_when_the_source_has_no_more() {
        for coding in Coding::ALL {
            let queue = Rc::new(RefCell::new(VecDeque::new()));
            let lease = Lease::take(coding, 4, None, PLENTY).expect("an encoder");
            let mut encoded = Encoded::new(BodyStream::new(Queued(queue.clone())), None, lease);
            let (mut sent, mut expected) = (Vec::new(), Vec::new());
            // Nothing at first, as of handlers that want their head to leave.
            queue.borrow_mut().push_back(Some(Bytes::new()));
            drain(&mut encoded, &mut sent);
            for event in 0..20 {
                let text = format!("data: event {event}\n\n");
                expected.extend_from_slice(text.as_bytes());
                let (first, second) = text.as_bytes().split_at(7);
                queue.borrow_mut().extend([Some(Bytes::copy_from_slice(first)), Some(Bytes::copy_from_slice(second))]);
                drain(&mut encoded, &mut sent);
                assert_eq!(decoded(coding, &sent).expect("whole so far"), expected, "{coding:?}, event {event}");
            }
            let before = sent.len();
            drain(&mut encoded, &mut sent);
            assert_eq!(sent.len(), before, "{coding:?}: nothing is sent while nothing happens");
            queue.borrow_mut().push_back(None);
            drain(&mut encoded, &mut sent);
            assert!(sent.len() > before, "{coding:?}: an end");
            assert_eq!(decoded(coding, &sent).expect("whole"), expected);
        }
    }

    #[test]
    fn a_large_body_is_encoded_a_piece_a_turn() {
        let body: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).take(400_000).collect();
        for coding in Coding::ALL {
            let lease = Lease::take(coding, 1, Some(body.len()), PLENTY).expect("an encoder");
            let mut encoded = Encoded::new(BodyStream::of(Bytes::from(body.clone())), None, lease);
            assert_eq!(encoded.held(), body.len(), "what waits is counted");
            let mut sent = Vec::new();
            let rests = drain(&mut encoded, &mut sent);
            assert_eq!(encoded.held(), 0);
            assert_eq!(rests, body.len() / PIECE_BYTES, "{coding:?}: one rest behind each whole piece");
            assert!(sent.len() < body.len() / 2, "{coding:?}");
            assert_eq!(decoded(coding, &sent).expect("whole"), body, "{coding:?}");
        }
    }

    #[test]
    fn a_body_that_is_not_as_long_as_announced_fails() {
        for (parts, announced, fits) in [
            (&["one", "two"][..], Some(6), true),
            (&["one", "two"], None, true),
            (&["", "one", ""], Some(3), true),
            (&[], Some(0), true),
            (&["one", "two"], Some(7), false),
            (&[], Some(1), false),
            (&["one", "two"], Some(5), false),
            (&["one", "two"], Some(3), false),
        ] {
            for coding in Coding::ALL {
                let queue = parts.iter().map(|part| Some(Bytes::from_static(part.as_bytes()))).chain([None]).collect();
                let lease = Lease::take(coding, 4, None, PLENTY).expect("an encoder");
                let source = BodyStream::new(Queued(Rc::new(RefCell::new(queue))));
                let mut encoded = Encoded::new(source, announced, lease);
                let mut cx = Context::from_waker(Waker::noop());
                let pieces: Vec<_> = std::iter::from_fn(|| match encoded.poll_piece(&mut cx) {
                    Poll::Ready(piece) => piece,
                    Poll::Pending => panic!("there is nothing to wait for"),
                })
                .collect();
                assert_eq!(pieces.iter().all(Result::is_ok), fits, "{coding:?} {parts:?} {announced:?}");
                assert_eq!(pieces.last().is_some_and(Result::is_err), !fits, "it is the last that fails");
            }
        }
    }

    #[test]
    fn single_bytes_do_not_hold_the_worker() {
        let queue: VecDeque<_> = (0..1000).map(|_| Some(Bytes::from_static(b"x"))).chain([None]).collect();
        let lease = Lease::take(Coding::Gzip, 6, None, PLENTY).expect("an encoder");
        let mut encoded = Encoded::new(BodyStream::new(Queued(Rc::new(RefCell::new(queue)))), None, lease);
        let mut sent = Vec::new();
        assert_eq!(drain(&mut encoded, &mut sent), 1000 / PARTS_A_PIECE);
        assert_eq!(decoded(Coding::Gzip, &sent).expect("whole"), vec![b'x'; 1000]);
    }

    #[test]
    fn encoders_are_used_again_and_counted() {
        let cost = bytes(Coding::Zstd, 3);
        let first = Lease::take(Coding::Zstd, 3, None, 2 * cost).expect("the first");
        let second = Lease::take(Coding::Zstd, 3, None, 2 * cost).expect("the second");
        assert!(Lease::take(Coding::Zstd, 3, None, 2 * cost).is_none(), "there is no memory for a third");
        drop((first, second));
        assert_eq!(
            (HELD.get(), SPARE.with_borrow(Vec::len)),
            (2 * cost, 2),
            "spare ones hold what they are counted for"
        );
        // They are used again, and are in nobody's way.
        let again = Lease::take(Coding::Zstd, 3, None, 2 * cost).expect("a spare one");
        assert_eq!((HELD.get(), SPARE.with_borrow(Vec::len)), (2 * cost, 1));
        let other = Lease::take(Coding::Zstd, 2, None, 2 * cost).expect("in place of a spare one");
        assert_eq!((HELD.get(), SPARE.with_borrow(Vec::len)), (2 * cost, 0));
        assert!(Lease::take(Coding::Gzip, 6, None, 2 * cost).is_none(), "there is no memory for another one");
        drop((again, other));
        assert!(Lease::take(Coding::Zstd, 3, None, cost - 1).is_none(), "not even for a spare one");
        assert_eq!((HELD.get(), SPARE.with_borrow(Vec::len)), (0, 0), "what passes the bound is freed");
        for coding in Coding::ALL {
            // The second takes the place of one that was cut off in the middle.
            for text in ["cut off", "whole, whole, whole"] {
                let mut lease = Lease::take(coding, 5, Some(text.len()), PLENTY).expect("an encoder");
                let mut output = Vec::new();
                let until = if text == "cut off" { Until::Now } else { Until::Ended };
                lease.encode(&text.as_bytes()[..7], Until::Now, &mut output).expect("encoded");
                lease.encode(&text.as_bytes()[7..], until, &mut output).expect("encoded");
                if until == Until::Ended {
                    assert_eq!(decoded(coding, &output).expect("whole"), text.as_bytes(), "{coding:?}");
                }
            }
        }
        assert!(SPARE.with_borrow(Vec::len) <= SPARE_ENCODERS);
    }
}
