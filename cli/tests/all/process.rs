//! Tests the command as a process: error messages, signals, inherited sockets, and several processes on one port.
//!
//! Needs a real kernel, because the tests are about processes, signals and descriptors.

use crate::demo::{Demo, HIGHWIRE, PATIENCE, get};
use crate::programs;
use crate::programs::{not_run, program};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Instant;

const ENGINES: [&str; 3] = ["uring", "readiness", "threads"];

/// Asserts that the command fails without a panic, prints nothing to standard output, and prints `expected` to standard
/// error.
fn check_fails(mut command: Command, expected: &str) {
    let output = command.output().expect("a process");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 0), "{command:?}: {}", output.status);
    assert!(errors.contains(expected), "{command:?}: {expected:?} is not in:\n{errors}");
    assert!(!errors.contains("panicked"), "{command:?}:\n{errors}");
    assert!(output.stdout.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&output.stdout));
}

fn highwire(arguments: &[&str]) -> Command {
    let mut command = Command::new(HIGHWIRE);
    command.args(arguments);
    command
}

/// A regression test: `--help` left the examples out.
#[test]
fn help_shows_examples() {
    for command in ["demo", "serve", "bench"] {
        let output = highwire(&[command, "--help"]).output().expect("a process");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("Examples:\n  highwire {command}")), "{text}");
    }
}

#[test]
fn mistakes_are_told() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("an address").to_string();
    for (arguments, expected) in [
        (&["--listen", "127.0.0.1"][..], "the port is missing; add it as in 127.0.0.1:8080"),
        (&["--listen", "8080"], "use :8080 for all addresses, 127.0.0.1:8080 for local clients only"),
        (&["--listen", "127.0.0.1:65536"], "the port is not a number from 0 to 65535"),
        (&["--listen", "::1:80"], "an IPv6 address must be in brackets"),
        (&["--listen", "unix:"], "the path is empty"),
        (&["--listen", "unix:/no/such/folder/socket"], "/no/such/folder/socket"),
        (&["--listen", "fd:three"], "a descriptor is a number of 0 or more"),
        (&["--listen", "fd:99"], "fd:99"),
        (&["--listen", "192.0.2.1:0"], "192.0.2.1:0: it is not an address of this machine"),
        (&["--listen", "127.0.0.1:0", "--listen", "nonsense"], "\"nonsense\" is not an address"),
        (&["--listen", "127.0.0.1:0", "--workers", "5000"], "5000 workers are too many: the most is 1024"),
        (&["--connections", "0"], "a limit of 0 connections would refuse every client"),
        (&["--engine", "threads", "--http2-only"], "the engine `threads` needs HTTP/1"),
        (&["--workers", "some"], "'some'"),
        (&["--memory", "much"], "a number of bytes, such as 64M or 2G"),
        (&["--memory", "1"], "1 bytes are too few; the suffixes are K, M and G, as in 64M"),
        (&["--memory", "999999G"], "1073740750258176 bytes of memory for all peers are more than the "),
        (&["--workers", "-1"], "invalid value '-1' for '--workers <N>'"),
        (&["--memory", "1K"], "1024 bytes of memory for all peers are too few; a server needs at least 65536 bytes"),
        (&["--memory", "1KiB"], "1024 bytes of memory for all peers are too few"),
        (&["--unix-mode", "999"], "expected permissions in octal, such as 660"),
        (&["--listen", "127.0.0.1:0", "--unix-mode", "660"], "need an address unix:PATH"),
        (&["--listen", "*:80"], "use :80 for all addresses"),
        (&["--listen", "unix:/tmp/highwire-x", "--unix-group", "no-such-group"], "there is no group \"no-such-group\""),
        (&["--cert", "a", "--key", "b"], "need --tls-listen"),
        (&["--listen", "unix:/tmp"], "unix:/tmp: there is a file or folder that is not a socket"),
        (&["--memory", "-1"], "a number of bytes, such as 64M or 2G"),
        (&["--workers", "1.5"], "expected a whole number, such as 2"),
        (&["--engine", "steam"], "'steam'"),
        (&["--no-such-option"], "'--no-such-option'"),
    ] {
        check_fails(highwire(&[&["demo"], arguments].concat()), expected);
    }
    let port = testkit::ports::free_port();
    let (all, local) = (format!(":{port}"), format!("127.0.0.1:{port}"));
    let twice = |one: &str, other: &str| highwire(&["demo", "--listen", one, "--listen", other]);
    check_fails(twice(&all, &local), &format!("this server listens on [::]:{port} already, and one of them includes"));
    check_fails(twice(&local, &local), &format!("cannot listen on {local}: the address is given twice"));
    let folder = env!("CARGO_MANIFEST_DIR");
    for (arguments, expected) in [
        (&["--single-page", "/Cargo.toml"][..], "\"/Cargo.toml\" must be the path of a file in the folder"),
        (&["--single-page", "../README.md"], "\"../README.md\" must be the path of a file in the folder"),
        (&["--single-page", "src"], "the single page src in "),
        (&["--not-found", ""], "the page \"\" must be the path of a file in the folder"),
        (&["--cache-control", "a*b*c=no-store"], "expected PATTERN=VALUE with at most one * in PATTERN"),
        (&["--cache-control", "=no-store"], "expected PATTERN=VALUE"),
        (&["--proxy", "/a*=http://127.0.0.1:9"], "is not a plain path"),
        (&["--proxy", "/a?b=http://127.0.0.1:9"], "is not a plain path"),
        (
            &["--proxy", "/=http://127.0.0.1:9", "--proxy-timeout", "1.5"],
            "expected a whole number of seconds, such as 30",
        ),
        (
            &["--proxy", "/=http://127.0.0.1:9", "--proxy-timeout", "-1"],
            "expected a whole number of seconds, such as 30",
        ),
    ] {
        check_fails(highwire(&[&["serve", folder, "--listen", "127.0.0.1:0"], arguments].concat()), expected);
    }
    check_fails(highwire(&["no-such-command"]), "'no-such-command'");
    check_fails(highwire(&[]), "Usage: highwire");
    let expected = format!("cannot listen on {taken}: it is already in use");
    for engine in ENGINES {
        for workers in ["1", "2"] {
            let arguments = ["demo", "--listen", &taken, "--engine", engine, "--workers", workers];
            check_fails(highwire(&arguments), &expected);
        }
    }
}

