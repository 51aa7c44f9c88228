//! Whole HTTP/1 exchanges through one connection object, in both roles. Many inputs are also cut in two after each
//! byte, and into single bytes.

use highwire_proto::h1::{Connection, Request, Response};
use highwire_proto::testing::splits;
use highwire_proto::{Error, Event, Head, Length, Limits, Role, Version};

/// Returns the events that a role sees, in words, with the parts of a body joined. Asserts that each split of
/// [`splits`] gives the same events.
fn watch(role: Role, method: Option<&str>, input: &[u8], ends: bool) -> Vec<String> {
    let mut seen: Vec<Vec<String>> = Vec::new();
    for pieces in splits(input) {
        seen.push(watch_pieces(role, method, &pieces, ends));
    }
    for other in &seen {
        assert_eq!(other, &seen[0], "a split changed the events of {:?}", String::from_utf8_lossy(input));
    }
    seen.swap_remove(0)
}

fn watch_pieces(role: Role, method: Option<&str>, pieces: &[&[u8]], ends: bool) -> Vec<String> {
    let (mut connection, mut head, limits) = (Connection::new(role), Head::default(), Limits::default());
    if let Some(method) = method {
        let upgrade = method == "CONNECT";
        let request =
            Request { method, target: "/", version: Version::Http11, length: Length::Empty, keep_alive: true, upgrade };
        connection.send_request(request, &mut Vec::new(), |_| {}).expect("a fresh client may send");
        connection.send_end(&mut Vec::new(), |_| {}).expect("an empty request ends");
    }
    let (mut window, mut words, mut body) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        window.extend_from_slice(piece);
        loop {
            let received = match connection.receive(&window, &mut head, &limits) {
                Ok(received) => received,
                Err(error) => {
                    words.push(format!("{error:?}"));
                    return words;
                }
            };
            let is_folded = received.event == Event::Folded;
            let stop = matches!(received.event, Event::NeedMore | Event::Paused);
            let answers = matches!(received.event, Event::Head(Length::Empty) | Event::End { .. });
            match received.event {
                Event::NeedMore | Event::Paused | Event::Closed => {}
                Event::Head(length) => words.push(format!("{} {length:?}", start(role, &head, &window))),
                Event::Folded => {}
                Event::Interim => words.push(format!("interim {}", head.status)),
                Event::Data(data) => body.extend_from_slice(data),
                Event::End { trailers } => {
                    words.push(format!("body {:?}", String::from_utf8_lossy(&std::mem::take(&mut body))));
                    if trailers {
                        let field = head.fields[0];
                        words.push(format!(
                            "trailer {}={}",
                            String::from_utf8_lossy(field.name.of(&window)),
                            String::from_utf8_lossy(field.value.of(&window))
                        ));
                    }
                }
            }
            let consumed = received.consumed;
            window.drain(..consumed);
            if is_folded {
                highwire_proto::h1::unfold(&mut window);
            }
            if stop {
                break;
            }
            // A server must respond to a complete request before it can read the next one.
            if role == Role::Server && answers && connection.client() != highwire_proto::h1::state::State::MaySwitch {
                answer(&mut connection);
            }
        }
    }
    if ends {
        words.push(match connection.receive_end(&window) {
            Ok(Event::End { .. }) => format!("body {:?}", String::from_utf8_lossy(&body)),
            Ok(_) => "closed".to_string(),
            Err(error) => format!("{error:?}"),
        });
    }
    words
}

fn start(role: Role, head: &Head, window: &[u8]) -> String {
    let words = |span: highwire_proto::Span| String::from_utf8_lossy(span.of(window)).into_owned();
    match role {
        Role::Server => format!("{} {}", words(head.method_span), words(head.target.whole)),
        Role::Client => format!("{} {}", head.status, words(head.reason)),
    }
}

fn answer(connection: &mut Connection) {
    let response = Response { status: 200, reason: None, length: Length::Empty };
    connection.send_response(response, &mut Vec::new(), |_| {}).expect("a response is due");
    connection.send_end(&mut Vec::new(), |_| {}).expect("an empty response ends");
}

fn check_server(input: &str, expected: &[&str]) {
    assert_eq!(watch(Role::Server, None, input.as_bytes(), false), expected, "{input:?}");
}

fn check_client(method: &str, input: &str, ends: bool, expected: &[&str]) {
    assert_eq!(watch(Role::Client, Some(method), input.as_bytes(), ends), expected, "{input:?}");
}

#[test]
fn a_server_reads_pipelined_requests_with_and_without_bodies() {
    check_server(
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\n\
         POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz\
         POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;e\r\nc\r\n0\r\nt: v\r\n\r\n\
         GET /d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /e",
        &[
            "GET /a Empty",
            "POST /b Exact(3)",
            "body \"xyz\"",
            "POST /c Unknown",
            "body \"abc\"",
            "trailer t=v",
            "GET /d Empty",
        ],
    );
}

