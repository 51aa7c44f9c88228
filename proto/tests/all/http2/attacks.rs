//! HTTP/2: a peer may send only a bounded number of the frames that cost us more than they cost the peer. A peer that
//! sends them now and then, with finished requests in between, is not cut off.

use crate::wire::{ALL, CONTINUATION, DATA, END, GET, GOAWAY, HEADERS, PADDED, PING, POST, PRIORITY, PRIORITY_UPDATE};
use crate::wire::{RESET, SETTINGS, Side, WHOLE};
use crate::wire::{block, frame, frames, headers, opening, settings, window_update};
use highwire_proto::Role;
use highwire_proto::h2::budget::{ALLOWANCES, Kind};
use highwire_proto::h2::{Bounds, Code};

/// The largest number of bytes that a connection may hold: twice both tables with their entries, and the largest field
/// section in a vector that has grown to hold it.
const MOST_HELD: usize = 2 * (2 * 4096 + 8192) + 128 * 1024;

/// Returns the bytes that a peer sends in a turn, by the turn's number.
type Turn = fn(u32) -> Vec<u8>;

fn stream(turn: u32) -> u32 {
    2 * turn + 1
}

fn get(turn: u32) -> Vec<u8> {
    headers(END, stream(turn), GET)
}

fn post(turn: u32) -> Vec<u8> {
    headers(0, stream(turn), POST)
}

fn cancel(turn: u32) -> Vec<u8> {
    frame(RESET, 0, stream(turn), &[0, 0, 0, 8])
}

/// Returns a request, and the frame that makes us reset it.
fn made_to_reset(head: Vec<u8>, wrong: Vec<u8>) -> Vec<u8> {
    [head, wrong].concat()
}

fn attack(name: &str, mut side: Side, turn: Turn, kind: Kind) {
    let most = u32::from(ALLOWANCES[kind as usize].most) + 1;
    let (mut turns, mut received) = (0, 0);
    side.out.clear();
    while side.failure.is_none() {
        assert!(turns <= most, "{name} continues after {turns} turns");
        let bytes = turn(turns);
        received += bytes.len();
        side.receive(&bytes);
        turns += 1;
        assert!(side.connection.held() <= MOST_HELD, "{name}: {} bytes are held", side.connection.held());
        assert!(side.connection.open_streams() <= Bounds::default().streams as usize, "{name}");
    }
    assert_eq!(side.failure.map(|failure| failure.code), Some(Code::EnhanceYourCalm), "{name}");
    assert_eq!(side.connection.fired(), Some(kind), "{name}");
    assert!(side.out.len() <= 3 * received + 100, "{name}: {} bytes for {received}", side.out.len());
    let last = frames(&side.out).pop().expect("a frame is written");
    assert_eq!((last.0, &last.3[4..8]), (GOAWAY, &11u32.to_be_bytes()[..]), "{name}");
}

fn server(frames: &[Vec<u8>]) -> Side {
    let mut side = Side::server();
    let acknowledgement = frame(SETTINGS, END, 0, b"");
    side.receive(&[opening(), acknowledgement, frames.concat()].concat());
    side
}

