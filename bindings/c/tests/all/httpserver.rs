//! Programs that were written for httpserver.h. Needs a real kernel, because the programs are processes of their own.

use crate::programs::{BUILDS, Build, C99, compile, has};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::http1::{Http1, body, connect, exchange_text, get};
use testkit::ports::free_ports;

/// Starts a program, and waits until it listens, at most 20 seconds.
fn start(mut command: Command, port: u16) -> Child {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a program");
    let until = Instant::now() + Duration::from_secs(20);
    while !testkit::http1::listens(("127.0.0.1", port)) {
        if let Some(status) = child.try_wait().expect("a status") {
            let mut said = String::new();
            let _ = child.stderr.take().expect("a pipe").read_to_string(&mut said);
            panic!("the program has ended: {status}: {said}");
        }
        assert!(Instant::now() < until, "the program does not listen");
        std::thread::yield_now();
    }
    child
}

fn ask(build: Build, mode: &str, wrapper: &[&str]) {
    let program = compile("tests/all/programs/httpserver.c", build);
    let what = format!("{build:?}, {mode}");
    let port = free_ports(2);
    let mut command = Command::new(wrapper.first().map_or(program.as_os_str(), |first| first.as_ref()));
    if let [_, rest @ ..] = wrapper {
        command.args(rest).arg(&program);
    }
    command.args([&port.to_string(), mode]);
    let mut child = start(command, port);
    let address = format!("127.0.0.1:{port}");
    let send = |request: &str| exchange_text(connect(&address), request);

    let filled = send("GET /filled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(filled.starts_with("HTTP/1.1 201 ") && filled.contains("x-thread: yes"), "{what}: {filled}");
    assert!(filled.ends_with("filled"), "{what}: {filled}");
    // Another thread answers, before its handler returns, after that, or at the same time.
    let mut client = Http1::new(connect(&address));
    for count in 0..200 {
        let target = if count % 4 == 0 { "/elsewhere/before" } else { "/elsewhere" };
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("a request");
        let answer = client.response().unwrap_or_else(|error| panic!("{what}: {target} {count}: {error}"));
        assert_eq!((answer.status, answer.text()), (202, "from another thread"), "{what}");
    }
    // The answer to each chunk comes before the next chunk is sent.
    let mut duplex = connect(&address);
    let head = "POST /duplex HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    duplex.write_all(head.as_bytes()).expect("a head");
    for (wanted, next) in [("begin", "3\r\none\r\n"), ("one", "3\r\ntwo\r\n"), ("two", "0\r\n\r\n"), ("0\r\n\r\n", "")]
    {
        let mut got = String::new();
        while !got.contains(wanted) {
            let mut bytes = [0; 1024];
            let count = duplex.read(&mut bytes).expect("bytes");
            assert_ne!(count, 0, "{what}: the end behind {got:?}, before {wanted:?}");
            got += &String::from_utf8_lossy(&bytes[..count]);
        }
        duplex.write_all(next.as_bytes()).expect("a chunk");
    }
    let length = "POST /terminated HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    assert!(send(length).ends_with("a NUL"), "{what}");

    // One connection: different requests, pipelined too, and its own value.
    let mut client = Http1::new(connect(&address));
    client
        .send(
            b"GET /count HTTP/1.1\r\nHost: a\r\n\r\nPOST /echo?x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        )
        .expect(&what);
    assert_eq!(client.response().expect(&what).text(), "request 1", "{what}");
    assert_eq!(client.response().expect(&what).text(), "hello", "{what}");
    client.send(b"GET /count HTTP/1.1\r\nHost: a\r\n\r\n").expect(&what);
    assert_eq!(client.response().expect(&what).text(), "request 2", "{what}");
    let mut other = Http1::new(connect(&address));
    other.send(b"GET /count HTTP/1.1\r\nHost: a\r\n\r\n").expect(&what);
    assert_eq!(other.response().expect(&what).text(), "request 1", "{what}");

    let headers = send("GET /headers HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nConnection: close\r\nx-a: 2\r\n\r\n");
    assert_eq!(body(&headers), "Host=a;X-A=1;Connection=close;x-a=2;1", "{what}");
    // The last field comes first.
    let (one, two) = (headers.to_lowercase().find("x-one: 1"), headers.to_lowercase().find("x-two: "));
    assert!(two.is_some() && two < one, "{headers}");

    assert_eq!(body(&get(&address, "/later")), "later", "{what}");
    late_answers_have_the_parts_of_their_own_request(&address, &what);
    assert_eq!(get(&address, "/tick").matches("chunk,").count(), 2, "{what}");
    assert!(get(&address, "/nothing").starts_with("HTTP/1.1 404 "), "{what}");
    assert!(get(&address, "/free").starts_with("HTTP/1.1 500 "), "{what}");
    assert!(!get(&address, "/split").to_lowercase().contains("x-b"), "{what}");
    // The server closes.
    assert!(send("GET /close HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("closing"), "{what}");

    let chunked = get(&address, "/chunked");
    assert!(chunked.starts_with("HTTP/1.1 201 ") && chunked.to_lowercase().contains("x-first: 1"), "{chunked}");
    assert_eq!((chunked.matches("chunk,").count(), chunked.matches("first,").count()), (3, 1), "{chunked}");
    assert!(chunked.to_lowercase().ends_with("0\r\nx-trailer: end\r\n\r\n"), "{chunked}");
    // To HTTP/1.0 without the framing.
    let old = send("GET /chunked HTTP/1.0\r\n\r\n");
    assert_eq!(body(&old), "first,chunk,chunk,chunk,", "{old}");
    assert_eq!(get(&address, "/big").matches('y').count(), 6_553_600, "{what}");
    // A client that leaves in the middle.
    let mut stream = connect(&address);
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
    stream.read_exact(&mut [0; 1000]).expect("a part");
    drop(stream);

    let upload = |head: &str, text: &str| {
        body(&send(&format!("POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{head}\r\n\r\n{text}")))
            .to_string()
    };
    let long = "z".repeat(1_000_000);
    assert_eq!(upload("Content-Length: 1000000", &long), "1000000 bytes, streamed 1, body 0", "{what}");
    assert_eq!(upload("Content-Length: 5", "hello"), "5 bytes, streamed 0, body 5", "{what}");
    assert_eq!(upload("Content-Length: 0", ""), "0 bytes, streamed 0, body 0", "{what}");
    let framed = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    assert_eq!(upload("Transfer-Encoding: chunked", framed), "11 bytes, streamed 1, body 0", "{what}");
    let mut stream = connect(&address);
    stream.write_all(b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\nx").expect("a part");
    drop(stream);

    assert_eq!(body(&get(&address, "/own")), "own", "{what}");

    // A request that no parser may accept, and one that waits for the second server.
    assert!(send("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1,1\r\n\r\n").starts_with("HTTP/1.1 400 "), "{what}");
    let second = format!("127.0.0.1:{}", port + 1);
    let mut waiting = connect(&second);
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("a request");
    assert_eq!(body(&get(&address, "/nested")), "nested", "{what}");
    let mut said = String::new();
    if mode == "listen" {
        // Only handlers serve the second server.
        get(&address, "/nested");
        get(&address, "/nested");
    }
    waiting.read_to_string(&mut said).expect("an answer");
    assert_eq!(body(&said), "second", "{what}");

    let mut stream = connect(&address);
    stream.write_all(b"GET /stop HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
    let mut said = String::new();
    let _ = child.stderr.take().expect("a pipe").read_to_string(&mut said);
    assert!(child.wait().expect("a status").success(), "{what}: {said}");
    assert!(!said.contains("Sanitizer") && !said.contains("=="), "{what}: {said}");
}

/// The program keeps the parts of each request that its handler was given, and answers with them 20 ms later. Meanwhile
/// others send requests, on this connection and on other ones, and clients leave.
fn late_answers_have_the_parts_of_their_own_request(address: &str, what: &str) {
    let request = |target: &str, token: &str, body: &str| {
        let (method, length) = if body.is_empty() { ("GET", 0) } else { ("POST", body.len()) };
        let head = format!("{method} /later?{target} HTTP/1.1\r\nHost: a\r\nX-Token: {token}\r\n");
        head + &format!("Content-Length: {length}\r\n\r\n{body}")
    };
    let expected = |target: &str, token: &str, body: &str| format!("/later?{target}|{token}|{body}");
    let mut clients: Vec<_> = (0..12).map(|_| Http1::new(connect(address))).collect();
    for round in 0..3 {
        // These leave at once, so that others get their slots while the program holds their parts.
        for number in 0..4 {
            let text = request(&format!("gone-{round}-{number}"), "gone", "");
            connect(address).write_all(text.as_bytes()).expect("a request");
        }
        let asked =
            |client: usize| (format!("{client}-{round}"), char::from(b'a' + client as u8).to_string().repeat(4));
        for (number, client) in clients.iter_mut().enumerate() {
            let (target, token) = asked(number);
            // The second one arrives while the first one waits.
            let both = request(&target, &token, "") + &request("the-next-one-whose-target-is-longer", "next", "body");
            client.send(both.as_bytes()).expect(what);
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let (target, token) = asked(number);
            assert_eq!(client.response().expect(what).text(), expected(&target, &token, ""), "{what}");
            let next = expected("the-next-one-whose-target-is-longer", "next", "body");
            assert_eq!(client.response().expect(what).text(), next, "{what}");
        }
    }
}

#[test]
fn programs_for_httpserver_run_unchanged() {
    for build in BUILDS.iter().filter(|build| has(build.compiler)) {
        for mode in ["listen", "poll", "thread"] {
            ask(*build, mode, &[]);
        }
    }
}

#[test]
fn the_sanitizers_find_nothing() {
    let options = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    ask(Build { options, ..C99 }, "listen", &["env", "ASAN_OPTIONS=detect_leaks=0"]);
}

#[test]
fn valgrind_finds_nothing() {
    if has("valgrind") {
        ask(C99, "listen", &["valgrind", "-q", "--error-exitcode=9"]);
    }
}
