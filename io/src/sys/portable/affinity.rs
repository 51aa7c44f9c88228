//! Substitutes for CPU affinity, which Highwire supports on Linux only.

use std::io;

pub(crate) fn cpus() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get)).collect()
}

pub(crate) fn pin(_: usize) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "threads can be pinned to a CPU on Linux only"))
}
