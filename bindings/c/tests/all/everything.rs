//! C and C++ programs with `highwire.h`: compiled by gcc and clang, asked over sockets, and watched by sanitizers and valgrind.
//! Needs a real kernel, because the programs are processes of their own.

use crate::programs;
use crate::programs::{BUILDS, Build, C99, Running, compile, has};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::http1::{body, connect, exchange_text, get};

/// Asks a running `everything` for everything, and stops it.
fn ask_for_everything(running: Running, what: &str) -> String {
    let address = running.address.clone();
    let send = |text: &str| exchange_text(connect(&address), text);
    let shown = send(
        "POST /show?q=a%20b%2B HTTP/1.1\r\nHost: a\r\nX-Y: z\r\nCookie: b=1; c=\"two\"\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\n\r\nf=1+%2B",
    );
    let expected = "POST /show 11\nHost: a\nX-Y: z\nCookie: b=1; c=\"two\"\nConnection: close\n\
                    Content-Type: application/x-www-form-urlencoded\nContent-Length: 7\nq=a b+\nf=1 +\nc=two\nf=1+%2B";
    assert_eq!(body(&shown), expected, "{what}");
    assert!(shown.contains("\r\nserver: everything\r\n") || shown.contains("\r\nServer: everything\r\n"), "{shown}");

    let fields = get(&address, "/fields");
    assert!(fields.starts_with("HTTP/1.1 201 ") && fields.ends_with("made"), "{what}: {fields}");
    assert_eq!(fields.to_lowercase().matches("x-many: 0123456789\r\n").count(), 80, "{what}");
    assert!(fields.to_lowercase().contains("content-length: 4\r\n"), "{fields}");
    assert!(!fields.to_lowercase().contains("x-two"), "{fields}");

    assert_eq!(body(&get(&address, "/misuse")), "still here", "{what}");
    assert_eq!(body(&get(&address, "/nowhere")), "nothing of that name", "{what}");
    for number in 0..20 {
        let path = format!("/thread/{number}");
        assert_eq!(body(&get(&address, &path)), format!("{path} for a"), "{what}");
    }
    // One request waits for the other, and both are on the only worker.
    let (one, two) = (connect(&address), connect(&address));
    let both = [one, two].map(|stream| {
        std::thread::spawn(move || exchange_text(stream, "GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    });
    let mut both = both.map(|thread| body(&thread.join().expect("an answer")).to_string());
    both.sort();
    assert_eq!(both, ["I am the second one", "the second one came"], "{what}");

    let big = send("GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    // One more is in the name of the trailer.
    assert_eq!(big.matches('x').count(), 1000 * 8192 + 1, "{what}");
    assert!(big.len() > 1000 * 8192 && big.to_lowercase().ends_with("x-sum: 7\r\n\r\n"), "{what}");
    // A client that leaves in the middle.
    let mut stream = connect(&address);
    std::io::Write::write_all(&mut stream, b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
    std::io::Read::read_exact(&mut stream, &mut [0; 20_000]).expect("a part");
    drop(stream);
    let mut stream = connect(&address);
    std::io::Write::write_all(&mut stream, b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
    let mut cut = Vec::new();
    // The reset tells the client that the body is not whole.
    std::io::Read::read_to_end(&mut stream, &mut cut).expect_err("the connection is reset");
    let cut = String::from_utf8_lossy(&cut).to_lowercase();
    assert!(cut.contains("content-length: 100\r\n"), "{what}: {cut}");

    let upload = |length: usize, text: &str| {
        send(&format!(
            "POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{text}"
        ))
    };
    assert_eq!(body(&upload(0, "")), "0 HIGHWIRE_OK", "{what}");
    let long = "x".repeat(3_000_000);
    assert_eq!(body(&upload(long.len(), &long)), "3000000 HIGHWIRE_OK", "{what}");
    // The client leaves before the end of its upload.
    let mut stream = connect(&address);
    std::io::Write::write_all(&mut stream, b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx")
        .expect("a part");
    drop(stream);

    for (query, expected) in [
        ("path=/fields", "HIGHWIRE_OK 201 11 1 made 0"),
        ("path=/nowhere", "HIGHWIRE_OK 404 11  nothing of that name 0"),
        // Longer than the client takes whole, but not part by part.
        ("path=/big", "HIGHWIRE_FAILED 0 0   0"),
        ("path=/big&parts=all", "HIGHWIRE_OK 200 11   8192000"),
        ("path=/cut", "HIGHWIRE_FAILED 0 0   0"),
        // Paused behind each of the first parts.
        ("path=/big&parts=paused", "HIGHWIRE_OK 200 11   8192000"),
        // Bodies in parts: of no announced length, of one that is right, of one that is not, and one that is cut.
        ("path=/upload&upload=any", "HIGHWIRE_OK 200 11  819200 HIGHWIRE_OK 0"),
        ("path=/upload&upload=long", "HIGHWIRE_OK 200 11  819200 HIGHWIRE_OK 0"),
        ("path=/upload&upload=short", "HIGHWIRE_FAILED 0 0   0"),
        ("path=/upload&upload=cut", "HIGHWIRE_FAILED 0 0   0"),
        // To a handler that answers before it has read the body.
        ("path=/nowhere&upload=any", "HIGHWIRE_OK 404 11  nothing of that name 0"),
        ("path=/upload&upload=any&cancel=now", "HIGHWIRE_GONE 0 0   0"),
        // Over HTTP/2.
        ("path=/upload&upload=any&http2=1", "HIGHWIRE_OK 200 20  819200 HIGHWIRE_OK 0"),
        ("path=/upload&upload=long&http2=1", "HIGHWIRE_OK 200 20  819200 HIGHWIRE_OK 0"),
        ("path=/upload&upload=short&http2=1", "HIGHWIRE_FAILED 0 0   0"),
        ("path=/upload&upload=cut&http2=1", "HIGHWIRE_FAILED 0 0   0"),
        ("path=/nowhere&upload=any&http2=1", "HIGHWIRE_OK 404 20  nothing of that name 0"),
        ("path=/upload&upload=any&cancel=now&http2=1", "HIGHWIRE_GONE 0 0   0"),
        ("path=/big&parts=paused&http2=1", "HIGHWIRE_OK 200 20   8192000"),
    ] {
        assert_eq!(body(&get(&address, &format!("/call?{query}"))), expected, "{what}: {query}");
    }
    for (path, expected) in [
        ("/socket", "echo of the client|4001|"),
        ("/socket&http2=1", "echo of the client|4001|"),
        ("/show&http2=1", "|1006|the server has refused the WebSocket with 501 Not Implemented"),
        ("/show", "|1006|the server has refused the WebSocket with 200 OK"),
        ("/nothing", "|1006|the server has refused the WebSocket with 404 Not Found"),
    ] {
        assert_eq!(body(&get(&address, &format!("/relay?path={path}"))), expected, "{what}: {path}");
    }
    let ended = get(&address, "/call?path=/big&parts=1");
    assert!(body(&ended).starts_with("HIGHWIRE_GONE 0 0   "), "{what}: {ended}");
    for query in ["", "&http2=1"] {
        let ended = get(&address, &format!("/call?path=/big&parts=cancelled{query}"));
        assert!(body(&ended).starts_with("HIGHWIRE_GONE 0 0   "), "{what}: {ended}");
    }
    // The time goes on in a pause.
    let ended = get(&address, "/call?path=/big&parts=stays&hurry=2");
    assert!(body(&ended).starts_with("HIGHWIRE_TIMED_OUT 0 0   "), "{what}: {ended}");
    // The called handler waits for another request.
    for how in ["now", "thread"] {
        let cancelled = get(&address, &format!("/call?path=/wait&cancel={how}"));
        assert_eq!(body(&cancelled), "HIGHWIRE_GONE 0 0   0", "{what}");
    }
    assert_eq!(body(&get(&address, "/call?path=/wait&hurry=1")), "HIGHWIRE_TIMED_OUT 0 0   0", "{what}");
    assert_eq!(body(&get(&address, "/wait")), "I am the second one", "{what}");
    // Last, because a socket that does not read is closed after a minute.
    let mut open = ask_for_websockets(&address, what);
    assert_eq!(body(&get(&address, "/stop")), "stopping", "{what}");
    let code = std::iter::from_fn(|| open.read().ok()).find_map(|message| match message {
        tungstenite::Message::Close(frame) => frame.map(|frame| u16::from(frame.code)),
        _ => None,
    });
    assert_eq!(code, Some(1001), "{what}");
    while open.read().is_ok() {}
    running.end()
}

/// The engines by the number of `HIGHWIRE_ENGINE`: io_uring if there is one, and epoll.
const ENGINES: &[&str] = &["0", "2"];

#[test]
fn every_way_to_answer_in_every_language() {
    for build in BUILDS.iter().filter(|build| has(build.compiler)) {
        let program = compile("tests/all/programs/everything.c", *build);
        for engine in ENGINES {
            let mut command = Command::new(&program);
            command.arg(engine);
            let said = ask_for_everything(Running::start(command), &format!("{build:?}, engine {engine}"));
            assert!(!said.contains("line "), "{said}");
        }
    }
}

/// The library itself is not instrumented, but its reads and writes of the program's memory pass through the program's
/// allocator and the intercepted functions of the C library.
#[test]
fn the_sanitizers_find_nothing() {
    let options = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let build = Build { options, ..C99 };
    let program = compile("tests/all/programs/everything.c", build);
    for engine in ENGINES {
        let mut command = Command::new(&program);
        command.arg(engine).env("ASAN_OPTIONS", "detect_leaks=1");
        let said = ask_for_everything(Running::start(command), &format!("sanitizers, engine {engine}"));
        assert!(!said.contains("Sanitizer") && !said.contains("runtime error"), "{said}");
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !has("valgrind") {
        return;
    }
    let program = compile("tests/all/programs/everything.c", C99);
    let mut command = Command::new("valgrind");
    command.args([
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
        "-q",
    ]);
    // Valgrind's io_uring is not that of the kernel.
    command.arg(program).arg("2");
    let said = ask_for_everything(Running::start(command), "valgrind");
    assert!(!said.contains("=="), "{said}");
}

fn example(name: &str) -> Command {
    let mut command = Command::new(compile(&format!("examples/{name}.c"), C99));
    command.arg("127.0.0.1:0");
    command
}

#[test]
fn the_examples_answer() {
    let hello = Running::start(example("hello"));
    assert_eq!(body(&get(&hello.address, "/hello")), "Hello, World!");
    assert_eq!(body(&get(&hello.address, "/users/a%20b")), "user a b\n");
    assert!(get(&hello.address, "/").starts_with("HTTP/1.1 404 "));
    hello.terminate();

    let upload = Running::start(example("upload"));
    let text = "y".repeat(1_000_000);
    let request =
        format!("POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n{text}");
    assert_eq!(body(&exchange_text(connect(&upload.address), &request)), "1000000 bytes\n");
    upload.terminate();

    let answers = Running::start(example("answers"));
    let language = |fields: &str, text: &str| {
        let head = format!("POST /language HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}", text.len());
        let media_type = "Content-Type: application/x-www-form-urlencoded";
        exchange_text(connect(&answers.address), format!("{head}\r\n{media_type}\r\n{fields}\r\n{text}"))
    };
    let set = language("", "language=fr");
    assert!(set.starts_with("HTTP/1.1 303 ") && set.contains("language=fr; Path=/"), "{set}");
    assert!(language("", "language=fr%0d%0aX-A:1").starts_with("HTTP/1.1 422 "));
    assert!(language("", "").starts_with("HTTP/1.1 400 "));
    let cookie = "GET /language HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: language=fr\r\n\r\n";
    assert_eq!(body(&exchange_text(connect(&answers.address), cookie)), "fr");
    assert_eq!(body(&get(&answers.address, "/primes/100")), "25\n");
    assert!(get(&answers.address, "/primes/x").starts_with("HTTP/1.1 400 "));
    // In HTTP/1.0 the body has no chunks.
    let numbers = exchange_text(connect(&answers.address), "GET /numbers/200000 HTTP/1.0\r\n\r\n");
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(body(&numbers) == expected, "{} bytes", numbers.len());
    answers.terminate();

    let own_loop = Running::start(example("epoll_loop"));
    for _ in 0..5 {
        assert!(body(&get(&own_loop.address, "/ticks")).ends_with(" ticks\n"));
    }
    for name in
        ["libuv_loop", "libevent_loop"].iter().filter(|name| programs::has_libraries(&format!("examples/{name}.c")))
    {
        let running = Running::start(example(name));
        for _ in 0..5 {
            assert!(body(&get(&running.address, "/ticks")).ends_with(" ticks\n"), "{name}");
        }
        running.terminate();
    }
}

#[test]
fn a_program_waits_in_the_loop_of_the_server() {
    let mut command = example("own_loop");
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut last = (0, 0);
    for _ in 0..5 {
        let text = get(&running.address, "/ticks");
        let numbers: Vec<u64> = body(&text).split(' ').filter_map(|word| word.parse().ok()).collect();
        let [ticks, waits] = numbers[..] else { panic!("{text}") };
        assert!(ticks >= last.0 && waits > last.1, "{text}");
        last = (ticks, waits);
    }
    while last.0 == 0 {
        last.0 =
            body(&get(&running.address, "/ticks")).split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    }
    // The end of the program's input ends the server.
    running.end_input();
    assert_eq!(running.end(), "");
}

#[test]
fn a_program_can_allocate_for_the_library() {
    for build in BUILDS.iter().filter(|build| has(build.compiler)) {
        for resize in ["0", "1"] {
            let mut command = Command::new(compile("tests/all/programs/allocator.c", *build));
            command.arg(resize);
            let running = Running::start(command);
            for name in ["a%20b", "", "stop"] {
                let answer = get(&running.address, &format!("/{name}"));
                assert_eq!(answer.starts_with("HTTP/1.1 200 "), !name.is_empty(), "{build:?}: {answer}");
            }
            assert_eq!(running.end(), "", "{build:?}");
        }
    }
}

/// The request waits at the listener before the server starts.
#[test]
fn the_first_request_can_stop_the_server() {
    for attempt in 0..20 {
        let mut command = Command::new(compile("tests/all/programs/allocator.c", C99));
        // With two arguments the program calls `highwire_server_run`, or else `highwire_server_serve`.
        command.args(["0", "run"].iter().take(attempt % 2 * 2));
        let running = Running::start(command);
        assert_eq!(body(&get(&running.address, "/stop")), "stop");
        running.end();
    }
}

#[test]
fn a_handler_calls_an_api() {
    let api = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", api.local_addr().expect("an address"));
    let served = std::thread::spawn(move || {
        [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nsunny",
            "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
            "",
        ]
        .map(|answer| {
            let (mut stream, _) = api.accept().expect("a connection");
            let mut head = [0; 4096];
            let length = std::io::Read::read(&mut stream, &mut head).expect("a request");
            std::io::Write::write_all(&mut stream, answer.as_bytes()).expect("an answer");
            String::from_utf8_lossy(&head[..length]).into_owned()
        })
    });
    let mut command = example("calls_an_api");
    command.arg(url);
    let running = Running::start(command);
    assert_eq!(body(&get(&running.address, "/weather/a%20b")), "sunny");
    for _ in 0..2 {
        assert!(get(&running.address, "/weather/x").starts_with("HTTP/1.1 502 "));
    }
    let heads = served.join().expect("the requests");
    assert!(heads[0].starts_with("GET /a%20b HTTP/1.1\r\n") && heads[0].contains("text/plain"), "{}", heads[0]);
    running.terminate();
}

#[test]
fn uploads_are_forwarded_in_parts() {
    let upload = Running::start(example("upload"));
    let forward = |url: String| {
        let mut command = example("forward");
        command.arg(url);
        Running::start(command)
    };
    let post = |address: &str, length: usize, text: &str| {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        exchange_text(connect(address), head + text)
    };
    let forwarding = forward(format!("http://{}/upload", upload.address));
    let long = "x".repeat(20_000_000);
    for length in [0, 1, 300_000, 20_000_000] {
        let answer = post(&forwarding.address, length, &long[..length]);
        assert_eq!(body(&answer), format!("{length} bytes\n"));
    }
    // A client that leaves in the middle does not disturb the next one.
    let mut stream = connect(&forwarding.address);
    std::io::Write::write_all(&mut stream, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx")
        .expect("a part");
    drop(stream);
    assert_eq!(body(&post(&forwarding.address, 1, "x")), "1 bytes\n");
    forwarding.terminate();
    // A server that answers before the end, and one that is not there.
    let refused = forward(format!("http://{}/nothing", upload.address));
    assert!(post(&refused.address, 300_000, &long[..300_000]).starts_with("HTTP/1.1 404 "));
    refused.terminate();
    upload.terminate();
    let lonely = forward("http://127.0.0.1:1/".to_string());
    assert!(post(&lonely.address, 1, "x").starts_with("HTTP/1.1 502 "));
    lonely.terminate();
}

#[test]
fn lines_are_messages_of_a_websocket() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ws://{}/echo", listener.local_addr().expect("an address"));
    let echo = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut socket = tungstenite::accept(stream).expect("a WebSocket");
        while let Ok(message) = socket.read() {
            if message.is_text() {
                socket.send(message).expect("a peer");
            }
        }
    });
    let mut command = Command::new(compile("examples/websocket_client.c", C99));
    command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a program");
    let lines: String = (0..1000).map(|number| format!("line {number}\n")).collect();
    let mut input = child.stdin.take().expect("a pipe");
    let all = lines.clone();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, all.as_bytes()));
    let output = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said == "ended with 1000: \n", "{said}");
    writer.join().expect("a writer").expect("a reader");
    assert_eq!(String::from_utf8_lossy(&output.stdout), lines);
    echo.join().expect("a server");

    // The credentials of a URL are part of the handshake.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ws://user:pw@{}/a?b=http://c", listener.local_addr().expect("an address"));
    let mut client = Command::new(compile("examples/websocket_client.c", C99));
    let mut client = client.arg(url).stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut head = [0; 4096];
    let length = std::io::Read::read(&mut stream, &mut head).expect("a head");
    let head = String::from_utf8_lossy(&head[..length]).to_lowercase();
    assert!(head.starts_with("get /a?b=http://c ") && head.contains("authorization: basic dxnlcjpwdw==\r\n"), "{head}");
    drop(stream);
    assert_eq!(client.wait().expect("an end").code(), Some(1));

    let refused = Command::new(compile("examples/websocket_client.c", C99))
        .arg("ws://127.0.0.1:1/")
        .stdin(Stdio::null())
        .output()
        .expect("a program");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.starts_with("ended with 1006: ") && said.contains("refused"), "{said}");
}

#[test]
fn notes_are_json() {
    if !programs::has_libraries("examples/json.c") {
        return;
    }
    let notes = Running::start(example("json"));
    let post = |text: &str| {
        let head = "POST /notes HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length";
        exchange_text(connect(&notes.address), format!("{head}: {}\r\n\r\n{text}", text.len()))
    };
    assert_eq!(body(&post("{\"text\": \"a \\\"b\\\" é\"}")), "{\"id\":1,\"text\":\"a \\\"b\\\" é\"}");
    for wrong in ["", "{", "[1]", "{\"text\": 1}"] {
        assert!(post(wrong).starts_with("HTTP/1.1 400 "), "{wrong}");
    }
    let list = get(&notes.address, "/notes");
    assert_eq!(body(&list), "[{\"id\":1,\"text\":\"a \\\"b\\\" é\"}]");
    assert!(list.to_lowercase().contains("content-type: application/json\r\n"), "{list}");
    notes.terminate();
}

#[test]
fn clients_of_the_chat_get_all_messages() {
    let chat = Running::start(example("chat"));
    assert!(get(&chat.address, "/").contains("<title>Chat</title>"));
    assert!(get(&chat.address, "/chat?name=a").starts_with("HTTP/1.1 426 "));
    let open = |name: &str| open(&format!("ws://{}/chat?name={name}", chat.address));
    let mut sockets = ["a", "b"].map(open);
    sockets[0].send("hello".into()).expect("a message");
    for socket in &mut sockets {
        assert_eq!(read(socket), "a: hello");
    }
    // The history.
    assert_eq!(read(&mut open("c")), "a: hello");
    assert!(tungstenite::connect(format!("ws://{}/chat?name=", chat.address)).is_err());
    chat.terminate();
}

type Socket = tungstenite::WebSocket<tungstenite::stream::MaybeTlsStream<std::net::TcpStream>>;

/// Opens a WebSocket with a client that is not ours.
fn open(url: &str) -> Socket {
    let (socket, _) = tungstenite::connect(url).expect("a WebSocket");
    if let tungstenite::stream::MaybeTlsStream::Plain(stream) = socket.get_ref() {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a time limit");
    }
    socket
}

/// Returns the next message.
fn read(socket: &mut Socket) -> String {
    socket.read().expect("a message").into_text().expect("a text").to_string()
}

/// Uses the WebSockets of a running `everything`. Returns one that is open.
fn ask_for_websockets(address: &str, what: &str) -> Socket {
    assert!(get(address, "/socket").starts_with("HTTP/1.1 426 "), "{what}");
    let url = format!("ws://{address}/socket");
    let mut request = tungstenite::client::IntoClientRequest::into_client_request(&url).expect("a request");
    let mut foreign = request.clone();
    foreign.headers_mut().insert("origin", "https://evil.example".parse().expect("an origin"));
    assert!(tungstenite::connect(foreign).is_err(), "{what}");
    let fields = request.headers_mut();
    fields.insert("origin", "https://good.example".parse().expect("an origin"));
    fields.insert("sec-websocket-protocol", "b, c".parse().expect("a list"));
    let (mut socket, response) = tungstenite::connect(request).expect("a WebSocket");
    assert_eq!(response.headers()["sec-websocket-protocol"], "c", "{what}");
    assert_eq!(read(&mut socket), "open", "{what}");
    for text in ["", "hello", &"é".repeat(40_000)] {
        socket.send(format!("echo{text}").into()).expect("a message");
        assert_eq!(read(&mut socket), format!("echo{text}"), "{what}");
    }
    socket.send(tungstenite::Message::binary(vec![0, 255])).expect("a message");
    assert_eq!(socket.read().expect("a message"), tungstenite::Message::binary(vec![0, 255]), "{what}");
    for command in ["misuse", "thread"] {
        socket.send(command.into()).expect("a message");
        assert_eq!(read(&mut socket), format!("done {command}"), "{what}");
    }
    // 2,000 messages of 4 KiB, which do not fit at once.
    socket.send("flood".into()).expect("a message");
    for number in 0..2000 {
        let text = read(&mut socket);
        assert!(text.len() == 4096 && text.starts_with(&format!("{number:08}")), "{what}: {number}: {:.20}", text);
    }
    let mut other = open(&url);
    assert_eq!(read(&mut other), "open", "{what}");
    for socket in [&mut socket, &mut other] {
        socket.send("subscribe".into()).expect("a message");
        assert_eq!(read(socket), "done subscribe", "{what}");
    }
    other.send("publish".into()).expect("a message");
    assert_eq!([read(&mut socket), read(&mut other)], ["published", "published"], "{what}");
    // An end of each kind: without a word, by the client, by the server.
    drop(other);
    let mut closed = open(&url);
    closed.close(None).expect("a close");
    while closed.read().is_ok() {}
    socket.send("close".into()).expect("a message");
    let tungstenite::Message::Close(Some(frame)) = socket.read().expect("a message") else { panic!("{what}") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4000, "as asked"), "{what}");
    while socket.read().is_ok() {}
    // A server that always has another message still hears its peer.
    let mut deaf = open(&url);
    assert_eq!(read(&mut deaf), "open", "{what}");
    deaf.send("forever".into()).expect("a message");
    read(&mut deaf);
    deaf.send("close".into()).expect("a message");
    let closed = (0..20_000).find_map(|_| match deaf.read().expect("a message") {
        tungstenite::Message::Close(frame) => Some(frame.map(|frame| u16::from(frame.code))),
        _ => None,
    });
    assert_eq!(closed, Some(Some(4000)), "{what}");
    // And it can stop, while this one takes nothing.
    let mut stuck = open(&url);
    assert_eq!(read(&mut stuck), "open", "{what}");
    stuck.send("forever".into()).expect("a message");
    read(&mut stuck);
    stuck
}

#[test]
fn every_example_compiles_in_every_language() {
    let folder = programs::root().join("examples");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "c") {
            let name = Path::new("examples").join(path.file_name().expect("a name"));
            if !programs::has_libraries(&name.to_string_lossy()) {
                continue;
            }
            for build in BUILDS.iter().filter(|build| has(build.compiler)) {
                compile(&name.to_string_lossy(), *build);
            }
        }
    }
}
