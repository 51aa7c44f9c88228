//! Tests pipelined HTTP/1 requests with bodies: the state of one request must not affect the next request.

use crate::engines;
use bytes::Bytes;
use highwire::body::BodyError;
use highwire::server::{Config, Engine};
use highwire::time::sleep;
use highwire::{App, Body, Response, StatusCode, spawn};
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;
use testkit::http1::{Http1, connect_within};

const PATIENCE: Duration = Duration::from_secs(20);

/// The lengths of the bodies that the tasks of `/beside` have read.
static READ: Mutex<Vec<usize>> = Mutex::new(Vec::new());

async fn count(mut body: Body) -> Result<usize, BodyError> {
    let mut bytes = 0;
    while let Some(part) = body.next().await {
        bytes += part?.len();
    }
    Ok(bytes)
}

fn app() -> App {
    App::new()
        // Answers some time after the end of the request's body.
        .post("/late", async |body: Body| {
            let bytes = count(body).await?;
            sleep(Duration::from_millis(20)).await;
            Ok::<_, BodyError>(format!("late {bytes}"))
        })
        // Answers without reading the request's body. A task reads the body later.
        .post("/beside", async |body: Body| {
            spawn(async move {
                sleep(Duration::from_millis(200)).await;
                let bytes = count(body).await.expect("a whole body");
                READ.lock().expect("no panic").push(bytes);
            });
            sleep(Duration::from_millis(20)).await;
            "beside"
        })
        .post("/whole", |body: Bytes| format!("whole {}", body.len()))
        .post("/parts", async |body: Body| Ok::<_, BodyError>(format!("parts {}", count(body).await?)))
        .post("/none", || "none")
}

fn head(path: &str, framing: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a.example\r\n{framing}\r\n\r\n")
}

/// Plays each pair of routes on one connection. Sends the first request together with the head and the first bytes of
/// the second request, and the rest after the first response.
fn pairs(engine: Engine) {
    let set = |config: &mut Config| (config.engine, config.workers) = (engine, 1);
    let handle = app().configure(set).listen("127.0.0.1:0").expect("a free port").start().expect("the server starts");
    for (first, first_answer) in [("/late", "late 5"), ("/beside", "beside"), ("/whole", "whole 5"), ("/none", "none")]
    {
        for (second, second_answer) in
            [("/whole", "whole 7"), ("/parts", "parts 7"), ("/none", "none"), ("/late", "late 7")]
        {
            for framing in ["Transfer-Encoding: chunked", "Content-Length: 7"] {
                let is_chunked = framing.starts_with('T');
                let (some, rest) =
                    if is_chunked { ("3\r\nabc\r\n", "4\r\ndefg\r\n0\r\n\r\n") } else { ("abc", "defg") };
                let mut socket = connect_within(&handle.addresses()[0], PATIENCE);
                let begin = head(first, "Content-Length: 5") + "12345" + &head(second, framing) + some;
                socket.write_all(begin.as_bytes()).expect("an open connection");
                let mut client = Http1::new(socket);
                let what = format!("{engine:?} {first} {second} {framing}");
                assert_eq!(client.response().expect(&what).text(), first_answer, "{what}");
                client.send(rest.as_bytes()).expect("an open connection");
                assert_eq!(client.response().expect(&what).text(), second_answer, "{what}");
            }
        }
    }
    handle.abort();
    handle.join().expect("a server that ends");
}

#[test]
fn each_body_is_its_own_on_uring() {
    if engines::has(Engine::Uring) {
        pairs(Engine::Uring);
    }
}

#[test]
fn each_body_is_its_own_on_readiness() {
    pairs(Engine::Readiness);
    assert!(READ.lock().expect("no panic").iter().all(|&bytes| bytes == 5), "{READ:?}");
}

/// A malformed request follows an answered request, while the connection still keeps the exchange of the answered one.
/// The error response needs a separate exchange, even if its body is sent in parts.
#[test]
fn an_error_behind_an_answer_has_an_answer_of_its_own() {
    let on_error = |status: StatusCode, text: &str| {
        let (mut sender, receiver) = highwire::body::channel();
        let text = Bytes::from(format!("{} {text}", status.as_u16()));
        spawn(async move {
            if sender.send(text).await.is_ok() {
                sender.finish();
            }
        });
        Response::stream(receiver).with_status(status)
    };
    for engine in engines::available(engines::EVENT_LOOPS) {
        for access_log in [false, true] {
            let set = |config: &mut Config| {
                (config.engine, config.workers, config.access_log) = (engine, 1, access_log);
            };
            let app = app().on_error(on_error).configure(set);
            let handle = app.listen("127.0.0.1:0").expect("a free port").start().expect("the server starts");
            for (path, answer) in [("/none", "none"), ("/late", "late 5"), ("/whole", "whole 5")] {
                let what = format!("{engine:?} {access_log} {path}");
                let mut client = Http1::new(connect_within(&handle.addresses()[0], PATIENCE));
                let asked = head(path, "Content-Length: 5") + "12345" + "no request\r\n\r\n";
                client.send(asked.as_bytes()).expect("an open connection");
                assert_eq!(client.response().expect(&what).text(), answer, "{what}");
                let error = client.response().expect(&what);
                assert_eq!((error.status, error.text().starts_with("400 ")), (400, true), "{what}: {}", error.text());
            }
            handle.abort();
            handle.join().expect("a server that ends");
        }
    }
}
