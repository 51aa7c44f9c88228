//! Tests that exchanges end in the same way on every [`Carrier`]: HTTP/1 on a socket, HTTP/2 on a socket, and a call of
//! the app in this process. The tables list requests with the expected response, the expected notes of the handler
//! about the request's body, and the expected status in the access log. If the outcome on a carrier differs, the row
//! contains the difference.
//!
//! Needs a real kernel, because the tests are about ends of connections and about responses before the end of a
//! request.
#![cfg(feature = "tower")]

mod asked;
mod carriers;
mod engines;

use asked::{Stuck, echo, start};
use bytes::Bytes;
use carriers::{Failure, Log, Reading, by_call, check_fields, logged, over_http1, over_http2};
use futures_core::Stream;
use highwire::body::{self, BodyError};
use highwire::server::{Config, Engine};
use highwire::{
    App, Body, HeaderName, HeaderValue, Https, InterimResponses, Path, RawQuery, Reply, Response, StatusCode, header,
};
use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// The longest time that a step of a test may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Five bytes of a body as [`Case::bytes`] makes them.
const FIVE: &str = "xxxxx";

const TOO_LONG: &str = "the body is larger than the 1000 bytes that are taken here\n";
const TOO_LONG_IN_PARTS: &str = "the body is larger than the 2000 bytes that are taken here\n";
const PANICKED: &str = "internal server error\n";
const TOO_SLOW: &str = "the request's body came too slowly\n";
const TIMED_OUT: &str = "the answer took too long\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Http1,
    Http2,
    Call,
}

const CARRIERS: [Carrier; 3] = [Carrier::Http1, Carrier::Http2, Carrier::Call];

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// After its head, because it has no body.
    Bodiless,
    Whole,
    /// With the trailer field `x-sum: 1`.
    Trailers,
    /// Early, with fewer bytes than announced.
    Short,
    /// Not at all. The client waits for the response.
    Never,
    /// The client goes away when the handler has begun.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Whole {
        status: u16,
        body: String,
    },
    /// The response ended early, and the client noticed. The status is 0 if no head arrived.
    Cut {
        status: u16,
        body: String,
    },
    /// The client did not wait for the response.
    Unseen,
    /// The server broke the protocol, or went silent.
    Broken(String),
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    answer: Answer,
    trailers: String,
    /// Statuses of the interim responses.
    interim: Vec<u16>,
    /// The handler's notes about the request's body.
    notes: Vec<String>,
    /// Statuses in the access log.
    logged: Vec<u16>,
}

/// A carrier, and how its outcome differs.
type Difference = (Carrier, fn(&mut Outcome));

struct Case {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    /// The lengths of the parts of the request's body.
    parts: &'static [usize],
    announced: Option<u64>,
    ends: Ends,
    expected: Outcome,
    differences: Vec<Difference>,
}

fn whole(status: u16, body: &str) -> Answer {
    Answer::Whole { status, body: body.to_string() }
}

fn cut(status: u16, body: &str) -> Answer {
    Answer::Cut { status, body: body.to_string() }
}

fn case(name: &'static str, asked: &'static str, answer: Answer) -> Case {
    let (method, path) = asked.split_once(' ').expect("a method and a path");
    let logged = match &answer {
        Answer::Whole { status, .. } | Answer::Cut { status, .. } => vec![*status],
        Answer::Unseen | Answer::Broken(_) => Vec::new(),
    };
    let expected = Outcome { answer, trailers: String::new(), interim: Vec::new(), notes: Vec::new(), logged };
    let (parts, announced, ends) = (&[], None, Ends::Bodiless);
    Case { name, method, path, parts, announced, ends, expected, differences: Vec::new() }
}

impl Case {
    fn sends(self, parts: &'static [usize], ends: Ends) -> Case {
        Case { parts, ends, ..self }
    }

    fn announces(self, length: u64) -> Case {
        Case { announced: Some(length), ..self }
    }

    fn trailers(mut self, trailers: &str) -> Case {
        self.expected.trailers = trailers.to_string();
        self
    }

    fn notes(mut self, notes: &[&str]) -> Case {
        self.expected.notes = notes.iter().map(|note| note.to_string()).collect();
        self
    }

