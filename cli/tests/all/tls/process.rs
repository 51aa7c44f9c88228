//! Tests the command under TLS: unusable certificate files, files that change at run time, graceful shutdown, and peers
//! that use the wrong protocol for the port.
//!
//! Needs a real kernel, because the tests are about processes, signals and files.

use crate::demo::{Demo, HIGHWIRE, PATIENCE, get, until};
use crate::programs;
use crate::programs::on_every_engine;
use crate::site::tls_peer::{Authority, Client, TLS12, TLS13};
use crate::site::{NAMES, Site, Stream, ask, open, read_to};
use rustls::ClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use testkit::frames::{self, ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, SETTINGS};
use testkit::http1;

on_every_engine! {
    uring, readiness:
    [an_expired_certificate_is_served_with_a_warning, changed_files_serve_new_connections_and_old_ones_go_on,
     sigterm_lets_http1_finish_and_says_so_in_tls, sigterm_lets_http2_finish_and_says_so_in_tls,
     whoever_does_not_speak_tls_is_told_so, tls_on_a_plain_port_harms_nobody,
     who_says_that_nothing_more_comes_is_still_answered, handshakes_that_come_at_once_are_all_served,
     where_only_http2_is_spoken_http1_is_refused_with_or_without_alpn]
}

#[test]
fn files_that_cannot_be_used_are_told() {
    let site = Site::new();
    let other = site.authority.issue(NAMES);
    let (cert, key, missing) = (&site.file("site.pem")[..], &site.file("site.key")[..], &site.file("missing")[..]);
    let other_key = &site.write("other.key", &other.key)[..];
    let empty = &site.write("empty", "")[..];
    let text = &site.write("text", "hello")[..];
    let half = &site.write("half", &other.chain[..other.chain.len() / 2])[..];
    let folder = &site.folder("folder")[..];
    let mut cases: Vec<(&[&str], String)> = Vec::new();
    let certificates = [
        (["--cert", missing, "--key", key], format!("certificate {missing}: cannot be read: No such file")),
        (["--cert", folder, "--key", key], format!("certificate {folder}: cannot be read: Is a directory")),
        (["--cert", empty, "--key", key], format!("certificate {empty}: is not PEM: it is empty")),
        (["--cert", text, "--key", key], format!("certificate {text}: is not PEM: it has no line `-----BEGIN ...`")),
        (["--cert", half, "--key", key], format!("certificate {half}: is not PEM: a section has no end")),
        (["--cert", key, "--key", key], format!("certificate {key}: holds no certificate")),
        (["--cert", cert, "--key", missing], format!("private key {missing}: cannot be read: No such file")),
        (["--cert", cert, "--key", empty], format!("private key {empty}: is not PEM: it is empty")),
        (["--cert", cert, "--key", cert], format!("private key {cert}: holds no private key")),
        (["--cert", cert, "--key", other_key], format!("private key {other_key}: the key does not match certificate")),
    ];
    cases.extend(certificates.iter().map(|(arguments, expected)| (&arguments[..], expected.clone())));
    let authorities = ["--cert", cert, "--key", key, "--client-ca", missing];
    cases.push((&authorities, format!("client authorities {missing}: cannot be read: No such file")));
    let authorities = ["--cert", cert, "--key", key, "--client-ca", key];
    cases.push((&authorities, format!("client authorities {key}: holds no certificate")));
    let needs = "TLS needs --cert and --key, the same number of each, or --tls-self-signed";
    cases.push((&[], needs.to_string()));
    let more = ["--cert", cert, "--key", key, "--key", other_key];
    cases.push((&more, needs.to_string()));
    let apart = "--engine threads cannot be combined with --tls-listen".to_string();
    cases.push((&["--tls-self-signed", "--engine", "threads"], apart.clone()));
    // The command reports this before the invalid address, because a valid address would not help.
    cases.push((&["--engine", "threads", "--listen", "nonsense"], apart));
    for (arguments, expected) in cases {
        let mut command = Command::new(HIGHWIRE);
        command.args(["demo", "--quiet", "--tls-listen", "127.0.0.1:0"]).args(arguments);
        let output = command.output().expect("a process");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.starts_with("highwire: ") && errors.lines().count() == 1, "{arguments:?}: {errors}");
        assert!(errors.contains(&expected), "{arguments:?}: {expected:?} is not in {errors}");
    }
}