#[test]
fn a_server_refuses_what_can_be_read_in_two_ways() {
    for (fields, error) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", "LengthAndCoding"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3", "LengthAndCoding"),
        ("Content-Length: 3\r\nContent-Length: 3", "RepeatedContentLength"),
        ("Content-Length: 3, 3", "InvalidContentLength"),
        ("Content-Length: +3", "InvalidContentLength"),
        ("Content-Length: 99999999999999999999", "InvalidContentLength"),
        ("Transfer-Encoding: chunked, identity", "InvalidTransferEncoding"),
        ("Transfer-Encoding: gzip, chunked", "UnknownTransferCoding"),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", "UnknownTransferCoding"),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: deflate, chunked", "UnknownTransferCoding"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", "InvalidTransferEncoding"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "InvalidTransferEncoding"),
        ("Transfer-Encoding: \r\nTransfer-Encoding: chunked", "InvalidTransferEncoding"),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: deflate", "InvalidTransferEncoding"),
        ("Transfer-Encoding : chunked", "SpaceBeforeColon"),
        ("Host: other", "RepeatedHost"),
        ("Expect: 200-maybe", "UnknownExpectation"),
    ] {
        check_server(&format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n"), &[error]);
    }
}

#[test]
fn an_absolute_targets_authority_takes_the_place_of_host() {
    // All requests use one head, and none may leave anything in it for the next.
    let mut head = Head::default();
    for (request, host, differs) in [
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", Some("a"), true),
        ("GET / HTTP/1.1\r\nHost: b\r\n\r\n", Some("b"), false),
        ("GET http://a:80/x HTTP/1.1\r\nX: y\r\nHost: A:80\r\n\r\n", Some("a:80"), false),
        ("POST https://a HTTP/1.1\r\nContent-Length: 0\r\nHost: a:1\r\n\r\n", Some("a"), true),
        ("GET http://a/ HTTP/1.0\r\n\r\n", None, false),
    ] {
        let mut server = Connection::new(Role::Server);
        server.receive(request.as_bytes(), &mut head, &Limits::default()).expect("a request");
        let seen = head.field(request.as_bytes(), b"host").map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!((seen.as_deref(), head.host_differs), (host, differs), "{request:?}");
    }
}

#[test]
fn a_request_line_that_is_too_long_is_refused_for_its_method_or_for_its_target() {
    let limits = Limits { target_bytes: 24, ..Limits::default() };
    for (line, error) in [
        ("M".repeat(100), Error::MethodTooLong),
        (format!("GET /{}", "a".repeat(100)), Error::TargetTooLong),
        (format!("{} /{}", "M".repeat(60), "a".repeat(40)), Error::TargetTooLong),
    ] {
        for pieces in splits(line.as_bytes()) {
            let (mut connection, mut head, mut window) = (Connection::new(Role::Server), Head::default(), Vec::new());
            let mut refused = None;
            for piece in &pieces {
                window.extend_from_slice(piece);
                refused = refused.or(connection.receive(&window, &mut head, &limits).err());
            }
            assert_eq!(refused, Some(error), "{line:?} in {} pieces, the first of {}", pieces.len(), pieces[0].len());
        }
    }
}