    fn interim(mut self, status: u16) -> Case {
        self.expected.interim.push(status);
        self
    }

    /// Adds a difference in the outcome of one carrier.
    fn but(mut self, carrier: Carrier, difference: fn(&mut Outcome)) -> Case {
        self.differences.push((carrier, difference));
        self
    }

    fn expected(&self, carrier: Carrier) -> Outcome {
        let mut expected = self.expected.clone();
        self.differences.iter().filter(|(of, _)| *of == carrier).for_each(|(_, differ)| differ(&mut expected));
        expected
    }

    fn bytes(&self) -> VecDeque<Vec<u8>> {
        self.parts.iter().map(|&length| vec![b'x'; length]).collect()
    }
}

fn answers() -> Vec<Case> {
    vec![
        case("a plain answer", "GET /plain", whole(200, "plain")),
        case("HEAD", "HEAD /plain", whole(200, "")),
        case("HEAD of nothing", "HEAD /nothing", whole(200, "")),
        case("OPTIONS", "OPTIONS /plain", whole(204, "")),
        case("an async answer", "GET /async", whole(200, "async")),
        case("a Reply from another thread", "GET /reply", whole(200, "replied")),
        case("a Reply that is dropped", "GET /reply/dropped", whole(500, PANICKED)),
        // A call drops interim responses.
        case("an interim response", "GET /interim", whole(200, "hinted"))
            .interim(103)
            .but(Carrier::Call, |outcome| outcome.interim.clear()),
        case("204 with content", "GET /status/204", whole(204, "")),
        case("205 with content", "GET /status/205", whole(205, "")),
        case("304 with content", "GET /status/304", whole(304, "")),
        case("an interim status as the final one", "GET /status/103", whole(500, "content")),
        case("no route", "GET /missing", whole(404, "not found\n")),
        case("another method", "DELETE /plain", whole(405, "the method is not allowed here\n")),
        case("an unknown method", "BREW /plain", whole(501, "this method is not implemented here\n")),
        case("a path above the root", "GET /../x", whole(400, "the path climbs above its root\n")),
        case("a stream", "GET /stream/open", whole(200, "abc")),
        case("a stream with its length", "GET /stream/known", whole(200, "abc")),
        case("HEAD of a stream", "HEAD /stream/open", whole(200, "")),
        case("HEAD of a stream with its length", "HEAD /stream/known", whole(200, "")),
        case("HEAD of a stream that fails", "HEAD /stream/fails", whole(200, "")),
        case("HEAD of a stream with trailers", "HEAD /stream/trailers", whole(200, "")),
        case("trailers", "GET /stream/trailers", whole(200, "abc")).trailers("x-sum: 1"),
        // A message with Content-Length has no place for trailers (RFC 9112 section 7.1.2).
        case("trailers behind a known length", "GET /stream/known-trailers", whole(200, "abc"))
            .trailers("x-sum: 1")
            .but(Carrier::Http1, |outcome| outcome.trailers.clear()),
        case("trailers behind no bytes", "GET /stream/empty-trailers", whole(200, "")).trailers("x-sum: 1"),
        case("a stream of no bytes", "GET /stream/empty", whole(200, "")),
    ]
}

fn failures() -> Vec<Case> {
    vec![
        case("a stream fails midway", "GET /stream/fails", cut(200, "ab")),
        case("a stream fails at once", "GET /stream/fails-at-once", cut(200, "")),
        case("a stream panics midway", "GET /stream/panics", cut(200, "ab")),
        case("trailers panic", "GET /stream/bad-trailers", cut(200, "abc")),
        case("a stream is longer than announced", "GET /stream/long", cut(200, "")),
        case("a stream is shorter than announced", "GET /stream/short", cut(200, "abc")),
        case("a plain handler panics", "GET /panics/plain", whole(500, PANICKED)),
        case("an async handler panics at once", "GET /panics/async", whole(500, PANICKED)),
        case("an async handler panics later", "GET /panics/later", whole(500, PANICKED)),
        case("a handler with a Reply panics", "GET /panics/reply", whole(500, PANICKED)),
        case("a panic with the whole body", "POST /panics/whole", whole(500, PANICKED)).sends(&[5], Ends::Whole),
        case("a panic before the body is read", "POST /panics/parts", whole(500, PANICKED)).sends(&[5], Ends::Never),
        case("a panic after the body is read", "POST /panics/read", whole(500, PANICKED)).sends(&[2, 3], Ends::Whole),
    ]
}

