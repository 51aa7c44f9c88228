//! HTTP/2: errors that RFC 9113 names. Plays a peer's frames in many splits, and checks the code with which we respond.

use crate::wire::{ALL, CONTINUATION, DATA, END, GET, GOAWAY, HEADERS, PADDED, PING, POST, PRIORITY, PRIORITY_UPDATE};
use crate::wire::{PUSH_PROMISE, RESET, SETTINGS, Side, WHOLE, WINDOW_UPDATE};
use crate::wire::{block, frame, frames, headers, number, opening, settings, ways, window_update};
use Outcome::{Connection, Fine, Stream};
use highwire_proto::Role;
use highwire_proto::h2::{Away, Bounds, Code, PREFACE};

/// The result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Connection(Code),
    Stream(u32, Code),
    Fine,
}

/// A case: its name, the bytes sent before, the bytes under test, and the result.
type Case = (&'static str, Vec<u8>, Vec<u8>, Outcome);

/// Plays each case in the splits of [`ways`]. If a server's connection survives, checks that it serves another request.
fn check(role: Role, cases: &[Case]) {
    for (name, before, wrong, expected) in cases {
        let mut first = None;
        for way in ways(wrong) {
            let mut side = Side::new(role, Bounds::default());
            if role == Role::Client {
                side.ask("GET", "/");
                side.ask_with("POST", "/", false, &[]);
            }
            side.receive(before);
            assert_eq!(side.failure, None, "before {name}");
            side.words.clear();
            side.out.clear();
            way.iter().for_each(|piece| side.receive(piece));
            let outcome = outcome(&side);
            assert_eq!(outcome, *expected, "{name} in {} pieces, the first of {}", way.len(), way[0].len());
            assert_eq!(side.failure.map(|failure| Connection(failure.code)).unwrap_or(outcome), outcome, "{name}");
            let seen = first.get_or_insert_with(|| side.words.clone());
            assert_eq!(seen, &side.words, "{name} in {} pieces, the first of {}", way.len(), way[0].len());
            if role == Role::Server && side.failure.is_none() && before.len() + wrong.len() > PREFACE.len() + 9 {
                side.words.clear();
                side.receive(&headers(END, 101, &with(GET, ":path", "/")));
                assert_eq!(side.words, ["101 GET / Empty"], "after {name}");
            }
        }
    }
}

/// Returns the error in the GOAWAY that was written, else in the only RST_STREAM, else [`Fine`].
fn outcome(side: &Side) -> Outcome {
    let frames = frames(&side.out);
    let code = |payload: &[u8]| {
        let known = [Code::Protocol, Code::FlowControl, Code::StreamClosed, Code::FrameSize, Code::Refused];
        let more = [Code::Compression, Code::EnhanceYourCalm, Code::Cancel, Code::Internal, Code::NoError];
        known.into_iter().chain(more).find(|code| *code as u32 == number(payload)).expect("a known code")
    };
    let away: Vec<Outcome> =
        frames.iter().filter(|frame| frame.0 == GOAWAY).map(|frame| Connection(code(&frame.3[4..]))).collect();
    let resets: Vec<Outcome> =
        frames.iter().filter(|frame| frame.0 == RESET).map(|frame| Stream(frame.2, code(frame.3))).collect();
    match (&away[..], &resets[..]) {
        ([], []) => Fine,
        (&[outcome], _) => {
            assert_eq!(frames.last().map(|frame| frame.0), Some(GOAWAY), "nothing is written after GOAWAY");
            outcome
        }
        ([], &[outcome]) => outcome,
        _ => panic!("{away:?} {resets:?}"),
    }
}

/// Returns the fields with another value for one of them, or without that field if the value is `-`.
fn with<'f>(fields: &[(&'f str, &'f str)], name: &str, value: &'f str) -> Vec<(&'f str, &'f str)> {
    let mut fields = fields.to_vec();
    match value {
        "-" => fields.retain(|field| field.0 != name),
        _ => fields.iter_mut().filter(|field| field.0 == name).for_each(|field| field.1 = value),
    }
    fields
}

