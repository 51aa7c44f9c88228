//! HTTP/2: our client role against our server role in memory. Many exchanges are repeated in many splits of the bytes.

use crate::wire;
use crate::wire::{ALL, DATA, END, HEADERS, LARGE, PADDED, RESET, SETTINGS, Side, WINDOW_UPDATE};
use crate::wire::{block, exchange, frame, frames, headers, number, opening, settings, ways, window_update};
use highwire_proto::Role;
use highwire_proto::h2::{Bounds, Code, Request, StreamRef};

/// Plays the client's requests, and compares the events of each side. Then plays the input of each side again to a
/// fresh side, in the splits of [`ways`].
fn check(begin: impl Fn(&mut Side), server_sees: &[&str], client_sees: &[&str]) {
    let (mut client, mut server) = (Side::client(), Side::server());
    begin(&mut client);
    let (to_server, to_client) = exchange(&mut client, &mut server, usize::MAX);
    assert_eq!((&server.words[..], &client.words[..]), (&words(server_sees)[..], &words(client_sees)[..]));
    assert_eq!((server.connection.open_streams(), client.connection.open_streams()), (0, 0), "{server_sees:?}");
    for way in ways(&to_server) {
        let mut server = Side::server();
        way.iter().for_each(|piece| server.receive(piece));
        assert_eq!(server.words, server_sees, "the server's input in {} pieces: {:?}", way.len(), way[0].len());
    }
    for way in ways(&to_client) {
        let play = |takes_wholes: bool| {
            let mut client = Side::client();
            client.takes_wholes = takes_wholes;
            begin(&mut client);
            way.iter().for_each(|piece| client.receive(piece));
            client
        };
        let (client, other) = (play(false), play(true));
        assert_eq!(client.words, client_sees, "the client's input in {} pieces: {:?}", way.len(), way[0].len());
        // A client that takes whole bodies at once sees and sends the same, and ends in the same state.
        assert_eq!((&other.words, &other.out), (&client.words, &client.out), "{} pieces", way.len());
        assert_eq!(format!("{:?}", other.connection), format!("{:?}", client.connection), "{} pieces", way.len());
        let has_body = client_sees.iter().any(|word| word.contains("Exact(5)"));
        assert!(other.wholes > 0 || !has_body || way.len() > 1, "{client_sees:?}");
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[test]
fn a_request_without_a_body() {
    check(
        |client| _ = client.ask_with("GET", "/a?b", true, &[("x", "y"), ("accept", "*/*")]),
        &["1 GET /a?b Empty x=y"],
        &["1 200 Exact(5)", "1 end hello"],
    );
}

#[test]
fn requests_with_bodies_and_trailers_in_either_direction() {
    check(
        |client| {
            let stream = client.ask_with("POST", "/echo", false, &[("content-length", "3")]);
            client.send(stream, b"abc", false);
            let stream = client.ask_with("POST", "/echo", false, &[]);
            client.send(stream, b"defg", true);
            let stream = client.ask_with("POST", "/", false, &[]);
            client.send(stream, b"", true);
            client.ask("GET", "/trailers");
        },
        &[
            "1 POST /echo Exact(3)",
            "1 end abc",
            "3 POST /echo Unknown",
            "3 end defg x-t=v",
            "5 POST / Unknown",
            "5 end  x-t=v",
            "7 GET /trailers Empty",
        ],
        &[
            "1 200 Unknown",
            "1 end abc x-t=v",
            "3 200 Unknown",
            "3 end defg x-t=v",
            "5 200 Exact(5)",
            "5 end hello",
            "7 200 Unknown",
            "7 end abc x-t=v",
        ],
    );
}

#[test]
fn responses_that_have_no_body_whatever_they_say() {
    check(
        |client| {
            client.ask("HEAD", "/");
            client.ask("GET", "/204");
            client.ask("GET", "/304");
        },
        &["1 HEAD / Empty", "3 GET /204 Empty", "5 GET /304 Empty"],
        &["1 200 Empty", "3 204 Empty", "5 304 Empty"],
    );
}

#[test]
fn the_length_of_a_body_that_a_head_request_does_not_get_is_no_mistake() {
    for (method, status, sees) in [
        ("HEAD", "200", "1 200 Empty"),
        ("GET", "304", "1 304 Empty"),
        ("GET", "200", "1 reset Protocol"),
        ("POST", "206", "1 reset Protocol"),
    ] {
        let mut client = Side::client();
        client.ask(method, "/");
        client.receive(&settings(&[]));
        client.receive(&headers(END, 1, &[(":status", status), ("content-length", "5")]));
        assert_eq!(client.words, [sees], "{method} {status}");
    }
}

#[test]
fn interim_responses() {
    check(
        |client| _ = client.ask("GET", "/interim"),
        &["1 GET /interim Empty"],
        &["1 interim 103", "1 200 Exact(4)", "1 end late"],
    );
}

#[test]
fn a_hundred_streams_at_once() {
    let begin = |client: &mut Side| {
        let streams: Vec<StreamRef> = (0..100).map(|_| client.ask_with("POST", "/echo", false, &[])).collect();
        assert_eq!(client.connection.open_streams(), 100);
        streams.iter().rev().for_each(|&stream| client.send(stream, format!("{}", stream.number).as_bytes(), false));
    };
    let heads = (0..100).map(|at| format!("{} POST /echo Unknown", 2 * at + 1));
    let ends = (0..100).rev().map(|at| format!("{0} end {0}", 2 * at + 1));
    let server: Vec<String> = heads.chain(ends).collect();
    let each = (0..100).rev().map(|at| 2 * at + 1);
    let client: Vec<String> =
        each.flat_map(|at| [format!("{at} 200 Unknown"), format!("{at} end {at} x-t=v")]).collect();
    check(
        begin,
        &server.iter().map(String::as_str).collect::<Vec<&str>>(),
        &client.iter().map(String::as_str).collect::<Vec<&str>>(),
    );
}

#[test]
fn a_peer_that_allows_few_streams_is_asked_no_more() {
    let mut client = Side::client();
    client.receive(&settings(&[(3, 2)]));
    client.ask("GET", "/");
    client.ask("GET", "/");
    let third = Request { method: "GET", scheme: "https", authority: "h", path: "/", protocol: None, ends: true };
    assert!(client.connection.send_request(third, &mut client.out, |_| {}).is_err());
    client.receive(&headers(END, 1, &[(":status", "200")]));
    assert!(client.connection.send_request(third, &mut client.out, |_| {}).is_ok());
}

/// Returns the default bounds with another window for each stream.
fn narrow(stream_window: u32) -> Bounds {
    Bounds { stream_window, ..Bounds::default() }
}

#[test]
fn large_bodies_pass_small_windows_in_both_directions() {
    for stream_window in [1, 2, 100, 1_000, 5_000, 65_536, 1 << 20] {
        for piece in [1, 7, 9, 1_000, 100_000] {
            if piece < 9 && stream_window < 100 {
                continue;
            }
            let mut client = Side::new(Role::Client, narrow(stream_window));
            let mut server = Side::new(Role::Server, narrow(stream_window));
            // A large body in such small steps would count as an attack.
            let bytes = if stream_window < 1_000 { 400 } else { LARGE };
            exchange(&mut client, &mut server, piece);
            let stream = client.ask_with("POST", "/echo", false, &[]);
            client.send(stream, &vec![b'y'; bytes], true);
            exchange(&mut client, &mut server, piece);
            assert_eq!(server.words[1], format!("1 end <{bytes} bytes> x-t=v"), "{stream_window} {piece}");
            assert_eq!(client.words[1], format!("1 end <{bytes} bytes> x-t=v"), "{stream_window} {piece}");
            assert_eq!((client.unsent(), server.unsent()), (0, 0));
        }
    }
}

#[test]
fn a_sender_stops_at_the_window_and_goes_on_when_bytes_are_used() {
    let (mut client, mut server) = (Side::client(), Side::new(Role::Server, narrow(10_000)));
    client.holds = true;
    exchange(&mut client, &mut server, 1 << 20);
    server.holds = true;
    let stream = client.ask_with("POST", "/large", false, &[]);
    client.send(stream, &[b'z'; 25_000], false);
    exchange(&mut client, &mut server, 1 << 20);
    assert_eq!((client.unsent(), client.connection.capacity(stream)), (15_000, 0));
    server.use_held();
    exchange(&mut client, &mut server, 1 << 20);
    assert_eq!(client.unsent(), 5_000);
    server.use_held();
    exchange(&mut client, &mut server, 1 << 20);
    assert_eq!((client.unsent(), server.words.len()), (0, 2));
    // In the other direction the stream's window is 64 KiB.
    for left in [LARGE - 65_536, LARGE - 131_072, LARGE - 196_608, 0] {
        assert_eq!(server.unsent(), left);
        client.use_held();
        exchange(&mut client, &mut server, 1 << 20);
    }
    assert_eq!(client.words[1], format!("1 end <{LARGE} bytes>"));
}

#[test]
fn all_streams_together_stop_at_the_connections_window() {
    let (mut client, mut server) = (Side::client(), Side::server());
    server.holds = true;
    let streams: Vec<StreamRef> = (0..6).map(|_| client.ask_with("POST", "/", false, &[])).collect();
    streams.iter().for_each(|&stream| client.send(stream, &[b'z'; 60_000], false));
    exchange(&mut client, &mut server, 1 << 20);
    assert_eq!(client.unsent(), 6 * 60_000 - 256 * 1024);
    server.use_held();
    exchange(&mut client, &mut server, 1 << 20);
    assert_eq!((client.unsent(), client.words.len()), (0, 12));
}

#[test]
fn a_body_that_nobody_wants_any_more_gives_the_connections_window_back() {
    let (mut client, mut server) = (Side::client(), Side::server());
    for _ in 0..40 {
        let stream = client.ask_with("POST", "/hold", false, &[]);
        exchange(&mut client, &mut server, 1 << 20);
        // The server resets the stream before the client sends the body.
        let theirs = server.connection.streams().next().expect("a stream is open");
        server.connection.reset(theirs, Code::Cancel, &mut server.out);
        client.send(stream, &[b'z'; 30_000], false);
        exchange(&mut client, &mut server, 1 << 20);
        assert_eq!(client.connection.open_streams(), 0);
    }
    let stream = client.ask_with("POST", "/hold", false, &[]);
    assert!(client.connection.capacity(stream) >= 65_535, "the connection has {}", client.connection.capacity(stream));
    assert_eq!((server.failure, client.failure), (None, None));
}

#[test]
fn windows_that_shrink_below_nothing_and_grow_again() {
    let mut server = Side::server();
    server.receive(&opening());
    server.receive(&headers(
        END,
        1,
        &[(":method", "GET"), (":scheme", "https"), (":path", "/large"), (":authority", "h")],
    ));
    let sent = |side: &Side| {
        let data = |frame: &(u8, u8, u32, &[u8])| (frame.0 == DATA).then_some(frame.3.len());
        frames(&side.out).iter().filter_map(data).sum::<usize>()
    };
    assert_eq!(sent(&server), 65_535);
    let stream = server.connection.streams().next().expect("a stream is open");
    server.receive(&window_update(0, 1 << 20));
    // The stream's window shrinks by 65,435 and is negative.
    server.receive(&settings(&[(4, 100)]));
    assert_eq!((sent(&server), server.connection.capacity(stream)), (65_535, 0));
    server.receive(&window_update(1, 65_435));
    assert_eq!(sent(&server), 65_535, "the window is 0");
    server.receive(&window_update(1, 1));
    assert_eq!(sent(&server), 65_536);
    server.receive(&settings(&[(4, 0)]));
    server.receive(&window_update(1, 50));
    assert_eq!(sent(&server), 65_536, "the window is -50");
    server.receive(&settings(&[(4, 60)]));
    assert_eq!(sent(&server), 65_546, "the window is 10");
    server.receive(&settings(&[(4, 0x7fff_ffff)]));
    assert_eq!((sent(&server), server.unsent()), (LARGE, 0));
}

#[test]
fn settings_change_the_windows_while_bodies_are_under_way() {
    for piece in [1, 8, 9, 10, 500, 1 << 20] {
        let (mut client, mut server) = (Side::client(), Side::server());
        exchange(&mut client, &mut server, piece);
        for path in ["/large", "/echo"] {
            let stream = client.ask_with("POST", path, false, &[]);
            client.send(stream, &[b'q'; 90_000], false);
        }
        for window in [10, 1_000_000, 0, 0x7fff_ffff, 20_000] {
            // Each side receives SETTINGS as if the peer had sent them.
            client.receive(&settings(&[(4, window)]));
            server.receive(&settings(&[(4, window)]));
            // Each side accepts acknowledgements of SETTINGS that it has not sent.
            exchange(&mut client, &mut server, piece);
        }
        for side in [&mut client, &mut server] {
            side.receive(&settings(&[(4, 1 << 24)]));
        }
        exchange(&mut client, &mut server, piece);
        let mut seen = [server.take_words(), client.take_words()].concat();
        seen.retain(|words| words.contains("end"));
        seen.sort();
        let (large, small) = (format!("1 end <{LARGE} bytes>"), "<90000 bytes>");
        assert_eq!(seen, [large, format!("1 end {small}"), format!("3 end {small}"), format!("3 end {small} x-t=v")]);
    }
}

#[test]
fn a_server_goes_away_in_two_steps_and_serves_what_was_begun() {
    let (mut client, mut server) = (Side::client(), Side::server());
    let held = client.ask("GET", "/hold");
    exchange(&mut client, &mut server, 1 << 20);
    server.connection.go_away(&mut server.out);
    assert!(!server.connection.is_gone());
    // The client sends this request before it receives the GOAWAY.
    let racing = client.ask_with("POST", "/echo", false, &[]);
    exchange(&mut client, &mut server, 1 << 20);
    assert!(client.connection.peer_goes_away().is_some());
    let late = Request { method: "GET", scheme: "https", authority: "h", path: "/", protocol: None, ends: true };
    assert!(client.connection.send_request(late, &mut client.out, |_| {}).is_err());
    server.connection.go_away(&mut server.out);
    assert!(server.connection.is_gone());
    let named = frames(&server.out).iter().map(|frame| number(frame.3)).collect::<Vec<u32>>();
    assert_eq!(named, [racing.number]);
    client.send(racing, b"abc", false);
    exchange(&mut client, &mut server, 1 << 20);
    let theirs = server.connection.streams().next().expect("a stream is open");
    assert_eq!(theirs.number, held.number);
    server.respond(theirs, 200, b"done", false);
    exchange(&mut client, &mut server, 1 << 20);
    assert_eq!(
        client.words,
        ["going away", "going away", "3 200 Unknown", "3 end abc x-t=v", "1 200 Exact(4)", "1 end done"]
    );
    assert_eq!((server.connection.open_streams(), server.failure), (0, None));
}

#[test]
fn streams_that_come_too_late_are_dropped_and_harm_nothing() {
    let late = [
        frame(HEADERS, 4, 3, &block(wire::POST)),
        frame(DATA, 0, 3, b"abc"),
        window_update(3, 10),
        frame(HEADERS, ALL, 3, &block(&[("x", "y")])),
        frame(HEADERS, ALL, 5, &block(wire::GET)),
        frame(RESET, 0, 5, &[0, 0, 0, 8]),
        frame(HEADERS, 4, 7, &block(wire::POST)),
        frame(RESET, 0, 7, &[0, 0, 0, 8]),
    ]
    .concat();
    for way in ways(&late) {
        let mut server = Side::server();
        server.receive(&[opening(), headers(END, 1, wire::GET)].concat());
        server.connection.go_away(&mut server.out);
        server.connection.go_away(&mut server.out);
        server.words.clear();
        way.iter().for_each(|piece| server.receive(piece));
        assert_eq!((&server.words, server.failure), (&vec![], None));
        let stream = server.connection.streams().next().expect("the first is still served");
        server.respond(stream, 200, b"", false);
        server.receive(&frame(DATA, 0, 0, b""));
        let told = frames(&server.out).last().map(|frame| number(frame.3));
        assert_eq!(told, Some(1), "the last stream number in GOAWAY does not rise again");
    }
}

#[test]
fn either_side_resets_a_stream() {
    let (mut client, mut server) = (Side::client(), Side::server());
    client.ask("GET", "/reset");
    let cancelled = client.ask("GET", "/hold");
    exchange(&mut client, &mut server, 1 << 20);
    client.connection.reset(cancelled, Code::Cancel, &mut client.out);
    client.connection.reset(cancelled, Code::Cancel, &mut client.out);
    exchange(&mut client, &mut server, 1 << 20);
    assert_eq!(client.words, ["1 reset Internal"]);
    assert_eq!(server.words, ["1 GET /reset Empty", "3 GET /hold Empty", "3 reset Cancel"]);
    assert_eq!((client.connection.open_streams(), server.connection.open_streams()), (0, 0));
    // Frames that were on their way when the stream was reset do no harm.
    let mut server = Side::server();
    server.receive(&[opening(), headers(0, 1, wire::POST)].concat());
    let stream = server.connection.streams().next().expect("a stream is open");
    server.connection.reset(stream, Code::Cancel, &mut server.out);
    server.receive(&[frame(DATA, 0, 1, b"abc"), window_update(1, 1), headers(END, 1, &[("x", "y")])].concat());
    server.receive(&frame(RESET, 0, 1, &[0, 0, 0, 8]));
    assert_eq!((server.words.len(), server.failure), (1, None));
}

#[test]
fn a_body_is_not_sent_before_its_head_nor_beyond_its_length() {
    use highwire_proto::Error::{LengthMismatch, NotNow};
    let mut server = Side::server();
    server.receive(&[opening(), headers(END, 1, wire::GET)].concat());
    let stream = server.connection.streams().next().expect("a stream is open");
    let Side { connection, out, .. } = &mut server;
    assert_eq!(connection.send_data(stream, b"x", false, out), Err(NotNow));
    assert_eq!(connection.send_trailers(stream, out, |_| {}), Err(NotNow));
    assert_eq!(connection.send_interim(stream, 101, out, |_| {}), Err(NotNow));
    connection.send_response(stream, 200, highwire_proto::Length::Exact(3), out, |_| {}).expect("an answer is due");
    assert_eq!(connection.send_response(stream, 200, highwire_proto::Length::Empty, out, |_| {}), Err(NotNow));
    assert_eq!(connection.send_interim(stream, 103, out, |_| {}), Err(NotNow));
    assert_eq!(connection.send_data(stream, b"abcd", false, out), Err(LengthMismatch));
    assert_eq!(connection.send_data(stream, b"ab", true, out), Err(LengthMismatch));
    assert_eq!(connection.send_trailers(stream, out, |_| {}), Err(LengthMismatch));
    assert_eq!(connection.send_data(stream, b"abc", true, out), Ok(3));
    assert_eq!(connection.send_data(stream, b"", true, out), Err(NotNow));
}

#[test]
fn padding_is_taken_off_and_counts_for_the_windows() {
    let padded = |payload: &[u8], padding: u8| [&[padding], payload, &vec![0; usize::from(padding)]].concat();
    let request = [
        opening(),
        frame(HEADERS, 4 | PADDED, 1, &padded(&block(wire::POST), 255)),
        frame(DATA, PADDED, 1, &padded(b"ab", 0)),
        frame(DATA, PADDED, 1, &padded(b"", 30)),
        frame(DATA, PADDED | END, 1, &padded(b"c", 7)),
    ]
    .concat();
    for way in ways(&request) {
        let mut server = Side::new(Role::Server, narrow(64));
        way.iter().for_each(|piece| server.receive(piece));
        assert_eq!(server.words, ["1 POST /hold Unknown", "1 end abc"]);
        let updates: u32 =
            frames(&server.out).iter().filter(|f| (f.0, f.2) == (WINDOW_UPDATE, 1)).map(|f| number(f.3)).sum();
        assert_eq!(updates, 34, "2 bytes, 2 lengths and 30 bytes of padding");
    }
}

#[test]
fn heads_larger_than_a_frame_go_in_several() {
    let wide = "~".repeat(10_000);
    check(
        |client| _ = client.ask_with("GET", "/wide", true, &[("xa", &wide), ("xb", &wide)]),
        &["1 GET /wide Empty xa=<10000 bytes> xb=<10000 bytes>"],
        &["1 200 Empty xa=<10000 bytes> xb=<10000 bytes>"],
    );
    let mut client = Side::client();
    client.ask_with("GET", "/", true, &[("xa", &wide), ("xb", &wide)]);
    let kinds: Vec<(u8, u8)> = frames(&client.out).iter().map(|frame| (frame.0, frame.1)).collect();
    assert_eq!(kinds, [(SETTINGS, 0), (WINDOW_UPDATE, 0), (HEADERS, 1), (wire::CONTINUATION, 4)]);
}

#[test]
fn a_peer_may_use_what_it_was_told_first_until_it_has_seen_our_settings() {
    // The peer may still use a stream window of 65,535 bytes and a table of 4,096 bytes, because our smaller settings
    // are on their way.
    let bounds = Bounds { stream_window: 1_000, table_bytes: 0, ..Bounds::default() };
    let mut server = Side::new(Role::Server, bounds);
    // The request has a field that is added to the table, and a reference to this entry.
    let request = [block(wire::POST), vec![0x40, 2, b'x', b'a', 1, b'b', 0x80 | 62]].concat();
    server.receive(&[opening(), frame(HEADERS, 4, 1, &request)].concat());
    (0..4).for_each(|_| server.receive(&frame(DATA, 0, 1, &[b'x'; 16_000])));
    server.receive(&frame(DATA, END, 1, b""));
    assert_eq!(server.words, ["1 POST /hold Unknown xa=b xa=b", "1 end <64000 bytes>"]);
    // After its acknowledgement the peer must reduce the table to 0, which removes the entry.
    server.receive(&frame(SETTINGS, END, 0, b""));
    server.receive(&frame(HEADERS, ALL, 3, &[&[0x20][..], &block(wire::GET)].concat()));
    assert_eq!((server.words.len(), server.failure), (3, None));
    server.receive(&frame(HEADERS, ALL, 5, &request));
    assert_eq!(server.failure.map(|failure| failure.code), Some(Code::Compression));
}

#[test]
fn a_table_that_was_small_in_between_is_emptied() {
    // RFC 7541 section 4.2: the encoder announces the smallest size and then the last, even if they arrived in two
    // frames.
    for changes in [settings(&[(1, 0), (1, 100)]), [settings(&[(1, 0)]), settings(&[(1, 100)])].concat()] {
        let mut server = Side::server();
        server.receive(&[opening(), changes, headers(END, 1, wire::GET)].concat());
        server.out.clear();
        let stream = server.connection.streams().next().expect("a stream is open");
        server.respond(stream, 204, b"", false);
        let section = frames(&server.out).first().map(|frame| frame.3[..3].to_vec());
        assert_eq!(section, Some(vec![0x20, 0x3f, 100 - 31]));
    }
}

/// Checks that docs/http2-states.md contains the diagram of the table.
#[test]
fn the_diagram_in_the_documentation_is_the_table() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/http2-states.md")).expect("the page");
    let drawn = page.split("```mermaid\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(
        drawn,
        Some(&*highwire_proto::h2::state::diagram()),
        "the page's diagram (left) is not the table's (right)"
    );
}
