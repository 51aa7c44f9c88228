//! Tests what the TLS port offers and refuses, as a scanner does: with handmade hellos, whose content libraries would
//! not send, and with openssl's client, which also requests a page.
//!
//! Needs a real kernel, because openssl is a separate program.

use crate::demo::Demo;
use crate::hello;
use crate::hello::{Answer, Hello, Offer};
use crate::programs::{attempt, on_every_engine, output, program};
use crate::site::{NAMES, Site};
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

on_every_engine! {
    uring, readiness:
    [what_is_offered_is_this_and_no_more, what_is_not_offered_is_refused_with_the_alert_for_it, protocols_above,
     openssl_is_answered_in_every_way, openssl_gets_the_certificate_for_the_name, openssl_resumes_its_sessions,
     openssl_renews_keys_and_does_not_renegotiate, both_sides_log_the_same_keys]
}

/// Starts a demo with an ECDSA and an RSA certificate, so that the key type excludes no cipher suite.
fn start(engine: &str) -> Option<(Site, Demo)> {
    let site = Site::new();
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).expect("a key");
    let rsa = site.authority.issue_for(&rsa, NAMES, |_| {});
    let (cert, key) = (site.write("rsa.pem", &rsa.chain), site.write("rsa.key", &rsa.key));
    let demo = site.start(engine, &["--cert", &cert, "--key", &key])?;
    Some((site, demo))
}

/// Sends hellos, each without the values that the server has already chosen, until the server refuses. Returns the
/// server's choices in order.
fn choices(demo: &Demo, mut all: Vec<u16>, hello: impl Fn(&[u16]) -> Hello, choice: fn(&Offer) -> u16) -> Vec<u16> {
    let mut found = Vec::new();
    loop {
        match hello(&all).ask(&demo.tls_addresses[0]) {
            Answer::Offer(offer) => {
                let chosen = choice(&offer);
                let before = all.len();
                all.retain(|one| *one != chosen);
                assert_eq!(all.len(), before - 1, "{chosen:#06x} was not offered");
                found.push(chosen);
            }
            Answer::Alert(alert) => {
                assert_eq!(alert, hello::HANDSHAKE_FAILURE, "after {found:04x?}");
                return found;
            }
        }
    }
}