#[test]
fn a_key_that_may_not_be_read_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    let key = site.file("site.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o000)).expect("a mode");
    // Root may read every file unless it drops these capabilities.
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let mut command = if root {
        let Some(setpriv) = programs::program(&["setpriv"]) else { return };
        let mut command = Command::new(setpriv);
        let rights = "-dac_override,-dac_read_search";
        command.args([&format!("--bounding-set={rights}"), &format!("--inh-caps={rights}"), HIGHWIRE]);
        command
    } else {
        Command::new(HIGHWIRE)
    };
    command.args(["demo", "--quiet", "--tls-listen", "127.0.0.1:0", "--cert", &site.file("site.pem"), "--key", &key]);
    let output = command.output().expect("a process");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let expected = format!("highwire: TLS: private key {key}: cannot be read: Permission denied");
    assert!(errors.starts_with(&expected), "{errors}");
}

fn an_expired_certificate_is_served_with_a_warning(engine: &str) {
    let site = Site::new();
    site.install(&site.authority.issue_with(NAMES, |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1)));
    let Some(mut demo) = site.start(engine, &[]) else { return };
    demo.wait_for("the certificate has expired; clients will refuse it", 1);
    let log = demo.log();
    let warning = log.lines().find(|line| line.contains("has expired")).expect("a line");
    assert!(warning.contains(" WARN ") && warning.contains(&site.file("site.pem")), "{warning}");
    let error = open(&demo, Client::of(&site.authority).config()).expect_err("a refusal by the client");
    assert!(error.to_string().contains("certificate expired"), "{error}");
    get(&demo.addresses[0], "/hello").expect("an answer");
}

/// Returns the certificate that the server sent on a connection.
fn shown(stream: &Stream) -> CertificateDer<'static> {
    stream.conn.peer_certificates().expect("a certificate")[0].clone()
}

fn changed_files_serve_new_connections_and_old_ones_go_on(engine: &str) {
    let site = Site::new();
    let Some(mut demo) = site.start(engine, &[]) else { return };
    // A new client for each connection, so that no session is resumed.
    let connect = || open(&demo, Client::of(&site.authority).config()).expect("a handshake");
    let (mut first, fine) = (connect(), "Hello, World!");
    ask(&mut first, "/hello", fine);
    let old = shown(&first);

    site.install(&site.authority.issue(NAMES));
    assert!(until(|| shown(&connect()) != old), "the new certificate is not served; {}", demo.said());
    let mut second = connect();
    let new = shown(&second);
    for stream in [&mut first, &mut second] {
        ask(stream, "/hello", fine);
    }

    site.write("site.pem", "no certificate at all");
    let (file, log) = (site.file("site.pem"), || demo.log());
    let complaint = format!("ERROR highwire::tls: TLS: certificate {file}: is not PEM");
    let complained = || {
        assert_eq!(shown(&connect()), new, "the loaded certificate does not stay in use");
        log().contains(&complaint)
    };
    assert!(until(complained), "the log has no error about the unusable file; {}", demo.said());
    assert!(log().contains("the old files stay in use"), "{}", log());

    site.install(&site.authority.issue(NAMES));
    assert!(until(|| shown(&connect()) != new), "the third certificate is not served; {}", demo.said());
    for stream in [&mut first, &mut second] {
        ask(stream, "/hello", fine);
    }
    demo.check_alive();
}

