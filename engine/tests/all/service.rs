//! Tests the contract between the engine and a service over sockets, without the crate `highwire`: for a service of a
//! known type and for a boxed one.

use highwire_engine::http::StatusCode;
use highwire_engine::proto::Head;
use highwire_engine::request::{Caller, Ready};
use highwire_engine::time::{Sleep, sleep};
use highwire_engine::{Begin, BodyUse, Config, Handle, MakeService, Outcome, Response, Server, Service};
use std::io::Write;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::time::Duration;
use testkit::http1::{body, connect, exchange_text, get};

const PATHS: [&str; 7] = ["/now", "/later", "/never", "/thread", "/panic", "/body", "/forgets"];

/// An event that a service reports to the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Waits,
    Cancelled,
    Ended,
}

struct Test {
    said: Sender<Said>,
    sleeping: Vec<Option<Sleep>>,
}

impl Test {
    fn say(&self, said: Said) {
        self.said.send(said).expect("the test has stopped receiving");
    }
}

impl Service for Test {
    fn route(&mut self, head: &Head, window: &[u8], _: Caller<'_>) -> Result<u32, Box<Response>> {
        let path = head.target.path.of(window);
        let found = PATHS.iter().position(|known| known.as_bytes() == path);
        found.map(|route| route as u32).ok_or_else(|| Box::new(self.error(StatusCode::NOT_FOUND, "nothing here")))
    }

    fn body_use(&self, route: u32) -> BodyUse {
        if PATHS[route as usize] == "/body" { BodyUse::Whole } else { BodyUse::None }
    }

    fn body_limit(&self, _: u32, _: BodyUse) -> Option<u64> {
        Some(5)
    }

    fn begin(&mut self, request: Begin<'_>, answer: &mut Option<Response>) -> Outcome {
        match PATHS[request.route as usize] {
            "/now" => *answer = Some(Response::text("now")),
            "/later" => {
                let mut sleep = sleep(Duration::from_millis(5));
                let waker = request.task.waker();
                assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
                self.sleeping.push(Some(sleep));
                return Outcome::Pending(self.sleeping.len() as u32 - 1);
            }
            "/never" => {
                self.say(Said::Waits);
                return Outcome::Pending(u32::MAX);
            }
            "/thread" => {
                let replier = request.hooks.reply_later(request.task.waker());
                std::thread::spawn(move || replier.send(|| Response::text("from a thread")));
            }
            "/body" => {
                let Ready::Whole(bytes) = std::mem::take(request.body) else { return Outcome::Ready };
                *answer = Some(Response::bytes("text/plain", bytes));
            }
            "/forgets" => {}
            _ => std::panic::resume_unwind(Box::new("on purpose")),
        }
        Outcome::Ready
    }

    fn poll(&mut self, (route, place): (u32, u32), cx: &mut Context<'_>) -> Poll<Response> {
        let Some(sleep) = self.sleeping.get_mut(place as usize).and_then(Option::as_mut) else { return Poll::Pending };
        assert_eq!(PATHS[route as usize], "/later");
        let Poll::Ready(()) = Pin::new(sleep).poll(cx) else { return Poll::Pending };
        self.sleeping[place as usize] = None;
        Poll::Ready(Response::text("later"))
    }

    fn cancel(&mut self, (route, _): (u32, u32)) {
        assert_eq!(PATHS[route as usize], "/never");
        self.say(Said::Cancelled);
    }

    fn end(&mut self) {
        self.say(Said::Ended);
    }
}

fn start(make: impl MakeService) -> Handle {
    let mut config = Config::default();
    config.workers = 2;
    let server =
        Server::new(make, config).and_then(|server| server.listen("127.0.0.1:0")).expect("cannot create the server");
    server.start().expect("cannot start the server")
}

fn check(said: &Receiver<Said>, handle: Handle) {
    let hear = || said.recv_timeout(Duration::from_secs(20)).expect("the service reported nothing within 20 seconds");
    let address = handle.addresses()[0].clone();
    for (path, status, text) in [
        ("/now", 200, "now"),
        ("/later", 200, "later"),
        ("/thread", 200, "from a thread"),
        ("/panic", 500, "internal server error\n"),
        ("/forgets", 500, "internal server error\n"),
        ("/nothing", 404, "nothing here\n"),
        ("/now", 200, "now"),
    ] {
        let answer = get(&address, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert_eq!(body(&answer), text, "{path}");
    }
    for (sent, status, text) in [
        ("5\r\n\r\nhello", 200, "hello"),
        ("6\r\n\r\nhello!", 413, "the body is larger than the 5 bytes that are taken here\n"),
    ] {
        let request = format!("POST /body HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {sent}");
        let answer = exchange_text(connect(&address), request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(body(&answer), text);
    }
    let mut stream = connect(&address);
    stream.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").expect("cannot send the request");
    assert_eq!(hear(), Said::Waits);
    handle.abort();
    handle.join().expect("the server did not stop");
    // Each of the two workers has a service, so two services report their end.
    let mut all = [hear(), hear(), hear()];
    all.sort_by_key(|said| *said as u8);
    assert_eq!(all, [Said::Cancelled, Said::Ended, Said::Ended]);
}

#[test]
fn a_service_of_a_known_type_answers() {
    let (sender, said) = channel();
    check(&said, start(move |_: &_| Test { said: sender.clone(), sleeping: Vec::new() }));
}

#[test]
fn a_service_behind_a_pointer_answers() {
    let (sender, said) = channel();
    let make = move |_: &_| -> Box<dyn Service> { Box::new(Test { said: sender.clone(), sleeping: Vec::new() }) };
    check(&said, start(make));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let mut config = Config::default();
    (config.http1, config.http2_cleartext, config.http2_tls) = (false, false, false);
    let make = |_: &_| -> Box<dyn Service> { unreachable!("the server does not start") };
    let error = Server::new(make, config).expect_err("all protocols are turned off");
    assert!(error.to_string().starts_with("HTTP/1 and HTTP/2 are both turned off"), "{error}");
}
