//! The attacks on the TLS port: incomplete and repeated handshakes (RFC 8446 section 4.1.2, RFC 5246 section 7.4.1.2).

use super::spec::{self, Attack, End, Pace, Payload, Protocol, filled};

const BASE: Attack = Attack { protocol: Protocol::Tls, ..spec::BASE };

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION: u8 = 23;

/// The size of the largest content of a record, in bytes.
const RECORD_BYTES: usize = 16_384;

const TLS13: &[u16] = &[0x1301, 0x1302, 0x1303];
const TLS12: &[u16] = &[0xc02b, 0xc02c, 0xcca9, 0xc02f, 0xc030, 0xcca8];
const X25519: u16 = 0x1d;

/// Returns the bytes with their length in front, as a number of `width` bytes.
fn prefixed(width: usize, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u32).to_be_bytes();
    [&length[4 - width..], bytes].concat()
}

fn extension(number: u16, content: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &prefixed(2, content)].concat()
}

/// Returns a ClientHello with these cipher suites, the usual extensions, and the extensions `more` after them.
fn hello(ciphers: &[u16], more: &[u8]) -> Vec<u8> {
    let numbers = |list: &[u16]| list.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let schemes = numbers(&[0x0403, 0x0503, 0x0804, 0x0805, 0x0401, 0x0501]);
    let extensions = [
        extension(0, &prefixed(2, &[&[0], &prefixed(2, b"localhost")[..]].concat())),
        extension(10, &prefixed(2, &numbers(&[X25519, 0x17, 0x18]))),
        extension(11, &[1, 0]),
        extension(13, &prefixed(2, &schemes)),
        extension(23, &[]),
        extension(65281, &[0]),
        more.to_vec(),
    ]
    .concat();
    let content = [
        &[3_u8, 3][..],
        &[7; 32],
        &prefixed(1, &[9; 32]),
        &prefixed(2, &numbers(ciphers)),
        &prefixed(1, &[0]),
        &prefixed(2, &extensions),
    ]
    .concat();
    [&[1_u8][..], &prefixed(3, &content)].concat()
}

/// Returns the extensions supported_versions and key_share of TLS 1.3. If `share` is false, key_share is empty;
/// otherwise it has a share for X25519.
fn tls13(share: bool) -> Vec<u8> {
    let share = if share { [&X25519.to_be_bytes()[..], &prefixed(2, &[7; 32])].concat() } else { Vec::new() };
    [extension(43, &[2, 3, 4]), extension(51, &prefixed(2, &share))].concat()
}

/// Splits a message into records of at most `bytes` bytes.
fn records(kind: u8, message: &[u8], bytes: usize) -> Vec<u8> {
    message.chunks(bytes).flat_map(|piece| [&[kind, 3, 1][..], &prefixed(2, piece)].concat()).collect()
}

/// Returns a complete ClientHello of TLS 1.3, which the server answers with ServerHello and a signature.
pub(super) fn hello_record() -> Vec<u8> {
    records(HANDSHAKE, &hello(TLS13, &tls13(true)), RECORD_BYTES)
}

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "tls-silent", what: "A connection on which nothing is sent.", ..BASE },
    Attack {
        name: "tls-half-hello",
        what: "The first half of a ClientHello.",
        opening: || {
            let hello = hello_record();
            hello[..hello.len() / 2].to_vec()
        },
        ..BASE
    },
    Attack {
        name: "tls-slow-hello",
        what: "A ClientHello, one byte every 100 ms.",
        payload: Payload::Numbered(|round, out| out.extend(hello_record().get(round as usize))),
        pace: Pace::Every(100),
        ..BASE
    },
    Attack {
        name: "tls-half-handshake",
        what: "A ClientHello, and nothing after the server's answer.",
        opening: hello_record,
        ..BASE
    },
    Attack {
        name: "tls-hello-flood",
        what: "A ClientHello of TLS 1.3, which makes the server sign, on each of many connections.",
        opening: hello_record,
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "tls-hello-flood-tls12",
        what: "As tls-hello-flood, with TLS 1.2.",
        opening: || records(HANDSHAKE, &hello(TLS12, &[]), RECORD_BYTES),
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "tls-hello-flood-without-share",
        what: "As tls-hello-flood without a key share, so that the server requests another ClientHello.",
        opening: || records(HANDSHAKE, &hello(TLS13, &tls13(false)), RECORD_BYTES),
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "tls-hello-unread",
        what: "ClientHellos on connections that close without reading the answer.",
        opening: hello_record,
        end: End::Reset,
        ..BASE
    },
    Attack {
        name: "tls-large-hello",
        what: "A ClientHello of 60 KB, most of it padding, on each of many connections.",
        opening: || {
            let more = [tls13(true), extension(21, &[0; 60_000])].concat();
            records(HANDSHAKE, &hello(TLS13, &more), RECORD_BYTES)
        },
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "tls-tiny-records",
        what: "A ClientHello in records of one byte, on each of many connections.",
        opening: || records(HANDSHAKE, &hello(TLS13, &tls13(true)), 1),
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "tls-endless-hello",
        what: "A ClientHello that announces 16 MB, in endless full records.",
        opening: || records(HANDSHAKE, b"\x01\xff\xff\xff\x03\x03", RECORD_BYTES),
        payload: Payload::Same(|| records(HANDSHAKE, &[0; 3 * RECORD_BYTES], RECORD_BYTES)),
        ..BASE
    },
    Attack {
        name: "tls-empty-records",
        what: "Empty handshake records.",
        payload: Payload::Same(|| filled(&[HANDSHAKE, 3, 1, 0, 0])),
        ..BASE
    },
    Attack {
        name: "tls-change-cipher",
        what: "A ClientHello, then endless ChangeCipherSpec records.",
        opening: hello_record,
        payload: Payload::Same(|| filled(&[20, 3, 3, 0, 1, 1])),
        ..BASE
    },
    Attack {
        name: "tls-warnings",
        what: "A ClientHello, then endless warning alerts.",
        opening: hello_record,
        payload: Payload::Same(|| filled(&[ALERT, 3, 3, 0, 2, 1, 90])),
        ..BASE
    },
    Attack {
        name: "tls-garbage",
        what: "Full records of application data without a handshake.",
        payload: Payload::Same(|| records(APPLICATION, &[0x5a; 3 * RECORD_BYTES], RECORD_BYTES)),
        ..BASE
    },
    Attack {
        name: "tls-plain-http",
        what: "Cleartext HTTP/1 requests on the TLS port, each on its own connection.",
        opening: || b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        end: End::Answer,
        ..BASE
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_the_hello_that_they_announce() {
        let message = hello(TLS13, &tls13(true));
        let whole = hello_record();
        assert_eq!(whole[..3], [HANDSHAKE, 3, 1]);
        assert_eq!(usize::from(u16::from_be_bytes([whole[3], whole[4]])), message.len());
        assert_eq!(whole[5..], message);
        assert_eq!(u32::from_be_bytes([0, message[1], message[2], message[3]]) as usize, message.len() - 4);
        assert_eq!(records(HANDSHAKE, &message, 1).len(), 6 * message.len());
    }
}