#[test]
fn each_attack_ends_its_connection() {
    let attacks: [(&str, Turn, Kind); 29] = [
        ("rapid reset", |turn| [get(turn), cancel(turn)].concat(), Kind::PeerResets),
        ("resets of streams with bodies", |turn| [post(turn), cancel(turn)].concat(), Kind::PeerResets),
        ("an increment of 0", |turn| made_to_reset(get(turn), window_update(stream(turn), 0)), Kind::OwnResets),
        (
            "a window that overflows",
            |turn| made_to_reset(get(turn), window_update(stream(turn), 0x7fff_ffff)),
            Kind::OwnResets,
        ),
        ("DATA on half-closed", |turn| made_to_reset(get(turn), frame(DATA, END, stream(turn), b"")), Kind::OwnResets),
        ("HEADERS on half-closed", |turn| made_to_reset(get(turn), headers(END, stream(turn), &[])), Kind::OwnResets),
        (
            "a length that is wrong",
            |turn| made_to_reset(one_byte(turn), frame(DATA, 0, stream(turn), b"ab")),
            Kind::OwnResets,
        ),
        (
            "a length not reached",
            |turn| made_to_reset(one_byte(turn), headers(END, stream(turn), &[])),
            Kind::OwnResets,
        ),
        ("a stream that depends on itself", |turn| made_to_reset(get(turn), priority(turn, turn)), Kind::OwnResets),
        (
            "a priority too long",
            |turn| made_to_reset(get(turn), frame(PRIORITY, 0, stream(turn), &[0; 6])),
            Kind::OwnResets,
        ),
        ("trailers without an end", |turn| made_to_reset(post(turn), headers(0, stream(turn), &[])), Kind::OwnResets),
        ("malformed requests", |turn| headers(END, stream(turn), &[(":path", "/")]), Kind::OwnResets),
        ("DATA on streams passed over", |turn| frame(DATA, 0, 2 * (turn % 90) + 1, b"a"), Kind::OwnResets),
        ("SETTINGS", |_| settings(&[]), Kind::Settings),
        ("SETTINGS that change windows", |turn| settings(&[(4, turn)]), Kind::Settings),
        ("acknowledgements of no SETTINGS", |_| frame(SETTINGS, END, 0, b""), Kind::Settings),
        ("PING", |_| frame(PING, 0, 0, &[0; 8]), Kind::Pings),
        ("acknowledgements of no PING", |_| frame(PING, END, 0, &[0; 8]), Kind::Pings),
        ("PRIORITY", |turn| priority(turn, turn + 1), Kind::Priorities),
        ("PRIORITY_UPDATE", |turn| frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, turn as u8 | 1, b'u']), Kind::Priorities),
        ("DATA without bytes", |_| frame(DATA, 0, 1001, b""), Kind::Empty),
        ("DATA of padding", |_| frame(DATA, PADDED, 1001, &[255; 256]), Kind::Empty),
        ("DATA byte by byte", |_| frame(DATA, 0, 1001, b"a"), Kind::SmallData),
        ("DATA in pieces with padding", |_| frame(DATA, PADDED, 1001, b"\x0412345678\0\0\0\0"), Kind::SmallData),
        ("sections of empty frames", |turn| section_of_nothing(stream(turn) + 1002), Kind::Empty),
        ("WINDOW_UPDATE", |_| window_update(0, 1), Kind::WindowUpdates),
        ("WINDOW_UPDATE of a stream", |_| window_update(1001, 1), Kind::WindowUpdates),
        ("unknown frames", |turn| frame(0x20 + turn as u8 % 64, 0, 0, b""), Kind::Unknown),
        ("GOAWAY", |_| frame(GOAWAY, 0, 0, &[0; 8]), Kind::Unknown),
    ];
    for (name, turn, kind) in attacks {
        let own_stream =
            matches!(kind, Kind::Empty | Kind::WindowUpdates | Kind::SmallData) || name.contains("passed over");
        let begun = if own_stream { vec![headers(0, 1001, POST)] } else { Vec::new() };
        attack(name, server(&begun), turn, kind);
    }
}

/// Returns a request that announces a body of one byte.
fn one_byte(turn: u32) -> Vec<u8> {
    headers(0, stream(turn), &[POST, &[("content-length", "1")]].concat())
}

fn priority(turn: u32, on: u32) -> Vec<u8> {
    frame(PRIORITY, 0, stream(turn), &[&stream(on).to_be_bytes()[..], &[0]].concat())
}

fn section_of_nothing(stream: u32) -> Vec<u8> {
    let empty = frame(CONTINUATION, 0, stream, b"").repeat(7);
    [frame(HEADERS, END, stream, b""), empty, frame(CONTINUATION, WHOLE, stream, &block(GET))].concat()
}

#[test]
fn streams_beyond_the_bound_are_refused_and_then_it_is_enough() {
    let bound = Bounds::default().streams;
    let mut side = server(&(0..bound).map(post).collect::<Vec<_>>());
    side.out.clear();
    let mut turn = bound;
    while side.failure.is_none() {
        side.receive(&get(turn));
        turn += 1;
        assert!(turn - bound <= 101, "the connection continues");
    }
    let refused = frames(&side.out).iter().filter(|frame| frame.0 == RESET && frame.3 == 7u32.to_be_bytes()).count();
    assert_eq!((refused, side.connection.fired()), (100, Some(Kind::OwnResets)));
    assert_eq!(side.failure.map(|failure| failure.code), Some(Code::EnhanceYourCalm));
}

