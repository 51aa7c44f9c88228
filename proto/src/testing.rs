//! Test support: ways to split an input, and the bodies of the fuzz targets, which ordinary tests run too.
//!
//! An input of [`request`], [`response`], [`chunked`] and [`http2`] begins with [`HEADER_BYTES`] bytes. The first byte
//! chooses the limits and how our side behaves, the other three choose how the rest is cut. The body of a fuzz target
//! panics if it finds an error in the protocol code. An [`Oracle`] is another parser to compare with. The caller passes
//! it, so that this library depends on no other parser.

mod chunked;
mod exchange;
mod h2;
mod hpack;
mod operations;
mod scanners;
mod target;
mod ws;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

pub use chunked::chunked;
pub use exchange::{HEADER_BYTES, request, response};
pub use h2::http2;
#[cfg(test)]
pub(crate) use hpack::decode_huffman;
pub use hpack::hpack;
pub use operations::http2_operations;
pub use target::target;
pub use ws::{websocket, websocket_operations};

/// Returns the ways in which tests cut an input: not at all, in two at each place, and into single bytes.
pub fn splits(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = vec![vec![input]];
    ways.extend((1..input.len()).map(|at| vec![&input[..at], &input[at..]]));
    ways.push(input.chunks(1).collect());
    ways
}

/// Bytes that a failed comparison prints as text.
#[derive(Clone, Default, PartialEq, Eq)]
struct Text(Vec<u8>);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A field's name and value.
type FieldText = (Text, Text);

/// Another parser of heads. Returns the length of the head at the front of the bytes, and the head's parts: method,
/// target and minor version of a request, or minor version, status and reason of a response; then the name and value of
/// each field. Returns `None` if the head is incomplete or invalid.
pub type Oracle = fn(&[u8]) -> Option<(usize, Vec<Vec<u8>>)>;

