//! Measures the cost of a request outside the kernel. Feeds a worker pipelined requests from memory and prints the time
//! per request in nanoseconds, the best of ten runs. Run it under `valgrind --tool=callgrind` to count instructions
//! instead. The clock that measures the allowance of work stands still, so that both count the same work.
//!
//!     request_cost [PATH [ROUNDS [ROUTES [OBSERVED]]]]
//!
//! `ROUTES` adds that many routes with parameters: `/team0/{a}/task/{b}`, `/team1/{a}/task/{b}` and so on; 1 adds only
//! `/team7/{a}/task/{b}`. The cost of `/team7/a/task/b` with many routes, minus the cost with one, is the cost of
//! finding that route among the others. `OBSERVED` is `metrics`, or `all` for metrics, spans and the access log without a subscriber;
//! the clock of durations is the system's.

use highwire::middleware::RequestSpan;
use highwire::server::{Driver, Worker};
use highwire::{App, Response};
use highwire_io::wake::Notifier;
use highwire_io::{Completion, Instant, Listener, ListenerId, Peer, Queue, Sink, Socket, SocketId, Waitable};

/// A driver with one connection, which receives the same bytes in every turn after the first.
struct Echoless {
    bytes: Vec<u8>,
    accepted: bool,
    sent: usize,
    notifier: Notifier,
}

const SOCKET: SocketId = SocketId { index: 0, generation: 0 };

impl Driver for Echoless {
    fn listen(&mut self, _: Listener) -> std::io::Result<ListenerId> {
        Ok(ListenerId(0))
    }
    fn adopt(&mut self, _: Socket) -> std::io::Result<SocketId> {
        Ok(SOCKET)
    }
    fn descriptor(&mut self) -> std::io::Result<Waitable> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn arm(&mut self, _: Option<Instant>) -> std::io::Result<()> {
        Ok(())
    }
    fn release(&mut self, _: SocketId) -> Option<Socket> {
        None
    }
    fn turn<S: Sink>(&mut self, _: Option<Instant>, queue: &mut Queue, sink: &mut S) -> std::io::Result<()> {
        self.sent += queue.output.len();
        queue.ops.clear();
        queue.output.clear();
        sink.begin(Instant { nanoseconds: 1_000_000_000 });
        if std::mem::replace(&mut self.accepted, true) {
            sink.complete(Completion::Received { socket: SOCKET, bytes: &self.bytes }, queue);
        } else {
            sink.complete(Completion::Accepted { listener: ListenerId(0), socket: SOCKET, peer: Peer::Local }, queue);
        }
        Ok(())
    }
    fn now(&self) -> Instant {
        Instant { nanoseconds: 1_000_000_000 }
    }
    fn stopwatch(&self) -> fn() -> u64 {
        // Under valgrind a turn takes fifty times as long. The allowance of work would then end in each turn.
        || 0
    }
    fn unix_nanoseconds(&self) -> u64 {
        1_800_000_000_000_000_000
    }
    fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }
    fn random(&mut self) -> u64 {
        0
    }
    fn name(&self) -> &'static str {
        "memory"
    }
}

const PIPELINED: usize = 32;

fn worker() -> highwire::Result<Worker<Echoless>> {
    let app = App::new()
        .get("/hello", || Response::bytes("text/plain", bytes::Bytes::from_static(b"Hello, World!")))
        .get("/async", async || Response::bytes("text/plain", bytes::Bytes::from_static(b"Hello, World!")))
        .get("/users/{id}", || "a user");
    let routes: usize = std::env::args().nth(3).and_then(|text| text.parse().ok()).unwrap_or(0);
    let numbers = if routes == 1 { 7..8 } else { 0..routes };
    let app = numbers.fold(app, |app, number| app.get(&format!("/team{number}/{{a}}/task/{{b}}"), || "a task"));
    let observed = std::env::args().nth(4).unwrap_or_default();
    let app = if observed.is_empty() { app } else { app.metrics("/metrics") };
    let app = if observed == "all" { app.with(RequestSpan) } else { app };
    let app = app.configure(|config| config.access_log = observed == "all");
    let path = std::env::args().nth(1).unwrap_or_else(|| "/hello".to_string());
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: localhost:18101\r\n\r\n").repeat(PIPELINED).into_bytes();
    app.server()?.into_worker(Echoless { bytes, accepted: false, sent: 0, notifier: Notifier::new()? })
}

fn main() -> highwire::Result<()> {
    let mut worker = worker()?;
    for _ in 0..3 {
        worker.turn(None)?;
    }
    let rounds = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let mut best = f64::MAX;
    for _ in 0..10 {
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            worker.turn(None)?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (rounds * PIPELINED) as f64);
    }
    println!("{best:.1} ns per request, {} bytes sent", worker.driver().sent);
    Ok(())
}
