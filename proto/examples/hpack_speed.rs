//! Measures how fast header blocks are decoded and encoded. Prints the nanoseconds per block in the best of many
//! rounds.
use std::hint::black_box;
use std::time::Instant;

use highwire_proto::hpack::{DEFAULT_TABLE_BYTES, Decoder, Encoder, Indexing};

/// The request that h2load sends. From the second request on, its block has six bytes.
const LOAD: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "127.0.0.1:8080"),
    (":path", "/hello"),
    ("user-agent", "h2load nghttp2/1.52.0"),
    ("accept", "*/*"),
];

const BROWSER: &[(&str, &str)] = &[
    (":method", "GET"),
    (":authority", "www.example.com"),
    (":scheme", "https"),
    (":path", "/products/list?category=books&page=3&sort=price"),
    ("sec-ch-ua", "\"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\""),
    ("upgrade-insecure-requests", "1"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
    ),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"),
    ("sec-fetch-site", "none"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-US,en;q=0.9,de;q=0.8"),
    ("cookie", "session=0123456789abcdef0123456789abcdef"),
];

const RESPONSE: &[(&str, &str)] = &[
    ("content-type", "text/plain; charset=utf-8"),
    ("content-length", "13"),
    ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
    ("server", "highwire"),
];

/// The number of rounds. There are many short ones, so that the machine does nothing else in some of them.
const ROUNDS: usize = 500;
const PASSES: usize = 1000;

fn best(name: &str, bytes: usize, mut run: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PASSES {
            run();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / PASSES as f64);
    }
    println!("{name:40} {bytes:4} bytes {best:8.1} ns");
}

fn encode(encoder: &mut Encoder, fields: &[(&str, &str)], block: &mut Vec<u8>) {
    block.clear();
    encoder.begin(block);
    for (name, value) in fields {
        encoder.field(black_box(name.as_bytes()), black_box(value.as_bytes()), Indexing::Incremental, block);
    }
}

fn decode(decoder: &mut Decoder, block: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let decoded = decoder.decode(black_box(block), out, (65_536, u32::MAX), |line| {
        black_box(line);
    });
    assert!(decoded.is_ok());
}

/// Returns the blocks of an encoder that encodes the same fields twice: the first block, which adds them to the table,
/// and the second.
fn blocks(fields: &[(&str, &str)]) -> (Vec<u8>, Vec<u8>) {
    let (mut encoder, mut first, mut next) = (Encoder::new(), Vec::new(), Vec::new());
    encode(&mut encoder, fields, &mut first);
    encode(&mut encoder, fields, &mut next);
    (first, next)
}

fn main() {
    let mut out = Vec::new();
    for (name, fields) in [("h2load's request", LOAD), ("a browser's request", BROWSER)] {
        let (first, next) = blocks(fields);
        let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES);
        decode(&mut decoder, &first, &mut out);
        best(&format!("decode {name}, repeated"), next.len(), || decode(&mut decoder, &next, &mut out));
        // Each block adds its fields again, so the table evicts entries for each block, as on a connection with many
        // such requests.
        best(&format!("decode {name}, first time"), first.len(), || decode(&mut decoder, &first, &mut out));
        let mut encoder = Encoder::new();
        best(&format!("encode {name}, repeated"), next.len(), || encode(&mut encoder, fields, &mut out));
        best(&format!("encode {name}, first time"), first.len(), || {
            let mut encoder = Encoder::new();
            encode(&mut encoder, fields, &mut out);
        });
    }
    let (_, next) = blocks(RESPONSE);
    let mut encoder = Encoder::new();
    best("encode a response, repeated", next.len() + 1, || {
        out.clear();
        encoder.begin(&mut out);
        encoder.status(black_box(200), &mut out);
        for (name, value) in RESPONSE {
            encoder.field(black_box(name.as_bytes()), black_box(value.as_bytes()), Indexing::Incremental, &mut out);
        }
    });
    let mut number = 0_u32;
    best("encode a date that changes each time", 25, || {
        number += 1;
        let mut date = *b"Mon, 21 Oct 2013 00:00:00 GMT";
        for (place, divisor) in [(24, 1), (23, 10), (21, 100), (20, 1000), (18, 10_000), (17, 100_000)] {
            date[place] = b'0' + (number / divisor % 10) as u8;
        }
        out.clear();
        encoder.field(b"date", &date, Indexing::Incremental, &mut out);
    });
}
