//! Decoders, and the pipeline that decodes a body.
//!
//! A body passes through one decoder for each of its codings, in the reverse of the order in which the client applied
//! them. The limits apply to the output of every decoder, so they bound intermediate data as well as the result. The
//! pipeline makes output one piece at a time, when the caller pulls it; until then, the rest of the input waits.

use super::Coding;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState, enc::StandardAlloc};
use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use highwire_engine::body::{BodyError, Pulled};
use std::cell::RefCell;
use std::fmt;
use zstd::stream::raw::{self, DParameter, Operation};

/// The most decoded bytes in one piece.
const PIECE_BYTES: usize = 16 * 1024;

/// How many bytes each decoder may produce in addition to those that the ratio permits, because a short body that
/// expands to this length is no attack.
pub(super) const RATIO_FLOOR: u64 = 1024 * 1024;

/// The number of members of a gzip body, or of frames of a zstd body, that may have any length. Each member or frame
/// makes the decoder start again, which takes time.
const FREE_MEMBERS: u64 = 16;

/// How many encoded bytes must have been read for each member or frame beyond [`FREE_MEMBERS`].
const MEMBER_BYTES: u64 = 1024;

/// The largest window of zstd that is accepted, as an exponent of two; 23 means 8 MiB (RFC 9659 section 3).
const ZSTD_WINDOW_BITS: u32 = 23;

const FLATE_WINDOW_BITS: u8 = 15;

thread_local! {
    /// A buffer that pieces are decoded into. Each piece is then copied into an allocation of its exact length, so that
    /// a small piece does not hold a large buffer.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An error of an encoded body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The body is malformed in its coding, ends too early, or has bytes after its end.
    Broken,
    /// The decoded body exceeds a limit.
    TooLarge,
}

type BrotliDecoder = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

enum Decoder {
    Gzip(Decompress),
    Deflate(Decompress),
    Brotli(Box<BrotliDecoder>),
    Zstd(raw::Decoder<'static>),
}

/// The result of one call of a decoder, with the numbers of bytes that it has read and written.
#[derive(Default)]
struct Step {
    taken: usize,
    given: usize,
    /// True if the decoder has reached the end of its format, where a body may end.
    ended: bool,
}

impl Decoder {
    fn new(coding: Coding) -> Result<Decoder, Fault> {
        Ok(match coding {
            Coding::Gzip => Decoder::Gzip(Decompress::new_gzip(FLATE_WINDOW_BITS)),
            Coding::Deflate => Decoder::Deflate(Decompress::new(true)),
            Coding::Brotli => {
                let alloc = StandardAlloc::default;
                // The strict decoder accepts the windows of the RFC, at most 16 MiB, but not the extension for larger
                // ones.
                Decoder::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            Coding::Zstd => {
                let mut decoder = raw::Decoder::new().map_err(|_| Fault::Broken)?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_BITS)).map_err(|_| Fault::Broken)?;
                Decoder::Zstd(decoder)
            }
        })
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Fault> {
        if let (Decoder::Deflate(inflate), Some(&first)) = (&mut *self, input.first())
            && inflate.total_in() == 0
            && !begins_zlib(first)
        {
            *inflate = Decompress::new(false);
        }
        match self {
            Decoder::Gzip(inflate) | Decoder::Deflate(inflate) => {
                let (taken, given) = (inflate.total_in(), inflate.total_out());
                let status = inflate.decompress(input, output, FlushDecompress::None).map_err(|_| Fault::Broken)?;
                Ok(Step {
                    taken: (inflate.total_in() - taken) as usize,
                    given: (inflate.total_out() - given) as usize,
                    ended: status == Status::StreamEnd,
                })
            }
            Decoder::Brotli(state) => {
                let (mut left, mut room, mut step) = (input.len(), output.len(), Step::default());
                let mut total = 0;
                let result = BrotliDecompressStream(
                    &mut left,
                    &mut step.taken,
                    input,
                    &mut room,
                    &mut step.given,
                    output,
                    &mut total,
                    state,
                );
                match result {
                    BrotliResult::ResultFailure => return Err(Fault::Broken),
                    BrotliResult::ResultSuccess => step.ended = true,
                    BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
                }
                Ok(step)
            }
            Decoder::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, output).map_err(|_| Fault::Broken)?;
                Ok(Step { taken: status.bytes_read, given: status.bytes_written, ended: status.remaining == 0 })
            }
        }
    }

    /// Starts the next member or frame, because bytes follow the end of the previous one. Returns an error if the
    /// coding permits only one.
    fn begin_again(&mut self) -> Result<(), Fault> {
        match self {
            // A gzip body is a sequence of members (RFC 1952 section 2.2).
            Decoder::Gzip(inflate) => *inflate = Decompress::new_gzip(FLATE_WINDOW_BITS),
            // A zstd body is a sequence of frames (RFC 8878 section 3.1). The decoder starts the next one
            // automatically.
            Decoder::Zstd(_) => {}
            Decoder::Deflate(_) | Decoder::Brotli(_) => return Err(Fault::Broken),
        }
        Ok(())
    }
}

