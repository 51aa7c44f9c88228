//! Measures the memory of an idle TLS session as resident memory of the process, because a C library allocates the
//! keys. The test is a separate program, so that the memory of other tests is not counted.
#![cfg(feature = "tls")]

mod tls_peer;

use highwire::tls::Session;
use tls_peer::{Authority, Client, Pair, TLS12, TLS13, connect, simple};

const SESSIONS: usize = 1_000;

/// The largest permitted size of a session, on average. Sessions took less than 4 KiB when this was measured.
const MOST_BYTES: usize = 10 * 1024;

/// Returns the size of this process's resident memory in bytes, with pages of 4 KiB.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
}

#[test]
fn an_idle_session_is_small() {
    let authority = Authority::new("test");
    let server = simple(&authority).build().expect("settings").current();
    // Keeps all sessions, so that the second version cannot reuse the memory of the first.
    let mut sessions = Vec::with_capacity(3 * SESSIONS);
    for versions in [TLS13, TLS12] {
        let client = Client { versions, ..Client::of(&authority) }.config();
        let idle = || {
            let mut pair: Pair = connect(client.clone(), server.clone(), "a.example");
            pair.say(&[b'x'; 40_000]);
            pair.carry().expect("data");
            pair.answer(&[b'y'; 40_000]);
            assert_eq!(pair.session.held_bytes(), 0);
            pair.session
        };
        // The first sessions leave memory that later ones reuse. Only the growth after them is measured.
        sessions.extend((0..SESSIONS / 2).map(|_| idle()));
        let before = resident();
        sessions.extend((0..SESSIONS).map(|_| idle()));
        let bytes = (resident() - before) / SESSIONS;
        let version = sessions.last().and_then(Session::version).expect("a version").as_str();
        println!("an idle session of {version}: {bytes} bytes, of them {} in place", size_of_val(&sessions[0]));
        assert!(bytes <= MOST_BYTES, "{version}: {bytes} bytes");
    }
}
