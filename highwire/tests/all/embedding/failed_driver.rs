//! Tests that a worker runs no other turn after a turn of its driver has failed, because the kernel may still read the
//! memory of the failed turn. A kernel does not fail on demand, so the driver is the simulated one with a turn that
//! fails.

use highwire::App;
use highwire_io::sim::{Faults, Network, Simulated};
use highwire_io::wake::Notifier;
use highwire_io::{Driver, Instant, Listener, ListenerId, Queue, Sink, Socket, SocketId, Waitable};
use std::cell::Cell;
use std::io::{Error, ErrorKind, Result};
use std::rc::Rc;

struct Failing {
    inner: Simulated,
    fails: Rc<Cell<bool>>,
    turns: Rc<Cell<u32>>,
}

impl Driver for Failing {
    fn listen(&mut self, listener: Listener) -> Result<ListenerId> {
        self.inner.listen(listener)
    }
    fn adopt(&mut self, socket: Socket) -> Result<SocketId> {
        self.inner.adopt(socket)
    }
    fn descriptor(&mut self) -> Result<Waitable> {
        self.inner.descriptor()
    }
    fn arm(&mut self, until: Option<Instant>) -> Result<()> {
        self.inner.arm(until)
    }
    fn release(&mut self, socket: SocketId) -> Option<Socket> {
        self.inner.release(socket)
    }
    fn turn<S: Sink>(&mut self, until: Option<Instant>, queue: &mut Queue, sink: &mut S) -> Result<()> {
        self.turns.set(self.turns.get() + 1);
        if self.fails.get() {
            return Err(Error::from(ErrorKind::OutOfMemory));
        }
        self.inner.turn(until, queue, sink)
    }
    fn now(&self) -> Instant {
        self.inner.now()
    }
    fn unix_nanoseconds(&self) -> u64 {
        self.inner.unix_nanoseconds()
    }
    fn notifier(&self) -> Notifier {
        self.inner.notifier()
    }
    fn random(&mut self) -> u64 {
        self.inner.random()
    }
    fn name(&self) -> &'static str {
        "failing"
    }
}

#[test]
fn a_worker_takes_no_turn_after_one_that_failed() {
    let (fails, turns) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let network = Network::new(1, Faults::default());
    let inner = Simulated::new(network.clone()).expect("a driver");
    let driver = Failing { inner, fails: fails.clone(), turns: turns.clone() };
    let app = App::new().get("/", || "hello");
    let mut worker = app.server().expect("an app").into_worker(driver).expect("a worker");
    let client = network.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(worker.turn(Some(network.now())).is_ok());
    fails.set(true);
    assert!(worker.turn(Some(network.now())).is_err());
    fails.set(false);
    let before = turns.get();
    for _ in 0..3 {
        assert!(worker.turn(Some(network.now())).is_err(), "the worker went on");
        assert!(worker.turn_ready().is_err(), "the worker went on");
    }
    assert_eq!(turns.get(), before, "the driver was given another turn");
}