#[test]
fn a_port_that_needs_a_privilege_is_refused_with_the_reason() {
    let mut first = 1024;
    if let Ok(text) = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start") {
        first = text.trim().parse().expect("a number");
    }
    if first <= 1 {
        return not_run("a port without permission: on this machine every port is allowed");
    }
    let arguments = ["demo", "--listen", "127.0.0.1:1"];
    let expected = "cannot listen on 127.0.0.1:1: permission denied (ports below 1024 need CAP_NET_BIND_SERVICE)";
    let me = Command::new("id").arg("-u").output().expect("the user's number");
    if me.stdout != b"0\n" {
        return check_fails(highwire(&arguments), expected);
    }
    // Root needs no permission unless it drops the capability.
    let Some(setpriv) = program(&["setpriv"]) else { return };
    let mut command = Command::new(setpriv);
    command.args(["--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service", HIGHWIRE]).args(arguments);
    check_fails(command, expected);
}

#[test]
fn a_port_is_not_shared_unless_that_is_asked_for() {
    for engine in ENGINES {
        let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0", "--workers", "2"]) else { continue };
        let address = &demo.addresses[0];
        for workers in ["1", "2"] {
            let arguments = ["demo", "--listen", address, "--engine", engine, "--workers", workers];
            check_fails(highwire(&arguments), &format!("cannot listen on {address}: it is already in use"));
        }
    }
}

/// Returns the number of accepted connections that a process reported at its end.
fn accepted(log: &str) -> usize {
    let line = log.lines().find(|line| line.contains(" connections accepted")).expect("a report");
    let before = line.split(" connections accepted").next().expect("a part");
    let digits = before.rsplit(|letter: char| !letter.is_ascii_digit()).next().expect("a number");
    digits.parse().expect("a number")
}