fn bodies() -> Vec<Case> {
    use Carrier::{Call, Http1, Http2};
    use Ends::{Gone, Never, Short, Trailers, Whole};
    vec![
        case("a whole body", "POST /whole", whole(200, FIVE)).sends(&[2, 3], Whole).notes(&["5 bytes"]),
        case("a whole body with its length", "POST /whole", whole(200, FIVE))
            .sends(&[5], Whole)
            .announces(5)
            .notes(&["5 bytes"]),
        case("no body for a handler of whole bodies", "POST /whole", whole(200, "")).notes(&["0 bytes"]),
        case("a body in parts", "POST /parts", whole(200, "read")).sends(&[2, 3], Whole).notes(&["5 bytes"]),
        case("no body for a handler of bodies in parts", "POST /parts", whole(200, "read")).notes(&["0 bytes"]),
        case("a body in parts with trailers", "POST /parts", whole(200, "read"))
            .sends(&[5], Trailers)
            .notes(&["5 bytes, x-sum"]),
        case("an echo with trailers", "POST /echo", whole(200, FIVE)).sends(&[2, 3], Trailers).trailers("x-sum: 1"),
        case("a body that no handler takes", "POST /ignored", whole(200, "ignored")).sends(&[5], Whole),
        case("an endless body that no handler takes", "POST /ignored", whole(200, "ignored")).sends(&[5], Never),
        case("a long body that no handler takes", "POST /ignored", whole(200, "ignored")).sends(&[100_000], Whole),
        case("a body that is dropped", "POST /drops", whole(200, "dropped")).sends(&[5], Never),
        case("a whole body over its bound", "POST /whole", whole(413, TOO_LONG)).sends(&[600, 600], Never),
        case("a whole body is announced over its bound", "POST /whole", whole(413, TOO_LONG))
            .sends(&[], Never)
            .announces(1001),
        case("parts over their bound", "POST /parts", whole(413, TOO_LONG_IN_PARTS)).sends(&[1500, 1500], Never),
        case("parts over their bound in a task", "POST /task", whole(413, TOO_LONG_IN_PARTS))
            .sends(&[1500, 1500], Never)
            .notes(&["begun", "TooLarge"]),
        case("parts are announced over their bound", "POST /task", whole(413, TOO_LONG_IN_PARTS))
            .sends(&[], Never)
            .announces(2001),
        // The body has one part. With two parts, the server might send back the first before the second arrives.
        case("parts over their bound after the response's head", "POST /echo", cut(200, "")).sends(&[3000], Never),
        case("parts over their bound during the response", "POST /beside", cut(200, ""))
            .sends(&[1500, 1500], Never)
            .notes(&["TooLarge"]),
        // Over HTTP/1 the client has closed only its own direction, so the server responds with the reason. A stream of
        // HTTP/2 is reset (RFC 9113 section 8.1.1) without a response.
        case("a whole body shorter than announced", "POST /whole", whole(400, asked::SHORT))
            .sends(&[2], Short)
            .announces(5)
            .but(Http1, |outcome| outcome.answer = whole(400, "the connection ended inside a message\n"))
            .but(Http2, |outcome| (outcome.answer, outcome.logged) = (cut(0, ""), vec![499])),
        // In a call only the body is wrong, so the handler decides about the response.
        case("parts shorter than announced", "POST /task", whole(200, "read"))
            .sends(&[2], Short)
            .announces(5)
            .notes(&["begun", "CutShort"])
            .but(Http1, |outcome| {
                (outcome.answer, outcome.logged) = (whole(400, "the connection ended inside a message\n"), vec![400]);
            })
            .but(Http2, |outcome| (outcome.answer, outcome.logged) = (cut(0, ""), vec![499])),
        // Over HTTP/1 a client that goes away looks like one that has closed only its direction, so the server
        // responds.
        case("the client goes away in the middle of a body", "POST /task", Answer::Unseen)
            .sends(&[5], Gone)
            .notes(&["begun", "CutShort"])
            .but(Http1, |outcome| outcome.logged = vec![400])
            .but(Http2, |outcome| outcome.logged = vec![499])
            .but(Call, |outcome| outcome.logged = vec![499]),
    ]
}

