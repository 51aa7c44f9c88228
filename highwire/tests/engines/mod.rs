//! The engines on which a test runs.

#![allow(dead_code, reason = "each test program uses a part of it")]

use highwire::server::{Engine, Runtime};
use std::io::Write;

/// The engines that have event loops.
pub(crate) const EVENT_LOOPS: [Engine; 2] = [Engine::Uring, Engine::Readiness];

/// All engines with real sockets.
pub(crate) const ALL: [Engine; 3] = [Engine::Uring, Engine::Readiness, Engine::Threads];

/// Returns true if this machine has the engine. Reports it as not run otherwise.
pub(crate) fn has(engine: Engine) -> bool {
    let chosen = if engine == Engine::Threads { Ok(engine) } else { Runtime::choose(engine) };
    if let Err(error) = &chosen {
        // Not by `eprintln!`, which tests capture.
        let _ = writeln!(std::io::stderr(), "not run: {error}");
    }
    chosen.is_ok()
}

/// Returns those of the engines that this machine has. Reports the others as not run.
pub(crate) fn available<const N: usize>(engines: [Engine; N]) -> impl Iterator<Item = Engine> {
    engines.into_iter().filter(|engine| has(*engine))
}