#[test]
fn a_client_reads_every_way_in_which_a_body_ends() {
    check_client("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", false, &["200 OK Exact(2)", "body \"ab\""]);
    check_client(
        "GET",
        "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        false,
        &["200  Unknown", "body \"a\""],
    );
    check_client("GET", "HTTP/1.0 200 Fine\r\n\r\nto the end", true, &["200 Fine Unknown", "body \"to the end\""]);
    check_client("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true, &["200 OK Empty", "closed"]);
    check_client(
        "GET",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
        true,
        &["304 Not Modified Empty", "closed"],
    );
    check_client("GET", "HTTP/1.1 204 No Content\r\n\r\n", true, &["204 No Content Empty", "closed"]);
}

#[test]
fn a_client_reads_interim_responses_and_switches() {
    let hints = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    check_client("GET", hints, false, &["interim 100", "interim 103", "200 OK Empty"]);
    check_client("CONNECT", "HTTP/1.1 200 OK\r\n\r\nraw bytes", false, &["200 OK Empty"]);
}

#[test]
fn a_client_reads_folded_lines() {
    let input = "HTTP/1.1 103 Early Hints\r\nLink: x;\r\n\ty\r\n\r\n\
                 HTTP/1.1 200 OK\r\nX: a\r\n b\r\n  c\r\n \r\nContent-Length:\r\n 2\r\n\r\n b";
    check_client("GET", input, false, &["interim 103", "200 OK Exact(2)", "body \" b\""]);
    // Any split gives the same.
    for at in 0..input.len() {
        let (first, second) = input.as_bytes().split_at(at);
        let seen = watch_pieces(Role::Client, Some("GET"), &[first, second], false);
        assert_eq!(seen, ["interim 103", "200 OK Exact(2)", "body \" b\""], "split at {at}");
    }
    // A long head is not parsed for each byte.
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n b\r\nContent-Length: 0\r\n\r\n", "a".repeat(6000));
    for first in [6019, 6020, 6021, 6022, 6023, 6030, long.len() - 1, long.len()] {
        let (first, second) = long.as_bytes().split_at(first);
        assert_eq!(watch_pieces(Role::Client, Some("GET"), &[first, second], false), ["200 OK Empty"]);
    }
    // A line end that is wrong, and a section without an end, are found behind folded lines too.
    check_client("GET", "HTTP/1.1 200 OK\r\nX: a\r\n b\nY: c\r\n\n", false, &["InvalidLineEnd"]);
    let endless = format!("HTTP/1.1 200 OK\r\nX: a\r\n b{}", "\r\n c".repeat(Limits::MAX_HEAD_BYTES as usize / 4));
    for first in [0, 1000, endless.len() - 1] {
        let (first, second) = endless.as_bytes().split_at(first);
        assert_eq!(watch_pieces(Role::Client, Some("GET"), &[first, second], false), ["HeadTooLarge"]);
    }
    let mut unfolded = input.as_bytes().to_vec();
    highwire_proto::h1::unfold(&mut unfolded);
    assert!(unfolded.starts_with(b"HTTP/1.1 103 Early Hints\r\nLink: x; y  \r\n\r\n"));
    assert_eq!(unfolded.split_off(54), &input.as_bytes()[54..], "only the first head is changed");
    for (folded, expected) in [
        ("S\r\nX: a\r\n b\r\n\r\n", "S\r\nX: a b  \r\n\r\n"),
        ("S\r\nX: a \t\r\n \t b\r\n  c \r\n \r\nY: d\r\n e\r\n\r\n", "S\r\nX: a b c             \r\nY: d e  \r\n\r\n"),
        ("S\r\nX:\r\n \r\n 2\r\nY: 1\r\n\r\n b\r\n c", "S\r\nX: 2     \r\nY: 1\r\n\r\n b\r\n c"),
        ("T: a\r\n b\r\n\r\nHTTP/1.1 200 OK\r\nX: a\r\n b", "T: a b  \r\n\r\nHTTP/1.1 200 OK\r\nX: a\r\n b"),
        ("S\r\nX: a\n b\r\n\r\n", "S\r\nX: a\n b\r\n\r\n"),
        ("S\r\nX: a\r\n\r\n", "S\r\nX: a\r\n\r\n"),
    ] {
        let mut bytes = folded.as_bytes().to_vec();
        highwire_proto::h1::unfold(&mut bytes);
        assert_eq!(String::from_utf8_lossy(&bytes), expected, "{folded:?}");
    }
    let input = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: v\r\n w\r\n\t\r\n x\r\n\r\n";
    for at in 0..input.len() {
        let (first, second) = input.as_bytes().split_at(at);
        let seen = watch_pieces(Role::Client, Some("GET"), &[first, second], false);
        assert_eq!(seen, ["200 OK Unknown", "body \"a\"", "trailer T=v w x"], "split at {at}");
    }
    // The line after the status line and the first trailer line continue nothing, and a server refuses all of them.
    check_client(
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n T: v\r\n\r\n",
        false,
        &["200 OK Unknown", "ObsoleteFold"],
    );
    check_server(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: v\r\n w\r\n\r\n",
        &["POST / Unknown", "ObsoleteFold"],
    );
    check_client("GET", "HTTP/1.1 200 OK\r\n X: a\r\n\r\n", false, &["ObsoleteFold"]);
    check_server("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", &["ObsoleteFold"]);
}

#[test]
fn a_client_is_told_what_a_server_did_wrong() {
    check_client("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", true, &["200 OK Exact(2)", "Truncated"]);
    check_client(
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        false,
        &["LengthAndCoding"],
    );
    check_client("GET", "HTTP/2.0 200 OK\r\n\r\n", false, &["UnsupportedVersion"]);
    check_client("GET", "HTTP/1.1 2x0 OK\r\n\r\n", false, &["InvalidStatus"]);
    check_client("GET", "HTTP/1.1 101 Switching Protocols\r\n\r\n", false, &["UnexpectedData"]);
    check_client("CONNECT", "HTTP/1.1 101 Switching Protocols\r\n\r\n", false, &["UnexpectedData"]);
    check_client("GET", "", true, &["Truncated"]);
}

#[test]
fn what_is_sent_too_early_too_late_or_too_long_is_the_callers_mistake() {
    let mut out = Vec::new();
    let mut server = Connection::new(Role::Server);
    assert_eq!(server.send_data(b"x", &mut out), Err(Error::NotNow));
    assert_eq!(server.send_interim(100, &mut out, |_| {}), Err(Error::NotNow));
    let (mut head, limits) = (Head::default(), Limits::default());
    server.receive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &mut head, &limits).expect("a request");
    let response = Response { status: 200, reason: None, length: Length::Exact(1) };
    assert_eq!(
        server.send_response(response, &mut out, |fields| fields.field(b"x", b"a\r\nb: c")),
        Err(Error::InvalidField)
    );
    assert_eq!(out, b"", "nothing of a refused head is sent");
    server.send_response(response, &mut out, |_| {}).expect("a response is due");
    assert_eq!(server.send_end(&mut out, |_| {}), Err(Error::LengthMismatch));
    assert_eq!(server.send_data(b"xy", &mut out), Err(Error::LengthMismatch));
    server.send_data(b"x", &mut out).expect("the body fits");
    server.send_end(&mut out, |_| {}).expect("the body is whole");
    assert_eq!(server.send_end(&mut out, |_| {}), Err(Error::NotNow));
    assert_eq!(server.send_response(response, &mut out, |_| {}), Ok(()), "an idle server may still send an error");
}

