//! Encoders, and response bodies that are encoded while they are sent.
//!
//! A body is encoded in pieces, usually one per turn of the worker. If the source of the body has no data ready, the
//! encoder is flushed, so that the client gets each event at once. While the source has data ready, the encoder is not
//! flushed.

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

/// The most bytes of a body that are encoded before other connections have their turn. Encoding them takes less than a
/// millisecond at the default levels.
const PIECE_BYTES: usize = 16 * 1024;

/// The most parts of a source that form one piece. This limit keeps a source of single bytes from occupying the worker.
const PARTS_A_PIECE: usize = 64;

/// How many bytes are reserved for the output of one call of an encoder, and the size of Brotli's buffer in bytes.
const ROOM_BYTES: usize = 8 * 1024;

/// The window of Brotli as an exponent of two; 18 means 256 KiB. A larger window shortens few responses and costs
/// memory for each stream.
const BROTLI_WINDOW_BITS: i32 = 18;

/// The number of bytes that Brotli collects before it encodes them, as an exponent of two; 16 means 64 KiB. This is the
/// size of Brotli's smallest block, so that each call is short.
const BROTLI_BLOCK_BITS: i32 = 16;

/// The window of zstd as an exponent of two; 19 means 512 KiB. Clients must accept windows of up to 8 MiB (RFC 9659).
const ZSTD_WINDOW_BITS: u32 = 19;

/// The most encoders that a worker keeps for later responses. Creating one costs more than compressing a small
/// response.
const SPARE_ENCODERS: usize = 4;

/// The window of gzip and deflate as an exponent of two; 15 means 32 KiB, the largest of the format.
const FLATE_WINDOW_BITS: u8 = 15;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static SPARE: RefCell<Vec<Counted>> = const { RefCell::new(Vec::new()) };
}

/// How much of its input an encoder must have written to its output when a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Any part; the encoder may keep input back.
    Now,
    /// All of it, so that a decoder can produce every byte.
    Flushed,
    /// All of it, and the end of the format.
    Ended,
}

/// An encoder of one coding.
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
                // A window larger than the body would waste memory.
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

    /// Begins a body of `length` bytes, or of unknown length. A Brotli encoder is never used again, so it needs no
    /// reset.
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

    /// Encodes `input`, and appends the result to `output`.
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
        // If the output has room left, the encoder has nothing more to write.
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

/// An encoder with its memory reservation.
struct Counted {
    encoder: Encoder,
    coding: Coding,
    level: u32,
    _hold: Hold,
}

impl Counted {
    /// Returns a spare encoder of this coding and level, or a new one. If memory is short, first frees other spare
    /// encoders. Returns `None` if all encoders of this worker would still hold more than `most` bytes, or if a new one
    /// cannot be created.
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
                highwire_engine::log!(
                    Mistake,
                    error,
                    %error,
                    coding = coding.name(),
                    "cannot create an encoder; the response is sent uncompressed"
                );
                None
            }
        }
    }
}

/// An encoder for one body. Dropping the lease keeps the encoder for a later response, unless it is a Brotli encoder.
pub(super) struct Lease(Option<Counted>);

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.0.as_ref().map(|counted| (counted.coding, counted.level));
        f.debug_tuple("Lease").field(&what).finish()
    }
}

impl Lease {
    /// Takes an encoder for a body of `length` bytes, or of unknown length. Returns `None` if all encoders of this
    /// worker would then hold more than `most` bytes, or if the encoder fails.
    pub(super) fn take(coding: Coding, level: u32, length: Option<usize>, most: usize) -> Option<Lease> {
        let mut counted = Counted::take(coding, level, length, most)?;
        match counted.encoder.begin(length) {
            Ok(()) => Some(Lease(Some(counted))),
            Err(error) => {
                highwire_engine::log!(
                    Mistake,
                    error,
                    %error,
                    coding = coding.name(),
                    "cannot reset an encoder; the response is sent uncompressed"
                );
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
        // While the thread ends, `SPARE` no longer exists and the encoder is freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() == SPARE_ENCODERS {
                spare.swap_remove(0);
            }
            spare.push(counted);
        });
    }
}

/// Returns the number of bytes counted for an encoder. The numbers are measurements in `docs/compression.md`, rounded
/// up.
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
    /// The plain body; `None` after its end or an error.
    source: Option<BodyStream>,
    /// The number of bytes that the source must still produce, if its length was announced. The encoded body announces
    /// no length, so no other check finds a source that is too short or too long.
    left: Option<u64>,
    lease: Lease,
    /// Bytes from the source that are not encoded yet.
    part: Bytes,
    /// True if the encoder has received input since its last flush.
    holds: bool,
    /// True if the next poll must return `Pending`, so that other connections have their turn after a piece.
    rests: bool,
}

