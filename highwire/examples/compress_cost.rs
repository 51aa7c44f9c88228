//! Measures compression: the time, length and memory for 100 KB of JSON, for each coding and level.
//!
//! `cargo run --release --features compress --example compress_cost` prints the tables of `docs/compression.md`.

use highwire::compress::Coding;
use highwire::compress::testing::{Decoding, Encoding};
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

const BYTES: usize = 100_000;

/// The number of encoders that exist while their memory is measured.
const CROWD: usize = 10;

/// Returns JSON records such as those of an API, cut off after `bytes` bytes.
fn json(bytes: usize) -> String {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let names = ["Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances", "Alan", "Radia", "Ken", "Margaret"];
    let mut text = String::from("[");
    for id in 0.. {
        if text.len() >= bytes {
            break;
        }
        let name = names[random(10) as usize];
        let (mail, price, day) = (random(100_000), random(1_000_000) as f64 / 100.0, random(28) + 1);
        let (active, token) = (random(2) == 1, random(u64::MAX >> 33));
        let _ = write!(
            text,
            r#"{{"id":{id},"name":"{name}","mail":"{name}{mail}@example.com","active":{active},"balance":{price},"since":"2026-11-{day:02}T12:00:00Z","token":"{token:08x}","tags":["a","b{day}"]}},"#
        );
    }
    text.truncate(bytes);
    text
}

/// Returns the number of bytes of this process's resident memory, with pages of 4 KiB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Returns the time of the fastest of many calls, in microseconds.
fn time(mut call: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let mut best = f64::MAX;
    while begun.elapsed().as_millis() < 300 || best == f64::MAX {
        let begun = Instant::now();
        call();
        best = best.min(begun.elapsed().as_secs_f64() * 1e6);
    }
    best
}

/// Returns how many KiB of memory an encoder holds in the middle of a long stream. Must run in a process of its own, so
/// that no other memory counts.
fn held(coding: Coding, level: u32) -> usize {
    let text = json(2_000_000);
    let mut crowd = Vec::with_capacity(CROWD);
    let before = resident();
    for _ in 0..CROWD {
        let mut encoding = Encoding::new(coding, level, None);
        text.as_bytes().chunks(16 * 1024).for_each(|piece| drop(encoding.part(piece)));
        crowd.push(encoding);
    }
    resident().saturating_sub(before) / crowd.len() / 1024
}

fn main() {
    let codings = [
        (Coding::Gzip, &[1, 4, 6, 9][..]),
        (Coding::Brotli, &[0, 1, 2, 3, 4, 5, 6, 7]),
        (Coding::Zstd, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ];
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [name, level] = &words[..] {
        let coding = Coding::ALL.into_iter().find(|coding| coding.name() == name).expect("the name of a coding");
        println!("{}", held(coding, level.parse().expect("the second argument is a level")));
        return;
    }
    let text = json(BYTES);
    println!("| coding | level | µs for 100 KB | length, % | µs for 2 KB | KiB for a stream | µs to decode 100 KB |");
    println!("|---|---|---|---|---|---|---|");
    for (coding, levels) in codings {
        for &level in levels {
            let encode = |text: &str| Encoding::new(coding, level, Some(text.len())).end(text.as_bytes());
            let encoded = encode(&text);
            let large = time(|| drop(black_box(encode(black_box(&text)))));
            let small = time(|| drop(black_box(encode(black_box(&text[..2000])))));
            let decode = time(|| drop(black_box(Decoding::new(coding).part(black_box(&encoded)))));
            let mut child = Command::new(std::env::current_exe().expect("this program"));
            let held = child.args([coding.name(), &level.to_string()]).output().expect("the program runs").stdout;
            let held = String::from_utf8_lossy(&held).trim().to_string();
            let percent = encoded.len() as f64 * 100.0 / BYTES as f64;
            println!("| {} | {level} | {large:.0} | {percent:.1} | {small:.0} | {held} | {decode:.0} |", coding.name());
        }
    }
}
