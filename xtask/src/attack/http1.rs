//! The attacks over HTTP/1: by heads, bodies, chunks, forms, and connections without requests.

use super::spec::{Attack, BASE, End, Pace, Payload, Reading, WRITE_BYTES, filled};

/// The size of large bodies: a little less than 1 MiB, the default limit of a body that `/body` takes.
const WHOLE_BODY: usize = 1_048_000;

const MIB: u64 = 1 << 20;

pub(super) fn get(path: &str) -> Vec<u8> {
    get_with(path, "")
}

/// Returns a GET request. `fields` contains whole lines, each with its line end.
pub(super) fn get_with(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").into_bytes()
}

/// Returns the head of a POST. `fields` contains whole lines, each with its line end.
pub(super) fn post(path: &str, fields: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").into_bytes()
}

pub(super) fn chunked(path: &str) -> Vec<u8> {
    post(path, "Transfer-Encoding: chunked\r\n")
}

pub(super) fn announced(path: &str, bytes: usize) -> Vec<u8> {
    post(path, &format!("Content-Length: {bytes}\r\n"))
}

fn whole(path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut out = post(path, &format!("{fields}Content-Length: {}\r\n", body.len()));
    out.extend_from_slice(body);
    out
}

const JSON: &str = "Content-Type: application/json\r\n";
const MULTIPART: &str = "Content-Type: multipart/form-data; boundary=b\r\n";
const TEXT_PART: &str = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n";
const FILE_PART: &str = "--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"a\"\r\n\r\nx\r\n";

/// Returns a complete form with `count` equal parts.
fn form(part: &str, count: usize) -> Vec<u8> {
    whole("/form", MULTIPART, (part.repeat(count) + "--b--\r\n").as_bytes())
}

/// Returns the head of a form of 1 GB.
fn endless_form() -> Vec<u8> {
    post("/form", &format!("{MULTIPART}Content-Length: 1000000000\r\n"))
}

const SLOW_HEAD: &[u8] =
    b"GET /hello HTTP/1.1\r\nHost: localhost\r\nCookie: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const PLAIN_GET: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A message that is one request for a server that uses Content-Length, and two requests for a server that uses
/// Transfer-Encoding.
pub(super) const SMUGGLED: &str = "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 45\r\n\
                        Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";