fn sigterm_lets_http1_finish_and_says_so_in_tls(engine: &str) {
    let site = Site::new();
    // The one worker accepts in order, so an answer on a later connection shows that it has accepted the earlier ones.
    let Some(mut demo) = site.start(engine, &["--workers", "1"]) else { return };
    let mut half = TcpStream::connect(&demo.tls_addresses[0]).expect("a connection");
    half.set_read_timeout(Some(PATIENCE)).expect("an option");
    half.write_all(&[22, 3, 1, 2]).expect("a successful write");
    let connect = |versions| {
        let client = Client { versions, alpn: &["http/1.1"], ..Client::of(&site.authority) };
        open(&demo, client.config()).expect("a handshake")
    };
    let mut idle = connect(TLS13);
    ask(&mut idle, "/hello", "Hello, World!");
    let mut busy = [TLS12, TLS13].map(connect);
    for stream in &mut busy {
        let one = "HTTP/1.1\r\nHost: localhost\r\n\r\n";
        // Both requests are in one record, so the first answer shows that the server has the second request.
        stream.write_all(format!("GET /hello {one}GET /sleep?ms=500 {one}").as_bytes()).expect("bytes");
        read_to(stream, "Hello, World!");
    }
    demo.terminate();
    for stream in &mut busy {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer, then close_notify");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("slept 500 ms\n"), "{engine}: {answer}");
    }
    assert_eq!(idle.read_to_end(&mut Vec::new()).expect("close_notify"), 0);
    assert_eq!(half.read_to_end(&mut Vec::new()).expect("the end"), 0, "{engine}: half a handshake");
    drop((half, idle, busy));
    assert_eq!(demo.wait().code(), Some(0), "{engine}: {}", demo.log());
    assert!(demo.log().contains("0 exchanges cut short"), "{engine}: {}", demo.log());
}

/// A minimal HTTP/2 client, which acknowledges SETTINGS and PING.
struct Http2 {
    stream: Stream,
    unread: Vec<u8>,
}

impl Http2 {
    fn new(stream: Stream) -> Http2 {
        let mut client = Http2 { stream, unread: Vec::new() };
        client.stream.write_all(&frames::opening()).expect("a successful write");
        client
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        self.stream.write_all(&frames::frame(kind, flags, stream.into(), payload)).expect("a successful write");
    }

    /// Sends GET for a path of less than 127 bytes.
    fn get(&mut self, stream: u8, path: &str) {
        // Static table (RFC 7541 appendix A): :method GET, :scheme https; :path (4) and :authority (1) with literal
        // values.
        let mut block = vec![0x82, 0x87, 0x04, path.len() as u8];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(b"\x01\x09localhost");
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block);
    }

    /// Sends GET `/hello` on stream 3 and waits for the answer.
    fn greet(&mut self) {
        self.get(3, "/hello");
        loop {
            let (kind, stream, payload) = self.frame().expect("a frame of the answer");
            if (kind, stream) == (DATA, 3) {
                return assert_eq!(payload, b"Hello, World!");
            }
        }
    }

    /// Returns the next frame as kind, stream and payload, or `None` after close_notify.
    fn frame(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        loop {
            if let Some(&[a, b, c, kind, flags, _, _, _, stream]) = self.unread.first_chunk::<9>() {
                let end = 9 + usize::from(a) * 65536 + usize::from(b) * 256 + usize::from(c);
                if self.unread.len() >= end {
                    let payload = self.unread.drain(..end).skip(9).collect::<Vec<u8>>();
                    if matches!(kind, SETTINGS | PING) && flags & ACK == 0 {
                        self.send(kind, ACK, 0, if kind == PING { &payload } else { &[] });
                    }
                    return Some((kind, stream, payload));
                }
            }
            let mut part = [0; 4096];
            match self.stream.read(&mut part).expect("frames, then close_notify") {
                0 => {
                    assert!(self.unread.is_empty(), "an incomplete frame at the end");
                    return None;
                }
                count => self.unread.extend_from_slice(&part[..count]),
            }
        }
    }
}

