//! A handmade TLS ClientHello (RFC 5246 section 7.4.1.2, RFC 8446 section 4.1.2) whose content tests can choose, and a
//! parser for the part of the answer that contains the server's choices.

use crate::demo::PATIENCE;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Alerts, RFC 8446 section 6.
pub(crate) const HANDSHAKE_FAILURE: u8 = 40;
pub(crate) const PROTOCOL_VERSION: u8 = 70;
pub(crate) const NO_APPLICATION_PROTOCOL: u8 = 120;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// The content of a ClientHello. Numbers are those of the IANA registries.
#[derive(Clone)]
pub(crate) struct Hello {
    /// The field `legacy_version`; TLS 1.3 is offered by `versions` only.
    pub(crate) version: u16,
    /// The extension `supported_versions`; left out if empty.
    pub(crate) versions: Vec<u16>,
    pub(crate) ciphers: Vec<u16>,
    pub(crate) compressions: Vec<u8>,
    pub(crate) groups: Vec<u16>,
    /// The extension `signature_algorithms`; left out if empty.
    pub(crate) schemes: Vec<u16>,
    pub(crate) protocols: Vec<&'static str>,
    /// Additional extensions, as number and content.
    pub(crate) extensions: Vec<(u16, Vec<u8>)>,
}

/// The server's answer to a [`Hello`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The fatal alert that ends the handshake.
    Alert(u8),
    /// The server's choices; the handshake could continue.
    Offer(Offer),
}

/// The server's choices.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) version: u16,
    pub(crate) cipher: u16,
    pub(crate) compression: u8,
    pub(crate) group: u16,
    pub(crate) protocol: Option<String>,
    pub(crate) extensions: BTreeSet<u16>,
}

impl Answer {
    pub(crate) fn offer(self) -> Offer {
        match self {
            Answer::Offer(offer) => offer,
            Answer::Alert(alert) => panic!("alert {alert}"),
        }
    }
}

impl Hello {
    /// Returns the usual hello of a TLS 1.2 client.
    pub(crate) fn tls12() -> Hello {
        Hello {
            version: 0x0303,
            versions: Vec::new(),
            ciphers: vec![0xc02b, 0xc02c, 0xcca9, 0xc02f, 0xc030, 0xcca8],
            compressions: vec![0],
            groups: vec![0x1d, 0x17, 0x18],
            schemes: vec![0x0403, 0x0503, 0x0804, 0x0805, 0x0401, 0x0501],
            protocols: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// Returns the usual hello of a TLS 1.3 client, but without a key share. The server therefore requests a key share
    /// of the group that it chooses (RFC 8446 section 4.1.4).
    pub(crate) fn tls13() -> Hello {
        Hello { versions: vec![0x0304], ciphers: vec![0x1301, 0x1302, 0x1303], ..Hello::tls12() }
    }

    /// Sends the hello over a new connection and returns the server's answer.
    pub(crate) fn ask(&self, address: &str) -> Answer {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.write_all(&self.record()).expect("a successful write");
        let mut messages = Vec::new();
        loop {
            let mut head = [0; 5];
            stream.read_exact(&mut head).expect("a record");
            let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            stream.read_exact(&mut record).expect("a whole record");
            match head[0] {
                ALERT => {
                    assert_eq!((record.len(), record[0]), (2, 2), "an unencrypted fatal alert");
                    // The server closes after the alert.
                    assert_eq!(stream.read_to_end(&mut messages).expect("the end"), 0);
                    return Answer::Alert(record[1]);
                }
                HANDSHAKE => messages.extend_from_slice(&record),
                // change_cipher_spec, which a TLS 1.3 server sends for old middleboxes (RFC 8446 appendix D.4).
                20 => {}
                other => panic!("a record of type {other}"),
            }
            if let Some(offer) = offer(&messages) {
                return Answer::Offer(offer);
            }
        }
    }

    fn record(&self) -> Vec<u8> {
        let numbers = |list: &[u16]| list.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
        let mut extensions = self.extensions.clone();
        // server_name: localhost.
        extensions.push((0, prefixed(2, &[&[0], &prefixed(2, b"localhost")[..]].concat())));
        extensions.push((10, prefixed(2, &numbers(&self.groups))));
        // ec_point_formats: uncompressed.
        extensions.push((11, vec![1, 0]));
        if !self.schemes.is_empty() {
            extensions.push((13, prefixed(2, &numbers(&self.schemes))));
        }
        // extended_master_secret and an empty renegotiation_info (RFC 5746).
        extensions.push((23, Vec::new()));
        extensions.push((65281, vec![0]));
        if !self.protocols.is_empty() {
            let names: Vec<u8> = self.protocols.iter().flat_map(|name| prefixed(1, name.as_bytes())).collect();
            extensions.push((16, prefixed(2, &names)));
        }
        if !self.versions.is_empty() {
            extensions.push((43, prefixed(1, &numbers(&self.versions))));
            extensions.push((51, prefixed(2, &[])));
        }
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(number, content)| [&number.to_be_bytes()[..], &prefixed(2, content)].concat())
            .collect();
        let message = [
            &self.version.to_be_bytes()[..],
            &[7; 32],
            &prefixed(1, &[9; 32]),
            &prefixed(2, &numbers(&self.ciphers)),
            &prefixed(1, &self.compressions),
            &prefixed(2, &extensions),
        ]
        .concat();
        let message = [&[1][..], &prefixed(3, &message)].concat();
        [&[HANDSHAKE, 3, 1][..], &prefixed(2, &message)].concat()
    }
}

/// Returns the bytes with their length in front, as a number of `width` bytes.
fn prefixed(width: usize, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u32).to_be_bytes();
    assert!(length[..4 - width].iter().all(|byte| *byte == 0), "too long for a length of {width} bytes");
    [&length[4 - width..], bytes].concat()
}

