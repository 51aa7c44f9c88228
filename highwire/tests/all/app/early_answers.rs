//! Answers that come before the end of the request's body: the last one on a connection says so.

use crate::served::{serve, stop};
use highwire::proxy::Proxy;
use highwire::{App, Body};
use std::io::Write;
use std::net::TcpListener;
use testkit::http1::{connect, exchange_text};

#[test]
fn the_answer_to_a_body_that_nobody_takes_says_that_the_connection_closes() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("an address");
    let to = format!("http://{}", upstream.local_addr().expect("an address"));
    std::thread::spawn(move || {
        // These stay open, so only the answer tells the proxy that the upload is of no use.
        let mut streams = Vec::new();
        for stream in upstream.incoming() {
            let mut stream = stream.expect("a connection");
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").expect("the proxy reads");
            streams.push(stream);
        }
    });
    let app = App::new()
        .post("/drops", async |body: Body| drop(body))
        .post("/begins", async |mut body: Body| {
            let first = body.next().await;
            first.map(|part| part.map_or(0, |part| part.len())).unwrap_or_default().to_string()
        })
        .proxy("/proxied", Proxy::to([&*to]).expect("a proxy"))
        .proxy("/gone", Proxy::to(["http://127.0.0.1:1"]).expect("a proxy"));
    let (handle, url) = serve(app);
    let address = url.strip_prefix("http://").expect("a URL");
    for (path, status) in [("/drops", "200"), ("/begins", "200"), ("/proxied", "403"), ("/gone", "502")] {
        for rest in ["Content-Length: 10000000\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"] {
            let answer = exchange_text(connect(address), format!("POST {path} HTTP/1.1\r\nHost: a\r\n{rest}"));
            let head = answer.split_once("\r\n\r\n").expect("a head").0.to_ascii_lowercase();
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{path}: {answer}");
            assert!(head.contains("\r\nconnection: close"), "{path}: {answer}");
        }
    }
    // The connection stays if the proxy has the whole body.
    let mut stream = connect(address);
    stream.write_all(b"POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").expect("the server reads");
    let answers = exchange_text(stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "{answers}");
    stop([handle]);
}