/// The cases for a server with a handler timeout of 300 milliseconds and a least body rate of one megabyte per second.
fn deadlines() -> Vec<Case> {
    use Ends::{Never, Whole};
    vec![
        case("a handler that never answers", "GET /never", whole(503, TIMED_OUT)),
        case("a Reply that is kept", "GET /reply/kept", whole(503, TIMED_OUT)),
        case("a stream that stays pending", "GET /stream/stuck", cut(200, "")),
        case("a handler that never answers has the whole body", "POST /late", whole(503, TIMED_OUT))
            .sends(&[5], Whole)
            .notes(&["5 bytes"]),
        case("a handler that never answers reads no body", "POST /late", whole(503, TIMED_OUT))
            .sends(&[300_000], Never)
            .notes(&["CutShort"]),
        case("a handler that never answers waits for its body", "POST /late", whole(408, TOO_SLOW))
            .sends(&[5], Never)
            .notes(&["TooSlow"]),
        case("a whole body is too slow", "POST /whole", whole(408, TOO_SLOW)).sends(&[5], Never),
        case("parts are too slow", "POST /parts", whole(408, TOO_SLOW)).sends(&[5], Never),
        case("parts are too slow for a task", "POST /task", whole(408, TOO_SLOW))
            .sends(&[5], Never)
            .notes(&["begun", "TooSlow"]),
        case("an echo whose request never ends", "POST /echo", cut(200, FIVE)).sends(&[5], Never),
    ]
}

/// The notes of handlers, each with the query of its request.
static NOTES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
static NOTED: Condvar = Condvar::new();

fn note(tag: &str, what: &str) {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push((tag.to_string(), what.to_string()));
    NOTED.notify_all();
}

fn notes_of(tag: &str, notes: &[(String, String)]) -> Vec<String> {
    notes.iter().filter(|(of, _)| of == tag).map(|(_, what)| what.clone()).collect()
}

/// Waits until there are `count` notes for a request, for [`PATIENCE`] at most, and returns the notes.
fn noted(tag: &str, count: usize) -> Vec<String> {
    let notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let waits = NOTED.wait_timeout_while(notes, PATIENCE, |notes| notes_of(tag, notes.as_slice()).len() < count);
    let (notes, _) = waits.unwrap_or_else(PoisonError::into_inner);
    notes_of(tag, notes.as_slice())
}

/// Reads a body and notes its length and trailers, or its error. The length before an error depends on the carrier, so
/// it is not noted.
async fn read(tag: &str, mut body: Body) {
    let mut count = 0;
    while let Some(part) = body.next().await {
        match part {
            Ok(part) => count += part.len(),
            Err(error) => return note(tag, &format!("{error:?}")),
        }
    }
    let trailers: String = body.trailers().iter().map(|(name, _)| format!(", {name}")).collect();
    note(tag, &format!("{count} bytes{trailers}"));
}

/// Reads the body in a task, which continues if the exchange is cancelled.
fn read_in_task(RawQuery(tag): RawQuery, body: Body, reply: Reply) {
    note(&tag, "begun");
    highwire::spawn(async move {
        read(&tag, body).await;
        reply.send("read");
    });
}

/// Never answers. Once this handler is cancelled, a task reads the body.
async fn read_late(RawQuery(tag): RawQuery, body: Body) {
    let (held, mut dropped) = body::channel();
    highwire::spawn(async move {
        poll_fn(|cx| Pin::new(&mut dropped).poll_next(cx)).await;
        read(&tag, body).await;
    });
    pending::<()>().await;
    drop(held);
}