/// Returns the server's choices once the messages contain them. TLS 1.3 has all in the ServerHello; TLS 1.2 has the
/// group in the ServerKeyExchange.
fn offer(mut messages: &[u8]) -> Option<Offer> {
    let mut found: Option<Offer> = None;
    while let Some(&[kind, a, b, c]) = messages.first_chunk::<4>() {
        let length = usize::from(a) * 65536 + usize::from(b) * 256 + usize::from(c);
        let mut message = messages.get(4..4 + length)?;
        messages = &messages[4 + length..];
        let message = &mut message;
        match (kind, &mut found) {
            (2, _) => {
                let mut offer = server_hello(message);
                if offer.version == 0x0304 {
                    return Some(offer);
                }
                assert_eq!(offer.group, 0);
                offer.extensions.remove(&16);
                found = Some(offer);
            }
            // ServerKeyExchange: the curve type `named_curve` (3), then the curve (RFC 8422 section 5.4).
            (12, Some(offer)) => {
                assert_eq!(take(message, 1), 3, "a named group");
                offer.group = take(message, 2);
                return found;
            }
            _ => {}
        }
    }
    None
}

fn server_hello(message: &mut &[u8]) -> Offer {
    let mut version = take(message, 2);
    *message = &message[32..];
    let session = usize::from(take(message, 1));
    *message = &message[session..];
    let (cipher, compression) = (take(message, 2), take(message, 1) as u8);
    let (mut group, mut protocol, mut extensions) = (0, None, BTreeSet::new());
    let _length = take(message, 2);
    while !message.is_empty() {
        let (number, length) = (take(message, 2), usize::from(take(message, 2)));
        let (mut content, rest) = message.split_at(length);
        *message = rest;
        match number {
            43 => version = take(&mut content, 2),
            51 => group = take(&mut content, 2),
            16 => protocol = Some(String::from_utf8_lossy(&content[3..]).into_owned()),
            _ => {}
        }
        assert!(extensions.insert(number), "extension {number} twice");
    }
    Offer { version, cipher, compression, group, protocol, extensions }
}

/// Takes a big-endian number of `width` bytes off the front.
fn take(bytes: &mut &[u8], width: usize) -> u16 {
    let (number, rest) = bytes.split_at(width);
    *bytes = rest;
    number.iter().fold(0, |sum, byte| sum << 8 | u16::from(*byte))
}