fn what_is_offered_is_this_and_no_more(engine: &str) {
    let Some((_site, demo)) = start(engine) else { return };
    let tls12 = |ciphers: &[u16]| Hello { ciphers: ciphers.to_vec(), ..Hello::tls12() };
    let tls13 = |ciphers: &[u16]| Hello { ciphers: ciphers.to_vec(), ..Hello::tls13() };
    // Ranges with all registered cipher suites, without the value that only signals secure renegotiation (RFC 5746).
    let all = (0..=0x01ff).chain(0xc000..=0xc1ff).chain(0xcc00..=0xccff).chain(0xd000..=0xd0ff);
    let all: Vec<u16> = all.filter(|suite| *suite != 0x00ff).collect();
    // ECDHE with AES-128-GCM, AES-256-GCM and ChaCha20-Poly1305, for each signature type.
    let ecdsa = [0xc02b, 0xc02c, 0xcca9];
    let rsa = [0xc02f, 0xc030, 0xcca8];
    assert_eq!(choices(&demo, all.clone(), tls12, |offer| offer.cipher), [ecdsa, rsa].concat());
    // The server follows the client's order.
    let backwards = all.iter().rev().copied().chain((0x1300..=0x13ff).rev()).collect();
    assert_eq!(choices(&demo, backwards, tls13, |offer| offer.cipher), [0x1303, 0x1302, 0x1301]);

    // Curves and finite-field groups of RFC 8446, older curves of RFC 8422, and hybrid groups.
    let groups = (1..=0x0030).chain(0x0100..=0x0104).chain(0x0200..=0x0206).chain(0x11eb..=0x11ee).chain([0x6399]);
    let groups: Vec<u16> = groups.collect();
    let tls12 = |groups: &[u16]| Hello { groups: groups.to_vec(), ..Hello::tls12() };
    let tls13 = |groups: &[u16]| Hello { groups: groups.to_vec(), ..Hello::tls13() };
    assert_eq!(choices(&demo, groups.clone(), tls12, |offer| offer.group), [0x17, 0x18, 0x1d]);
    assert_eq!(choices(&demo, groups.clone(), tls13, |offer| offer.group), [0x17, 0x18, 0x1d, 0x11ec]);
    let backwards = groups.into_iter().rev().collect();
    assert_eq!(choices(&demo, backwards, tls13, |offer| offer.group), [0x11ec, 0x1d, 0x18, 0x17]);

    for (versions, expected) in [
        (&[][..], 0x0303),
        (&[0x0304, 0x0303, 0x0302, 0x0301], 0x0304),
        (&[0x0301, 0x0302, 0x0303, 0x0304], 0x0304),
        (&[0x0a0a, 0x0305, 0x0304], 0x0304),
        (&[0x0301, 0x0302, 0x0303], 0x0303),
    ] {
        let ciphers = vec![0x1301, 0xc02b];
        let offer =
            Hello { versions: versions.to_vec(), ciphers, ..Hello::tls12() }.ask(&demo.tls_addresses[0]).offer();
        assert_eq!(offer.version, expected, "{versions:04x?}");
    }
    // The server ignores offers of compression (RFC 7457 section 2.6), heartbeat (15), next_protocol_negotiation
    // (13172), max_fragment_length (1) and record_size_limit (28).
    let extensions = vec![(15, vec![1]), (13172, vec![]), (1, vec![1]), (28, vec![1, 0])];
    let offer = Hello { compressions: vec![1, 0], extensions, ..Hello::tls12() }.ask(&demo.tls_addresses[0]).offer();
    assert_eq!(offer.compression, 0);
    // server_name (0), extended_master_secret (23) and renegotiation_info (65281).
    assert_eq!(offer.extensions, BTreeSet::from([0, 23, 65281]));
}