#[test]
fn resets_are_counted_after_we_have_said_goodbye_too() {
    let mut side = server(&[get(0)]);
    side.connection.go_away(&mut side.out);
    attack("after the first GOAWAY", side, |turn| [get(turn + 1), cancel(turn + 1)].concat(), Kind::PeerResets);
    let mut side = server(&[get(0)]);
    side.connection.go_away(&mut side.out);
    side.connection.go_away(&mut side.out);
    attack("after the last GOAWAY", side, |turn| get(turn + 1), Kind::Empty);
}

#[test]
fn a_stream_that_we_have_reset_is_no_place_to_go_on() {
    let side = server(&[headers(0, 1, &[(":path", "/")])]);
    attack("HEADERS on one stream", side, |_| headers(END, 1, GET), Kind::Empty);
}

#[test]
fn a_field_section_in_pieces_is_cut_off() {
    for (piece, most) in [(1, 9), (0, 9), (100, 9), (16_384, 5)] {
        let mut side = server(&[]);
        side.receive(&frame(HEADERS, END, 1, &vec![0; piece]));
        let mut count = 1;
        while side.failure.is_none() {
            side.receive(&frame(CONTINUATION, 0, 1, &vec![0; piece]));
            count += 1;
            assert!(count <= most + 1 && side.connection.held() <= MOST_HELD, "{piece}");
        }
        assert_eq!(side.failure.map(|failure| failure.code), Some(Code::EnhanceYourCalm));
        assert_eq!(side.connection.fired(), Some(Kind::Continuations), "{piece}");
    }
}

#[test]
fn ends_of_a_stream_that_is_over_are_counted() {
    let side = server(&[headers(0, 1, POST), window_update(1, 0)]);
    attack("ends of a stream that we have reset", side, |_| frame(DATA, END, 1, b""), Kind::Empty);
}

/// Plays messages of `bytes` bytes on one stream, each in its own frame, and calls `after` after each.
fn messages(count: u32, bytes: usize, mut after: impl FnMut(&mut Side, u32)) -> Side {
    let mut side = server(&[frame(SETTINGS, END, 0, b""), headers(0, 1, POST), window_update(0, 1 << 24)]);
    let stream = side.connection.streams().next().expect("a stream is open");
    side.connection
        .send_response(stream, 200, highwire_proto::Length::Unknown, &mut side.out, |_| {})
        .expect("an answer is due");
    side.out.clear();
    for message in 0..count {
        side.receive(&frame(DATA, 0, 1, &vec![b'm'; bytes]));
        after(&mut side, message);
        side.out.clear();
    }
    side
}

#[test]
fn small_messages_that_are_answered_or_come_slowly_go_on() {
    let most = u32::from(ALLOWANCES[Kind::SmallData as usize].most);
    let alone = messages(most + 1, 1, |_, _| {});
    assert_eq!(alone.connection.fired(), Some(Kind::SmallData), "small messages alone are cut off");
    let answered = messages(4 * most, 1, |side, message| {
        let stream = side.connection.streams().next().expect("the stream is open");
        assert_eq!(side.connection.send_data(stream, b"e", false, &mut side.out), Ok(1), "after {message}");
        side.receive(&window_update(1, 1));
    });
    let slow = messages(4 * most, 5, |side, message| {
        side.connection.set_second(message / 200);
    });
    let mixed = messages(4 * most, 1, |side, _| side.receive(&frame(DATA, 0, 1, &[b'm'; 64])));
    let not_small = messages(4 * most, 16, |_, _| {});
    for side in [answered, slow, mixed, not_small] {
        assert_eq!(side.failure, None);
    }
}

#[test]
fn a_body_in_small_pieces_makes_us_say_little() {
    let mut said = 0;
    messages(3_200, 16, |side, _| said += side.out.len());
    // There is one update, for half of the stream's window of 64 KiB. The connection's window is four times as large
    // and needs no update.
    assert_eq!(said, 13);
}

#[test]
fn pings_that_measure_a_download_or_keep_a_connection_alive_go_on() {
    let ping = || frame(PING, 0, 0, &[0; 8]);
    let mut side = server(&[settings(&[(4, 1 << 30)]), window_update(0, 1 << 30), headers(END, 1, GET)]);
    let stream = side.connection.streams().next().expect("a stream is open");
    side.connection
        .send_response(stream, 200, highwire_proto::Length::Unknown, &mut side.out, |_| {})
        .expect("an answer is due");
    for round in 0..2_000 {
        assert_eq!(side.connection.send_data(stream, &vec![0; 1 << 15], false, &mut side.out), Ok(1 << 15));
        side.receive(&ping().repeat(2));
        assert_eq!(side.failure, None, "in round {round}");
        side.out.clear();
    }
    for minute in 0..2_000 {
        side.connection.set_second(60 * minute);
        side.receive(&ping().repeat(60));
        assert_eq!(side.failure, None, "in minute {minute}");
        side.out.clear();
    }
}