fn after_opening(more: &[Vec<u8>]) -> Vec<u8> {
    [opening(), more.concat()].concat()
}

#[test]
fn connections_that_do_not_begin_as_they_should() {
    let none = Vec::new;
    let protocol = Connection(Code::Protocol);
    check(
        Role::Server,
        &[
            ("another protocol", none(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(), protocol),
            ("a preface that differs at its end", none(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX".to_vec(), protocol),
            ("no SETTINGS first", PREFACE.to_vec(), frame(PING, 0, 0, &[0; 8]), protocol),
            ("an acknowledgement first", PREFACE.to_vec(), frame(SETTINGS, 1, 0, b""), protocol),
            ("HEADERS first", PREFACE.to_vec(), headers(END, 1, GET), protocol),
            ("SETTINGS of a stream first", PREFACE.to_vec(), frame(SETTINGS, 0, 1, b""), protocol),
            ("a correct beginning", none(), opening(), Fine),
        ],
    );
    check(
        Role::Client,
        &[
            ("no SETTINGS first", none(), headers(END, 1, &[(":status", "200")]), protocol),
            ("3.4: HTTP/1", none(), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), protocol),
        ],
    );
}

#[test]
fn frames_that_are_too_large_too_small_or_on_the_wrong_stream() {
    let size = Connection(Code::FrameSize);
    let protocol = Connection(Code::Protocol);
    let too_large = |kind: u8, stream: u32| frame(kind, 0, stream, &[0; 16_385])[..60].to_vec();
    let posted = || after_opening(&[headers(0, 1, POST)]);
    check(
        Role::Server,
        &[
            ("4.2: DATA larger than announced", posted(), too_large(DATA, 1), size),
            ("4.2: HEADERS larger than announced", opening(), too_large(HEADERS, 1), size),
            ("4.2: an unknown frame larger than announced", opening(), too_large(0xaa, 0), size),
            ("4.1: an unknown frame", opening(), frame(0xaa, 0xff, 7, b"abc"), Fine),
            ("4.1: a reserved bit", opening(), frame(PING, 0, 1 << 31, &[0; 8]), Fine),
            ("4.1: undefined flags", opening(), frame(PING, 0xfe, 0, &[0; 8]), Fine),
            ("6.1: DATA without a stream", opening(), frame(DATA, 0, 0, b"a"), protocol),
            ("6.1: padding as long as its frame", posted(), frame(DATA, PADDED, 1, &[3, 0, 0]), protocol),
            ("6.1: padding longer than its frame", posted(), frame(DATA, PADDED, 1, &[255, 0, 0]), protocol),
            ("4.2: DATA without the length of its padding", posted(), frame(DATA, PADDED, 1, b""), size),
            ("6.1: padding only", posted(), frame(DATA, PADDED, 1, &[2, 0, 0]), Fine),
            ("6.2: HEADERS without a stream", opening(), headers(END, 0, GET), protocol),
            ("6.2: HEADERS with too much padding", opening(), frame(HEADERS, ALL | PADDED, 1, &[3, 0, 0]), protocol),
            ("6.2: HEADERS without the length of its padding", opening(), frame(HEADERS, ALL | PADDED, 1, b""), size),
            ("6.2: HEADERS too short for its priority", opening(), frame(HEADERS, ALL | 32, 1, &[0; 4]), size),
            ("6.3: PRIORITY without a stream", opening(), frame(PRIORITY, 0, 0, &[0; 5]), protocol),
            ("6.3: PRIORITY too short", posted(), frame(PRIORITY, 0, 1, &[0; 4]), Stream(1, Code::FrameSize)),
            ("6.3: PRIORITY too long", posted(), frame(PRIORITY, 0, 1, &[0; 6]), Stream(1, Code::FrameSize)),
            ("6.3: PRIORITY of an idle stream", opening(), frame(PRIORITY, 0, 9, &[0; 5]), Fine),
            ("6.4: RST_STREAM without a stream", opening(), frame(RESET, 0, 0, &[0; 4]), protocol),
            ("6.4: RST_STREAM of an idle stream", opening(), frame(RESET, 0, 1, &[0; 4]), protocol),
            ("6.4: RST_STREAM of a wrong size", posted(), frame(RESET, 0, 1, &[0; 5]), size),
            ("6.5: SETTINGS of a stream", opening(), frame(SETTINGS, 0, 1, b""), protocol),
            ("6.5: an acknowledgement with content", opening(), frame(SETTINGS, 1, 0, &[0; 6]), size),
            ("6.5: SETTINGS of a wrong size", opening(), frame(SETTINGS, 0, 0, &[0; 7]), size),
            ("6.5.2: ENABLE_PUSH", opening(), settings(&[(2, 2)]), protocol),
            ("6.5.2: ENABLE_PUSH that a client may send", opening(), settings(&[(2, 1)]), Fine),
            ("6.5.2: a window too large", opening(), settings(&[(4, 1 << 31)]), Connection(Code::FlowControl)),
            ("6.5.2: frames too small", opening(), settings(&[(5, 16_383)]), protocol),
            ("6.5.2: frames too large", opening(), settings(&[(5, 1 << 24)]), protocol),
            ("6.5.2: unknown settings", opening(), settings(&[(0x1234, 7), (1, 0), (6, 0), (3, 0)]), Fine),
            ("6.6: PUSH_PROMISE of a client", posted(), frame(PUSH_PROMISE, 4, 1, &[0, 0, 0, 2]), protocol),
            ("6.7: PING of a stream", opening(), frame(PING, 0, 1, &[0; 8]), protocol),
            ("6.7: PING of a wrong size", opening(), frame(PING, 0, 0, &[0; 7]), size),
            ("6.8: GOAWAY of a stream", opening(), frame(GOAWAY, 0, 1, &[0; 8]), protocol),
            ("6.8: GOAWAY too short", opening(), frame(GOAWAY, 0, 0, &[0; 7]), size),
            ("6.8: GOAWAY", posted(), frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0bye"), Fine),
            ("6.9: WINDOW_UPDATE of a wrong size", opening(), frame(WINDOW_UPDATE, 0, 0, &[1; 5]), size),
            ("6.9: an increment of 0", opening(), window_update(0, 0), protocol),
            ("6.9: an increment of 0 with the reserved bit", opening(), window_update(0, 1 << 31), protocol),
            ("6.9: an increment of 0 for a stream", posted(), window_update(1, 0), Stream(1, Code::Protocol)),
            ("6.9: an idle stream", opening(), window_update(1, 1), protocol),
            ("6.9: an idle stream of ours", opening(), window_update(2, 1), protocol),
            ("6.9.1: overflow", opening(), window_update(0, 0x7fff_ffff), Connection(Code::FlowControl)),
            ("6.9.1: a stream's overflow", posted(), window_update(1, 0x7fff_ffff), Stream(1, Code::FlowControl)),
            (
                "6.9.2: overflow by SETTINGS",
                after_opening(&[headers(0, 1, POST), window_update(1, 1000)]),
                settings(&[(4, 0x7fff_ffff)]),
                Connection(Code::FlowControl),
            ),
            ("6.10: CONTINUATION without HEADERS", posted(), frame(CONTINUATION, 4, 1, b""), protocol),
            ("6.10: CONTINUATION without a stream", opening(), frame(CONTINUATION, 4, 0, b""), protocol),
            ("8.4: PRIORITY_UPDATE of a stream", posted(), frame(PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1]), protocol),
            ("PRIORITY_UPDATE too short", posted(), frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 1]), size),
            ("PRIORITY_UPDATE for no stream", posted(), frame(PRIORITY_UPDATE, 0, 0, &[0; 4]), protocol),
            ("PRIORITY_UPDATE", posted(), frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"), Fine),
        ],
    );
}

#[test]
fn what_stands_inside_a_field_section() {
    let begun = || frame(HEADERS, END, 1, &block(GET)[..20]);
    let rest = || block(GET)[20..].to_vec();
    let inside = |other: Vec<u8>| [begun(), other, frame(CONTINUATION, WHOLE, 1, &rest())].concat();
    let protocol = Connection(Code::Protocol);
    let compression = Connection(Code::Compression);
    let section = |bytes: &[u8]| frame(HEADERS, ALL, 1, bytes);
    check(
        Role::Server,
        &[
            ("nothing", opening(), inside(Vec::new()), Fine),
            ("an empty CONTINUATION", opening(), inside(frame(CONTINUATION, 0, 1, b"")), Fine),
            ("PING", opening(), inside(frame(PING, 0, 0, &[0; 8])), protocol),
            ("DATA", opening(), inside(frame(DATA, 0, 1, b"a")), protocol),
            ("an unknown frame", opening(), inside(frame(0xaa, 0, 1, b"a")), protocol),
            ("another stream's CONTINUATION", opening(), inside(frame(CONTINUATION, 0, 3, b"")), protocol),
            ("other HEADERS", opening(), inside(headers(END, 3, GET)), protocol),
            (
                "CONTINUATION after the end",
                opening(),
                [inside(vec![]), frame(CONTINUATION, 4, 1, b"")].concat(),
                protocol,
            ),
            ("4.3: an index beyond the tables", opening(), section(&[0x80 | 62]), compression),
            ("4.3: index 0", opening(), section(&[0x80]), compression),
            ("4.3: a section that ends inside a field", opening(), section(&[0, 5, b'a']), compression),
            ("4.3: an integer without end", opening(), section(&[0xff; 12]), compression),
            ("4.3: a table larger than announced", opening(), section(&[0x3f, 0xe2, 0x1f]), compression),
            ("4.3: the table changes after a field", opening(), section(&[0x82, 0x20]), compression),
            (
                "4.3: a string of the end-of-string code",
                opening(),
                section(&[0, 0x84, 255, 255, 255, 255]),
                compression,
            ),
            ("4.3: in trailers", after_opening(&[headers(0, 1, POST)]), frame(HEADERS, ALL, 1, &[0x80]), compression),
            (
                "4.3: on a stream that was refused",
                after_opening(&[headers(END, 1, &[(":method", "GET")])]),
                frame(HEADERS, ALL, 1, &[0x80]),
                compression,
            ),
        ],
    );
}

#[test]
fn frames_in_a_state_that_does_not_have_them() {
    let protocol = Connection(Code::Protocol);
    let closed = Connection(Code::StreamClosed);
    let posted = || after_opening(&[headers(0, 1, POST)]);
    let half_closed = || after_opening(&[headers(END, 1, GET)]);
    let over = || after_opening(&[headers(END, 1, &with(GET, ":path", "/204"))]);
    let reset = || after_opening(&[headers(0, 1, POST), frame(RESET, 0, 1, &[0, 0, 0, 8])]);
    let refused = || after_opening(&[headers(0, 1, &[(":method", "GET")])]);
    let trailers = || headers(END, 1, &[("x", "y")]);
    let on_itself = || frame(HEADERS, ALL | 32, 1, &[&[0, 0, 0, 1, 0][..], &block(GET)].concat());
    check(
        Role::Server,
        &[
            ("5.1: DATA on an idle stream", opening(), frame(DATA, 0, 1, b"a"), protocol),
            ("5.1: DATA on one of ours", opening(), frame(DATA, 0, 2, b"a"), protocol),
            ("5.1: DATA after END_STREAM", half_closed(), frame(DATA, 0, 1, b"a"), Stream(1, Code::StreamClosed)),
            ("5.1: DATA without bytes", half_closed(), frame(DATA, END, 1, b""), Stream(1, Code::StreamClosed)),
            ("5.1: HEADERS after END_STREAM", half_closed(), trailers(), Stream(1, Code::StreamClosed)),
            ("5.1: WINDOW_UPDATE after END_STREAM", half_closed(), window_update(1, 1), Fine),
            ("5.1: PRIORITY after END_STREAM", half_closed(), frame(PRIORITY, 0, 1, &[0; 5]), Fine),
            ("5.1: RST_STREAM after END_STREAM", half_closed(), frame(RESET, 0, 1, &[0; 4]), Fine),
            ("5.1: DATA on a closed stream", over(), frame(DATA, 0, 1, b"a"), closed),
            ("5.1: HEADERS on a closed stream", over(), trailers(), closed),
            ("5.1: WINDOW_UPDATE on a closed stream", over(), window_update(1, 1), Fine),
            ("5.1: PRIORITY on a closed stream", over(), frame(PRIORITY, 0, 1, &[0; 5]), Fine),
            ("5.1: RST_STREAM on a closed stream", over(), frame(RESET, 0, 1, &[0; 4]), Fine),
            ("5.1: DATA after RST_STREAM", reset(), frame(DATA, 0, 1, b"a"), closed),
            ("5.1: HEADERS after RST_STREAM", reset(), trailers(), closed),
            ("5.1: DATA after our RST_STREAM", refused(), frame(DATA, END, 1, b"a"), Fine),
            ("5.1: HEADERS after our RST_STREAM", refused(), trailers(), Fine),
            ("5.1.1: an even number", opening(), headers(END, 2, GET), protocol),
            ("5.1.1: a lower number", after_opening(&[headers(0, 5, POST)]), headers(END, 3, GET), protocol),
            (
                "5.1.1: DATA on a stream that was skipped",
                after_opening(&[headers(0, 5, POST)]),
                frame(DATA, 0, 3, b"a"),
                Stream(3, Code::StreamClosed),
            ),
            ("5.3.1: a stream on itself", posted(), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), Stream(1, Code::Protocol)),
            ("5.3.1: a new stream on itself", opening(), on_itself(), Stream(1, Code::Protocol)),
            ("5.3.1: exclusively", posted(), frame(PRIORITY, 0, 1, &[128, 0, 0, 1, 0]), Stream(1, Code::Protocol)),
        ],
    );
}

