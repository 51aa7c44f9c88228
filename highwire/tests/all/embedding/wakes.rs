//! Tests wakes of an embedded worker from its own thread. Between two turns, the host answers a `Reply` or wakes a
//! handler's waker. Then the worker's descriptor must become readable, and the response must be sent.
//!
//! Needs a real kernel, because the host waits only for the worker's descriptor.

use crate::engines;
use highwire::server::{Engine, Runtime, Worker};
use highwire::{App, Reply, Response};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest time that a client waits for its response.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest time that the host waits in a step. It is more than [`PATIENCE`], so that the client fails first.
const HOST_PATIENCE: Duration = Duration::from_secs(20);

/// The longest wait until the descriptor is readable after a wake. The descriptor should be readable at once, because
/// the wake is complete by then.
const SOON: Duration = Duration::from_secs(1);

/// The wait after which a descriptor counts as not readable.
const SHORT: Duration = Duration::from_millis(10);

/// The number of turns after which a worker must have nothing left to do.
const IDLE_TURNS: usize = 1000;

const ROUNDS: usize = 5;

/// A gate at which handlers wait until the host opens it.
#[derive(Default)]
struct Gate {
    is_open: bool,
    wakers: Vec<Waker>,
    replies: Vec<Reply>,
}

type SharedGate = Arc<Mutex<Gate>>;

fn lock(gate: &SharedGate) -> MutexGuard<'_, Gate> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the gate is open, and closes it.
async fn pass(gate: SharedGate) -> &'static str {
    poll_fn(|cx| {
        let mut gate = lock(&gate);
        if std::mem::take(&mut gate.is_open) {
            return std::task::Poll::Ready(());
        }
        gate.wakers.push(cx.waker().clone());
        std::task::Poll::Pending
    })
    .await;
    "passed"
}

/// The wakers and replies that wait at a gate.
struct Waiting {
    wakers: Vec<Waker>,
    replies: Vec<Reply>,
}

/// Takes the wakers and replies that wait at the gate, or returns `None` if there are none.
fn waiting(gate: &SharedGate) -> Option<Waiting> {
    let mut gate = lock(gate);
    let waiting = Waiting { wakers: std::mem::take(&mut gate.wakers), replies: std::mem::take(&mut gate.replies) };
    (!waiting.wakers.is_empty() || !waiting.replies.is_empty()).then_some(waiting)
}

impl Waiting {
    /// Opens the gate: wakes the wakers and answers the replies, on the current thread.
    fn release(self, gate: &SharedGate) {
        if !self.wakers.is_empty() {
            lock(gate).is_open = true;
        }
        self.wakers.into_iter().for_each(Waker::wake);
        self.replies.into_iter().for_each(|reply| reply.send("passed"));
    }
}

/// The paths of the handlers, each of which waits until the host has opened the gate.
const PATHS: [&str; 5] = ["/waker", "/reply", "/spawned", "/timer", "/twice"];

fn app(gate: &SharedGate) -> App {
    let shared = || gate.clone();
    let (waker, reply, spawned, timer, twice) = (shared(), shared(), shared(), shared(), shared());
    App::new()
        .get("/waker", move || pass(waker.clone()))
        .get("/reply", move |held: Reply| lock(&reply).replies.push(held))
        // A task waits at the gate and then sends the response's body.
        .get("/spawned", move || {
            let gate = spawned.clone();
            async move {
                let (mut sender, receiver) = highwire::body::channel();
                highwire::spawn(async move {
                    let text = pass(gate).await;
                    if sender.send(text).await.is_ok() {
                        sender.finish();
                    }
                });
                Response::stream(receiver)
            }
        })
        // After the wake, the handler starts a timer, which the descriptor must report too.
        .get("/timer", move || {
            let gate = timer.clone();
            async move {
                let text = pass(gate).await;
                highwire::time::sleep(Duration::from_millis(5)).await;
                text
            }
        })
        .get("/twice", move || {
            let gate = twice.clone();
            async move {
                pass(gate.clone()).await;
                pass(gate).await
            }
        })
        .configure(|config| config.workers = 1)
}

/// Sends a request on a new thread, which returns the response.
fn ask(address: &str, path: &str) -> JoinHandle<String> {
    let (address, path) = (address.to_string(), path.to_string());
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        read.unwrap_or_else(|error| panic!("{path}: no response: {error}; so far {answer:?}"));
        answer
    })
}

fn check_answer(client: JoinHandle<String>, context: &str) {
    let answer = client.join().unwrap_or_else(|_| panic!("{context}: the client gave up"));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("passed"), "{context}: {answer}");
}

/// Returns true if a descriptor becomes readable within this time. A new epoll instance also reports a descriptor that
/// is already readable, as poll(2) does.
fn is_readable(descriptor: RawFd, within: Duration) -> bool {
    let mut poll = Poll::new().expect("an epoll instance");
    poll.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE).expect("it is registered");
    let mut events = Events::with_capacity(4);
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match poll.poll(&mut events, Some(left)) {
            Ok(()) if !events.is_empty() => return true,
            Ok(()) if left.is_zero() => return false,
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the host cannot wait: {error}"),
        }
    }
}