/// Returns a literal field that is added to the table.
fn entry(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = block(&[(name, value)]);
    bytes[0] = 0x40;
    bytes
}

#[test]
fn one_byte_for_a_large_field_is_answered_with_431_and_holds_little() {
    let large = "b".repeat(3_900);
    let begun = || {
        let mut side = server(&[]);
        side.receive(&frame(HEADERS, ALL, 1, &[block(GET), entry("xa", &large)].concat()));
        assert_eq!(side.words, ["1 GET /hold Empty xa=<3900 bytes>"]);
        side
    };
    // 30 references to the large field are 117 KB, less than four times the list that we allow.
    let large_block = [block(GET), vec![0x80 | 62; 30]].concat();
    let mut side = begun();
    for turn in 1..90 {
        side.receive(&frame(HEADERS, ALL, stream(turn), &large_block));
        assert_eq!(side.words.last(), Some(&format!("{} refused HeadTooLarge", stream(turn))));
        assert!(side.fields.capacity() <= 64 * 1024, "{} bytes for the fields", side.fields.capacity());
        assert!(side.connection.held() <= MOST_HELD);
    }
    // The number of small fields is bounded too.
    side.receive(&frame(HEADERS, ALL, 999, &[block(GET), [&entry("x", "")[..], &[0x80 | 62; 300]].concat()].concat()));
    assert_eq!(side.words.last().map(String::as_str), Some("999 refused HeadTooLarge"));
    assert!(side.head.fields.capacity() <= 512, "{} fields are held", side.head.fields.capacity());
    side.receive(&headers(END, 1001, GET));
    assert_eq!((side.words.last().map(String::as_str), side.failure), (Some("1001 GET /hold Empty"), None));
    // Responses do not refill the allowance of such sections.
    attack("large sections", begun(), |turn| large_of(stream(turn + 1)), Kind::LargeHeads);
    // 16,000 references (62 MB) and 16,000 tiny fields are not decoded to the end.
    for references in [vec![0x80 | 62; 16_000], vec![0x82; 16_000]] {
        let mut side = begun();
        side.receive(&frame(HEADERS, ALL, 3, &[block(GET), references].concat()));
        assert_eq!(side.failure.map(|failure| failure.code), Some(Code::EnhanceYourCalm));
        assert!(side.fields.capacity() <= 64 * 1024, "{} bytes for the fields", side.fields.capacity());
    }
}

fn large_of(stream: u32) -> Vec<u8> {
    frame(HEADERS, ALL, stream, &[block(GET), vec![0x80 | 62; 30]].concat())
}

#[test]
fn a_table_that_is_thrashed_stays_small() {
    let mut side = server(&[]);
    for turn in 0..500u32 {
        let mut section = if turn % 3 == 0 { vec![0x20, 0x3f, 0xe1, 0x1f] } else { Vec::new() };
        section.extend(block(&[(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "h")]));
        (0..90).for_each(|at| section.extend(entry("xa", &"z".repeat((turn as usize * 7 + at * 13) % 120))));
        side.receive(&frame(HEADERS, ALL, stream(turn), &section));
        assert!(side.connection.held() <= MOST_HELD, "{}", side.connection.held());
    }
    assert_eq!((side.failure, side.connection.open_streams()), (None, 0));
}

#[test]
fn a_window_that_opens_by_single_bytes_is_cut_off() {
    let mut side = server(&[settings(&[(4, 0)])]);
    side.receive(&headers(
        END,
        1,
        &[(":method", "GET"), (":scheme", "https"), (":path", "/large"), (":authority", "h")],
    ));
    attack("dribble", side, |_| window_update(1, 1), Kind::WindowUpdates);
}