#[test]
fn messages_that_are_malformed() {
    let malformed = Stream(1, Code::Protocol);
    let mut cases: Vec<Case> = Vec::new();
    let mut case = |name: &'static str, fields: &[(&str, &str)], outcome: Outcome| {
        cases.push((name, opening(), headers(END, 1, fields), outcome));
    };
    for (name, value) in [
        (":method", "-"),
        (":scheme", "-"),
        (":path", "-"),
        (":authority", "-"),
        (":path", ""),
        (":path", "*"),
        (":path", "a"),
        (":path", "/ "),
        (":path", "http://h/"),
        (":method", ""),
        (":method", "G T"),
        (":scheme", "ftp"),
        (":authority", "u@h"),
        (":authority", "h/"),
    ] {
        case("8.3.1: a pseudo-field", &with(GET, name, value), malformed);
    }
    for (name, value) in [
        (":method", "GET"),
        (":path", "/"),
        (":status", "200"),
        (":other", "x"),
        (":protocol", "websocket"),
        ("", "x"),
        ("Upper", "x"),
        ("x y", "x"),
        ("x:y", "x"),
        ("x\u{7f}", "x"),
        ("x", "a\0b"),
        ("x", "a\rb"),
        ("x", "a\nb"),
        ("x", " a"),
        ("x", "a "),
        ("x", "\ta"),
        ("connection", "close"),
        ("proxy-connection", "x"),
        ("keep-alive", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip, trailers"),
        ("host", "other"),
        ("content-length", "x"),
        ("content-length", "5"),
        ("content-length", "99999999999999999999"),
    ] {
        case("8.2: a field", &[GET, &[(name, value)]].concat(), malformed);
    }
    case("8.3: a pseudo-field after a field", &[&[("x", "y")], GET].concat(), malformed);
    case("8.2.2: TE with trailers", &[GET, &[("te", "trailers")]].concat(), Fine);
    let connect = [(":method", "CONNECT"), (":authority", "h:1")];
    case("8.5: CONNECT", &connect, Fine);
    case("8.5: CONNECT with a path", &[&connect[..], &[(":path", "/")]].concat(), malformed);
    case("8.5: CONNECT with a scheme", &[&connect[..], &[(":scheme", "https")]].concat(), malformed);
    case("8.5: CONNECT without an authority", &connect[..1], malformed);
    case("an empty section", &[], malformed);
    let length = |value: &'static str| after_opening(&[headers(0, 1, &[POST, &[("content-length", value)]].concat())]);
    let data = |flags: u8, payload: &[u8]| frame(DATA, flags, 1, payload);
    let posted = || after_opening(&[headers(0, 1, POST)]);
    cases.extend([
        ("8.1.1: more than announced", length("2"), data(0, b"abc"), malformed),
        ("8.1.1: less than announced", length("4"), data(END, b"abc"), malformed),
        ("8.1.1: no body although one is announced", length("4"), data(END, b""), malformed),
        ("8.1.1: a body although none is announced", length("0"), data(END, b"a"), malformed),
        ("8.1.1: as announced", length("3"), data(END, b"abc"), Fine),
        ("8.1.1: trailers too early", length("3"), headers(END, 1, &[("x", "y")]), malformed),
        ("8.1: trailers without END_STREAM", posted(), headers(0, 1, &[("x", "y")]), malformed),
        ("8.1: pseudo-fields in trailers", posted(), headers(END, 1, &[(":path", "/")]), malformed),
        ("8.2: trailers with a wrong field", posted(), headers(END, 1, &[("X", "y")]), malformed),
        ("8.1: trailers", posted(), headers(END, 1, &[("x", "y")]), Fine),
        ("8.1: empty trailers", posted(), headers(END, 1, &[]), Fine),
        ("8.1: a second request", posted(), headers(END, 1, GET), malformed),
    ]);
    check(Role::Server, &cases);
}