#[test]
fn processes_share_a_port_when_asked_to() {
    for engine in ENGINES {
        let one = ["--listen", "127.0.0.1:0", "--share-port", "--workers", "1"];
        let Some(mut first) = Demo::start(engine, &one) else { continue };
        let address = first.addresses[0].clone();
        let other = ["--listen", &address, "--share-port", "--workers", "1"];
        let Some(mut second) = Demo::start(engine, &other) else { continue };
        // The kernel chooses a process by a hash of the client's port. The probability that all 64 connections reach
        // the same process is 2^-63.
        for _ in 0..64 {
            get(&address, "/hello").expect("an answer");
        }
        first.terminate();
        assert!(first.wait().success(), "{engine}: {}", first.log());
        for _ in 0..8 {
            get(&address, "/hello").expect("an answer from the remaining process");
        }
        second.terminate();
        assert!(second.wait().success(), "{engine}: {}", second.log());
        // `Demo::start` sent one more request for each process, which either process may have answered.
        let (one, two) = (accepted(&first.log()), accepted(&second.log()));
        assert!(one > 2 && two > 10, "{engine}: {one} and {two}");
        assert_eq!(one + two, 2 + 64 + 8, "{engine}: some connections were lost");
    }
}

/// Returns a connection whose request for `/sleep` is in progress. The server has answered the previous request, which
/// was in the same packet.
fn sleeping(address: &str, milliseconds: u32) -> TcpStream {
    greeted(address, &format!("GET /sleep?ms={milliseconds} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// Opens a connection, sends GET `/hello` followed by `behind`, and reads the answer to `/hello`.
fn greeted(address: &str, behind: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    let requests = format!("GET /hello HTTP/1.1\r\nHost: {address}\r\n\r\n{behind}");
    stream.write_all(requests.as_bytes()).expect("a successful write");
    let mut answer = Vec::new();
    while !answer.ends_with(b"Hello, World!") {
        let mut part = [0; 512];
        let count = stream.read(&mut part).expect("the first answer");
        assert_ne!(count, 0, "the end instead of an answer");
        answer.extend_from_slice(&part[..count]);
    }
    stream
}

#[test]
fn the_first_sigterm_lets_what_is_under_way_finish() {
    for engine in ENGINES {
        let Some(mut demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { continue };
        // A connection without a pending request; the shutdown closes it.
        let mut idle = greeted(&demo.addresses[0], "");
        let mut stream = sleeping(&demo.addresses[0], 500);
        demo.terminate();
        let (mut answer, mut nothing) = (String::new(), Vec::new());
        stream.read_to_string(&mut answer).expect("an answer, then the end");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{engine}: {answer}");
        assert!(answer.ends_with("\r\n\r\nslept 500 ms\n"), "{engine}: {answer}");
        assert!(answer.to_lowercase().contains("connection: close\r\n"), "{engine}: {answer}");
        assert_eq!(idle.read_to_end(&mut nothing).ok(), Some(0), "{engine}: an idle connection did not end in order");
        drop((stream, idle));
        assert_eq!(demo.wait().code(), Some(0), "{engine}: {}", demo.log());
        assert!(demo.log().contains("0 exchanges cut short"), "{engine}: {}", demo.log());
        assert!(TcpStream::connect(&demo.addresses[0]).is_err(), "{engine}: the port still accepts connections");
    }
}

#[test]
fn the_second_sigterm_ends_at_once() {
    for engine in ENGINES {
        let Some(mut demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { continue };
        // The request takes longer than `wait` waits, so the process cannot end because the request is finished.
        let mut stream = sleeping(&demo.addresses[0], 50_000);
        demo.terminate();
        demo.check_alive();
        demo.terminate();
        let status = demo.wait();
        assert!(status.code().is_some(), "{engine}: a signal killed it: {status}, {}", demo.log());
        assert!(demo.log().contains("1 exchanges cut short"), "{engine}: {}", demo.log());
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || read.is_err(), "{engine}: {}", String::from_utf8_lossy(&rest));
    }
}

#[test]
fn an_inherited_listener_is_served() {
    for engine in ENGINES {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        // Passes the socket as service managers do: as descriptor 3, announced in the environment.
        let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, HIGHWIRE, "demo", "--engine", engine, "--listen", "fd:3", "--workers", "2"]);
        command.stdin(Stdio::from(OwnedFd::from(listener)));
        let Some(mut demo) = Demo::of(command, engine) else { continue };
        assert_eq!(demo.addresses, [address.as_str()], "{engine}");
        for _ in 0..16 {
            get(&address, "/hello").expect("an answer");
        }
        demo.terminate();
        assert!(demo.wait().success(), "{engine}: {}", demo.log());
    }
}

#[test]
fn a_unix_socket_that_was_left_behind_is_taken_over_and_one_in_use_is_not() {
    let path = std::env::temp_dir().join(format!("highwire-left-{}", std::process::id()));
    let address = format!("unix:{}", path.display());
    for engine in ENGINES {
        let Some(mut demo) = Demo::start(engine, &["--listen", "127.0.0.1:0", "--listen", &address]) else { continue };
        assert!(path.exists(), "{engine}: the socket file is gone while the demo listens");
        let again = ["demo", "--engine", engine, "--listen", &address];
        check_fails(highwire(&again), &format!("cannot listen on {address}: it is already in use"));
        assert!(path.exists(), "{engine}: the refused process removed the file");
        demo.terminate();
        assert!(demo.wait().success(), "{engine}: {}", demo.log());
        assert!(!path.exists(), "{engine}: the file is left behind");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket file that stays"));
        let Some(mut demo) = Demo::start(engine, &["--listen", "127.0.0.1:0", "--listen", &address]) else { continue };
        demo.terminate();
        assert!(demo.wait().success(), "{engine}: {}", demo.log());
    }
    // Removes the file if it still exists, for example because an engine is unavailable.
    let _ = std::fs::remove_file(&path);
}

#[test]
fn mistakes_of_proxies_are_told() {
    for (arguments, expected) in [
        (&["--proxy", "foo"][..], "expected PATH=URL, such as /api=http://127.0.0.1:9000"),
        (&["--proxy", "api=http://127.0.0.1:9"], "the path must begin with a slash"),
        (
            &["--proxy", "/api=127.0.0.1:9"],
            "\"127.0.0.1:9\" has no scheme; write http://127.0.0.1:9 or https://127.0.0.1:9",
        ),
        (
            &["--proxy", "/a=http://127.0.0.1:9", "--proxy", "/a=http://127.0.0.1:8"],
            "/a is given twice; write /a=URL,URL",
        ),
        (&["--proxy", "/a=http://unix:/tmp/x"], "is a unix socket; the command cannot pass requests on to one"),
        (&["--proxy", "/a/{x}=http://127.0.0.1:9"], "is not a plain path; --proxy passes on that path"),
        (&["--proxy", "/a=http://127.0.0.1:9", "--proxy-check", "health"], "a path that begins with a slash"),
        (
            &["--proxy", "/a=http://127.0.0.1:9", "--proxy-header", "Content-Length=3"],
            "content-length belongs to the connection and cannot be set",
        ),
    ] {
        let mut command = highwire(&["serve"]);
        command.args(arguments);
        check_fails(command, expected);
    }
}

#[test]
fn keys_that_cannot_be_used_are_told() {
    let Some(openssl) = program(&["openssl"]) else { return };
    let folder = programs::Folder::new("keys");
    let run = |arguments: &[&str]| {
        let output = Command::new(&openssl).args(arguments).current_dir(&folder.0).output().expect("a process");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]);
    run(&["pkey", "-in", "key.pem", "-aes256", "-passout", "pass:secret", "-out", "encrypted.pem"]);
    run(&["ec", "-in", "key.pem", "-aes256", "-passout", "pass:secret", "-out", "old.pem"]);
    let path = |name: &str| folder.0.join(name).to_str().expect("UTF-8").to_string();
    for key in ["encrypted.pem", "old.pem"] {
        let arguments = ["demo", "--tls-listen", "127.0.0.1:0", "--cert", &path("cert.pem"), "--key", &path(key)];
        check_fails(
            highwire(&arguments),
            "the server cannot ask for the passphrase; write it without one: openssl pkey",
        );
    }
    // A byte order mark, which some editors write.
    for name in ["cert.pem", "key.pem"] {
        let marked = [b"\xef\xbb\xbf", &*std::fs::read(path(name)).expect("a file")].concat();
        std::fs::write(path(name), marked).expect("a file");
    }
    let files = ["--tls-listen", "127.0.0.1:0", "--cert", &path("cert.pem"), "--key", &path("key.pem")];
    let Some(demo) = Demo::start("auto", &files) else { return };
    assert_eq!(demo.tls_addresses.len(), 1);
}

#[test]
fn sockets_of_a_service_manager_are_served_without_an_option() {
    for (name, scheme) in [("web", "http"), ("https", "https")] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let script =
            format!("exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_FDNAMES={name} LISTEN_PID=$$ exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, HIGHWIRE, "demo", "--workers", "2"]);
        if scheme == "https" {
            command.arg("--tls-self-signed");
        }
        command.stdin(Stdio::from(OwnedFd::from(listener)));
        let Some(mut demo) = Demo::of(command, "auto") else { return };
        demo.wait_for(&format!("listening on {scheme}://{address}/"), 1);
        assert!(!demo.log().contains(":8080"), "{}", demo.log());
        if scheme == "http" {
            assert!(get(&address, "/hello").expect("an answer").ends_with("Hello, World!"));
        }
    }
}

#[test]
fn signals_other_than_those_to_stop_end_nothing() {
    for engine in ENGINES {
        // As below `nohup`, and in the background of a script.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP INT QUIT; exec \"$0\" \"$@\"", HIGHWIRE, "demo", "--engine", engine]);
        command.args(["--listen", "127.0.0.1:0"]);
        let Some(mut demo) = Demo::of(command, engine) else { continue };
        demo.signal("HUP");
        demo.wait_for("SIGHUP: certificates and keys that have changed are loaded", 1);
        demo.signal("USR1");
        demo.wait_for("SIGUSR1 and SIGUSR2 have no meaning yet", 1);
        demo.signal("USR2");
        demo.wait_for("SIGUSR1 and SIGUSR2 have no meaning yet", 2);
        let address = demo.addresses[0].clone();
        assert!(get(&address, "/hello").expect("an answer").ends_with("Hello, World!"));
        let stream = sleeping(&address, 500);
        demo.signal("QUIT");
        demo.wait_for("a signal asks to stop", 1);
        let mut answer = String::new();
        (&stream).read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("slept 500 ms"), "{engine}: {answer}");
        assert!(demo.wait().success(), "{engine}");
    }
}

