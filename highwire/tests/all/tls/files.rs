//! The files of TLS: errors that name the file and the reason, changes while the server runs, shared ticket keys, and
//! OCSP staples.

use crate::tls_peer;
use crate::tls_peer::{Authority, Client, Folder, Pem, TLS12, TLS13, connect, simple};
use highwire::tls::{ClientAuth, LoadError, LoadFault, Looked, Reload, TICKET_ROTATION, Tickets, TlsConfig, TlsError};
use rustls::{ClientConfig, SignatureScheme};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use testkit::tls::{AcceptAny, client_config};

/// Writes the files `site.pem` and `site.key`. Returns settings with them.
fn from_files(folder: &Folder, pem: &Pem) -> TlsConfig {
    TlsConfig::new().certificate_files(folder.write("site.pem", &pem.chain), folder.write("site.key", &pem.key))
}

/// Returns the certificate that a new client gets.
fn shown(authority: &Authority, reload: &Reload) -> Vec<u8> {
    let pair = connect(Client::of(authority).config(), reload.current(), "a.example");
    pair.client.peer_certificates().expect("a certificate")[0].to_vec()
}

#[test]
fn errors_say_which_file_and_why() {
    let folder = Folder::new();
    let authority = Authority::new("test");
    let (one, two) = (authority.issue(&["a.example"]), authority.issue(&["a.example"]));
    let broken = one.chain.replace("-----END CERTIFICATE-----", "");
    let spoiled: String = one.chain.lines().enumerate().map(|(at, line)| if at == 2 { "!?\n" } else { line }).collect();
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let not_a_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let not_x509 = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (chain, key, expected) in [
        ("", &one.key[..], "certificate %/site.pem: is not PEM: it is empty"),
        ("hello", &one.key, "certificate %/site.pem: is not PEM: it has no line `-----BEGIN ...`"),
        (
            "0\u{82}",
            &one.key,
            "certificate %/site.pem: is not PEM: it looks like DER; convert it, for instance with `openssl`",
        ),
        (&broken, &one.key, "certificate %/site.pem: is not PEM: a section has no end"),
        (&spoiled, &one.key, "certificate %/site.pem: is not PEM: "),
        (&one.key, &one.key, "certificate %/site.pem: holds no certificate"),
        (not_x509, &one.key, "certificate %/site.pem: its certificate cannot be used: it is not X.509"),
        (&one.chain, &one.chain, "private key %/site.key: holds no private key"),
        (&one.chain, "hello", "private key %/site.key: is not PEM: it has no line `-----BEGIN ...`"),
        (
            &one.chain,
            encrypted,
            "private key %/site.key: its private key is encrypted, and the server cannot ask for the passphrase; write it without one: openssl pkey -in FILE -out NEW",
        ),
        (&one.chain, not_a_key, "private key %/site.key: its private key cannot be used: "),
        (&one.chain, &two.key, "private key %/site.key: the key does not match certificate %/site.pem"),
    ] {
        let pem = Pem { chain: chain.to_owned(), key: key.to_owned() };
        let error = from_files(&folder, &pem).build().expect_err(expected).to_string();
        let expected =
            format!("TLS: {}", expected.replace('%', &folder.file("").display().to_string()).replace("//", "/"));
        assert!(error.starts_with(&expected), "{error:?} instead of {expected:?}");
    }
    let pem = authority.issue(&["a.example"]);
    let large = folder.write("large", vec![b'x'; 5 << 20]);
    let ocsp = folder.write("ocsp.der", b"\x30\x03abcd");
    let settings = || from_files(&folder, &pem);
    for (settings, what, fault) in [
        (TlsConfig::new(), "settings", "there is no certificate"),
        (TlsConfig::new().ocsp_file("x"), "settings", "the OCSP file has no certificate; add a certificate before it"),
        (settings().tickets_sent(7), "settings", "tickets_sent is more than 6"),
        (settings().alpn([""]), "settings", "an ALPN protocol must have 1 to 255 bytes"),
        (
            TlsConfig::new().self_signed(Vec::<String>::new()),
            "settings",
            "a self-signed certificate needs at least one name",
        ),
        (settings().certificate_files(&large, "x"), "certificate", "has more than 4194304 bytes"),
        (
            settings().certificate_files(folder.file("none"), "x"),
            "certificate",
            "cannot be read: No such file or directory",
        ),
        (settings().ocsp_file(ocsp), "OCSP response", "is not an OCSP response in DER"),
        (settings().client_auth(ClientAuth::Required(folder.file("none"))), "client authorities", "cannot be read"),
        (settings().tickets(Tickets::File(large.clone())), "ticket keys", "has more than"),
        (settings().tickets(Tickets::File(folder.write("empty", ""))), "ticket keys", "holds no ticket key"),
    ] {
        let error = settings.build().expect_err(fault).to_string();
        assert!(error.starts_with(&format!("TLS: {what}")) && error.contains(fault), "{error:?} instead of {fault:?}");
    }
}

