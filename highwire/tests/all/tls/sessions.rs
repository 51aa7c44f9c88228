//! Tests TLS sessions with a rustls client: versions, ALPN, names, client certificates, data, closing, and hostile
//! peers. The tests run in memory, without sockets.

use crate::tls_peer::{Authority, Client, Folder, Pair, TLS12, TLS13, connect, simple};
use highwire::tls::{
    ClientAuth, HANDSHAKE_BYTES, Progress, RECORD_BYTES, Session, Speaks, TlsConfig, TlsError, Version, Versions, peek,
};

const BOTH: [(Version, &[&rustls::SupportedProtocolVersion]); 2] = [(Version::Tls12, TLS12), (Version::Tls13, TLS13)];

#[test]
fn both_versions_carry_data_both_ways() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    for (version, versions) in BOTH {
        let mut pair = connect(Client { versions, ..Client::of(&authority) }.config(), server.clone(), "a.example");
        assert_eq!(pair.progress, Progress::Open);
        assert_eq!(pair.session.version(), Some(version));
        assert!(pair.session.cipher().expect("a suite").starts_with("TLS"), "{:?}", pair.session.cipher());
        assert_eq!(pair.session.server_name(), Some("a.example"));
        assert_eq!(pair.session.alpn(), None);
        assert!(!pair.session.is_resumed() && pair.session.client_certificate().is_none());
        pair.say(b"GET / HTTP/1.1\r\n\r\n");
        pair.carry().expect("data");
        assert_eq!(pair.plain, b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(pair.answer(b"HTTP/1.1 204 No Content\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(pair.answer(b""), b"");
        assert_eq!(pair.session.held_bytes(), 0);
    }
}

#[test]
fn a_version_that_is_not_offered_is_refused_with_an_alert() {
    let authority = Authority::new("test");
    for (versions, client) in [(Versions::Tls13, TLS12), (Versions::Tls12, TLS13)] {
        let server = simple(&authority).versions(versions).build().expect("settings").current();
        let client = Client { versions: client, ..Client::of(&authority) }.config();
        let mut pair = Pair::new(client, server, "a.example");
        let hello = pair.client_bytes();
        let mut out = Vec::new();
        let error = pair.deliver(&hello, &mut out).expect_err("no common version");
        assert!(error.is_peers_fault(), "{error}");
        assert_eq!((out[0], out.len()), (0x15, 7), "an alert");
        assert_eq!(pair.session.receive(b"x", &mut Vec::new(), &mut Vec::new()), Err(error.clone()));
        assert_eq!(pair.session.send(b"x", &mut out), Err(error));
        assert_eq!(pair.session.progress(), Progress::Closed);
    }
}

#[test]
fn alpn_takes_the_servers_choice() {
    let authority = Authority::new("test");
    let all: &[&str] = &["h2", "http/1.1", "http/1.0"];
    for (server, client, expected) in [
        (all, &["http/1.1", "h2"][..], Ok(Some("h2"))),
        (all, &["http/1.0"], Ok(Some("http/1.0"))),
        (all, &["spdy/3", "http/1.1"], Ok(Some("http/1.1"))),
        (all, &[], Ok(None)),
        (&[], &["h2"], Ok(None)),
        (all, &["spdy/3"], Err(())),
    ] {
        let settings = simple(&authority).alpn(server.iter().copied());
        let server = settings.build().expect("settings").current();
        let mut pair = Pair::new(Client { alpn: client, ..Client::of(&authority) }.config(), server, "a.example");
        let result = pair.carry();
        assert_eq!(result.is_err(), expected.is_err(), "{client:?}: {result:?}");
        if let Ok(expected) = expected {
            assert_eq!(pair.session.alpn(), expected.map(str::as_bytes), "{client:?}");
        }
    }
    let restricted = simple(&authority).restrict_alpn(&[b"http/1.1"]).build().expect("settings").current();
    assert_eq!(restricted.alpn_protocols, [b"http/1.1"]);
}

#[test]
fn the_certificate_is_the_one_for_the_name() {
    let authority = Authority::new("test");
    let mut settings = TlsConfig::new();
    for names in [&["default.example"][..], &["a.example", "*.b.example"], &["x.b.example"]] {
        let pem = authority.issue(names);
        settings = settings.certificate_pem(pem.chain, pem.key);
    }
    let reload = settings.build().expect("settings");
    assert_eq!(reload.certificates()[1].names, ["a.example", "*.b.example"]);
    assert_eq!(reload.certificates()[1].subject, "CN=a.example,O=Example\\, Inc.");
    for (name, expected) in [
        ("default.example", Some("default.example")),
        ("a.example", Some("a.example")),
        ("A.EXAMPLE", Some("a.example")),
        ("y.b.example", Some("a.example")),
        ("x.b.example", Some("x.b.example")),
        // A wildcard stands for one label. For a name without a certificate, the session sends the default certificate,
        // which the client refuses.
        ("z.y.b.example", None),
        ("b.example", None),
        ("other.example", None),
    ] {
        let mut pair = Pair::new(Client::of(&authority).config(), reload.current(), name);
        let result = pair.carry();
        let shown = pair.client.peer_certificates().map(|chain| chain[0].to_vec());
        assert_eq!(pair.session.server_name(), Some(name.to_ascii_lowercase().as_str()));
        match expected {
            Some(expected) => {
                result.expect("a handshake");
                let shown = shown.expect("a certificate");
                assert!(shown.windows(expected.len()).any(|part| part == expected.as_bytes()), "{name}");
            }
            None => assert_eq!(result, Err(TlsError::Refused("BadCertificate".to_owned())), "{name}"),
        }
    }
}

#[test]
fn clients_show_certificates_where_they_have_to() {
    let folder = Folder::new();
    let (servers, clients, strangers) =
        (Authority::new("servers"), Authority::new("clients"), Authority::new("others"));
    let ca = folder.write("clients.pem", &clients.pem);
    let (alice, mallory) = (clients.issue(&["alice"]), strangers.issue(&["mallory"]));
    let (optional, required) = (ClientAuth::Optional(ca.clone()), ClientAuth::Required(ca));
    for (version, versions) in BOTH {
        for (auth, certificate, expected) in [
            (&ClientAuth::None, None, Ok(None)),
            (&ClientAuth::None, Some(&alice), Ok(None)),
            (&optional, None, Ok(None)),
            (&optional, Some(&alice), Ok(Some("CN=alice,O=Example\\, Inc."))),
            (&optional, Some(&mallory), Err(())),
            (&required, None, Err(())),
            (&required, Some(&alice), Ok(Some("CN=alice,O=Example\\, Inc."))),
            (&required, Some(&mallory), Err(())),
        ] {
            let server = simple(&servers).client_auth(auth.clone()).build().expect("settings").current();
            let client = Client { versions, certificate, ..Client::of(&servers) }.config();
            let mut pair = Pair::new(client, server, "a.example");
            let result = pair.carry();
            assert_eq!(result.is_err(), expected.is_err(), "{version:?} {auth:?}: {result:?}");
            let shown = pair.session.client_certificate();
            let subject = shown.and_then(|certificate| certificate.subject());
            assert_eq!(subject.as_deref(), expected.unwrap_or(None), "{version:?} {auth:?}");
            if let Some(certificate) = shown {
                assert_eq!(certificate.names(), ["alice"]);
                assert_eq!(certificate.chain().next(), Some(certificate.der()));
            }
            if let Err(error) = result {
                assert!(error.is_peers_fault(), "{error}");
            }
        }
    }
}

/// A number of bytes that takes several records, and is not a multiple of a record's length.
const LARGE: usize = 5 * RECORD_BYTES + 1_234;

#[test]
fn large_data_goes_both_ways_in_full_records() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    let data: Vec<u8> = (0..LARGE).map(|at| (at * 7 + at / 251) as u8).collect();
    for (version, versions) in BOTH {
        let mut pair = connect(Client { versions, ..Client::of(&authority) }.config(), server.clone(), "a.example");
        pair.say(&data);
        pair.portion = 4_096;
        pair.carry().expect("data");
        assert!(pair.plain == data, "{version:?}");
        assert!(pair.answer(&data) == data, "{version:?}");
        let mut out = b"before".to_vec();
        pair.session.send(&data, &mut out).expect("sending");
        assert!(out.starts_with(b"before"));
        assert_eq!(record_sizes(&out[6..]).len(), LARGE.div_ceil(RECORD_BYTES), "{version:?}");
    }
}

fn record_sizes(mut bytes: &[u8]) -> Vec<usize> {
    let mut sizes = Vec::new();
    while let [_, 3, _, high, low, rest @ ..] = bytes {
        let size = usize::from(u16::from_be_bytes([*high, *low]));
        sizes.push(size);
        bytes = &rest[size..];
    }
    sizes
}

#[test]
fn any_split_of_the_ciphertext_gives_the_same_plaintext() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    for (version, versions) in BOTH {
        let client = Client { versions, ..Client::of(&authority) }.config();
        let talk = |portion: usize| {
            let mut pair = Pair::new(client.clone(), server.clone(), "a.example");
            pair.portion = portion;
            pair.carry().expect("a handshake");
            for length in [1, 100, 20_000, 0, 3] {
                pair.say(&vec![length as u8; length]);
            }
            pair.carry().expect("data");
            assert_eq!(pair.session.held_bytes(), 0, "{version:?} in portions of {portion}");
            pair.plain
        };
        let whole = talk(0);
        assert_eq!(whole.len(), 20_104);
        for portion in [1, 2, 3, 5, 7, 64, 1_000, 16_383] {
            assert!(talk(portion) == whole, "{version:?} in portions of {portion}");
        }
    }
}