#[test]
fn a_stream_beyond_the_bound_is_refused_and_nothing_else() {
    let mut side = Side::server();
    side.receive(&opening());
    let bound = Bounds::default().streams;
    (0..bound).for_each(|at| side.receive(&headers(0, 2 * at + 1, POST)));
    side.out.clear();
    side.receive(&headers(END, 2 * bound + 1, GET));
    assert_eq!(outcome(&side), Stream(2 * bound + 1, Code::Refused));
    side.receive(&[frame(RESET, 0, 1, &[0, 0, 0, 8]), headers(END, 2 * bound + 3, GET)].concat());
    assert_eq!(side.words.last(), Some(&format!("{} GET /hold Empty", 2 * bound + 3)));
}

#[test]
fn a_peer_that_goes_beyond_a_window() {
    for (streams, expected) in [(1, Stream(1, Code::FlowControl)), (5, Connection(Code::FlowControl))] {
        let mut side = Side::server();
        side.holds = true;
        side.receive(&[opening(), frame(SETTINGS, END, 0, b"")].concat());
        (0..streams).for_each(|at| side.receive(&headers(0, 2 * at + 1, POST)));
        side.out.clear();
        for _ in 0..5 {
            for stream in 0..streams {
                if side.failure.is_none() && outcome(&side) == Fine {
                    side.receive(&frame(DATA, 0, 2 * stream + 1, &[0; 16_384]));
                }
            }
        }
        assert_eq!(outcome(&side), expected);
    }
}