#[test]
fn a_switch_to_another_folder_is_told_once() {
    let place = std::env::temp_dir().join(format!("highwire-switch-{}", std::process::id()));
    let current = place.join("current");
    for folder in ["one", "two"] {
        std::fs::create_dir_all(place.join(folder)).expect("a folder");
        std::fs::write(place.join(folder).join("a"), folder).expect("a file");
    }
    std::fs::write(place.join("one/app.html"), "the page").expect("a file");
    std::os::unix::fs::symlink("one", &current).expect("a link");
    let mut command = Command::new(HIGHWIRE);
    command.arg("serve").arg(&current).args(["--single-page", "app.html", "--workers", "2", "--engine", "readiness"]);
    command.args(["--listen", "127.0.0.1:0"]);
    let mut demo = Demo::of(command, "readiness").expect("an engine of every system");
    std::os::unix::fs::symlink("two", place.join("next")).expect("a link");
    std::fs::rename(place.join("next"), &current).expect("another target");
    // Each worker looks again within a second of its requests, and each connection may have another worker.
    let address = demo.addresses[0].clone();
    let begun = Instant::now();
    while !(0..40).all(|_| get(&address, "/nowhere").is_err_and(|error| error.to_string().contains(" 404 "))) {
        assert!(begun.elapsed() < PATIENCE, "{}", demo.log());
    }
    assert!(get(&address, "/a").expect("an answer").ends_with("two"));
    demo.wait_for("cannot open the page app.html", 1);
    let told = demo.log().matches("another folder is served from now on").count();
    assert_eq!(told, 1, "{}", demo.log());
    std::fs::remove_dir_all(&place).expect("the folder");
}