#[test]
fn a_long_download_with_an_update_for_each_4_kib_goes_on() {
    let mut side = server(&[settings(&[(4, 1 << 22)]), window_update(0, 1 << 30)]);
    side.receive(&headers(END, 1, GET));
    let stream = side.connection.streams().next().expect("a stream is open");
    side.connection
        .send_response(stream, 200, highwire_proto::Length::Unknown, &mut side.out, |_| {})
        .expect("an answer is due");
    for megabyte in 0..20 {
        assert_eq!(side.connection.send_data(stream, &vec![0; 1 << 20], false, &mut side.out), Ok(1 << 20));
        side.receive(&[window_update(1, 4096), window_update(0, 4096)].concat().repeat(256));
        assert_eq!(side.failure, None, "after {megabyte} MiB");
        side.out.clear();
    }
}

#[test]
fn an_event_stream_with_two_updates_for_each_message_goes_on() {
    let mut side = server(&[headers(END, 1, GET)]);
    let stream = side.connection.streams().next().expect("a stream is open");
    side.connection
        .send_response(stream, 200, highwire_proto::Length::Unknown, &mut side.out, |_| {})
        .expect("an answer is due");
    for message in 0..5_000 {
        assert_eq!(side.connection.send_data(stream, b"data: tick\n\n", false, &mut side.out), Ok(12));
        side.receive(&[window_update(1, 12), window_update(0, 12)].concat());
        assert_eq!(side.failure, None, "after {message} messages");
        side.out.clear();
    }
}

#[test]
fn a_client_that_does_each_thing_now_and_then_never_runs_out() {
    let mut side = server(&[]);
    for turn in 0..3_000 {
        let (first, second, third) = (3 * turn, 3 * turn + 1, 3 * turn + 2);
        side.receive(&[get(first), cancel(first)].concat());
        side.receive(&[one_byte(second), frame(DATA, 0, stream(second), b"ab")].concat());
        side.receive(&[settings(&[(4, 60_000 + turn % 7)]), frame(0x77, 0, 0, b"x").repeat(2)].concat());
        side.receive(&frame(PING, 0, 0, &[7; 8]).repeat(2));
        side.receive(&priority(third, third + 1).repeat(4));
        side.receive(&[window_update(0, 1), window_update(0, 2)].concat().repeat(8));
        let fields = [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "h")];
        side.receive(&headers(0, stream(third), &fields));
        side.receive(&frame(DATA, 0, stream(third), b"").repeat(8));
        side.receive(&frame(DATA, END, stream(third), b"x"));
        assert_eq!((side.failure, side.connection.open_streams()), (None, 0), "in turn {turn}");
        side.out.clear();
        side.words.clear();
    }
    assert_eq!(side.connection.fired(), None);
    assert!(side.connection.held() <= MOST_HELD);
}

#[test]
fn a_server_that_does_so_never_runs_out_and_one_that_does_nothing_else_does() {
    let mut side = Side::client();
    side.receive(&settings(&[]));
    for turn in 0..3_000 {
        side.ask("GET", "/");
        side.ask("GET", "/");
        side.receive(&[frame(PING, 0, 0, &[7; 8]).repeat(2), window_update(0, 1).repeat(16)].concat());
        side.receive(&[settings(&[]), frame(0x77, 0, 0, b"x")].concat());
        side.receive(&frame(RESET, 0, stream(2 * turn), &[0, 0, 0, 7]));
        side.receive(&match turn % 3 {
            0 => headers(END, stream(2 * turn + 1), &[(":status", "200")]),
            1 => {
                [headers(0, stream(2 * turn + 1), &[(":status", "200")]), frame(DATA, END, stream(2 * turn + 1), b"x")]
                    .concat()
            }
            _ => {
                let number = stream(2 * turn + 1);
                [headers(0, number, &[(":status", "200")]), headers(END, number, &[("x", "y")])].concat()
            }
        });
        assert_eq!((side.failure, side.connection.open_streams()), (None, 0), "in turn {turn}");
        side.out.clear();
        side.words.clear();
    }
    for (name, turn, kind) in [
        ("PING", (|_| frame(PING, 0, 0, &[0; 8])) as Turn, Kind::Pings),
        ("SETTINGS", |_| settings(&[]), Kind::Settings),
        ("WINDOW_UPDATE", |_| window_update(0, 1), Kind::WindowUpdates),
        ("unknown frames", |_| frame(0x77, 0, 0, b""), Kind::Unknown),
        ("DATA without bytes", |_| frame(DATA, 0, 1, b""), Kind::Empty),
    ] {
        let mut side = Side::new(Role::Client, Bounds::default());
        side.ask("GET", "/");
        side.receive(&[settings(&[]), headers(0, 1, &[(":status", "200")])].concat());
        attack(name, side, turn, kind);
    }
}