#[test]
fn a_second_end_of_a_chunked_body_sends_nothing() {
    let (mut server, mut out, mut head) = (Connection::new(Role::Server), Vec::new(), Head::default());
    server.receive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &mut head, &Limits::default()).expect("a request");
    let response = Response { status: 200, reason: None, length: Length::Unknown };
    server.send_response(response, &mut out, |_| {}).expect("a response is due");
    server.send_end(&mut out, |_| {}).expect("the body is whole");
    let sent = out.len();
    assert_eq!(server.send_end(&mut out, |_| {}), Err(Error::NotNow));
    assert_eq!(out.len(), sent);
}

#[test]
fn a_refused_head_leaves_the_connection_as_it_was() {
    let (mut server, mut out, mut head) = (Connection::new(Role::Server), Vec::new(), Head::default());
    server
        .receive(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &mut head, &Limits::default())
        .expect("a request");
    let response = Response { status: 200, reason: None, length: Length::Unknown };
    let refused = server.send_response(response, &mut out, |fields| fields.field(b"x", b"a\r\nb: c"));
    assert_eq!(refused, Err(Error::InvalidField));
    let response = Response { status: 500, reason: None, length: Length::Exact(2) };
    server.send_response(response, &mut out, |_| {}).expect("a response is due");
    let text = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), text);
}

#[test]
fn answers_are_framed_by_version_method_and_status() {
    let cases: &[(&str, u16, Length, &str)] = &[
        (
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            200,
            Length::Unknown,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        ),
        ("GET / HTTP/1.0\r\n\r\n", 200, Length::Unknown, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab"),
        (
            "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            200,
            Length::Exact(2),
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nab",
        ),
        ("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", 200, Length::Exact(2), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 204, Length::Empty, "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 299, Length::Exact(2), "HTTP/1.1 299 \r\nContent-Length: 2\r\n\r\nab"),
    ];
    for (request, status, length, expected) in cases {
        let (mut server, mut out, mut head) = (Connection::new(Role::Server), Vec::new(), Head::default());
        server.receive(request.as_bytes(), &mut head, &Limits::default()).expect("a request");
        server
            .send_response(Response { status: *status, reason: None, length: *length }, &mut out, |_| {})
            .expect("a head");
        if *length != Length::Empty {
            server.send_data(b"ab", &mut out).expect("a body");
        }
        server.send_end(&mut out, |_| {}).expect("an end");
        assert_eq!(String::from_utf8_lossy(&out), *expected, "{request:?}");
    }
}

#[test]
fn a_rendered_head_is_refused_where_it_would_not_fit() {
    for request in [
        "GET / HTTP/1.0\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ] {
        let (mut server, mut out, mut head) = (Connection::new(Role::Server), Vec::new(), Head::default());
        server.receive(request.as_bytes(), &mut head, &Limits::default()).expect("a request");
        assert_eq!(server.send_rendered(b"HTTP/1.1 200 OK\r\n\r\n", b"", &mut out), Err(Error::NotNow), "{request:?}");
        assert_eq!(out, b"");
    }
}

/// Checks that docs/http1-states.md contains the diagrams of the table.
#[test]
fn the_diagrams_in_the_documentation_are_the_table() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/http1-states.md")).expect("the page");
    for role in [Role::Client, Role::Server] {
        let diagram = highwire_proto::h1::state::diagram(role);
        assert!(page.contains(&diagram), "docs/http1-states.md lacks the {role:?}'s diagram:\n{diagram}");
    }
}