/// Returns true if a body of the coding `deflate` that begins with this byte has the zlib format, as RFC 9110 requires: the
/// method is 8, with a window of at most 32 KiB (RFC 1950 section 2.2). Some servers and old clients send bare deflate, which
/// cannot begin with such a byte, apart from a stored block with padding that no encoder writes (RFC 1951 section 3.2.4).
fn begins_zlib(first: u8) -> bool {
    first & 0x0f == 8 && first >> 4 <= 7
}

/// The limits on the output of each decoder of a body.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    limit: u64,
    ratio: u64,
}

/// The state of decoding one coding of a body.
struct Stage {
    decoder: Decoder,
    input: Bytes,
    taken: u64,
    given: u64,
    /// Number of members or frames begun so far.
    members: u64,
    /// True if the body may end here.
    ended: bool,
    /// True if the last piece filled its buffer, so the decoder may have more output.
    full: bool,
}

impl Stage {
    fn new(coding: Coding) -> Result<Stage, Fault> {
        let decoder = Decoder::new(coding)?;
        Ok(Stage { decoder, input: Bytes::new(), taken: 0, given: 0, members: 1, ended: true, full: false })
    }

    /// Makes the next piece, using `room` as the buffer. Each call of the decoder uses up one of `steps`.
    fn produce(&mut self, bounds: Bounds, steps: &mut u32, room: &mut [u8]) -> Result<Pulled, Fault> {
        while !self.input.is_empty() || self.full {
            if *steps == 0 {
                return Ok(Pulled::Unfinished);
            }
            *steps -= 1;
            if self.ended && self.taken > 0 && !self.input.is_empty() {
                if self.members >= FREE_MEMBERS + self.taken / MEMBER_BYTES {
                    return Err(Fault::Broken);
                }
                self.decoder.begin_again()?;
                self.members += 1;
                self.ended = false;
            }
            let step = self.decoder.step(&self.input, room)?;
            self.input.advance(step.taken);
            self.taken += step.taken as u64;
            self.given += step.given as u64;
            self.full = step.given == room.len();
            if step.taken == 0 && step.given == 0 {
                // If the decoder takes no input although its whole buffer is free, it never will.
                return if self.input.is_empty() { Ok(Pulled::Starved) } else { Err(Fault::Broken) };
            }
            self.ended = step.ended;
            let most = RATIO_FLOOR.saturating_add(self.taken.saturating_mul(bounds.ratio));
            if self.given > bounds.limit.min(most) {
                return Err(Fault::TooLarge);
            }
            if step.given > 0 {
                return Ok(Pulled::Part(Bytes::copy_from_slice(&room[..step.given])));
            }
        }
        Ok(Pulled::Starved)
    }
}