#[test]
fn what_servers_do_wrong() {
    let malformed = Stream(1, Code::Protocol);
    let protocol = Connection(Code::Protocol);
    let begun = || settings(&[]);
    let status = |flags: u8, status: &'static str| headers(flags, 1, &[(":status", status)]);
    let answered = || [settings(&[]), headers(0, 1, &[(":status", "200")])].concat();
    let over = || [settings(&[]), headers(END, 1, &[(":status", "200")])].concat();
    check(
        Role::Client,
        &[
            ("no status", begun(), headers(END, 1, &[("x", "y")]), malformed),
            ("a status of two digits", begun(), status(END, "20"), malformed),
            ("a status of letters", begun(), status(END, "2xx"), malformed),
            ("8.6: switching protocols", begun(), status(0, "101"), malformed),
            ("a request", begun(), headers(END, 1, GET), malformed),
            ("8.1: an interim response that ends", begun(), status(END, "103"), malformed),
            ("8.1: DATA first", begun(), frame(DATA, 0, 1, b"a"), malformed),
            (
                "8.1: DATA after an interim response",
                begun(),
                [status(0, "103"), frame(DATA, 0, 1, b"a")].concat(),
                malformed,
            ),
            ("8.1: a second head", answered(), status(0, "200"), malformed),
            ("8.1: a status in trailers", answered(), status(END, "200"), malformed),
            (
                "a connection's field",
                begun(),
                headers(END, 1, &[(":status", "200"), ("connection", "close")]),
                malformed,
            ),
            ("5.1.1: a stream of ours that is idle", begun(), headers(END, 5, &[(":status", "200")]), protocol),
            ("5.1.1: a stream of the server's", begun(), headers(END, 2, &[(":status", "200")]), protocol),
            ("5.1: DATA on a closed stream", over(), frame(DATA, 0, 1, b"a"), Connection(Code::StreamClosed)),
            ("5.1: HEADERS on a closed stream", over(), status(END, "200"), Connection(Code::StreamClosed)),
            ("6.5.2: push is on", begun(), settings(&[(2, 1)]), protocol),
            ("6.5.2: push is off", begun(), settings(&[(2, 0)]), Fine),
            ("8.4: PUSH_PROMISE", begun(), frame(PUSH_PROMISE, 4, 1, &[0, 0, 0, 2]), protocol),
            ("a client's frame", begun(), frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1]), protocol),
            ("6.4: RST_STREAM of an idle stream", begun(), frame(RESET, 0, 5, &[0; 4]), protocol),
            ("6.4: RST_STREAM", begun(), frame(RESET, 0, 1, &[0; 4]), Fine),
            ("6.8: GOAWAY", begun(), away(0, 0), Fine),
            ("6.8: GOAWAY that names fewer streams", begun(), [away(0x7fff_ffff, 0), away(1, 0)].concat(), Fine),
            ("6.8: GOAWAY that names more streams", begun(), [away(1, 0), away(3, 0)].concat(), protocol),
        ],
    );
}