#[test]
fn an_expired_certificate_is_loaded_all_the_same() {
    let authority = Authority::new("test");
    let pem = authority.issue_with(&["a.example"], |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let reload = TlsConfig::new().certificate_pem(pem.chain, pem.key).build().expect("settings");
    assert_eq!(reload.certificates()[0].not_after, SystemTime::UNIX_EPOCH + Duration::from_secs(978_307_200));
}

#[test]
fn what_is_self_signed_is_valid_for_its_names_and_made_once() {
    let before = SystemTime::now();
    let reload = TlsConfig::new().self_signed(["localhost", "127.0.0.1"]).build().expect("settings");
    let info = &reload.certificates()[0];
    assert_eq!((&info.names[..], &info.subject[..]), (&["localhost".to_owned()][..], "CN=localhost"));
    assert!(info.not_before < before && info.not_after > before + Duration::from_secs(360 * 86_400));
    assert_eq!(reload.look(), Looked::Unchanged);
}

#[test]
fn changed_files_serve_new_connections_and_old_ones_go_on() {
    let folder = Folder::new();
    let authority = Authority::new("test");
    let (old, new) = (authority.issue(&["a.example"]), authority.issue(&["a.example", "b.example"]));
    let reload = from_files(&folder, &old).build().expect("settings");
    let mut running = connect(Client::of(&authority).config(), reload.current(), "a.example");
    let first = shown(&authority, &reload);
    assert_eq!(reload.look(), Looked::Unchanged);

    // The new certificate is written before its key. The mismatch is reported once.
    folder.write("site.pem", &new.chain);
    let Looked::Kept(LoadError { fault, .. }) = reload.look() else {
        panic!("a certificate without its key was taken")
    };
    assert!(matches!(fault, LoadFault::KeyMismatch(_)), "{fault:?}");
    assert_eq!(reload.look(), Looked::Unchanged);
    assert_eq!(shown(&authority, &reload), first);

    folder.write("site.key", &new.key);
    assert_eq!(reload.look(), Looked::Reloaded);
    assert_eq!(reload.certificates()[0].names, ["a.example", "b.example"]);
    let second = shown(&authority, &reload);
    assert_ne!(second, first);

    for (text, looks) in [("nonsense", 1), ("", 1)] {
        folder.write("site.pem", text);
        for look in 0..=looks {
            assert_eq!(matches!(reload.look(), Looked::Kept(_)), look < looks, "{text:?}");
        }
    }
    std::fs::remove_file(folder.file("site.pem")).expect("a file");
    assert!(matches!(reload.look(), Looked::Kept(LoadError { fault: LoadFault::Unreadable(_), .. })));
    assert_eq!(shown(&authority, &reload), second);
    folder.write("site.pem", &new.chain);
    assert_eq!(reload.look(), Looked::Reloaded);

    running.say(b"still here");
    running.carry().expect("data");
    assert_eq!(running.plain, b"still here");
    assert_eq!(running.answer(b"yes"), b"yes");
}

#[test]
fn authorities_of_clients_are_read_again_too() {
    let folder = Folder::new();
    let (servers, before, after) = (Authority::new("servers"), Authority::new("before"), Authority::new("after"));
    let alice = before.issue(&["alice"]);
    let client = Client { certificate: Some(&alice), ..Client::of(&servers) }.config();
    let auth = ClientAuth::Required(folder.write("clients.pem", &before.pem));
    let reload = simple(&servers).client_auth(auth).build().expect("settings");
    // The second time, the client resumes its session by a ticket.
    for resumed in [false, true] {
        let pair = connect(client.clone(), reload.current(), "a.example");
        assert_eq!(pair.session.is_resumed(), resumed);
        assert!(pair.session.client_certificate().is_some());
    }
    folder.write("clients.pem", &after.pem);
    assert_eq!(reload.look(), Looked::Reloaded);
    // The client's ticket is not accepted either.
    let mut pair = tls_peer::Pair::new(client, reload.current(), "a.example");
    let error = pair.carry().expect_err("an authority that is trusted no longer");
    assert!(matches!(error, TlsError::Peer(_)), "{error}");
}

fn hex_key(byte: u8) -> String {
    format!("{byte:02x}").repeat(48) + "\n"
}

#[test]
fn machines_that_share_a_ticket_file_resume_each_others_sessions() {
    let folder = Folder::new();
    let authority = Authority::new("test");
    let path = folder.write("tickets", format!("# one\n{}", hex_key(1)));
    let machine = || simple(&authority).tickets(Tickets::File(path.clone())).build().expect("settings");
    for versions in [TLS12, TLS13] {
        folder.write("tickets", hex_key(1));
        let client = Client { versions, alpn: &["h2"], ..Client::of(&authority) }.config();
        let (one, two) = (machine(), machine());
        let resumed = |reload: &Reload| {
            let mut pair = connect(client.clone(), reload.current(), "a.example");
            pair.say(b"hello");
            pair.carry().expect("data");
            assert_eq!((&pair.plain[..], pair.session.alpn()), (&b"hello"[..], Some(&b"h2"[..])));
            assert_eq!(pair.session.server_name(), Some("a.example"));
            pair.session.is_resumed()
        };
        assert!(!resumed(&one));
        assert!(resumed(&two));
        assert!(resumed(&one));
        // The first key encrypts new tickets. The old key still decrypts.
        folder.write("tickets", hex_key(2) + &hex_key(1));
        assert_eq!(one.look(), Looked::Reloaded);
        assert!(resumed(&one));
        // The client's ticket is now encrypted with the new key, which the other machine has not read yet.
        assert!(!resumed(&two));
        assert_eq!(two.look(), Looked::Reloaded);
        assert!(resumed(&two));
        folder.write("tickets", hex_key(2));
        assert_eq!(one.look(), Looked::Reloaded);
        assert!(resumed(&one));
        folder.write("tickets", hex_key(3));
        assert_eq!(one.look(), Looked::Reloaded);
        assert!(!resumed(&one));
        // If the file is malformed, the keys stay.
        folder.write("tickets", "nonsense\n");
        assert!(matches!(one.look(), Looked::Kept(LoadError { fault: LoadFault::TicketLine(1, _), .. })));
        assert!(resumed(&one));
        assert_eq!(one.look(), Looked::Unchanged);
    }
}

#[test]
fn keys_in_memory_rotate_and_outlive_new_certificates() {
    let folder = Folder::new();
    let authority = Authority::new("test");
    let client = Client::of(&authority).config();
    let start = SystemTime::now();
    let reload = from_files(&folder, &authority.issue(&["a.example"])).build_at(start).expect("settings");
    let resumed = || connect(client.clone(), reload.current(), "a.example").session.is_resumed();
    assert!(!resumed());
    let new = authority.issue(&["a.example"]);
    folder.write("site.pem", &new.chain);
    folder.write("site.key", &new.key);
    assert_eq!(reload.look_at(start), Looked::Reloaded);
    assert!(resumed());
    for rotations in 1..=2 {
        assert_eq!(reload.look_at(start + TICKET_ROTATION * rotations), Looked::Unchanged);
    }
    assert!(resumed(), "a ticket of two rotations ago");
    for rotations in 3..=5 {
        assert_eq!(reload.look_at(start + TICKET_ROTATION * rotations), Looked::Unchanged);
    }
    assert!(!resumed(), "a ticket of three rotations ago");
}

#[test]
fn without_tickets_nothing_is_resumed_and_other_settings_share_nothing() {
    let folder = Folder::new();
    let authority = Authority::new("test");
    let path = folder.write("tickets", hex_key(1));
    let pem = authority.issue(&["alice"]);
    for versions in [TLS12, TLS13] {
        let client = Client { versions, certificate: Some(&pem), ..Client::of(&authority) }.config();
        let off = simple(&authority).tickets(Tickets::Off).build().expect("settings");
        for _ in 0..2 {
            assert!(!connect(client.clone(), off.current(), "a.example").session.is_resumed());
        }
        // A session that began without a request for a client certificate is not resumed by settings that require one.
        let open = simple(&authority).tickets(Tickets::File(path.clone()));
        let auth = ClientAuth::Required(folder.write("clients.pem", &authority.pem));
        let closed = open.clone().client_auth(auth).build().expect("settings");
        let open = open.build().expect("settings");
        assert!(!connect(client.clone(), open.current(), "a.example").session.is_resumed());
        assert!(connect(client.clone(), open.current(), "a.example").session.is_resumed());
        let pair = connect(client.clone(), closed.current(), "a.example");
        assert!(!pair.session.is_resumed() && pair.session.client_certificate().is_some());
    }
}

/// Returns a client that trusts every certificate and can only verify signatures with P-256, and the client's verifier,
/// which keeps the staple.
fn trusting() -> (Arc<ClientConfig>, Arc<AcceptAny>) {
    let verifier = AcceptAny::new(&[SignatureScheme::ECDSA_NISTP256_SHA256]);
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    (Arc::new(client_config(provider, rustls::DEFAULT_VERSIONS, verifier.clone())), verifier)
}

#[test]
fn the_ocsp_staple_arrives_and_changes() {
    let folder = Folder::new();
    let authority = Authority::new("test");
    let path = folder.write("ocsp.der", b"\x30\x03one");
    let reload = simple(&authority).ocsp_file(path).build().expect("settings");
    let stapled = || {
        let (client, verifier) = trusting();
        connect(client, reload.current(), "a.example");
        verifier.staple()
    };
    assert_eq!(stapled(), b"\x30\x03one");
    folder.write("ocsp.der", b"\x30\x03two");
    assert_eq!(reload.look(), Looked::Reloaded);
    assert_eq!(stapled(), b"\x30\x03two");
}

#[test]
fn of_two_certificates_for_a_name_a_client_gets_one_that_it_can_verify() {
    let authority = Authority::new("test");
    let large = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key");
    let (large, small) = (authority.issue_for(&large, &["a.example"], |_| {}), authority.issue(&["a.example"]));
    let settings = TlsConfig::new().certificate_pem(large.chain, large.key).certificate_pem(small.chain, small.key);
    let reload = settings.build().expect("settings");
    let size = |client: Arc<ClientConfig>, name: &str| {
        let pair = connect(client, reload.current(), name);
        pair.client.peer_certificates().expect("a certificate")[0].len()
    };
    let (first, second) = (size(Client::of(&authority).config(), "a.example"), size(trusting().0, "a.example"));
    assert!(first > second, "{first} {second}");
    // For another name, the client gets a default certificate that it can verify too.
    assert_eq!(size(trusting().0, "other.example"), second);
}