fn what_is_not_offered_is_refused_with_the_alert_for_it(engine: &str) {
    use crate::hello::{HANDSHAKE_FAILURE, PROTOCOL_VERSION};
    let Some((_site, demo)) = start(engine) else { return };
    let version = |version| Hello { version, ..Hello::tls12() };
    let versions = |versions: &[u16]| Hello { versions: versions.to_vec(), ..Hello::tls12() };
    let suites = |ciphers: &[u16]| Hello { ciphers: ciphers.to_vec(), ..Hello::tls12() };
    for (what, hello, alert) in [
        ("SSL 3.0", version(0x0300), PROTOCOL_VERSION),
        ("TLS 1.0", version(0x0301), PROTOCOL_VERSION),
        ("TLS 1.1", version(0x0302), PROTOCOL_VERSION),
        // The alert should be PROTOCOL_VERSION, too, but rustls checks the signature algorithms before the version.
        ("TLS 1.1 without signature_algorithms", Hello { schemes: Vec::new(), ..version(0x0302) }, HANDSHAKE_FAILURE),
        ("TLS 1.1 and 1.0 in supported_versions", versions(&[0x0302, 0x0301]), PROTOCOL_VERSION),
        ("a future version", versions(&[0x0305]), PROTOCOL_VERSION),
        ("no encryption", suites(&[0x0001, 0x0002, 0x003b, 0xc006, 0xc010]), HANDSHAKE_FAILURE),
        ("no certificate", suites(&[0x0018, 0x001b, 0x0034, 0x00a6, 0xc018, 0xc019]), HANDSHAKE_FAILURE),
        ("export ciphers", suites(&[0x0003, 0x0006, 0x0008, 0x000b, 0x0014, 0x0062, 0x0064]), HANDSHAKE_FAILURE),
        ("RC4", suites(&[0x0004, 0x0005, 0xc007, 0xc011]), HANDSHAKE_FAILURE),
        ("DES and 3DES", suites(&[0x0009, 0x000a, 0x0015, 0x0016, 0xc008, 0xc012]), HANDSHAKE_FAILURE),
        ("IDEA, SEED, Camellia, ARIA", suites(&[0x0007, 0x0096, 0x0041, 0x0084, 0xc050]), HANDSHAKE_FAILURE),
        ("RSA key exchange", suites(&[0x002f, 0x0035, 0x003c, 0x003d, 0x009c, 0x009d, 0xc09c]), HANDSHAKE_FAILURE),
        ("fixed Diffie-Hellman", suites(&[0x00a0, 0x00a1, 0xc02d, 0xc031]), HANDSHAKE_FAILURE),
        ("finite-field Diffie-Hellman", suites(&[0x0033, 0x0039, 0x0067, 0x009e, 0x009f, 0xccaa]), HANDSHAKE_FAILURE),
        ("CBC", suites(&[0xc009, 0xc00a, 0xc013, 0xc014, 0xc023, 0xc024, 0xc027, 0xc028]), HANDSHAKE_FAILURE),
        ("CCM", suites(&[0xc0ac, 0xc0ad, 0xc0ae, 0xc0af]), HANDSHAKE_FAILURE),
        ("pre-shared keys", suites(&[0x00a8, 0x00a9, 0xccab, 0xccac, 0xd001]), HANDSHAKE_FAILURE),
        ("suites of 1.3 in 1.2", suites(&[0x1301, 0x1302, 0x1303]), HANDSHAKE_FAILURE),
        ("suites of 1.2 in 1.3", Hello { ciphers: vec![0xc02b, 0xc02f], ..Hello::tls13() }, HANDSHAKE_FAILURE),
        ("short tags in 1.3", Hello { ciphers: vec![0x1304, 0x1305], ..Hello::tls13() }, HANDSHAKE_FAILURE),
        ("P-521 and X448", Hello { groups: vec![0x19, 0x1e], ..Hello::tls12() }, HANDSHAKE_FAILURE),
        ("finite fields", Hello { groups: vec![0x100, 0x101, 0x102], ..Hello::tls13() }, HANDSHAKE_FAILURE),
        ("signatures over SHA-1 and MD5", Hello { schemes: vec![0x0203, 0x0201, 0x0101], ..Hello::tls12() }, 40),
        ("compression only", Hello { compressions: vec![1], ..Hello::tls12() }, 47),
    ] {
        assert_eq!(hello.ask(&demo.tls_addresses[0]), Answer::Alert(alert), "{what}");
    }
}

fn protocols_above(engine: &str) {
    let Some((_site, demo)) = start(engine) else { return };
    let ask = |protocols: &[&'static str]| {
        Hello { protocols: protocols.to_vec(), ..Hello::tls12() }.ask(&demo.tls_addresses[0])
    };
    for (protocols, expected) in [
        (&[][..], None),
        (&["h2"], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&["http/1.0"], Some("http/1.0")),
        (&["http/1.0", "http/1.1", "h2"], Some("h2")),
        (&["http/1.0", "http/1.1"], Some("http/1.1")),
        (&["spdy/3.1", "\u{a}\u{a}", "http/1.1"], Some("http/1.1")),
    ] {
        assert_eq!(ask(protocols).offer().protocol.as_deref(), expected, "{protocols:?}");
    }
    for protocols in [&["h3"][..], &["spdy/3.1", "http/0.9"], &["h2c"], &["H2"], &["acme-tls/1"]] {
        assert_eq!(ask(protocols), Answer::Alert(hello::NO_APPLICATION_PROTOCOL), "{protocols:?}");
    }
}

const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Requests `/hello` with openssl's client. Returns true if it succeeded, and its output.
fn openssl(program: &Path, site: &Site, demo: &Demo, arguments: &[&str]) -> (bool, String) {
    let authority = site.file("ca.pem");
    let fixed = ["s_client", "-connect", &demo.tls_addresses[0], "-CAfile", &authority, "-verify_return_error"];
    // -ign_eof: the client waits for the server's close and does not end with its input.
    let more = ["-servername", "localhost", "-ign_eof"];
    attempt(program, &[&fixed[..], &more, arguments].concat(), REQUEST)
}