/// A host with an embedded worker, and in some tests a second one on the same thread.
struct Host {
    worker: Worker<Runtime>,
    descriptor: RawFd,
    address: String,
    neighbour: Option<Worker<Runtime>>,
}

impl Host {
    fn new(engine: Engine, gate: &SharedGate, has_neighbour: bool) -> Host {
        let embed = |app: App| {
            let server = app.listen("127.0.0.1:0").expect("a free port");
            let address = server.addresses()[0].clone();
            let runtime = Runtime::new(engine).expect("a driver");
            let mut worker = server.into_worker(runtime).expect("a worker");
            let descriptor = worker.descriptor().expect("a descriptor");
            worker.turn_ready().expect("a turn");
            (worker, descriptor, address)
        };
        let (worker, descriptor, address) = embed(app(gate));
        let neighbour = has_neighbour.then(|| embed(app(gate)).0);
        Host { worker, descriptor, address, neighbour }
    }

    /// Runs a turn of the worker and then one of the neighbor, whose turn is thus the last one on this thread.
    fn turn(&mut self) {
        self.worker.turn_ready().expect("a turn");
        if let Some(neighbour) = &mut self.neighbour {
            neighbour.turn_ready().expect("a turn");
        }
    }

    /// Runs a turn whenever the descriptor is readable, until `holds` returns a value.
    fn turn_until<T>(&mut self, context: &str, mut holds: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = holds() {
                return found;
            }
            assert!(begun.elapsed() < HOST_PATIENCE, "{context}: the host waits in vain");
            if is_readable(self.descriptor, SHORT) {
                self.turn();
            }
        }
    }

    /// Runs turns until the descriptor is no longer readable.
    fn rest(&mut self, context: &str) {
        for _ in 0..IDLE_TURNS {
            if !is_readable(self.descriptor, SHORT) {
                return;
            }
            self.turn();
        }
        panic!("{context}: the descriptor stays readable");
    }
}

fn check(engine: Engine) {
    for has_neighbour in [false, true] {
        let gate = SharedGate::default();
        let mut host = Host::new(engine, &gate, has_neighbour);
        for round in 0..ROUNDS {
            for path in PATHS {
                let client = ask(&host.address, path);
                let steps = if path == "/twice" { 2 } else { 1 };
                for step in 0..steps {
                    let context = format!("{path}, round {round}, step {step}, a neighbour: {has_neighbour}");
                    let waiting = host.turn_until(&context, || waiting(&gate));
                    host.rest(&context);
                    waiting.release(&gate);
                    assert!(is_readable(host.descriptor, SOON), "{context}: the wake does not reach the descriptor");
                    host.turn();
                }
                let context = format!("{path}, round {round}, a neighbour: {has_neighbour}");
                host.turn_until(&context, || client.is_finished().then_some(()));
                check_answer(client, &context);
            }
        }
    }
}

/// Tests a host whose loop is a current-thread tokio runtime, where other tasks and timers wake the worker's handlers.
fn check_inside_tokio(engine: Engine) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let gate = SharedGate::default();
        let app = app(&gate).get("/tokio", async || {
            tokio::time::sleep(Duration::from_millis(5)).await;
            "passed"
        });
        let server = app.listen("127.0.0.1:0").expect("a free port");
        let address = server.addresses()[0].clone();
        let runtime = Runtime::new(engine).expect("a driver");
        let mut worker = server.into_worker(runtime).expect("a worker");
        let descriptor = worker.descriptor().expect("a descriptor");
        let interest = tokio::io::Interest::READABLE;
        #[expect(deprecated, reason = "what takes its place is unsafe to call")]
        let descriptor = tokio::io::unix::AsyncFd::with_interest(descriptor, interest).expect("it is registered");
        worker.turn_ready().expect("a turn");
        for round in 0..ROUNDS {
            for path in PATHS.into_iter().chain(["/tokio"]) {
                let context = format!("{path}, round {round}, inside tokio");
                let client = ask(&address, path);
                let begun = Instant::now();
                while !client.is_finished() {
                    assert!(begun.elapsed() < HOST_PATIENCE, "{context}: the host waits in vain");
                    // Only the descriptor causes a turn. The timeout lets the host notice that the client is done.
                    let Ok(ready) = tokio::time::timeout(SHORT, descriptor.readable()).await else { continue };
                    ready.expect("the runtime watches the descriptor").clear_ready();
                    worker.turn_ready().expect("a turn");
                    if let Some(waiting) = waiting(&gate) {
                        let gate = gate.clone();
                        tokio::task::spawn_local(async move {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                            waiting.release(&gate);
                        });
                    }
                }
                check_answer(client, &context);
            }
        }
    });
}

#[test]
fn wakes_between_turns_reach_the_descriptor_on_readiness() {
    check(Engine::Readiness);
}

#[test]
fn wakes_between_turns_reach_the_descriptor_on_uring() {
    if engines::has(Engine::Uring) {
        check(Engine::Uring);
    }
}

#[test]
fn tasks_of_a_tokio_host_wake_handlers_on_readiness() {
    check_inside_tokio(Engine::Readiness);
}

#[test]
fn tasks_of_a_tokio_host_wake_handlers_on_uring() {
    if engines::has(Engine::Uring) {
        check_inside_tokio(Engine::Uring);
    }
}