pub(super) const ATTACKS: &[Attack] = &[
    // Floods of requests.
    Attack {
        name: "http1-pipelined",
        what: "Pipelined GETs of /hello in writes of 64 KiB; every answer is read.",
        payload: Payload::Same(|| filled(&get("/hello"))),
        ..BASE
    },
    Attack {
        name: "http1-pipelined-unread",
        what: "As http1-pipelined, but no answer is read.",
        payload: Payload::Same(|| filled(&get("/hello"))),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "http1-bytewise",
        what: "GETs of /hello, each byte in a separate write and packet.",
        payload: Payload::Numbered(|round, out| out.extend(PLAIN_GET.get(round as usize % PLAIN_GET.len()))),
        ..BASE
    },
    Attack {
        name: "http1-not-found",
        what: "Pipelined GETs of different paths that do not exist.",
        payload: Payload::Numbered(|round, out| {
            for number in 0..1000 {
                out.extend(get(&format!("/no/such/path/{round}/{number}")));
            }
        }),
        ..BASE
    },
    Attack {
        name: "http1-streams-unread",
        what: "Pipelined GETs of /stream?bytes=1000000000; nothing is read.",
        payload: Payload::Same(|| filled(&get("/stream?bytes=1000000000"))),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "http1-slow-read",
        what: "GET of /stream?bytes=1000000000, of which 1 KiB is read every 100 ms.",
        opening: || get("/stream?bytes=1000000000"),
        reading: Reading::Slowly,
        ..BASE
    },
    Attack {
        name: "http1-half-close-unread",
        what: "GET of /stream?bytes=1000000000, then the client closes its direction and reads nothing.",
        opening: || get("/stream?bytes=1000000000"),
        reading: Reading::Nothing,
        end: End::HalfClose,
        ..BASE
    },
    Attack {
        name: "http1-sleepers",
        what: "Pipelined GETs of /sleep?ms=50000, an asynchronous handler.",
        payload: Payload::Same(|| filled(&get("/sleep?ms=50000"))),
        handlers_own: Some(
            "the handlers wait for 50 s, even if the client ends its direction, because it may still read",
        ),
        ..BASE
    },
    Attack {
        name: "http1-blockers",
        what: "Pipelined GETs of /block?ms=1000, which holds a thread of the blocking pool.",
        payload: Payload::Same(|| filled(&get("/block?ms=1000"))),
        handlers_own: Some(
            "the handlers block for a second each, even if the client ends its direction, because it may still read",
        ),
        ..BASE
    },
    // Heads.
    Attack {
        name: "http1-slow-head",
        what: "A head, one byte every 100 ms (Slowloris).",
        payload: Payload::Numbered(|round, out| out.extend(SLOW_HEAD.get(round as usize))),
        pace: Pace::Every(100),
        ..BASE
    },
    Attack {
        name: "http1-empty-lines",
        what: "Endless empty lines instead of a request.",
        payload: Payload::Same(|| filled(b"\r\n")),
        ..BASE
    },
    Attack {
        name: "http1-endless-fields",
        what: "A head with endless fields.",
        opening: || b"GET /hello HTTP/1.1\r\nHost: localhost\r\n".to_vec(),
        payload: Payload::Same(|| filled(b"a: b\r\n")),
        ..BASE
    },
    Attack {
        name: "http1-endless-value",
        what: "An endless field value.",
        opening: || b"GET /hello HTTP/1.1\r\nHost: localhost\r\nCookie: ".to_vec(),
        payload: Payload::Same(|| filled(b"a")),
        ..BASE
    },
    Attack {
        name: "http1-endless-target",
        what: "An endless request target.",
        opening: || b"GET /".to_vec(),
        payload: Payload::Same(|| filled(b"a")),
        ..BASE
    },
    Attack {
        name: "http1-long-targets",
        what: "Pipelined GETs with targets of 8,000 bytes.",
        payload: Payload::Same(|| filled(&get(&format!("/hello?{}", "a".repeat(7_990))))),
        ..BASE
    },
    Attack {
        name: "http1-many-fields",
        what: "Pipelined GETs with 100 fields each, the most that a head may have.",
        payload: Payload::Same(|| filled(&get_with("/hello", &"a: b\r\n".repeat(99)))),
        ..BASE
    },
    Attack {
        name: "http1-echoed-fields",
        what: "Pipelined GETs of /headers with 30 KB of fields, which the answer repeats; nothing is read.",
        payload: Payload::Same(|| {
            let field = format!("a: {}\r\n", "b".repeat(995));
            filled(&get_with("/headers", &field.repeat(30)))
        }),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "http1-long-lists",
        what: "Pipelined GETs with 1,500 items in Accept-Encoding and 1,500 ranges in Range.",
        payload: Payload::Same(|| {
            let (codings, ranges) = (vec!["a;q=0.1"; 1500].join(","), vec!["0-0"; 1500].join(","));
            filled(&get_with("/hello", &format!("Accept-Encoding: {codings}\r\nRange: bytes={ranges}\r\n")))
        }),
        ..BASE
    },
    Attack {
        name: "http1-many-parameters",
        what: "Pipelined GETs of /echo with 999 fields in the query.",
        payload: Payload::Same(|| {
            let names: Vec<String> = (0..999).map(|number| format!("{number:x}")).collect();
            filled(&get(&format!("/echo?{}", names.join("&"))))
        }),
        ..BASE
    },
    Attack {
        name: "http1-upgrade",
        what: "Pipelined GETs of /hello that ask for an upgrade to WebSocket and to h2c.",
        payload: Payload::Same(|| {
            let fields = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket, h2c\r\n\
                          HTTP2-Settings: AAMAAABkAAQAAP__\r\nSec-WebSocket-Version: 13\r\n\
                          Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
            filled(&get_with("/hello", fields))
        }),
        ..BASE
    },
    Attack {
        name: "http1-bad-requests",
        what: "Malformed requests, each on its own connection.",
        opening: || b"GET  /hello HTTP/1.1\r\nHost : localhost\r\n\r\n".to_vec(),
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "http1-refused-uploads",
        what: "POSTs that announce 10 GB and are refused, and still send 256 KiB, each on its own connection.",
        opening: || b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000000\r\n\r\n".to_vec(),
        payload: Payload::Numbered(|round, out| {
            if round < 4 {
                out.resize(WRITE_BYTES, b'x');
            }
        }),
        end: End::Close,
        ..BASE
    },
    Attack {
        name: "http1-dot-segments",
        what: "Pipelined GETs of a path with 1,400 segments `a`, each followed by `..`.",
        payload: Payload::Same(|| filled(&get(&format!("/{}hello", "a/../".repeat(1400))))),
        ..BASE
    },
    Attack {
        name: "http1-smuggling",
        what: "Requests with both Content-Length and Transfer-Encoding and another request in the body, each on \
               its own connection.",
        opening: || SMUGGLED.into(),
        end: End::Answer,
        ..BASE
    },
    // Chunks.
    Attack {
        name: "http1-tiny-chunks",
        what: "POST to /upload in chunks of one byte, in writes of 64 KiB.",
        opening: || chunked("/upload"),
        payload: Payload::Same(|| filled(b"1\r\nx\r\n")),
        ..BASE
    },
    Attack {
        name: "http1-chunk-extensions",
        what: "POST to /upload in chunks of one byte, each with an extension of 100 bytes.",
        opening: || chunked("/upload"),
        payload: Payload::Same(|| filled(format!("1;{}\r\nx\r\n", "a".repeat(99)).as_bytes())),
        ..BASE
    },
    Attack {
        name: "http1-endless-extension",
        what: "An endless chunk extension.",
        opening: || [chunked("/upload"), b"1;".to_vec()].concat(),
        payload: Payload::Same(|| filled(b"a")),
        ..BASE
    },
    Attack {
        name: "http1-endless-chunk-size",
        what: "A chunk size of endless zeros.",
        opening: || chunked("/upload"),
        payload: Payload::Same(|| filled(b"0")),
        ..BASE
    },
    Attack {
        name: "http1-endless-trailers",
        what: "A last chunk with endless trailer fields.",
        opening: || [chunked("/upload"), b"0\r\n".to_vec()].concat(),
        payload: Payload::Same(|| filled(b"a: b\r\n")),
        ..BASE
    },
    // Bodies.
    Attack {
        name: "http1-slow-body",
        what: "POST of 1 MB to /upload, one byte every second.",
        opening: || announced("/upload", 1_000_000),
        payload: Payload::Same(|| b"x".to_vec()),
        pace: Pace::Every(1000),
        ..BASE
    },
    Attack {
        name: "http1-missing-body",
        what: "POST to /body that announces 1 MB and sends no body.",
        opening: || announced("/body", WHOLE_BODY),
        ..BASE
    },
    Attack {
        name: "http1-held-body",
        what: "POST of 1 MB to /body: all but 1 KB at once, then one byte every 100 ms.",
        opening: || [announced("/body", WHOLE_BODY), vec![b'x'; WHOLE_BODY - 1000]].concat(),
        payload: Payload::Same(|| b"x".to_vec()),
        pace: Pace::Every(100),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "http1-bodies-unread",
        what: "POSTs of 1 MB to /body, which answers with the body; nothing is read.",
        payload: Payload::Same(|| whole("/body", "", &vec![b'x'; WHOLE_BODY])),
        reading: Reading::Nothing,
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "http1-unwanted-body",
        what: "GETs of /hello with a body of 60 KB, which no handler reads.",
        payload: Payload::Same(|| {
            let head = "GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n";
            [head.as_bytes(), &[b'x'; 60_000]].concat()
        }),
        ..BASE
    },
    Attack {
        name: "http1-cut-upload",
        what: "POSTs that announce 1 MB to /upload and close after 64 KiB, each on its own connection.",
        opening: || [announced("/upload", 1_000_000), vec![b'x'; 64 * 1024]].concat(),
        end: End::Close,
        ..BASE
    },
    Attack {
        name: "http1-expect",
        what: "POST to /upload that expects 100 (Continue) and never sends its body.",
        opening: || post("/upload", "Content-Length: 1000000\r\nExpect: 100-continue\r\n"),
        ..BASE
    },
    Attack {
        name: "http1-expect-flood",
        what: "Pipelined POSTs of one byte to /upload, each of which expects 100 (Continue).",
        payload: Payload::Same(|| filled(&whole("/upload", "Expect: 100-continue\r\n", b"x"))),
        ..BASE
    },
    Attack {
        name: "http1-json-nested",
        what: "POSTs of 1 MB of opening brackets to /json.",
        payload: Payload::Same(|| whole("/json", JSON, &vec![b'['; WHOLE_BODY])),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "http1-json-array",
        what: "POSTs of 1 MB with 524,000 numbers to /json.",
        payload: Payload::Same(|| {
            let numbers = "0,".repeat((WHOLE_BODY - 4) / 2);
            whole("/json", JSON, format!("[{numbers}0]").as_bytes())
        }),
        body_bytes: MIB,
        handlers_own: Some("the handler parses the numbers and keeps a value for each"),
        ..BASE
    },
    Attack {
        name: "http1-form-parts",
        what: "Forms of 999 empty parts to /form, one after the other.",
        payload: Payload::Same(|| form(TEXT_PART, 999)),
        ..BASE
    },
    Attack {
        name: "http1-form-files",
        what: "Forms of 100 files of one byte to /form, which writes each to the disk, one after the other.",
        payload: Payload::Same(|| form(FILE_PART, 100)),
        ..BASE
    },
    Attack {
        name: "http1-endless-form",
        what: "A form to /form with endless empty parts.",
        opening: endless_form,
        payload: Payload::Same(|| filled(TEXT_PART.as_bytes())),
        ..BASE
    },
    Attack {
        name: "http1-endless-part-head",
        what: "A form to /form with a part with endless fields.",
        opening: || [endless_form(), b"--b\r\n".to_vec()].concat(),
        payload: Payload::Same(|| filled(b"a: b\r\n")),
        ..BASE
    },
    // Connections.
    Attack { name: "http1-silent", what: "A connection on which nothing is sent.", ..BASE },
    Attack {
        name: "http1-silent-half-close",
        what: "A connection on which the client sends nothing and closes its direction.",
        end: End::HalfClose,
        ..BASE
    },
    Attack {
        name: "http1-connect-close",
        what: "Connections that the client closes at once.",
        end: End::Close,
        ..BASE
    },
    Attack {
        name: "http1-connect-reset",
        what: "Connections with a GET of /hello, which the client resets when the answer has arrived.",
        opening: || get("/hello"),
        reading: Reading::Nothing,
        end: End::Reset,
        ..BASE
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_what_the_heads_say() {
        let (_, hidden) = SMUGGLED.split_once("\r\n\r\n").expect("a head");
        assert_eq!(hidden.len(), 45);
        let request = whole("/body", "", b"xyz");
        assert!(request.ends_with(b"Content-Length: 3\r\n\r\nxyz"));
        assert!("0,".repeat((WHOLE_BODY - 4) / 2).len() + 3 <= WHOLE_BODY);
    }
}
