//! Programs in the shape of those that other people have written for httpserver.h and Haywire, compiled by each compiler. Needs a
//! real kernel, because the programs are processes of their own.

use crate::programs::{BUILDS, Build, C99, compile, has, root};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::http1::{Http1, body, connect, exchange_text, get};

/// A program that is killed at the end.
struct Program {
    child: Child,
    address: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles and starts a program with a free port and these arguments, and waits until it listens.
fn start(name: &str, build: Build, arguments: &[&str]) -> Program {
    let program = compile(&format!("tests/all/programs/shapes/{name}.c"), build);
    let port = testkit::ports::free_port().to_string();
    let mut command = Command::new(program);
    command.arg(&port).args(arguments).stdout(Stdio::null());
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    let mut program = Program { child: command.spawn().expect("a program"), address: format!("127.0.0.1:{port}") };
    let until = Instant::now() + Duration::from_secs(20);
    while !testkit::http1::listens(&program.address) {
        assert!(program.child.try_wait().expect("a status").is_none(), "{name} has ended");
        assert!(Instant::now() < until, "{name} does not listen");
        std::thread::yield_now();
    }
    program
}

fn static_site(build: Build) {
    let folder = root().join("include");
    let site = start("static_site", build, &[folder.to_str().expect("UTF-8")]);
    let expected = std::fs::read_to_string(folder.join("haywire.h")).expect("a file");
    for _ in 0..20 {
        assert_eq!(body(&get(&site.address, "/haywire.h")), expected, "{build:?}");
    }
    // The server refuses a path that climbs above its root.
    assert!(get(&site.address, "/../Cargo.toml").starts_with("HTTP/1.1 400 "), "{build:?}");
    for path in ["/nothing.html", "/"] {
        let answer = get(&site.address, path);
        assert!(answer.starts_with("HTTP/1.1 404 ") && body(&answer) == "no such file", "{build:?}, {path}: {answer}");
    }
}

fn json_api(build: Build) {
    let api = start("json_api", build, &[]);
    let mut client = Http1::new(connect(&api.address));
    let mut ask = |method: &str, target: &str, body: &str| {
        let length = body.len();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
        client.send(request.as_bytes()).expect("the program reads");
        let response = client.response().expect("a response");
        (response.status, response.text().to_string())
    };
    for number in 1..=20 {
        let title = format!("{{\"title\":\"{number}\"}}");
        assert_eq!(ask("POST", "/items", &title), (201, format!("{{\"id\":{number},\"title\":\"{number}\"}}")));
        // Nothing of the longer body is left behind this one.
        assert_eq!(ask("POST", "/items", "{}"), (400, "{\"error\":\"title is missing\"}".to_string()));
    }
    assert_eq!(ask("PUT", "/items/2", ""), (200, "{}".to_string()));
    assert_eq!(ask("PUT", "/items/21", "").0, 404);
    let (status, list) = ask("GET", "/items", "");
    assert!(status == 200 && list.contains("{\"id\":2,\"title\":\"2\",\"done\":true},"), "{build:?}: {list}");
    assert_eq!(list.matches("\"done\":false").count(), 19, "{build:?}: {list}");
}

fn embedded(build: Build) {
    let program = start("embedded", build, &[]);
    let watched = get(&program.address, "/watch").to_ascii_lowercase();
    assert!(watched.contains("transfer-encoding: chunked"), "{build:?}: {watched}");
    for part in 1..=5 {
        assert!(watched.contains(&format!("part {part}\n")), "{build:?}: {watched}");
    }
    assert_eq!(body(&get(&program.address, "/")), "it runs", "{build:?}");
}

fn upload(build: Build) {
    let program = start("upload", build, &[]);
    let bytes = "0123456789abcdef".repeat(60_000);
    let sum = bytes.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let head = "POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    let length = bytes.len();
    let answer = exchange_text(connect(&program.address), format!("{head}Content-Length: {length}\r\n\r\n{bytes}"));
    assert_eq!(body(&answer), format!("{length} bytes, sum {sum}"), "{build:?}: {answer}");
    let answer = exchange_text(connect(&program.address), format!("{head}Content-Length: 5\r\n\r\nhello"));
    assert_eq!(body(&answer), "5 bytes at once", "{build:?}: {answer}");
}

fn haywire_app(build: Build) {
    let program = start("haywire_app", build, &[]);
    let mut client = Http1::new(connect(&program.address));
    for number in 1..=100 {
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the program reads");
        assert_eq!(client.response().expect("a response").text(), format!("hit {number}"), "{build:?}");
    }
    client.send(b"GET /agent HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8\r\n\r\n").expect("the program reads");
    assert_eq!(client.response().expect("a response").text(), "curl/8\r\n", "{build:?}");
    client.send(b"POST /echo/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").expect("the program reads");
    assert_eq!(client.response().expect("a response").text(), "abc", "{build:?}");
    client.send(b"PUT /echo/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").expect("the program reads");
    assert_eq!(client.response().expect("a response").status, 405, "{build:?}");
    let old = exchange_text(connect(&program.address), "GET / HTTP/1.0\r\n\r\n");
    assert!(old.ends_with("hit 101"), "{build:?}: {old}");
}

fn haywire_pool(build: Build) {
    for threads in ["1", "2"] {
        let program = start("haywire_pool", build, &[threads]);
        let mut clients: Vec<_> = (0..8).map(|_| Http1::new(connect(&program.address))).collect();
        for round in 0..50 {
            for (number, client) in clients.iter_mut().enumerate() {
                let request = format!("GET /work/{number}-{round} HTTP/1.1\r\nHost: a\r\n\r\n");
                client.send(request.as_bytes()).expect("the program reads");
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let text = client.response().expect("a response").text().to_string();
                assert_eq!(text, format!("done: /work/{number}-{round}"), "{build:?}, {threads}");
            }
        }
    }
}

const SHAPES: [fn(Build); 6] = [static_site, json_api, embedded, upload, haywire_app, haywire_pool];

#[test]
fn programs_in_the_shape_of_other_peoples_run() {
    for build in BUILDS.iter().filter(|build| has(build.compiler)) {
        SHAPES.iter().for_each(|shape| shape(*build));
    }
}

#[test]
fn the_sanitizers_find_nothing_in_them() {
    let options = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    SHAPES.iter().for_each(|shape| shape(Build { options, ..C99 }));
}