#[test]
fn a_flight_that_is_cut_in_two_anywhere_is_the_same_flight() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    let client = Client::of(&authority).config();
    // Cuts the client's hello, and its last flight with the first data after it.
    let mut cut = 0;
    loop {
        let mut pair = Pair::new(client.clone(), server.clone(), "a.example");
        let hello = pair.client_bytes();
        let mut out = Vec::new();
        let (one, two) = hello.split_at(cut.min(hello.len()));
        pair.deliver(one, &mut out).expect("a part of a hello");
        pair.deliver(two, &mut out).expect("the rest of it");
        pair.give_client(&out);
        pair.say(b"hello");
        let last = pair.client_bytes();
        let (one, two) = last.split_at(cut.min(last.len()));
        out.clear();
        pair.deliver(one, &mut out).expect("a part of a flight");
        pair.deliver(two, &mut out).expect("the rest of it");
        assert_eq!(pair.plain, b"hello", "cut at {cut}");
        if cut > hello.len().min(300) && cut > last.len() {
            break;
        }
        cut += 1;
    }
}

#[test]
fn half_a_record_and_new_keys_do_not_disturb_sending() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    for (version, versions) in BOTH {
        let mut pair = connect(Client { versions, ..Client::of(&authority) }.config(), server.clone(), "a.example");
        for round in 0..3 {
            pair.say(b"a question");
            let record = pair.client_bytes();
            let mut out = Vec::new();
            for (at, byte) in record.iter().enumerate() {
                assert_eq!(pair.answer(&[at as u8; 20_000]).len(), 20_000, "{version:?} behind {at} bytes");
                pair.deliver(&[*byte], &mut out).expect("a byte");
            }
            assert!(out.is_empty());
            assert_eq!(pair.plain.len(), 10 * (round + 1));
            if version == Version::Tls13 {
                // The client renews its keys and asks the server to do so too, which the server does with the next
                // answer.
                pair.client.refresh_traffic_keys().expect("new keys");
                pair.carry().expect("an update");
            }
        }
    }
}