#[cfg(test)]
#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "a library of its own where it belongs")]
mod oracle;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;

    /// Calls `run` with all options and several cuts: into single bytes, into pairs, and into large and uneven pieces.
    fn each_header(mut run: impl FnMut([u8; HEADER_BYTES])) {
        for options in 0..128 {
            for cut in [[0, 0, 0], [1, 1, 1], [6, 30, 0], [255, 3, 12]] {
                run([options, cut[0], cut[1], cut[2]]);
            }
        }
    }

    fn check(body: impl Fn(&[u8]), text: &[u8]) {
        each_header(|header| body(&[&header[..], text].concat()));
    }

    #[test]
    fn requests() {
        for text in [
            &b""[..],
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.7\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            b"\r\nPOST /a?b HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\n\r\nabcHEAD /%41 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nab",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nx: y\r\n\r\nX",
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\nwhatever",
            b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nwhatever",
            b"GET http://a/ HTTP/2.0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\n\n",
        ] {
            check(|input| request(input, oracle::request), text);
        }
    }

    #[test]
    fn a_limit_that_is_passed_is_told_whatever_stands_behind() {
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for text in [
            format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(100)),
            format!("GET /{}\"", "a".repeat(100)),
            format!("GET / HTTP/1.1\r\n{} : b\r\n", "a".repeat(60)),
            format!("{chunked}1;{}@\r\n", "a".repeat(20)),
        ] {
            check(|input| request(input, oracle::request), text.as_bytes());
        }
    }

    #[test]
    fn small_chunks_are_counted_alike() {
        let input = b"\x01\0\0\x003\r\nabc\r\n3\r\ni7c\r\n3\r\n$bc\r\n1\r\nX-Sum:\x02;1\r5\xd855 a\r\n\r\n";
        chunked(input);
        let large = format!("80\r\n{}\r\n", "l".repeat(128));
        for text in [
            "1\r\na\r\n".repeat(3),
            "1\r\na\r\n".repeat(4),
            format!("{}{large}{}", "1\r\na\r\n".repeat(3), "1\r\na\r\n".repeat(2)),
            format!("{}{large}{}", "1\r\na\r\n".repeat(3), "1\r\na\r\n".repeat(3)),
        ] {
            check(chunked, format!("{text}0\r\n\r\n").as_bytes());
        }
    }

    #[test]
    fn websocket_frames() {
        let masked = |head: &[u8], payload: &[u8]| [head, &[0; 4], payload].concat();
        let frames = [
            masked(&[0x81, 0x82], b"ab"),
            masked(&[0x01, 0x83], "\u{20ac}".as_bytes()),
            masked(&[0x01, 0x82], &"\u{20ac}".as_bytes()[..2]),
            masked(&[0x80, 0x81], &"\u{20ac}".as_bytes()[2..]),
            masked(&[0x89, 0x81], b"p"),
            masked(&[0x8a, 0x80], b""),
            masked(&[0x82, 0xfe, 0, 200], &[7; 200]),
            masked(&[0xc1, 0x81], b"\xff"),
            masked(&[0x02, 0x80], b""),
            masked(&[0x00, 0x80], b""),
            masked(&[0x88, 0x82], &1000_u16.to_be_bytes()),
            masked(&[0x88, 0x83], b"\x03\xe8\xff"),
            masked(&[0x88, 0x81], b"x"),
            vec![0x81, 0x01, b'a'],
        ];
        for options in 0..8 {
            for first in &frames {
                for second in &frames {
                    for third in [&frames[0], &frames[3], &frames[10]] {
                        websocket(&[&[options, 0, 3][..], first, second, third].concat());
                    }
                }
            }
        }
    }

    #[test]
    fn websocket_frame_of_64_kib() {
        websocket(&[&[0, 6, 255][..], &[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0], &[1, 2, 3, 4], &[7; 65_536]].concat());
    }

    #[test]
    fn websocket_ends() {
        for options in 0..8 {
            for cut in [6, 255] {
                for seed in [0_u8, 5, 60, 150, 199, 255] {
                    let choices: Vec<u8> = (0..100_u8)
                        .flat_map(|step| [step, step.wrapping_mul(37), seed.wrapping_add(step / 64)])
                        .collect();
                    websocket_operations(&[&[options, cut, 9][..], &choices].concat());
                }
            }
        }
    }

    #[test]
    fn responses() {
        for text in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 204\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 304 \r\n\r\nX",
            b"HTTP/1.1 200 \xc3\xa9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
            b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: b\r\nConnection: upgrade\r\n\r\nwhatever",
            b"HTTP/2 200\r\n\r\n",
        ] {
            check(|input| response(input, oracle::response), text);
        }
    }

    #[test]
    fn chunked_bodies() {
        for text in [
            &b""[..],
            b"0\r\n\r\n",
            b"3\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\nGET",
            b"3;a;b=c ; d = \"e\\\"f\"\r\nabc\r\n0\r\nx: y\r\nz:\r\n\r\n",
            b"3 \r\nabc\r\n",
            b"3;\r\nabc\r\n",
            b"3;a=\"\r\nabc\r\n",
            b"3\r\nabcd\r\n",
            b"fffffffffffffffff\r\n",
            b"ffffffffffffffff\r\nabc",
            b"0\r\na: b\r\nc: d\r\ne: f\r\ng: h\r\ni: j\r\n\r\n",
            b"0\r\na : b\r\n\r\n",
        ] {
            check(chunked, text);
        }
    }

    #[test]
    fn targets() {
        for text in [
            "",
            "/",
            "*",
            "a:1",
            "a:",
            ":1",
            "/a%2fb?c%00d",
            "/%00",
            "/%",
            "http://a",
            "HTTPS://[::1]:80/x?",
            "http:///",
            "http://u@a/",
            "/a b",
            "[v1.a]:2",
            "[1:2:3:4:5:6:7::]:3",
            "[::1.2.3.4]:3",
            "[1::2::3]:3",
            "/{",
            "/?{",
            "a:65536",
        ] {
            for method in 0..10 {
                target(&[&[method][..], text.as_bytes()].concat());
            }
        }
    }

    #[test]
    fn frames() {
        for seed in [
            &include_bytes!("../../fuzz/seeds/http2/get")[..],
            include_bytes!("../../fuzz/seeds/http2/post"),
            include_bytes!("../../fuzz/seeds/http2/windows"),
            include_bytes!("../../fuzz/seeds/http2/resets"),
            include_bytes!("../../fuzz/seeds/http2/small-streams"),
            include_bytes!("../../fuzz/seeds/http2/continuation"),
            include_bytes!("../../fuzz/seeds/http2/controls"),
            include_bytes!("../../fuzz/seeds/http2/wrong"),
            include_bytes!("../../fuzz/seeds/http2/tunnel"),
        ] {
            check(http2, &seed[HEADER_BYTES..]);
            (0..seed.len()).for_each(|end| http2(&seed[..end]));
        }
    }

    #[test]
    fn operations() {
        let mut random = 1u32;
        let mut byte = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        for length in (0..3_000).map(|at| at % 300) {
            let input: Vec<u8> = (0..length).map(|_| byte()).collect();
            http2_operations(&input);
        }
        for seed in [
            &include_bytes!("../../fuzz/seeds/http2_operations/exchanges")[..],
            include_bytes!("../../fuzz/seeds/http2_operations/tunnels"),
            include_bytes!("../../fuzz/seeds/http2_operations/small-windows"),
            include_bytes!("../../fuzz/seeds/http2_operations/going-away"),
        ] {
            for options in 0..=255u8 {
                http2_operations(&[&[options, options.rotate_left(3)], &seed[2..]].concat());
            }
            (0..seed.len()).for_each(|end| http2_operations(&seed[..end]));
        }
    }

    #[test]
    fn header_blocks() {
        for text in [
            &b""[..],
            b"\x06\x82\x86\x84\x41\x01a\x06\x82\x86\x84\xbe\x04\x00",
            b"\x11\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\x04\x82\x86\x84\xbe",
            b"\x05\x40\x01a\x01b\xff\x00\x02\x20\xbe",
            b"\x05\x40\x01a\x01b\xff\x00\xff\x80\x05\x20\x3f\xe1\x1f\x82\x05\x40\x01c\x01d\x02\xbe\xbe",
            b"\x05\x40\x01a\x01b\xff\x00\x01\x82",
            b"\x05\x10\x01a\x01b\x05\x00\x01a\x01b\x03\x0f\x2f\x00\x03\x20\x20\x20",
            b"\x05\x40\x01a\x01b\x08\xbe\xbe\xbe\xbe\xbe\xbe\xbe\xbe\x02\xbe\xbf",
            b"\x06\xff\xff\xff\xff\xff\x7f",
            b"\x08\x00\x85\xff\xff\xff\xff\xff\x00",
        ] {
            for options in 0..16 {
                hpack(&[&[options][..], text].concat());
            }
        }
    }

    #[test]
    fn ways_to_cut_keep_every_byte() {
        for way in splits(b"abc") {
            assert_eq!(way.concat(), b"abc".to_vec() as Vec<u8>);
        }
    }
}