enum Step {
    Part(&'static str),
    Fail,
    Panic,
}

struct Script(VecDeque<Step>);

impl Stream for Script {
    type Item = Result<Bytes, BodyError>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match self.0.pop_front() {
            None => None,
            Some(Step::Part(part)) => Some(Ok(Bytes::from_static(part.as_bytes()))),
            Some(Step::Fail) => Some(Err(BodyError::CutShort)),
            Some(Step::Panic) => panic!("on purpose"),
        })
    }
}

fn stream(Path(kind): Path<String>) -> Response {
    use Step::{Fail, Panic, Part};
    let script = |steps: Vec<Step>| Script(steps.into());
    let abc = || script(vec![Part("ab"), Part(""), Part("c")]);
    let sum = || vec![(HeaderName::from_static("x-sum"), HeaderValue::from_static("1"))];
    match kind.as_str() {
        "open" => Response::stream(abc()),
        "known" => Response::stream_of(3, abc()),
        "empty" => Response::stream_of(0, script(Vec::new())),
        "trailers" => Response::stream(abc()).with_trailers(sum),
        "known-trailers" => Response::stream_of(3, abc()).with_trailers(sum),
        "empty-trailers" => Response::stream_of(0, script(Vec::new())).with_trailers(sum),
        "bad-trailers" => Response::stream(abc()).with_trailers(|| panic!("on purpose")),
        "fails" => Response::stream(script(vec![Part("ab"), Fail])),
        "fails-at-once" => Response::stream(script(vec![Fail])),
        "panics" => Response::stream(script(vec![Part("ab"), Panic])),
        "long" => Response::stream_of(2, script(vec![Part("abc")])),
        "short" => Response::stream_of(4, abc()),
        _ => Response::stream(Stuck),
    }
}

