//! Programs that were written for Haywire. Needs a real kernel, because the programs are processes of their own.

use crate::programs::{BUILDS, Build, C99, compile, has};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use testkit::http1::{body, connect, exchange_text, get};
use testkit::ports::free_port;

/// Starts a program, and waits until it listens.
fn start(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = String::new();
    while !said.ends_with("Listening...\n") {
        if lines.read_line(&mut said).expect("a line") == 0 {
            let mut errors = String::new();
            let _ = child.stderr.take().expect("a pipe").read_to_string(&mut errors);
            panic!("the program has ended: {said}\n{errors}");
        }
    }
    // A full pipe would block the program.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    child
}

/// Nothing of what the library prints may end the program.
#[test]
fn a_full_disk_under_standard_output_harms_nothing() {
    let program = compile("tests/all/programs/haywire.c", C99);
    let port = free_port();
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("the device");
    let mut child =
        Command::new(&program).arg(config(port, 1)).stdout(full()).stderr(full()).spawn().expect("a program");
    let address = format!("127.0.0.1:{port}");
    while !testkit::http1::listens(&address) {
        assert!(child.try_wait().expect("a status").is_none(), "the program has ended");
        std::thread::yield_now();
    }
    let print = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
    let shown = exchange_text(connect(&address), print);
    child.kill().expect("a program");
    child.wait().expect("a status");
    assert!(shown.starts_with("HTTP/1.1 200 "), "{shown}");
}

fn config(port: u16, threads: u32) -> std::path::PathBuf {
    let file = std::env::temp_dir().join(format!("haywire-{port}.conf"));
    let text = format!(
        "[http]\nlisten_address = 127.0.0.1\nlisten_port = {port}\nthread_count = {threads}\nbalancer = reuseport\n\
         max_request_size = 1000\n"
    );
    std::fs::write(&file, text).expect("a file");
    file
}

fn ask(build: Build, threads: u32, wrapper: &[&str]) {
    let program = compile("tests/all/programs/haywire.c", build);
    let what = format!("{build:?}, {threads} threads");
    let port = free_port();
    let file = config(port, threads);
    let mut command = match wrapper {
        [] => Command::new(&program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(&program);
            command
        }
    };
    command.arg(&file);
    let mut child = start(command);
    let address = format!("127.0.0.1:{port}");
    let send = |request: &str| exchange_text(connect(&address), request);

    let shown =
        send("POST /?q HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(body(&shown), "root 3 1.1 0 /?q x-a=2 X-A=0 5 hello", "{what}");
    assert!(
        shown.contains("Haywire/master") && !shown.to_lowercase().contains("\r\nconnection: keep-alive"),
        "{shown}"
    );
    let old = send("GET /w/x?a=1 HTTP/1.0\r\n\r\n");
    assert_eq!(body(&old), "exact 1 1.0 0 /w/x?a=1 x-a=none X-A=0 0 ", "{what}");
    assert_eq!(body(&get(&address, "/w/anything/")), "wildcard 1 1.1 0 /w/anything/ x-a=none X-A=0 0 ", "{what}");
    // Chunks arrive without their framing.
    let chunked = send(
        "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n",
    );
    assert_eq!(body(&chunked), "root 4 1.1 0 / x-a=none X-A=0 10 helloworld", "{what}");

    let missing = get(&address, "/nothing");
    assert!(missing.starts_with("HTTP/1.1 404 ") && missing.contains("text/html"), "{missing}");
    assert_eq!(body(&missing), "404 Not Found", "{what}");
    let large = send(&format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n{}", "x".repeat(1001)));
    assert!(large.starts_with("HTTP/1.1 413 "), "{large}");
    let garbage = send("garbage\r\n\r\n");
    assert!(garbage.starts_with("HTTP/1.1 400 ") && body(&garbage) == "400 Bad Request", "{garbage}");

    let many = get(&address, "/many");
    assert!(many.starts_with("HTTP/1.1 418 I'm a teapot\r\n"), "{many}");
    assert_eq!(many.to_lowercase().matches("x-field-").count(), 100, "{what}");
    assert!(!many.contains("X-Two") && !many.contains("x-two"), "{many}");
    assert_eq!(body(&many), "appended: done", "{what}");
    assert!(get(&address, "/moved").starts_with("HTTP/1.1 302 Moved Temporarily\r\n"), "{what}");
    assert!(get(&address, "/freed").starts_with("HTTP/1.1 500 "), "{what}");
    // HEAD has no body, and the connection goes on.
    let head = send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET /w/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(head.matches("HTTP/1.1 200 ").count(), 2, "{head}");
    assert_eq!(head.matches("root 2").count(), 0, "{head}");

    // No response of another thread is lost, whether its handler has returned or not.
    for _ in 0..100 {
        let joined = get(&address, "/joined").to_ascii_lowercase();
        assert!(
            joined.contains("\r\nx-handler: yes\r\n") && joined.contains("\r\nx-thread: yes\r\n"),
            "{what}: {joined}"
        );
        assert_eq!(body(&joined), "from a thread", "{what}");
        assert_eq!(body(&get(&address, "/raced")), "from a thread", "{what}");
    }

    if threads < 2 {
        // Pipelined: both are on one connection, and so on one thread. The answers have the order of the requests.
        let both = "GET /later HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let (one, two) = (connect(&address), connect(&address));
        let threads = [one, two].map(|stream| std::thread::spawn(move || exchange_text(stream, both)));
        let mut bodies = threads.map(|thread| body(&thread.join().expect("an answer")).to_string());
        bodies.sort();
        assert_eq!(bodies, ["later", "now"], "{what}");
    }
    let mut stream = connect(&address);
    stream.write_all(b"GET /stop HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
    let mut said = String::new();
    let _ = child.stderr.take().expect("a pipe").read_to_string(&mut said);
    assert!(child.wait().expect("a status").success(), "{what}: {said}");
    assert!(said.contains("completed ") && !said.contains("completed 0"), "{what}: {said}");
    assert!(!said.contains("Sanitizer") && !said.contains("=="), "{what}: {said}");
    let _ = std::fs::remove_file(file);
}

#[test]
fn programs_for_haywire_run_unchanged() {
    for build in BUILDS.iter().filter(|build| has(build.compiler)) {
        for threads in [0, 1, 3] {
            ask(*build, threads, &[]);
        }
    }
}

#[test]
fn the_sanitizers_find_nothing() {
    let options = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    ask(Build { options, ..C99 }, 1, &["env", "ASAN_OPTIONS=detect_leaks=1"]);
}

#[test]
fn valgrind_finds_nothing() {
    if has("valgrind") {
        ask(C99, 1, &["valgrind", "-q", "--error-exitcode=9"]);
    }
}
