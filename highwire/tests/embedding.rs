//! A worker inside another event loop, which waits for the worker's descriptor without a timeout. Needs a real kernel,
//! because the descriptor must report I/O, wakes and timers.

use highwire::server::{Driver, Worker};
use highwire::{App, blocking};
use highwire_io::{Readiness, Uring};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::sync::Arc;
use std::time::Duration;
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

fn serve_inside<D: Driver>(driver: D) {
    let server = app().listen("127.0.0.1:0").expect("a free port");
    let address = server.addresses()[0].clone();
    let mut worker: Worker<D> = server.into_worker(driver).expect("a worker");
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

#[test]
fn on_readiness() {
    serve_inside(Readiness::new().expect("a driver"));
}

#[test]
fn on_uring() {
    match Uring::new() {
        Ok(driver) => serve_inside(driver),
        Err(error) => println!("not run: {error}"),
    }
}