fn openssl_is_answered_in_every_way(engine: &str) {
    let Some(program) = program(&["openssl"]) else { return };
    let Some((site, demo)) = start(engine) else { return };
    for (arguments, told) in [
        (&["-tls1_2"][..], "New, TLSv1.2, Cipher is ECDHE-ECDSA-"),
        (&["-tls1_3"], "New, TLSv1.3, Cipher is TLS_"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], "Cipher is ECDHE-ECDSA-AES128-GCM-SHA256\n"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"], "Cipher is ECDHE-ECDSA-AES256-GCM-SHA384\n"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"], "Cipher is ECDHE-ECDSA-CHACHA20-POLY1305\n"),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], "Cipher is ECDHE-RSA-AES128-GCM-SHA256\n"),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES256-GCM-SHA384"], "Cipher is ECDHE-RSA-AES256-GCM-SHA384\n"),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"], "Cipher is ECDHE-RSA-CHACHA20-POLY1305\n"),
        (&["-ciphersuites", "TLS_AES_128_GCM_SHA256"], "Cipher is TLS_AES_128_GCM_SHA256\n"),
        (&["-ciphersuites", "TLS_AES_256_GCM_SHA384"], "Cipher is TLS_AES_256_GCM_SHA384\n"),
        (&["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], "Cipher is TLS_CHACHA20_POLY1305_SHA256\n"),
        (&["-groups", "X25519"], "Temp Key: X25519"),
        (&["-groups", "P-256"], "Temp Key: ECDH, prime256v1"),
        (&["-groups", "P-384"], "Temp Key: ECDH, secp384r1"),
        // The server supports only the second group and sends HelloRetryRequest.
        (&["-groups", "P-521:P-384"], "Temp Key: ECDH, secp384r1"),
        (&["-sigalgs", "ECDSA+SHA256"], "Peer signature type: ECDSA"),
        (&["-sigalgs", "RSA-PSS+SHA256"], "Peer signature type: RSA-PSS"),
        (&["-tls1_2", "-sigalgs", "RSA+SHA512"], "Peer signature type: RSA\n"),
        (&["-alpn", "http/1.1"], "ALPN protocol: http/1.1\n"),
        (&["-alpn", "other,http/1.0"], "ALPN protocol: http/1.0\n"),
        (&["-max_send_frag", "512"], "HTTP/1.1 200 OK"),
        (&["-no_ticket", "-tls1_2"], "HTTP/1.1 200 OK"),
    ] {
        let (succeeded, said) = openssl(&program, &site, &demo, arguments);
        assert!(succeeded && said.contains("Verify return code: 0 (ok)"), "{arguments:?}: {said}");
        assert!(said.contains("HTTP/1.1 200 OK\r\n") && said.contains("Hello, World!"), "{arguments:?}: {said}");
        assert!(said.contains(told), "{arguments:?}: {told:?} is not in {said}");
        assert!(said.contains("Compression: NONE"), "{arguments:?}: {said}");
        // openssl prints `closed` after close_notify and an error otherwise.
        assert!(said.contains("closed\n") && !said.contains("unexpected eof"), "{arguments:?}: {said}");
    }
    for (arguments, alert) in [
        (&["-alpn", "other"][..], "SSL alert number 120"),
        (&["-alpn", "other", "-tls1_2"], "SSL alert number 120"),
        (&["-groups", "P-521"], "SSL alert number 40"),
        (&["-tls1_2", "-cipher", "AES128-GCM-SHA256"], "SSL alert number 40"),
        (&["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"], "SSL alert number 40"),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA"], "SSL alert number 40"),
    ] {
        let (succeeded, said) = openssl(&program, &site, &demo, arguments);
        assert!(!succeeded && said.contains(alert), "{arguments:?}: {alert:?} is not in {said}");
    }
}