fn app() -> App {
    let link = || (header::LINK, HeaderValue::from_static("</style.css>; rel=preload"));
    App::new()
        .https(Https::new().hsts(Duration::from_secs(60)))
        .get("/plain", || "plain")
        .get("/nothing", || ())
        .get("/async", async || {
            highwire::time::sleep(Duration::from_millis(1)).await;
            "async"
        })
        .get("/never", async || pending::<&'static str>().await)
        .get("/reply", |reply: Reply| drop(std::thread::spawn(move || reply.send("replied"))))
        .get("/reply/dropped", |reply: Reply| drop(reply))
        .get("/reply/kept", |reply: Reply| {
            highwire::spawn(async move {
                pending::<()>().await;
                drop(reply);
            });
        })
        .get("/interim", move |interim: InterimResponses| {
            interim.send(StatusCode::EARLY_HINTS, [link()]);
            "hinted"
        })
        .get("/status/{code}", |Path(code): Path<u16>| (StatusCode::from_u16(code).expect("a status"), "content"))
        .get("/stream/{kind}", stream)
        .get("/panics/plain", || -> &'static str { panic!("on purpose") })
        .get("/panics/async", async || -> &'static str { panic!("on purpose") })
        .get("/panics/later", async || -> &'static str {
            highwire::time::sleep(Duration::from_millis(1)).await;
            panic!("on purpose")
        })
        .get("/panics/reply", |_: Reply| -> &'static str { panic!("on purpose") })
        .post("/panics/whole", |_: Bytes| -> &'static str { panic!("on purpose") })
        .post("/panics/parts", |_: Body| -> &'static str { panic!("on purpose") })
        .post("/panics/read", async |mut body: Body| -> &'static str {
            while body.next().await.is_some() {}
            panic!("on purpose")
        })
        .post("/whole", |RawQuery(tag): RawQuery, text: String| {
            note(&tag, &format!("{} bytes", text.len()));
            text
        })
        .post("/parts", async |RawQuery(tag): RawQuery, body: Body| {
            read(&tag, body).await;
            "read"
        })
        .post("/task", read_in_task)
        .post("/late", read_late)
        .post("/echo", echo)
        .post("/beside", |RawQuery(tag): RawQuery, body: Body| {
            let (sender, receiver) = highwire::body::channel();
            highwire::spawn(async move {
                read(&tag, body).await;
                drop(sender);
            });
            Response::stream(receiver)
        })
        .post("/ignored", || "ignored")
        .post("/drops", |body: Body| {
            drop(body);
            "dropped"
        })
}

/// An outcome, and the fields of the response.
type Played = (Outcome, Vec<String>);

fn outcome_of(read: Result<(), Failure>, reading: Reading, case: &Case, tag: &str) -> Played {
    let Reading { status, interim, mut fields, body, trailers } = reading;
    let body = String::from_utf8_lossy(&body).into_owned();
    let answer = match read {
        Ok(()) => Answer::Whole { status, body },
        Err(Failure::Cut) => Answer::Cut { status, body },
        Err(Failure::Unseen) => Answer::Unseen,
        Err(Failure::Broken(error)) => Answer::Broken(error),
    };
    // A task may note the end of a body after the response.
    let notes = noted(tag, case.expected.notes.len());
    let logged = logged(tag);
    fields.sort();
    (Outcome { answer, trailers: trailers.join("\n"), interim, notes, logged }, fields)
}

/// Plays a table on all carriers and returns the mismatches.
fn play(engine: Engine, table: &str, settings: fn(&mut Config), cases: &[Case]) -> Vec<String> {
    let set = |config: &mut Config| {
        (config.engine, config.workers, config.access_log) = (engine, 1, true);
        settings(config);
    };
    let handle = app().configure(set).listen("127.0.0.1:0").expect("a free port").start().expect("the server starts");
    let (address, service) = (handle.addresses()[0].as_str(), start(app().configure(set)));
    let play_case = |carrier: Carrier, (at, case): (usize, &Case)| {
        let tag = format!("{engine:?}-{table}-{carrier:?}-{at}");
        let mut reading = Reading::default();
        let read = match carrier {
            Carrier::Http1 => over_http1(address, case, &tag, &mut reading),
            Carrier::Http2 => over_http2(address, case, &tag, &mut reading),
            Carrier::Call => by_call(&service, case, &tag, &mut reading),
        };
        outcome_of(read, reading, case, &tag)
    };
    let play_all = |carrier| cases.iter().enumerate().map(|case| play_case(carrier, case)).collect::<Vec<Played>>();
    let played = std::thread::scope(|scope| {
        let threads = CARRIERS.map(|carrier| scope.spawn(move || play_all(carrier)));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    let mut wrong: Vec<String> = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for (carrier, played_here) in CARRIERS.into_iter().zip(&played) {
            let ((outcome, fields), expected) = (&played_here[at], case.expected(carrier));
            if *outcome != expected {
                wrong.push(format!("{}, {carrier:?}: {outcome:?}\n    expected {expected:?}", case.name));
            } else if let (Answer::Whole { .. }, (by_http1, fields_by_http1)) = (&outcome.answer, &played[0][at])
                // Compares only equal responses, because another body may have another Content-Length.
                && outcome.answer == by_http1.answer
                && let Err(error) = check_fields(carrier, fields, fields_by_http1)
            {
                wrong.push(format!("{}, {carrier:?}: {error}", case.name));
            }
        }
    }
    handle.abort();
    handle.join().expect("a server that ends");
    wrong
}

fn check(engine: Engine) {
    static LOG: Once = Once::new();
    LOG.call_once(|| tracing::subscriber::set_global_default(Log).expect("no other subscriber is set"));
    let bounds = |config: &mut Config| (config.limits.body_bytes, config.limits.streamed_body_bytes) = (1000, 2000);
    let short_times = |config: &mut Config| {
        (config.timeouts.handler, config.timeouts.body) = (Duration::from_millis(300), Duration::from_secs(1));
        config.timeouts.body_rate = 1_000_000;
    };
    let bounded: Vec<Case> = answers().into_iter().chain(failures()).chain(bodies()).collect();
    let mut wrong = play(engine, "bounds", bounds, &bounded);
    wrong.extend(play(engine, "deadlines", short_times, &deadlines()));
    assert!(wrong.is_empty(), "{engine:?}: {} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn exchanges_end_alike_on_uring() {
    if engines::has(Engine::Uring) {
        check(Engine::Uring);
    }
}

#[test]
fn exchanges_end_alike_on_readiness() {
    check(Engine::Readiness);
}