fn away(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

#[test]
fn a_client_knows_which_requests_a_server_that_goes_away_does_nothing_for() {
    let input = [settings(&[]), away(0x7fff_ffff, 0), away(3, 11), headers(END, 1, &[(":status", "204")])].concat();
    let late = [headers(0, 5, &[(":status", "200")]), frame(DATA, END, 5, b"late")].concat();
    for way in ways(&[input, late].concat()) {
        let mut client = Side::client();
        (0..4).for_each(|_| _ = client.ask("GET", "/"));
        way.iter().for_each(|piece| client.receive(piece));
        let seen = ["going away", "going away", "5 reset Refused", "7 reset Refused", "1 204 Empty"];
        assert_eq!((&client.words[..], client.failure), (&seen.map(String::from)[..], None));
        let numbers: Vec<u32> = client.connection.streams().map(|stream| stream.number).collect();
        assert_eq!(numbers, [3], "a stream that the server may process continues");
        let known = client.connection.peer_goes_away();
        assert_eq!(known, Some(Away { last: 3, code: Code::EnhanceYourCalm }));
    }
}

#[test]
fn nothing_is_read_behind_an_error() {
    let mut side = Side::server();
    side.receive(&[opening(), frame(DATA, 0, 0, b"a")].concat());
    let written = side.out.len();
    side.failure = None;
    side.receive(&headers(END, 1, GET));
    assert!(side.failure.is_some());
    assert_eq!((side.out.len(), &side.words[..]), (written, &["failed Protocol".into(), "failed Protocol".into()][..]));
}
