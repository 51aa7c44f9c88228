//! The driver of an event loop, which an [`Engine`] chooses in one place.

use crate::server::config::Engine;
use crate::{Error, Result};
use highwire_io::wake::Notifier;
use highwire_io::{Driver, Instant, Listener, ListenerId, Queue, Readiness, Sink, Socket, SocketId, Uring, Waitable};
use std::io;
use std::sync::Once;

/// A driver for an event loop: io_uring, or readiness (epoll on Linux). For programs with a loop of their own, and for
/// [`Worker`](crate::Worker)s without a server.
#[derive(Debug)]
pub struct Runtime(Chosen);

#[derive(Debug)]
enum Chosen {
    Uring(Box<Uring>),
    Readiness(Box<Readiness>),
}

impl Runtime {
    /// Creates the driver of an engine. [`Engine::Auto`] stands for io_uring, and for readiness where that is unavailable.
    ///
    /// # Errors
    /// Returns an error if the system refuses the driver: io_uring may be forbidden or too old. Returns an error for
    /// [`Engine::Threads`], which has no event loop.
    pub fn new(engine: Engine) -> Result<Runtime> {
        if let Some(driver) = uring_or_else(engine, new_uring)? {
            return Ok(Runtime(Chosen::Uring(Box::new(driver))));
        }
        Ok(Runtime(Chosen::Readiness(Box::new(Readiness::new()?))))
    }

    /// Returns the engine that [`Engine::Auto`] stands for on this machine, and others as they are.
    ///
    /// # Errors
    /// Returns an error that says why io_uring is unavailable if that is asked for, and for [`Engine::Threads`].
    pub fn choose(engine: Engine) -> Result<Engine> {
        Ok(if uring_or_else(engine, probe_uring)?.is_some() { Engine::Uring } else { Engine::Readiness })
    }
}

/// Returns io_uring, or `None` if the engine does not ask for it or does without.
fn uring_or_else<T>(engine: Engine, get: fn() -> io::Result<T>) -> Result<Option<T>> {
    static WARNED: Once = Once::new();
    match engine {
        Engine::Threads => {
            let problem = "the engine `threads` has no event loop, which this needs; choose another engine";
            Err(Error::Setting(problem.to_string()))
        }
        Engine::Readiness => Ok(None),
        // Only Linux has io_uring.
        Engine::Auto if !cfg!(target_os = "linux") => Ok(None),
        Engine::Auto => Ok(get()
            .inspect_err(|error| {
                WARNED.call_once(|| tracing::warn!(%error, "io_uring is unavailable; using epoll"));
            })
            .ok()),
        Engine::Uring => get().map(Some).map_err(|error| {
            let text = format!("io_uring is unavailable: {error}; the engines `auto` and `readiness` do without it");
            Error::System(io::Error::new(error.kind(), text))
        }),
    }
}

fn new_uring() -> io::Result<Uring> {
    if std::env::var_os("LD_PRELOAD").is_some_and(|names| names.to_string_lossy().contains("vgpreload")) {
        // valgrind does not see that the kernel writes to the rings, and programs stall.
        return Err(io::Error::other("this process runs under valgrind, which does not support io_uring"));
    }
    Uring::new()
}

/// Creates a ring to find out whether io_uring is available. It uses a thread of its own, because the kernel interrupts
/// the thread that created a ring when the ring is torn down, and the caller's next blocking call could fail with
/// EINTR.
fn probe_uring() -> io::Result<()> {
    let probe = std::thread::Builder::new().name("highwire-probe".to_string()).spawn(|| new_uring().map(drop))?;
    probe.join().unwrap_or_else(|_| Err(io::Error::other("the probe for io_uring panicked")))
}

/// Calls a method of the driver that was chosen.
macro_rules! of_driver {
    ($runtime:expr, $driver:ident => $call:expr) => {
        match $runtime {
            Chosen::Uring($driver) => $call,
            Chosen::Readiness($driver) => $call,
        }
    };
}

impl Driver for Runtime {
    fn listen(&mut self, listener: Listener) -> io::Result<ListenerId> {
        of_driver!(&mut self.0, driver => driver.listen(listener))
    }

    fn adopt(&mut self, socket: Socket) -> io::Result<SocketId> {
        of_driver!(&mut self.0, driver => driver.adopt(socket))
    }

    fn descriptor(&mut self) -> io::Result<Waitable> {
        of_driver!(&mut self.0, driver => driver.descriptor())
    }

    fn arm(&mut self, until: Option<Instant>) -> io::Result<()> {
        of_driver!(&mut self.0, driver => driver.arm(until))
    }

    fn release(&mut self, socket: SocketId) -> Option<Socket> {
        of_driver!(&mut self.0, driver => driver.release(socket))
    }

    fn turn<S: Sink>(&mut self, until: Option<Instant>, queue: &mut Queue, sink: &mut S) -> io::Result<()> {
        of_driver!(&mut self.0, driver => driver.turn(until, queue, sink))
    }

    fn now(&self) -> Instant {
        of_driver!(&self.0, driver => driver.now())
    }

    fn stopwatch(&self) -> fn() -> u64 {
        of_driver!(&self.0, driver => driver.stopwatch())
    }

    fn unix_nanoseconds(&self) -> u64 {
        of_driver!(&self.0, driver => driver.unix_nanoseconds())
    }

    fn notifier(&self) -> Notifier {
        of_driver!(&self.0, driver => driver.notifier())
    }

    fn random(&mut self) -> u64 {
        of_driver!(&mut self.0, driver => driver.random())
    }

    fn name(&self) -> &'static str {
        of_driver!(&self.0, driver => driver.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::PermissionDenied))
    }

    #[test]
    fn only_auto_does_without_io_uring() {
        assert!(matches!(uring_or_else(Engine::Auto, missing), Ok(None)));
        assert!(matches!(uring_or_else(Engine::Readiness, missing), Ok(None)));
        let error = uring_or_else(Engine::Uring, missing).expect_err("io_uring is asked for");
        assert_eq!(
            error.to_string(),
            "io_uring is unavailable: permission denied; the engines `auto` and `readiness` do without it"
        );
        assert!(uring_or_else(Engine::Threads, missing).is_err());
        if cfg!(target_os = "linux") {
            assert!(matches!(uring_or_else(Engine::Auto, || Ok(1)), Ok(Some(1))));
        }
    }
}