#[test]
fn closing_is_heard_by_both_sides() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    for (_, versions) in BOTH {
        let client = Client { versions, ..Client::of(&authority) }.config();
        // The client closes first. Its earlier data counts, its later bytes do not, and the server can still send.
        let mut pair = connect(client.clone(), server.clone(), "a.example");
        pair.say(b"last");
        pair.client.send_close_notify();
        let mut bytes = pair.client_bytes();
        bytes.extend_from_slice(b"garbage");
        let mut out = Vec::new();
        pair.deliver(&bytes, &mut out).expect("a close");
        assert_eq!((pair.progress, &pair.plain[..]), (Progress::PeerClosed, &b"last"[..]));
        pair.deliver(b"more garbage", &mut out).expect("nothing");
        assert!(out.is_empty());
        assert_eq!(pair.answer(b"bye"), b"bye");
        pair.session.close(&mut out);
        assert_eq!(record_sizes(&out).len(), 1);
        // The server closes first.
        let mut pair = connect(client.clone(), server.clone(), "a.example");
        out.clear();
        pair.session.close(&mut out);
        let once = out.len();
        pair.session.close(&mut out);
        assert_eq!(out.len(), once, "closing twice sends one alert");
        pair.give_client(&out);
        assert!(pair.client.process_new_packets().expect("a close").peer_has_closed());
        assert_eq!(pair.session.send(b"x", &mut out), Err(TlsError::NotOpen));
        pair.say(b"unheard");
        let mut bytes = pair.client_bytes();
        bytes[10] ^= 1;
        pair.deliver(&bytes, &mut out).expect("dropped");
        assert_eq!((pair.progress, pair.plain.len(), out.len()), (Progress::Closed, 0, once));
    }
    // During a handshake, the session sends nothing.
    let mut session = Session::accept(server).expect("a session");
    let mut out = Vec::new();
    session.close(&mut out);
    assert_eq!(session.send(b"x", &mut out), Err(TlsError::NotOpen));
    assert!(out.is_empty());
}

#[test]
fn what_is_not_tls_is_told_apart() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n"[..], Speaks::Http),
        (b"PRI * HTTP/2.0", Speaks::Http),
        (b"\r\nGET", Speaks::Http),
        (b"\x80\x2e\x01", Speaks::Other),
        (b"\0", Speaks::Other),
        (b"\x15\x03\x03", Speaks::Other),
        (b"{\"a\"", Speaks::Other),
    ] {
        assert_eq!(peek(bytes[0]), expected, "{bytes:?}");
        let mut session = Session::accept(server.clone()).expect("a session");
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        assert_eq!(session.receive(b"", &mut plain, &mut out), Ok(Progress::Handshaking));
        let error = Err(TlsError::NotTls { first: bytes[0] });
        assert_eq!(session.receive(bytes, &mut plain, &mut out), error);
        assert_eq!(session.receive(b"\x16", &mut plain, &mut out), error);
        assert!(plain.is_empty() && out.is_empty());
    }
    assert_eq!(peek(0x16), Speaks::Tls);
}