/// The decoders of a body.
pub(super) struct Pipeline {
    /// One stage per coding, in the order of decoding.
    stages: Vec<Stage>,
    bounds: Bounds,
    fault: Option<Fault>,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// Makes a pipeline that decodes `codings`, listed as in `Content-Encoding`, from the last to the first. A stage
    /// fails if it has produced more than `limit` bytes, or more than [`RATIO_FLOOR`] plus `ratio` times the number of
    /// bytes that it has read.
    pub(super) fn new(codings: &[Coding], limit: u64, ratio: u64) -> Pipeline {
        let stages = codings.iter().rev().map(|&coding| Stage::new(coding)).collect::<Result<Vec<_>, Fault>>();
        let fault = stages.as_ref().err().copied();
        Pipeline { stages: stages.unwrap_or_default(), bounds: Bounds { limit, ratio }, fault }
    }

    /// Adds received bytes. The caller may call this once at first, and once after each [`Pulled::Starved`].
    pub(super) fn push(&mut self, input: Bytes) {
        if let Some(first) = self.stages.first_mut() {
            debug_assert!(first.input.is_empty(), "input was pushed although `pull` did not return `Starved`");
            first.input = input;
        }
    }

    /// Makes the next decoded piece. Each call of a decoder uses up one of `steps`.
    pub(super) fn pull(&mut self, steps: &mut u32) -> Result<Pulled, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let pulled = ROOM.with_borrow_mut(|room| {
            room.resize(PIECE_BYTES, 0);
            pull(&mut self.stages, self.bounds, steps, room)
        });
        self.fault = pulled.as_ref().err().copied();
        pulled
    }

    /// Makes the next decoded piece without a limit on steps. Returns `None` if the pipeline needs more input.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            let mut steps = u32::MAX;
            match self.pull(&mut steps)? {
                Pulled::Part(piece) => return Ok(Some(piece)),
                Pulled::Starved => return Ok(None),
                Pulled::Unfinished => {}
            }
        }
    }

    /// Returns an error if the body must not end here. A body without bytes may end.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        if self.stages.iter().all(|stage| stage.ended) { Ok(()) } else { Err(Fault::Broken) }
    }
}

fn pull(stages: &mut [Stage], bounds: Bounds, steps: &mut u32, room: &mut [u8]) -> Result<Pulled, Fault> {
    let Some((last, before)) = stages.split_last_mut() else { return Ok(Pulled::Starved) };
    loop {
        match last.produce(bounds, steps, room)? {
            Pulled::Starved => {}
            pulled => return Ok(pulled),
        }
        match pull(before, bounds, steps, room)? {
            Pulled::Part(piece) => last.input = piece,
            pulled => return Ok(pulled),
        }
    }
}