fn openssl_gets_the_certificate_for_the_name(engine: &str) {
    let Some(program) = program(&["openssl"]) else { return };
    let site = Site::new();
    let mut files = Vec::new();
    for (name, names) in [("two", &["two.example"][..]), ("three", &["three.example", "*.three.example"])] {
        let pem = site.authority.issue(names);
        files.push(["--cert".to_string(), site.write(&format!("{name}.pem"), &pem.chain)]);
        files.push(["--key".to_string(), site.write(&format!("{name}.key"), &pem.key)]);
    }
    let arguments: Vec<&str> = files.iter().flatten().map(String::as_str).collect();
    let Some(demo) = site.start(engine, &arguments) else { return };
    for version in ["-tls1_2", "-tls1_3"] {
        for (name, expected) in [
            (&["-servername", "localhost"][..], "localhost"),
            (&["-servername", "two.example"], "two.example"),
            (&["-servername", "TWO.Example"], "two.example"),
            (&["-servername", "three.example"], "three.example"),
            (&["-servername", "any.three.example"], "three.example"),
            (&["-servername", "any.two.example"], "localhost"),
            (&["-servername", "one.any.three.example"], "localhost"),
            (&["-noservername"], "localhost"),
        ] {
            let fixed = ["s_client", "-connect", &demo.tls_addresses[0], version];
            // The client ends with its input, after the handshake.
            let (succeeded, said) = attempt(&program, &[&fixed[..], name].concat(), b"");
            assert!(succeeded, "{name:?}: {said}");
            let subject = said.lines().find(|line| line.starts_with("subject=")).expect("a subject");
            assert!(subject.replace(' ', "").ends_with(&format!("CN={expected}")), "{name:?}: {subject}");
        }
    }
}

fn openssl_resumes_its_sessions(engine: &str) {
    let Some(program) = program(&["openssl"]) else { return };
    let Some((site, demo)) = start(engine) else { return };
    for (flag, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let kept = site.file(&format!("session-{version}"));
        let (_, said) = openssl(&program, &site, &demo, &[flag, "-sess_out", &kept]);
        assert!(said.contains(&format!("New, {version}, ")) && said.contains("Hello, World!"), "{said}");
        // Each connection resumes with the ticket of the previous connection. Workers accept each other's tickets.
        for _ in 0..8 {
            let (_, said) = openssl(&program, &site, &demo, &[flag, "-sess_in", &kept, "-sess_out", &kept]);
            assert!(said.contains(&format!("Reused, {version}, ")) && said.contains("Hello, World!"), "{said}");
        }
        // The server never accepts early data, which could be replayed.
        let (_, said) = openssl(&program, &site, &demo, &[flag, "-sess_in", &kept]);
        assert!(!said.contains("Early data was accepted") && !said.contains("Max Early Data: 1"), "{said}");
        // Another server process does not accept the ticket. It performs a full handshake and answers.
        let Some(other) = site.start(engine, &[]) else { return };
        let (_, said) = openssl(&program, &site, &other, &[flag, "-sess_in", &kept]);
        assert!(said.contains(&format!("New, {version}, ")) && said.contains("Hello, World!"), "{said}");
    }
}

fn openssl_renews_keys_and_does_not_renegotiate(engine: &str) {
    let Some(program) = program(&["openssl"]) else { return };
    let Some((_site, demo)) = start(engine) else { return };
    // s_client takes the first letter of a line as a command. R renegotiates, K updates the keys of both sides, and k
    // updates the client's keys.
    for (version, order, said_first, answered) in [
        ("-tls1_2", "R\n", "RENEGOTIATING", false),
        ("-tls1_3", "K\n", "KEYUPDATE", true),
        ("-tls1_3", "k\n", "KEYUPDATE", true),
    ] {
        let mut command = Command::new(&program);
        command.args(["s_client", "-connect", &demo.tls_addresses[0], version]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("openssl");
        let mut input = child.stdin.take().expect("a pipe");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        input.write_all(order.as_bytes()).expect("a successful write");
        let mut complaint = String::new();
        while !complaint.ends_with(&format!("{said_first}\n")) {
            assert_ne!(errors.read_line(&mut complaint).expect("text"), 0, "{version} {order:?}: {complaint}");
        }
        // May fail if the server has refused, because the client may have ended. `input` stays open until the answer
        // has been read, because the client ends at the end of its input.
        let _ = input.write_all(REQUEST);
        errors.read_to_string(&mut complaint).expect("text");
        drop(input);
        let output = child.wait_with_output().expect("its output");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.contains("Hello, World!"), answered, "{version} {order:?}: {said}\n{complaint}");
        assert_eq!(complaint.contains("no renegotiation"), !answered, "{version} {order:?}: {complaint}");
    }
}