#[test]
fn a_handshake_that_never_ends_is_ended() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    // A client hello that claims nearly 64 KiB, in records of 1 byte and of 16 KiB.
    for size in [1, RECORD_BYTES] {
        let mut session = Session::accept(server.clone()).expect("a session");
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let mut record = vec![0x16, 3, 1, (size >> 8) as u8, size as u8];
        let mut message = [1, 0, 0xff, 0xfe].into_iter().chain(std::iter::repeat(0));
        let mut sent = 0;
        let error = loop {
            record.truncate(5);
            record.extend(message.by_ref().take(size));
            sent += record.len();
            match session.receive(&record, &mut plain, &mut out) {
                Ok(progress) => assert_eq!(progress, Progress::Handshaking),
                Err(error) => break error,
            }
            assert!(session.held_bytes() <= 2 * HANDSHAKE_BYTES, "{}", session.held_bytes());
        };
        assert!(sent <= HANDSHAKE_BYTES + RECORD_BYTES + 5, "{sent} bytes: {error}");
        assert!(error.is_peers_fault(), "{error}");
        assert_eq!(&out[..2], [0x15, 3], "an alert");
    }
    // An incomplete hello is not an error, and takes little memory.
    let mut pair = Pair::new(Client::of(&authority).config(), server, "a.example");
    let hello = pair.client_bytes();
    let mut out = Vec::new();
    pair.deliver(&hello[..hello.len() - 1], &mut out).expect("a part");
    assert_eq!((pair.progress, out.len()), (Progress::Handshaking, 0));
    assert!(pair.session.held_bytes() < 2 * hello.len());
}

#[test]
fn changed_bytes_end_the_session_with_an_alert_and_never_panic() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    for (version, versions) in BOTH {
        let client = Client { versions, ..Client::of(&authority) }.config();
        // Some bytes of the hello may change without harm (its random bytes), but none of a record with data.
        let length = Pair::new(client.clone(), server.clone(), "a.example").client_bytes().len();
        for at in 0..length {
            let mut pair = Pair::new(client.clone(), server.clone(), "a.example");
            let mut hello = pair.client_bytes();
            hello[at] ^= 0xff;
            let mut out = Vec::new();
            if let Err(error) = pair.deliver(&hello, &mut out) {
                // The alert is in the clear before the server's hello, and encrypted after it.
                let alert = matches!(&out[..], [0x15, 3, 3, 0, 2, 2, _] | [0x16, ..]);
                assert!(alert || matches!(error, TlsError::NotTls { .. }), "{version:?} at {at}: {error}: {out:?}");
            }
        }
        let mut at = 0;
        loop {
            let mut pair = connect(client.clone(), server.clone(), "a.example");
            pair.say(b"some text");
            let mut record = pair.client_bytes();
            if at == record.len() {
                break;
            }
            record[at] ^= 0x40;
            let mut out = Vec::new();
            let result = pair.deliver(&record, &mut out);
            // With a longer length, the session waits for the rest of the record. TLS 1.3 ignores the version in a
            // record's head (RFC 8446 section 5.1).
            let ignored = at == 2 && pair.plain == b"some text";
            assert!(result.is_err() || pair.session.held_bytes() > 0 || ignored, "{version:?} at {at}");
            assert!(result.is_ok() || !out.is_empty(), "{version:?} at {at}: no alert");
            assert!(pair.plain.is_empty() || ignored, "{version:?} at {at}");
            at += 1;
        }
    }
}

#[test]
fn garbage_never_panics() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..2_000 {
        // Sends random bytes, alone or after the head of a record, during a handshake and after one.
        let mut pair = if round % 4 == 0 {
            connect(Client::of(&authority).config(), server.clone(), "a.example")
        } else {
            Pair::new(Client::of(&authority).config(), server.clone(), "a.example")
        };
        let mut bytes: Vec<u8> = (0..random() % 300).map(|_| random() as u8).collect();
        if random() % 2 == 0 {
            let length = bytes.len() as u8;
            bytes.splice(0..0, [0x14 + (random() % 5) as u8, 3, (random() % 5) as u8, 0, length]);
        }
        pair.portion = (random() % 40) as usize;
        let mut out = Vec::new();
        let _ = pair.deliver(&bytes, &mut out);
        let _ = pair.deliver(&bytes, &mut out);
        assert!(pair.plain.is_empty());
        pair.session.close(&mut out);
    }
}