impl From<Fault> for BodyError {
    fn from(fault: Fault) -> BodyError {
        match fault {
            Fault::Broken => BodyError::Undecodable,
            Fault::TooLarge => BodyError::TooLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::decompression::Decoding;
    use super::super::encode::{Lease, Until};
    use super::*;
    use futures_core::Stream;
    use highwire_engine::body::{Body, BodyQueue};
    use std::pin::Pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    const PLENTY: u64 = u64::MAX;

    fn encoded(coding: Coding, text: &[u8]) -> Vec<u8> {
        let mut lease = Lease::take(coding, 5, None, usize::MAX / 2).expect("an encoder");
        let mut output = Vec::new();
        lease.encode(text, Until::Ended, &mut output).expect("encoded");
        output
    }

    fn decoded(mut pipeline: Pipeline, parts: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let mut all = Vec::new();
        for part in parts {
            pipeline.push(Bytes::copy_from_slice(part));
            while let Some(piece) = pipeline.next()? {
                assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES);
                all.extend_from_slice(&piece);
            }
        }
        pipeline.finish().map(|()| all)
    }

    fn plain(codings: &[Coding]) -> Pipeline {
        Pipeline::new(codings, PLENTY, PLENTY)
    }

    /// Returns a text longer than one piece, partly repetitive and partly not.
    fn text() -> Vec<u8> {
        let numbers = (0..3000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes());
        numbers.take(700).chain(std::iter::repeat_n(b'a', 20_000)).chain(*b"the end").collect()
    }

    #[test]
    fn however_it_is_cut_it_decodes_to_the_same() {
        let text = text();
        for coding in Coding::ALL {
            let body = encoded(coding, &text);
            for cut in 0..=body.len() {
                let parts = [&body[..cut], &body[cut..]];
                assert_eq!(decoded(plain(&[coding]), &parts).as_ref(), Ok(&text), "{coding:?} cut at {cut}");
            }
            let bytes: Vec<&[u8]> = body.chunks(1).collect();
            assert_eq!(decoded(plain(&[coding]), &bytes).as_ref(), Ok(&text), "{coding:?} byte by byte");
        }
        for (first, second) in [(Coding::Gzip, Coding::Brotli), (Coding::Zstd, Coding::Zstd)] {
            let body = encoded(second, &encoded(first, &text));
            let bytes: Vec<&[u8]> = body.chunks(1).collect();
            assert_eq!(decoded(plain(&[first, second]), &bytes).as_ref(), Ok(&text));
        }
    }

    #[test]
    fn what_ends_too_early_or_goes_on_is_broken() {
        let text = text();
        for coding in Coding::ALL {
            let body = encoded(coding, &text);
            for length in 1..body.len() {
                let end = decoded(plain(&[coding]), &[&body[..length]]);
                assert_eq!(end, Err(Fault::Broken), "{coding:?}: {length} of {} bytes", body.len());
            }
            for behind in [&b"x"[..], &[0], &[0; 100], b"\x1f\x8b\x08"] {
                for parts in [&[&*body, behind][..], &[&[&*body, behind].concat()]] {
                    assert_eq!(
                        decoded(plain(&[coding]), parts),
                        Err(Fault::Broken),
                        "{coding:?}: {behind:?} after the end"
                    );
                }
            }
            assert_eq!(decoded(plain(&[coding]), &[]), Ok(Vec::new()), "{coding:?}: a body without bytes");
        }
    }

    #[test]
    fn bare_deflate_is_read_as_deflate() {
        for level in [0, 1, 6, 9] {
            for text in [&b""[..], b"h", b"hello, hello, hello", &[b'x'; 9000]] {
                let mut bare = flate2::Compress::new(flate2::Compression::new(level), false);
                let mut body = Vec::with_capacity(text.len() + 1000);
                bare.compress_vec(text, &mut body, flate2::FlushCompress::Finish).expect("encoded");
                for cut in [0, 1, body.len() / 2] {
                    let (first, second) = body.split_at(cut);
                    let pieces: Vec<&[u8]> = [first, second].into_iter().filter(|piece| !piece.is_empty()).collect();
                    assert_eq!(decoded(plain(&[Coding::Deflate]), &pieces).as_deref(), Ok(text), "level {level}");
                }
                let longer = [&body[..], b"x"].concat();
                assert_eq!(decoded(plain(&[Coding::Deflate]), &[&longer]), Err(Fault::Broken), "a byte after the end");
            }
        }
    }

    #[test]
    fn members_and_frames_follow_one_another() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let two = [encoded(coding, b"one, "), encoded(coding, b"two")].concat();
            for cut in 0..two.len() {
                let parts = [&two[..cut], &two[cut..]];
                assert_eq!(decoded(plain(&[coding]), &parts), Ok(b"one, two".to_vec()), "{coding:?} at {cut}");
            }
        }
    }

    /// Each member or frame makes the decoder start again. A mebibyte of empty skippable frames (131,072 of them) once
    /// occupied its worker.
    #[test]
    fn there_may_not_be_any_number_of_tiny_members_and_frames() {
        let skipped = b"\x50\x2a\x4d\x18\0\0\0\0".to_vec();
        let long = [&b"\x50\x2a\x4d\x18"[..], &[0, 4, 0, 0], &[7; 1024]].concat();
        for (coding, tiny) in [
            (Coding::Gzip, encoded(Coding::Gzip, b"")),
            (Coding::Zstd, encoded(Coding::Zstd, b"")),
            (Coding::Zstd, skipped),
        ] {
            let few = tiny.repeat(FREE_MEMBERS as usize);
            assert_eq!(decoded(plain(&[coding]), &[&few]), Ok(Vec::new()), "{coding:?}");
            assert_eq!(decoded(plain(&[coding]), &[&tiny.repeat(1000)]), Err(Fault::Broken), "{coding:?}");
        }
        assert_eq!(
            decoded(plain(&[Coding::Zstd]), &[&long.repeat(1000)]),
            Ok(Vec::new()),
            "frames with 1,024 bytes of content"
        );
    }

    /// A waker that counts its wake-ups.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A turn once ended only when the handler got a part, so 24 KiB that expand to 24 MiB of skipped bytes took a
    /// single turn.
    #[test]
    fn what_unfolds_to_nothing_lets_others_have_their_turn() {
        let skipped = [&b"\x50\x2a\x4d\x18"[..], &(24_u32 << 20).to_le_bytes(), &vec![0; 24 << 20]].concat();
        for (codings, body, least) in [
            (&[Coding::Zstd, Coding::Gzip][..], encoded(Coding::Gzip, &skipped), 24 << 20),
            (&[Coding::Gzip][..], encoded(Coding::Gzip, &skipped), 24 << 20),
            (&[Coding::Gzip][..], encoded(Coding::Gzip, b"short"), 0),
        ] {
            let incoming = Rc::new(RefCell::new(BodyQueue::new(Waker::noop().clone())));
            incoming.borrow_mut().push(&body);
            incoming.borrow_mut().finish(Ok(()), Vec::new());
            let mut body = Body::new(incoming);
            body.transform_by(Box::new(Decoding::new(codings.to_vec(), PLENTY, PLENTY, usize::MAX)));
            let woken = Arc::new(Woken::default());
            let waker = Waker::from(woken.clone());
            let (mut turns, mut in_a_row) = (1, 0);
            loop {
                match Pin::new(&mut body).poll_next(&mut Context::from_waker(&waker)) {
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(part)) => {
                        in_a_row += part.expect("decoded").len();
                        assert!(in_a_row <= 16 * PIECE_BYTES, "{codings:?}: {in_a_row} bytes in a row");
                    }
                    Poll::Pending => {
                        assert_eq!(
                            woken.0.load(Ordering::Relaxed),
                            turns,
                            "{codings:?}: the body wakes its task for the next turn"
                        );
                        (turns, in_a_row) = (turns + 1, 0);
                    }
                }
            }
            assert!(turns > least / (16 * PIECE_BYTES), "{codings:?}: {turns} turns");
        }
    }

    /// Encodes zeros. Returns the start of a body, and bytes that add a mebibyte of zeros each time they are repeated.
    fn zeros(coding: Coding) -> (Vec<u8>, Vec<u8>) {
        let mebibyte = vec![0; 1024 * 1024];
        let mut lease = Lease::take(coding, 9, None, usize::MAX / 2).expect("an encoder");
        let mut more = || {
            let mut output = Vec::new();
            lease.encode(&mebibyte, Until::Flushed, &mut output).expect("encoded");
            output
        };
        let (begin, again) = (more(), more());
        match coding {
            // A flush keeps the window, so the second part refers to the zeros of the first.
            Coding::Gzip | Coding::Deflate | Coding::Brotli => (begin, again),
            // These are RLE blocks (RFC 8878 section 3.1.1.2), each of which expands to 128 KiB of one byte.
            Coding::Zstd => {
                let header = (131_072_u32 << 3 | 1 << 1).to_le_bytes();
                (b"\x28\xb5\x2f\xfd\x00\x68".to_vec(), [&header[..3], &[0]].concat().repeat(8))
            }
        }
    }

    /// Decodes a bomb, which must be refused. Returns, for each stage, how many bytes it has read and written by then.
    fn refused(codings: &[Coding], body: Vec<u8>, limit: u64, ratio: u64) -> Vec<(u64, u64)> {
        let mut pipeline = Pipeline::new(codings, limit, ratio);
        pipeline.push(body.into());
        let end = loop {
            match pipeline.next() {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(fault) => break Err(fault),
            }
        };
        assert_eq!(end, Err(Fault::TooLarge), "{codings:?}");
        assert_eq!(pipeline.next(), Err(Fault::TooLarge), "later calls fail as well");
        pipeline.stages.iter().map(|stage| (stage.taken, stage.given)).collect()
    }

    #[test]
    fn ten_gigabytes_of_zeros_are_refused_at_their_bounds() {
        for coding in Coding::ALL {
            let (begin, mebibyte) = zeros(coding);
            let body = [begin, mebibyte.repeat(10_000)].concat();
            let length = body.len() as u64;
            for limit in [100_000, 5 << 20] {
                let counts = refused(&[coding], body.clone(), limit, PLENTY);
                assert!(counts[0].1 <= limit + PIECE_BYTES as u64, "{coding:?}: {counts:?}");
            }
            let (taken, given) = refused(&[coding], body, PLENTY, 100)[0];
            assert!(given <= RATIO_FLOOR + taken * 100 + PIECE_BYTES as u64, "{coding:?}: {taken}, {given}");
            assert!(taken < length / 10, "{coding:?}: {taken} of {length} bytes were read");
        }
    }

    #[test]
    fn what_unfolds_in_between_is_bounded_as_well() {
        // The inner body is the start of a skippable zstd frame of zeros, which has many intermediate bytes and no
        // output.
        let skipped = [&b"\x50\x2a\x4d\x18"[..], &(1_u32 << 30).to_le_bytes()].concat();
        let mebibytes = vec![0; 40 << 20];
        let body = encoded(Coding::Gzip, &[skipped, mebibytes].concat());
        let counts = refused(&[Coding::Zstd, Coding::Gzip], body.clone(), 2 << 20, PLENTY);
        assert!(counts[0].1 <= (2 << 20) + PIECE_BYTES as u64 && counts[1].1 == 0, "{counts:?}");
        let counts = refused(&[Coding::Zstd, Coding::Gzip], body, PLENTY, 100);
        assert!(counts[0].1 <= RATIO_FLOOR + counts[0].0 * 100 + PIECE_BYTES as u64, "{counts:?}");
        // This is a Brotli bomb inside a gzip bomb.
        let (begin, mebibyte) = zeros(Coding::Brotli);
        let inner = [begin, mebibyte.repeat(100_000)].concat();
        let counts = refused(&[Coding::Brotli, Coding::Gzip], encoded(Coding::Gzip, &inner), PLENTY, 100);
        let (taken, given) = counts[1];
        assert!(given <= RATIO_FLOOR + taken * 100 + PIECE_BYTES as u64, "{counts:?}");
    }

    #[test]
    fn windows_beyond_the_rfcs_are_refused() {
        // Both zstd frames have one empty block. The first has a window of 16 MiB, the second one of 8 MiB, the largest
        // that is accepted.
        assert_eq!(decoded(plain(&[Coding::Zstd]), &[b"\x28\xb5\x2f\xfd\x00\x70\x01\0\0"]), Err(Fault::Broken));
        assert_eq!(decoded(plain(&[Coding::Zstd]), &[b"\x28\xb5\x2f\xfd\x00\x68\x01\0\0"]), Ok(Vec::new()));
        // The first Brotli stream has a window of 30 bits, by the extension for large windows. The second stream is
        // empty and has a window of 16 bits.
        assert_eq!(decoded(plain(&[Coding::Brotli]), &[b"\x11\xde"]), Err(Fault::Broken));
        assert_eq!(decoded(plain(&[Coding::Brotli]), &[b"\x06"]), Ok(Vec::new()));
    }
}