fn sigterm_lets_http2_finish_and_says_so_in_tls(engine: &str) {
    let site = Site::new();
    let Some(mut demo) = site.start(engine, &[]) else { return };
    let client = Client { alpn: &["h2"], ..Client::of(&site.authority) };
    let [mut idle, mut busy] = [(); 2].map(|()| Http2::new(open(&demo, client.config()).expect("a handshake")));
    busy.get(1, "/sleep?ms=500");
    for client in [&mut idle, &mut busy] {
        assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"h2"[..]));
        // The answer shows that the server has also received the earlier frames.
        client.greet();
    }
    demo.terminate();
    for (client, expected) in [(&mut idle, ""), (&mut busy, "slept 500 ms\n")] {
        let (mut body, mut told) = (Vec::new(), false);
        while let Some((kind, stream, payload)) = client.frame() {
            if kind == DATA && stream == 1 {
                body.extend_from_slice(&payload);
            }
            if kind == GOAWAY {
                assert_eq!(payload[4..8], [0; 4], "{engine}: an error code");
                told = true;
            }
        }
        assert!(told, "{engine}: no GOAWAY");
        assert_eq!(String::from_utf8_lossy(&body), expected, "{engine}");
    }
    drop((idle, busy));
    assert_eq!(demo.wait().code(), Some(0), "{engine}: {}", demo.log());
    assert!(demo.log().contains("0 exchanges cut short"), "{engine}: {}", demo.log());
}

/// Sends bytes over a new connection, and reads until the connection ends.
fn exchange(address: &str, bytes: &[u8]) -> String {
    String::from_utf8_lossy(&http1::exchange(http1::connect_within(address, PATIENCE), bytes)).into_owned()
}

fn whoever_does_not_speak_tls_is_told_so(engine: &str) {
    let site = Site::new();
    let Some(mut demo) = site.start(engine, &[]) else { return };
    let mut upload = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n".to_vec();
    upload.resize(upload.len() + 300_000, b'x');
    for (what, bytes) in [
        ("HTTP/1.1", &b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"[..]),
        ("a large upload", &upload),
        ("HTTP/2 by prior knowledge", &frames::opening()),
        ("SSH", b"SSH-2.0-client\r\n"),
        ("nothing in particular", &[0; 100]),
    ] {
        let answer = exchange(&demo.tls_addresses[0], bytes);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{engine}, {what}: {answer:?}"));
        assert!(head.starts_with("HTTP/1.1 400 ") && head.ends_with("Connection: close"), "{engine}, {what}: {head}");
        assert_eq!(body, "this port speaks TLS: use https\n", "{engine}, {what}");
    }
    // An SSL 2.0 hello is answered with the alert `protocol_version`.
    let ssl2 = exchange(&demo.tls_addresses[0], b"\x80\x2e\x01\0\x02\0\x15\0\0\0\x10\x01\0\x80\x02\0\x80\x03\0\x80");
    assert_eq!(ssl2.as_bytes(), [0x15, 3, 1, 0, 2, 2, 70], "{engine}");
    // TLS clients are still served.
    ask(&mut open(&demo, Client::of(&site.authority).config()).expect("a handshake"), "/hello", "Hello, World!");
    demo.check_alive();
}

fn tls_on_a_plain_port_harms_nobody(engine: &str) {
    let site = Site::new();
    let Some(mut demo) = site.start(engine, &[]) else { return };
    let authority = Authority::new("another");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut hello = Vec::new();
    let mut client = ClientConnection::new(Client::of(&authority).config(), name).expect("a client");
    client.write_tls(&mut hello).expect("memory");
    for _ in 0..16 {
        let answer = exchange(&demo.addresses[0], &hello);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{engine}: {answer:?}");
        get(&demo.addresses[0], "/hello").expect("an answer");
    }
    demo.check_alive();
}

fn where_only_http2_is_spoken_http1_is_refused_with_or_without_alpn(engine: &str) {
    let site = Site::new();
    let (cert, key) = (site.file("site.pem"), site.file("site.key"));
    let arguments = ["--http2-only", "--tls-listen", "127.0.0.1:0", "--cert", &cert, "--key", &key];
    let Some(mut demo) = Demo::start(engine, &arguments) else { return };
    let connect = |alpn: &[&str]| open(&demo, Client { alpn, ..Client::of(&site.authority) }.config());
    for alpn in [&["h2"][..], &["http/1.1", "h2"]] {
        Http2::new(connect(alpn).expect("a handshake")).greet();
    }
    let error = connect(&["http/1.1"]).expect_err("an alert");
    assert!(error.to_string().contains("NoApplicationProtocol"), "{engine}: {error}");
    // Without ALPN this server accepts neither protocol, because HTTP/2 must be negotiated (RFC 9113 section 3.2).
    let mut stream = connect(&[]).expect("a handshake");
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a successful write");
    let mut client = Http2 { stream, unread: Vec::new() };
    let frames: Vec<_> = std::iter::from_fn(|| client.frame()).collect();
    assert!(!frames.iter().any(|(kind, ..)| [HEADERS, DATA].contains(kind)), "{engine}: {frames:?}");
    // PROTOCOL_ERROR (RFC 9113 section 7).
    let told = frames.last().is_some_and(|(kind, _, payload)| *kind == GOAWAY && payload[4..8] == [0, 0, 0, 1]);
    assert!(told, "{engine}: {frames:?}");
    demo.check_alive();
}

fn who_says_that_nothing_more_comes_is_still_answered(engine: &str) {
    let site = Site::new();
    let Some(demo) = site.start(engine, &[]) else { return };
    for versions in [TLS12, TLS13] {
        for (path, expected) in [
            ("/hello", "Hello, World!"),
            ("/sleep?ms=100", "slept 100 ms\n"),
            ("/stream?bytes=300000", "x\r\n0\r\n\r\n"),
        ] {
            let client = Client { versions, ..Client::of(&site.authority) };
            let mut stream = open(&demo, client.config()).expect("a handshake");
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).expect("bytes");
            stream.conn.send_close_notify();
            stream.flush().expect("a successful write");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer, then close_notify");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{engine} {path}: {answer:.200}");
            assert!(answer.ends_with(expected), "{engine} {path}: {} bytes", answer.len());
        }
    }
}

