//! A worker inside another event loop, which waits for the worker's descriptor without a timeout. Needs a real kernel,
//! because the descriptor must report I/O, wakes and timers.

use crate::engines;
use highwire::server::{Engine, Runtime};
use highwire::topics::{Start, Topics};
use highwire::{App, blocking};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use testkit::http1::{connect_within, exchange_text};

fn app() -> App {
    App::new()
        .get("/now", || "now")
        .get("/later", async || {
            highwire::time::sleep(Duration::from_millis(20)).await;
            "later"
        })
        .get("/elsewhere", blocking(|| "elsewhere"))
        .get("/task", async || {
            let (mut sender, receiver) = highwire::body::channel();
            highwire::spawn(async move {
                highwire::time::sleep(Duration::from_millis(5)).await;
                if sender.send("task").await.is_ok() {
                    sender.finish();
                }
            });
            highwire::Response::stream(receiver)
        })
        .configure(|config| config.workers = 1)
}

fn ask(address: &str, path: &str) -> String {
    // This is shorter than the timeouts of heads, bodies and handlers, whose timers would wake a worker that missed an
    // event.
    let stream = connect_within(address, Duration::from_secs(8));
    exchange_text(stream, format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
}

fn serve_inside(engine: Engine) {
    let server = app().listen("127.0.0.1:0").expect("a free port");
    let address = server.addresses()[0].clone();
    let runtime = Runtime::new(engine).expect("a driver");
    let mut worker = server.into_worker(runtime).expect("a worker");
    let mut outer = Poll::new().expect("an outer loop");
    // The client uses this waker only at its end. Until then, only the worker's descriptor may wake the loop.
    let done = Arc::new(Waker::new(outer.registry(), Token(1)).expect("a waker"));
    let its = done.clone();
    let client = std::thread::spawn(move || {
        for _ in 0..3 {
            for (path, end) in
                [("/now", "now"), ("/later", "later"), ("/elsewhere", "elsewhere"), ("/task", "4\r\ntask\r\n0\r\n\r\n")]
            {
                assert!(ask(&address, path).ends_with(end), "{path}");
            }
        }
        its.wake().expect("the test waits");
    });
    let descriptor = worker.descriptor().expect("a descriptor");
    outer.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE).expect("it is registered");
    let mut events = Events::with_capacity(4);
    while !events.iter().any(|event| event.token() == Token(1)) {
        worker.turn_ready().expect("a turn");
        outer.poll(&mut events, None).expect("the outer loop waits");
    }
    client.join().expect("every answer arrives");
    drop(done);
}

/// Two workers on one thread: the subscribers of one do not depend on the other.
#[test]
fn subscribers_of_a_worker_outlive_another_one_on_their_thread() {
    let topics = Topics::new();
    let subscribed = Arc::new(AtomicUsize::new(0));
    let workers: [_; 2] = std::array::from_fn(|_| {
        let (topics, subscribed) = (topics.clone(), subscribed.clone());
        let handler = move || {
            let mut subscription = topics.subscribe("news", Start::Next).expect("a topic");
            subscribed.fetch_add(1, Ordering::Relaxed);
            async move { format!("{}", subscription.recv().await.is_some()) }
        };
        let server = App::new().get("/next", handler).listen("127.0.0.1:0").expect("a free port");
        let address = server.addresses()[0].clone();
        (server.into_worker(Runtime::new(Engine::Readiness).expect("a driver")).expect("a worker"), address)
    });
    let [(mut first, first_address), (mut second, second_address)] = workers;
    let limit = Instant::now() + Duration::from_secs(8);
    let cut = std::thread::spawn(move || ask(&first_address, "/next"));
    while subscribed.load(Ordering::Relaxed) < 1 && Instant::now() < limit {
        first.turn_ready().expect("a turn");
    }
    let client = std::thread::spawn(move || ask(&second_address, "/next"));
    while subscribed.load(Ordering::Relaxed) < 2 && Instant::now() < limit {
        first.turn_ready().expect("a turn");
        second.turn_ready().expect("a turn");
    }
    drop(first);
    // On another thread, so that the worker must be woken.
    std::thread::spawn(move || topics.publish("news", "hello").expect("a message")).join().expect("a message");
    while !client.is_finished() && Instant::now() < limit {
        second.turn_ready().expect("a turn");
    }
    assert!(client.is_finished(), "the message does not arrive");
    let answer = client.join().expect("an answer");
    assert!(answer.ends_with("true"), "{answer}");
    assert_eq!(cut.join().expect("an end"), "");
}

#[test]
fn on_readiness() {
    serve_inside(Engine::Readiness);
}

#[test]
fn on_uring() {
    if engines::has(Engine::Uring) {
        serve_inside(Engine::Uring);
    }
}