impl Encoded {
    /// Creates the encoded form of `source`. `length` is the source's announced length, if it has one.
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
                    // The source is longer than announced, or, in the next arm, shorter.
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
                // For an empty part, an encoder may write the header of its format, which would be lost if the source
                // is pending next.
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

    /// Logs that the length is wrong, and ends the body. Returns the error that the body would have without
    /// compression.
    fn misfit(&mut self) -> BoxError {
        let error = highwire_proto::Error::LengthMismatch;
        highwire_engine::log!(Mistake, error, %error, "a response body does not have its announced length");
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
        // `part` is not counted, because the source has given it away and it is encoded soon.
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

    /// Yields the queued parts. `None` in the queue ends the stream; while the queue is empty, the stream is pending.
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

    /// Polls until the body ends or is pending 65 times in a row. Returns how often it was pending before that last
    /// poll.
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
                // A body that only lets other connections have their turn becomes ready earlier.
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
            // The first part is empty, as from a handler that sends the head early.
            queue.borrow_mut().push_back(Some(Bytes::new()));
            drain(&mut encoded, &mut sent);
            for event in 0..20 {
                let text = format!("data: event {event}\n\n");
                expected.extend_from_slice(text.as_bytes());
                let (first, second) = text.as_bytes().split_at(7);
                queue.borrow_mut().extend([Some(Bytes::copy_from_slice(first)), Some(Bytes::copy_from_slice(second))]);
                drain(&mut encoded, &mut sent);
                assert_eq!(
                    decoded(coding, &sent).expect("bytes that can be decoded so far"),
                    expected,
                    "{coding:?}, event {event}"
                );
            }
            let before = sent.len();
            drain(&mut encoded, &mut sent);
            assert_eq!(sent.len(), before, "{coding:?}: nothing is sent while the source is pending");
            queue.borrow_mut().push_back(None);
            drain(&mut encoded, &mut sent);
            assert!(sent.len() > before, "{coding:?}: the end is sent");
            assert_eq!(decoded(coding, &sent).expect("whole"), expected);
        }
    }

    #[test]
    fn a_large_body_is_encoded_a_piece_a_turn() {
        let body: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).take(400_000).collect();
        for coding in Coding::ALL {
            let lease = Lease::take(coding, 1, Some(body.len()), PLENTY).expect("an encoder");
            let mut encoded = Encoded::new(BodyStream::of(Bytes::from(body.clone())), None, lease);
            assert_eq!(encoded.held(), body.len(), "the waiting bytes are counted");
            let mut sent = Vec::new();
            let rests = drain(&mut encoded, &mut sent);
            assert_eq!(encoded.held(), 0);
            assert_eq!(rests, body.len() / PIECE_BYTES, "{coding:?}: one pause after each whole piece");
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
                    Poll::Pending => panic!("the body must not be pending"),
                })
                .collect();
                assert_eq!(pieces.iter().all(Result::is_ok), fits, "{coding:?} {parts:?} {announced:?}");
                assert_eq!(pieces.last().is_some_and(Result::is_err), !fits, "only the last piece is an error");
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
        let first = Lease::take(Coding::Zstd, 3, None, 2 * cost).expect("the first encoder");
        let second = Lease::take(Coding::Zstd, 3, None, 2 * cost).expect("the second encoder");
        assert!(Lease::take(Coding::Zstd, 3, None, 2 * cost).is_none(), "there is no memory for a third");
        drop((first, second));
        assert_eq!((HELD.get(), SPARE.with_borrow(Vec::len)), (2 * cost, 2), "spare encoders keep their reservations");
        // Spare encoders are used again, and freed if another one needs their memory.
        let again = Lease::take(Coding::Zstd, 3, None, 2 * cost).expect("a spare encoder");
        assert_eq!((HELD.get(), SPARE.with_borrow(Vec::len)), (2 * cost, 1));
        let other = Lease::take(Coding::Zstd, 2, None, 2 * cost).expect("an encoder in place of a spare one");
        assert_eq!((HELD.get(), SPARE.with_borrow(Vec::len)), (2 * cost, 0));
        assert!(Lease::take(Coding::Gzip, 6, None, 2 * cost).is_none(), "there is no memory for another one");
        drop((again, other));
        assert!(Lease::take(Coding::Zstd, 3, None, cost - 1).is_none(), "there is no memory even for a spare encoder");
        assert_eq!((HELD.get(), SPARE.with_borrow(Vec::len)), (0, 0), "spare encoders beyond the limit are freed");
        for coding in Coding::ALL {
            // The second encoder is the first one again (except for Brotli), which was dropped in the middle of a body.
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
