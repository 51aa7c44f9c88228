//! A server inside the program's own event loop: one thread, one wait, and work of the program between the requests. Needs the crate
//! mio with the features `os-poll` and `os-ext`. Try it: `curl localhost:8080/tick`, `curl -X POST localhost:8080/reset`.

use highwire::server::{Engine, Runtime, Worker};
use highwire::{App, PerWorker};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

const SERVER: Token = Token(0);

/// The state of the program, which only its thread uses: no lock, no atomic.
type Game = Rc<Cell<u64>>;

thread_local! {
    /// The worker is on the program's thread, so its handlers see the same state.
    static GAME: Game = Game::default();
}

/// Returns the app.
pub(crate) fn app() -> App {
    App::new()
        .get("/tick", |game: PerWorker<Game>| game.get().to_string())
        .post("/reset", |game: PerWorker<Game>| game.set(0))
        .per_worker(|| GAME.with(Rc::clone))
}

/// Advances the game every 50 ms, and answers requests in between, until `is_over` returns true.
pub(crate) fn play(
    worker: &mut Worker<impl highwire::server::Driver>,
    is_over: impl Fn(u64) -> bool,
) -> highwire::Result<()> {
    let mut poll = Poll::new()?;
    let descriptor = worker.descriptor()?;
    poll.registry().register(&mut SourceFd(&descriptor), SERVER, Interest::READABLE)?;
    let (game, mut events) = (GAME.with(Rc::clone), Events::with_capacity(8));
    let mut next_tick = Instant::now();
    while !worker.turn_ready()? && !is_over(game.get()) {
        if Instant::now() >= next_tick {
            game.set(game.get() + 1);
            next_tick += Duration::from_millis(50);
        }
        poll.poll(&mut events, Some(next_tick.saturating_duration_since(Instant::now())))?;
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests call `app` and `play`")]
fn main() -> highwire::Result<()> {
    let server = app().listen("127.0.0.1:8080")?;
    play(&mut server.into_worker(Runtime::new(Engine::Auto)?)?, |_| false)
}