/// Performs a client's handshake up to its last flight. Returns the session and the bytes to send: the last flight, the
/// request, and close_notify if `ends`.
fn last_flight(site: &Site, socket: &mut TcpStream, request: &[u8], ends: bool) -> (ClientConnection, Vec<u8>) {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(Client::of(&site.authority).config(), name).expect("a client");
    while session.wants_write() {
        session.write_tls(socket).expect("a successful write");
    }
    while session.is_handshaking() {
        session.read_tls(socket).expect("an answer");
        session.process_new_packets().expect("a handshake");
    }
    session.set_buffer_limit(None);
    session.writer().write_all(request).expect("memory");
    if ends {
        session.send_close_notify();
    }
    let mut flight = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut flight).expect("memory");
    }
    (session, flight)
}

/// A worker performs a few handshakes at a time; the others wait. The data behind a waiting handshake must wait too,
/// even a large upload or the end of the connection.
fn handshakes_that_come_at_once_are_all_served(engine: &str) {
    let site = Site::new();
    let Some(mut demo) = site.start(engine, &["--workers", "1"]) else { return };
    let bytes = 400_000;
    let head =
        format!("POST /upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n");
    let upload = [head.as_bytes(), &vec![b'x'; bytes]].concat();
    let mut clients: Vec<_> = (0..48)
        .map(|number| {
            let mut socket = TcpStream::connect(&demo.tls_addresses[0]).expect("a connection");
            socket.set_read_timeout(Some(PATIENCE)).expect("an option");
            let is_large = number % 2 == 1;
            let request = if is_large { &upload[..] } else { b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n" };
            let (session, flight) = last_flight(&site, &mut socket, request, !is_large);
            (session, socket, flight, is_large)
        })
        .collect();
    demo.while_stopped(|| {
        for (_, socket, flight, is_large) in &mut clients {
            // Sends as much as the socket buffer takes.
            socket.set_nonblocking(true).expect("an option");
            while let Ok(count @ 1..) = socket.write(flight) {
                flight.drain(..count);
            }
            socket.set_nonblocking(false).expect("an option");
            if !*is_large {
                assert!(flight.is_empty(), "the socket buffer does not take a small request");
                socket.shutdown(Shutdown::Write).expect("an end");
            }
        }
    });
    for (session, mut socket, flight, is_large) in clients {
        socket.write_all(&flight).expect("a successful write");
        let (mut stream, mut answer) = (Stream::new(session, socket), String::new());
        stream.read_to_string(&mut answer).expect("an answer, then close_notify");
        let expected = if is_large { "{\"bytes\":400000," } else { "Hello, World!" };
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(expected), "{engine}: {answer}");
    }
    demo.check_alive();
}