fn both_sides_log_the_same_keys(engine: &str) {
    let Some(program) = program(&["openssl"]) else { return };
    let site = Site::new();
    let (ours, theirs) = (site.file("ours.keys"), site.file("theirs.keys"));
    let mut command = site.command(engine, &[]);
    command.env("SSLKEYLOGFILE", &ours);
    let Some(demo) = Demo::of(command, engine) else { return };
    for version in ["-tls1_2", "-tls1_3"] {
        let (succeeded, said) = openssl(&program, &site, &demo, &[version, "-keylogfile", &theirs]);
        assert!(succeeded, "{said}");
    }
    let lines = |file: &str| -> BTreeSet<String> {
        let text = std::fs::read_to_string(file).expect("a key log");
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_lowercase).collect()
    };
    let (ours, theirs) = (lines(&ours), lines(&theirs));
    let labels: BTreeSet<&str> = ours.iter().filter_map(|line| line.split(' ').next()).collect();
    for label in ["client_random", "client_traffic_secret_0", "server_traffic_secret_0"] {
        assert!(labels.contains(label), "{label} is not in {labels:?}");
    }
    assert!(ours.is_subset(&theirs), "{ours:?}\n{theirs:?}");
    // Without SSLKEYLOGFILE the demo writes no file to its working directory.
    let quiet = site.folder("quiet");
    let mut command = site.command(engine, &[]);
    command.current_dir(&quiet);
    let Some(demo) = Demo::of(command, engine) else { return };
    assert!(openssl(&program, &site, &demo, &[]).0);
    assert_eq!(std::fs::read_dir(&quiet).expect("a folder").count(), 0, "files in {quiet}");
}

#[test]
fn openssl_gets_the_staple_and_sees_that_the_certificate_is_good() {
    let Some(program) = program(&["openssl"]) else { return };
    let site = Site::new();
    // A self-signed certificate, which may sign its own OCSP response.
    let [cert, key, index, staple] = ["own.pem", "own.key", "index", "staple"].map(|name| site.file(name));
    let request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-set_serial", "7"];
    output(&program, &[&request[..], &["-days", "30", "-out", &cert, "-keyout", &key]].concat());
    site.write("index", "V\t391231235959Z\t\t07\tunknown\t/CN=localhost\n");
    let signer = ["-CA", &cert, "-rsigner", &cert, "-rkey", &key, "-issuer", &cert, "-cert", &cert];
    output(&program, &[&["ocsp", "-index", &index, "-ndays", "1", "-respout", &staple][..], &signer].concat());
    // The command has no option for stapling, so the test builds the server itself.
    let config = highwire::tls::TlsConfig::new().certificate_files(&cert, &key).ocsp_file(&staple);
    let server = highwire_cli::demo::app().server().and_then(|server| server.listen_tls("127.0.0.1:0", config));
    let handle = server.and_then(highwire::Server::start).expect("a server");
    for version in ["-tls1_2", "-tls1_3"] {
        let arguments = ["s_client", "-connect", &handle.addresses()[0], "-status", version, "-CAfile", &cert];
        let (succeeded, said) = attempt(&program, &arguments, b"");
        assert!(succeeded && said.contains("OCSP Response Status: successful"), "{version}: {said}");
        assert!(said.contains("Cert Status: good") && said.contains("Serial Number: 07"), "{version}: {said}");
    }
    handle.abort();
    handle.join().expect("it ends");
}
