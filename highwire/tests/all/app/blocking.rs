//! Tests blocking jobs whose requests end before the jobs begin. The arguments are dropped, and the jobs are not run.

use bytes::Bytes;
use highwire::middleware::{Next, OwnedRequest, Timeout, after, from_fn};
use highwire::testing::Client;
use highwire::{App, FromRequest, Handler, Reply, Request, Response, State, blocking, spawn_blocking};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest time that the test waits for other threads.
const PATIENCE: Duration = Duration::from_secs(60);

/// The handlers' ends of the channels to and from the test.
struct Ends {
    say: Mutex<Sender<&'static str>>,
    gate: Mutex<Receiver<()>>,
}

impl Ends {
    fn say(&self, word: &'static str) {
        self.say.lock().unwrap_or_else(PoisonError::into_inner).send(word).expect("the test listens");
    }

    fn pass(&self) {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).recv().expect("the test releases");
        self.say("passed");
    }
}

/// An argument of a job. Its drop sends a word to the test, and then panics.
struct Witness(State<Arc<Ends>>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.say("dropped");
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
}

impl FromRequest for Witness {
    fn from_request(request: &mut Request<'_>) -> Result<Witness, Response> {
        State::from_request(request).map(Witness)
    }
}

#[test]
fn a_job_whose_request_is_over_before_it_begins_holds_nothing_and_is_not_done() {
    let job = blocking(|witness: Witness, _: Bytes| witness.0.say("done"));
    let (release, gate) = channel::<()>();
    let (say, said) = channel();
    let app = App::new()
        .state(Arc::new(Ends { say: Mutex::new(say), gate: Mutex::new(gate) }))
        .configure(|config| config.limits.blocking_threads = 1)
        // Starts a job that nothing cancels. The job occupies the pool's thread until the gate opens.
        .get("/hold", async |ends: State<Arc<Ends>>| {
            highwire::spawn(async move { spawn_blocking(move || ends.pass()).await.expect("the pool has room") });
        })
        .post("/bare", job.clone())
        .post("/inside", job.clone().with(after(|_: &mut Response| ())))
        .post("/hasty", job.clone().with(Timeout::new(Duration::from_secs(1))))
        .post("/waiting", job.with(from_fn(async |request: OwnedRequest, next: Next| next.run(request).await)))
        .post("/own", blocking(|_: Reply, witness: Witness, _: Bytes| witness.0.say("done")));
    let mut client = Client::new(app).expect("an app");
    for path in ["/bare", "/inside", "/hasty", "/waiting", "/own"] {
        assert_eq!(client.get("/hold").send().status(), 200);
        // This request times out.
        let mut open = client.post(path).body("a body").open();
        open.received(&mut client);
        client.advance(Duration::from_secs(61));
        let answer = open.received(&mut client).clone();
        assert_eq!((answer.status().as_u16(), answer.header("retry-after")), (503, "1"), "{path}");
        assert_eq!(said.try_recv(), Ok("dropped"), "{path}");
        // The pool runs the job of this request after it has skipped the job of the request that timed out.
        assert_eq!(client.get("/hold").send().status(), 200);
        for _ in 0..2 {
            release.send(()).expect("a job waits");
            assert_eq!(said.recv_timeout(PATIENCE), Ok("passed"), "{path}");
        }
    }
}
