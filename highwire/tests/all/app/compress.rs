//! Compressed responses and compressed request bodies, through the whole server on the simulator.

use highwire::compress::{Coding, Compression, Decoded, Decompression, compressible};
use highwire::middleware::BodyLimit;
use highwire::testing::{Client, TestResponse};
use highwire::{
    App, Body, Extension, Handler, HeaderName, HeaderValue, Json, Request, Response, StatusCode, body, time,
};
use std::io::{Read, Write};
use std::time::Duration;

fn client(app: App) -> Client {
    Client::new(app).expect("an app")
}

/// Returns pseudo-random bytes: the high bytes of a linear congruential generator.
fn random() -> impl Iterator<Item = u8> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// Returns compressible text of this many bytes.
fn text(bytes: usize) -> String {
    let words = ["one", "connection", "and", "another", "that", "waits", "for", "its", "answer", "1234", "56.7", "\n"];
    let words = random().flat_map(|byte| [words[usize::from(byte) % words.len()], " "]);
    let mut text: String = words.take(bytes).collect();
    text.truncate(bytes);
    text
}

fn decode(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let read = match coding {
        "" => std::io::Cursor::new(body).read_to_end(&mut decoded),
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut decoded),
        "deflate" => flate2::read::ZlibDecoder::new(body).read_to_end(&mut decoded),
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut decoded),
        "zstd" => zstd::Decoder::new(body).and_then(|mut decoder| decoder.read_to_end(&mut decoded)),
        other => panic!("{other}"),
    };
    read.expect("a whole body in that coding");
    decoded
}

fn encode(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    match coding {
        "" => encoded.extend_from_slice(body),
        "gzip" | "x-gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(&mut encoded, flate2::Compression::new(6));
            encoder.write_all(body).expect("encoded");
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(&mut encoded, flate2::Compression::new(6));
            encoder.write_all(body).expect("encoded");
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(&mut encoded, 4096, 5, 20);
            encoder.write_all(body).expect("encoded");
        }
        "zstd" => encoded = zstd::encode_all(body, 3).expect("encoded"),
        other => panic!("{other}"),
    }
    encoded
}

const CODINGS: [&str; 4] = ["zstd", "br", "gzip", "deflate"];

fn field(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

/// Sends a GET with that `Accept-Encoding`. Returns the response.
fn get(client: &mut Client, path: &str, accepts: &str) -> TestResponse {
    client.get(path).header("accept-encoding", accepts).send()
}

fn texts() -> App {
    App::new()
        .get("/small", || text(1023))
        .get("/medium", || text(2000))
        .get("/large", || text(500_000))
        .get("/stream", || {
            let (mut sender, receiver) = body::channel();
            highwire::spawn(async move {
                for part in text(20_000).as_bytes().chunks(1000) {
                    time::sleep(Duration::from_millis(100)).await;
                    sender.send(part.to_vec()).await.expect("the client reads");
                }
                sender.finish();
            });
            Response::stream(receiver)
                .with_trailers(|| vec![field("x-sum", "7")])
                .with_header(highwire::header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))
        })
        .with(Compression::new())
}

#[test]
fn every_coding_in_one_piece_and_in_parts() {
    let mut client = client(texts());
    for coding in CODINGS {
        for (path, bytes, announces) in
            [("/medium", 2000, true), ("/large", 500_000, false), ("/stream", 20_000, false)]
        {
            // Requests twice, because encoders are reused.
            for _ in 0..2 {
                let answer = get(&mut client, path, coding);
                assert_eq!((answer.status().as_u16(), answer.header("content-encoding")), (200, coding), "{path}");
                assert_eq!(answer.header("vary"), "Accept-Encoding");
                assert_eq!(decode(coding, answer.bytes()), text(bytes).as_bytes(), "{coding} {path}");
                assert!(answer.bytes().len() < bytes / 2, "{coding} {path}: {} bytes", answer.bytes().len());
                let length = if announces { answer.bytes().len().to_string() } else { String::new() };
                assert_eq!(answer.header("content-length"), length, "{coding} {path}");
                assert_eq!(answer.trailers().contains_key("x-sum"), path == "/stream", "{coding} {path}");
            }
        }
        let small = get(&mut client, "/small", coding);
        assert_eq!((small.header("content-encoding"), small.header("vary"), small.bytes().len()), ("", "", 1023));
        let head = client.request(highwire::Method::HEAD, "/medium").header("accept-encoding", coding).send();
        let got = get(&mut client, "/medium", coding);
        assert_eq!(head.headers(), got.headers(), "HEAD has the fields of GET");
        let head = client.request(highwire::Method::HEAD, "/large").header("accept-encoding", coding).send();
        assert_eq!((head.header("content-encoding"), head.header("content-length")), (coding, ""));
    }
    for accepts in ["", "identity", "gzip;q=0", "compress"] {
        let answer = get(&mut client, "/medium", accepts);
        let fields = (answer.header("content-encoding"), answer.header("vary"), answer.header("content-length"));
        assert_eq!(fields, ("", "Accept-Encoding", "2000"), "{accepts}");
    }
    assert_eq!(client.get("/medium").send().header("vary"), "Accept-Encoding");
    let both = client.get("/medium").header("accept-encoding", "br;q=0.5").header("accept-encoding", "gzip").send();
    assert_eq!(both.header("content-encoding"), "gzip");
}

#[test]
fn settings_are_heeded() {
    let at = |app: App, path: &str, accepts: &str| {
        let answer = get(&mut client(app), path, accepts);
        (answer.header("content-encoding").to_string(), answer.bytes().len())
    };
    let app = |compression: Compression| App::new().get("/", || text(3000)).with(compression);
    let all = "gzip, deflate, br, zstd";
    assert_eq!(at(app(Compression::new()), "/", all).0, "zstd");
    assert_eq!(at(app(Compression::new().codings([Coding::Deflate, Coding::Brotli])), "/", all).0, "deflate");
    assert_eq!(at(app(Compression::new().codings([Coding::Deflate])), "/", "gzip").0, "");
    assert_eq!(at(app(Compression::new().codings([])), "/", "*").0, "");
    assert_eq!(at(app(Compression::new().threshold(3000)), "/", all).0, "zstd");
    assert_eq!(at(app(Compression::new().threshold(3001)), "/", all).0, "");
    assert_eq!(at(app(Compression::new().types(|name| name == "text/html")), "/", all).0, "");
    assert_eq!(at(app(Compression::new().types(|name| name == "text/plain")), "/", all).0, "zstd");
    // Without memory for encoders, responses are sent uncompressed.
    assert_eq!(at(app(Compression::new().memory(0)), "/", all), (String::new(), 3000));
    for (coding, name) in Coding::ALL.into_iter().zip(CODINGS) {
        let (low, high) = (Compression::new().level(coding, 0), Compression::new().level(coding, 100));
        let (low, high) = (at(app(low), "/", name), at(app(high), "/", name));
        assert_eq!((low.0.as_str(), high.0.as_str()), (name, name));
        assert!(high.1 < low.1, "{name}: {} bytes at the lowest level, {} at the highest", low.1, high.1);
    }
    for (name, expected) in [
        ("text/html", true),
        ("application/json", true),
        ("application/problem+json", true),
        ("image/svg+xml", true),
        ("application/wasm", true),
        ("font/ttf", true),
        ("font/woff2", false),
        ("image/png", false),
        ("video/mp4", false),
        ("application/zip", false),
        ("application/octet-stream", false),
        ("", false),
    ] {
        assert_eq!(compressible(name), expected, "{name}");
    }
}

type Make = fn() -> Response;

/// A partial response has the `Vary` of the whole response (RFC 9110 section 15.3.7), and is not compressed itself.
#[test]
fn parts_of_what_would_be_compressed_say_what_varies() {
    fn part(content_type: &'static str, (name, value): (&'static str, &'static str)) -> Response {
        let (name, value) = field(name, value);
        let part = Response::bytes(content_type, text(500)).with_status(StatusCode::PARTIAL_CONTENT);
        part.with_header(name, value).with_header(highwire::header::ETAG, HeaderValue::from_static("\"five\""))
    }
    const LONG: (&str, &str) = ("content-range", "bytes 0-499/1024");
    let cases: [(Make, &str); 6] = [
        (|| part("text/plain", LONG), "Accept-Encoding"),
        (|| part("text/plain", ("content-range", "bytes 0-499/*")), "Accept-Encoding"),
        (|| part("multipart/byteranges; boundary=B", ("x", "y")), "Accept-Encoding"),
        (|| part("text/plain", ("content-range", "bytes 0-499/1023")), ""),
        (|| part("image/png", LONG), ""),
        (
            || part("text/plain", LONG).with_header(highwire::header::CONTENT_ENCODING, HeaderValue::from_static("br")),
            "",
        ),
    ];
    for (number, (make, vary)) in cases.into_iter().enumerate() {
        let mut client = client(App::new().get("/", make).with(Compression::new()));
        for accepts in ["", "gzip"] {
            let answer = get(&mut client, "/", accepts);
            assert_eq!((answer.header("vary"), answer.header("etag")), (vary, "\"five\""), "{number} {accepts}");
            assert_eq!(answer.text(), text(500), "{number} {accepts}");
        }
    }
}

#[test]
fn what_must_not_be_changed_is_left_alone() {
    fn with(name: &'static str, value: &'static str) -> Response {
        let (name, value) = field(name, value);
        Response::text(text(5000)).with_header(name, value)
    }
    let cases: [(&str, Make); 11] = [
        ("encoded", || with("content-encoding", "gzip")),
        ("identity", || with("content-encoding", "identity")),
        ("no-transform", || with("cache-control", "public, No-Transform")),
        ("content-range", || with("content-range", "bytes */9000").with_status(StatusCode::RANGE_NOT_SATISFIABLE)),
        ("digest", || with("content-digest", "sha-256=:AAAA:")),
        ("repr-digest", || with("repr-digest", "sha-256=:AAAA:")),
        ("type", || with("content-type", "image/png")),
        ("no type", || {
            let mut response = Response::new(StatusCode::OK);
            response.add_header(HeaderName::from_static("x"), HeaderValue::from_static("y"));
            response
        }),
        ("204", || Response::new(StatusCode::NO_CONTENT)),
        ("empty", || Response::text("")),
        ("short stream", || {
            Response::stream_of(3, body_of("abc"))
                .with_header(highwire::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))
        }),
    ];
    for (name, make) in cases {
        let mut plain = client(App::new().get("/", make));
        let mut compressed = client(App::new().get("/", make).with(Compression::new().threshold(4)));
        let accepts = "gzip, br, zstd, deflate";
        assert_eq!(get(&mut compressed, "/", accepts), get(&mut plain, "/", accepts), "{name}");
    }
}

/// Returns a stream with one part and an end.
fn body_of(text: &'static str) -> body::Receiver {
    let (mut sender, receiver) = body::channel();
    highwire::spawn(async move {
        let _ = sender.send(text).await;
        sender.finish();
    });
    receiver
}

/// A regression test: a compressed body once had a valid end even if the plain body was shorter than announced.
#[test]
#[should_panic(expected = "the server cut the connection")]
fn a_compressed_body_that_is_shorter_than_announced_is_cut() {
    let short = || {
        Response::stream_of(10, body_of("nine byte"))
            .with_header(highwire::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))
    };
    let mut client = client(App::new().get("/", short).with(Compression::new().threshold(1)));
    get(&mut client, "/", "gzip");
}

#[test]
fn fields_say_what_was_done() {
    let app = App::new()
        .get("/", || {
            Response::text(text(5000))
                .with_header(highwire::header::ETAG, HeaderValue::from_static("\"five\""))
                .with_header(highwire::header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))
        })
        .get("/weak", || Response::text(text(5000)).with_header(highwire::header::ETAG, HeaderValue::from_static("W/\"5\"")))
        .get("/origin", || {
            Response::text(text(5000)).with_header(highwire::header::VARY, HeaderValue::from_static("Origin"))
        })
        .get("/said", || {
            Response::text(text(5000)).with_header(highwire::header::VARY, HeaderValue::from_static("a, accept-ENCODING"))
        })
        .get("/any", || Response::text(text(5000)).with_header(highwire::header::VARY, HeaderValue::from_static("*")))
        .get("/304", || {
            Response::new(StatusCode::NOT_MODIFIED).with_header(highwire::header::ETAG, HeaderValue::from_static("\"five\""))
        })
        .get("/error", || (StatusCode::NOT_FOUND, text(5000)))
        // Bytes that do not compress.
        .get("/random", || {
            Response::bytes("text/plain", random().take(5000).collect::<Vec<u8>>())
        })
        .with(Compression::new())
        .with(Compression::new());
    let mut client = client(app);
    let fields = |client: &mut Client, path: &str, accepts: &str| {
        let answer = get(client, path, accepts);
        let all = |name: &str| {
            let values = answer.headers().get_all(name).iter().map(|value| value.to_str().expect("text").to_string());
            values.collect::<Vec<_>>().join(" | ")
        };
        format!("{} {} {} {}", all("content-encoding"), all("etag"), all("accept-ranges"), all("vary"))
    };
    for (path, accepts, expected) in [
        ("/", "gzip", "gzip W/\"five\"  Accept-Encoding"),
        ("/", "", " \"five\" bytes Accept-Encoding"),
        ("/weak", "gzip", "gzip W/\"5\"  Accept-Encoding"),
        ("/origin", "gzip", "gzip   Origin | Accept-Encoding"),
        ("/said", "gzip", "gzip   a, accept-ENCODING"),
        ("/any", "gzip", "gzip   *"),
        ("/304", "gzip", " \"five\"  Accept-Encoding"),
        ("/304", "", " \"five\"  Accept-Encoding"),
        ("/error", "gzip", "gzip   Accept-Encoding"),
        ("/random", "gzip", "   Accept-Encoding"),
    ] {
        assert_eq!(fields(&mut client, path, accepts), expected, "{path} {accepts}");
    }
}

/// A regression test: every 304 once had a weak tag, even if the response with the body had a strong one (RFC 9110
/// section 15.4.5).
#[test]
fn a_304_has_the_tag_of_the_answer_that_the_client_has() {
    fn tagged(request: &Request<'_>, content_type: &'static str, length: usize) -> Response {
        let conditions = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("if-none-match"));
        let known = conditions.map(|(_, value)| value).any(|value| value.windows(6).any(|tag| tag == b"\"five\""));
        let response = match known {
            true => Response::new(StatusCode::NOT_MODIFIED),
            false => Response::bytes(content_type, text(length)),
        };
        response.with_header(highwire::header::ETAG, HeaderValue::from_static("\"five\""))
    }
    let app = App::new()
        .get("/text", |request: &Request<'_>| tagged(request, "text/plain", 5000))
        .get("/short", |request: &Request<'_>| tagged(request, "text/plain", 500))
        .get("/picture", |request: &Request<'_>| tagged(request, "image/png", 5000))
        .with(Compression::new());
    let mut client = client(app);
    for (path, accepts, expected) in [
        ("/text", "gzip", "W/\"five\""),
        ("/text", "identity", "\"five\""),
        ("/short", "gzip", "\"five\""),
        ("/picture", "gzip", "\"five\""),
    ] {
        let tag = get(&mut client, path, accepts).header("etag").to_string();
        assert_eq!(tag, expected, "{path} {accepts}");
        for known in [tag.clone(), format!("\"four\", {tag}"), format!(" W/\"four\" ,{tag},\"6\"")] {
            let answer = client.get(path).header("accept-encoding", accepts).header("if-none-match", &known).send();
            assert_eq!((answer.status().as_u16(), answer.header("etag")), (304, &*tag), "{path} {accepts} {known}");
        }
        // Sends the tag in the second of two fields.
        let answer = client.get(path).header("accept-encoding", accepts).header("if-none-match", "\"four\"");
        assert_eq!(answer.header("if-none-match", &tag).send().header("etag"), tag, "{path} {accepts}");
    }
}

fn length(body: String) -> String {
    body.len().to_string()
}

async fn length_in_parts(mut body: Body) -> Result<String, body::BodyError> {
    let mut length = 0;
    while let Some(part) = body.next().await {
        length += part?.len();
    }
    Ok(length.to_string())
}

fn decoding(decompression: Decompression) -> Client {
    let app = App::new()
        .post("/whole", length)
        .post("/parts", length_in_parts)
        .post("/json", |Json(numbers): Json<Vec<u32>>| numbers.iter().sum::<u32>().to_string())
        .post("/none", || "not looked at")
        .post("/told", |_: Extension<Decoded>, body: String| body)
        .post("/collected", async |body: Body| body.collect(5000).await.map(|all| all.len().to_string()))
        .with(decompression);
    client(app)
}

fn post(client: &mut Client, path: &str, codings: &str, body: impl Into<Vec<u8>>) -> (u16, String) {
    let mut call = client.post(path).body(body.into());
    if !codings.is_empty() {
        call = call.header("content-encoding", codings);
    }
    let answer = call.header("content-type", "application/json").send();
    (answer.status().as_u16(), answer.text().to_string())
}

#[test]
fn bodies_of_every_coding_are_decoded() {
    let mut client = decoding(Decompression::new());
    let text = text(200_000);
    for path in ["/whole", "/parts"] {
        for coding in CODINGS.into_iter().chain(["x-gzip", ""]) {
            let body = encode(coding, text.as_bytes());
            assert_eq!(post(&mut client, path, coding, body), (200, "200000".to_string()), "{path} {coding}");
        }
        for (first, second) in [("gzip", "br"), ("zstd", "gzip"), ("deflate", "deflate")] {
            let body = encode(second, &encode(first, text.as_bytes()));
            let codings = format!("{}, Identity ,{second}", first.to_uppercase());
            assert_eq!(post(&mut client, path, &codings, body), (200, "200000".to_string()), "{path} {codings}");
        }
        assert_eq!(post(&mut client, path, "gzip", ""), (200, "0".to_string()), "an empty body is not decoded");
        assert_eq!(post(&mut client, path, "identity", "four"), (200, "4".to_string()));
    }
    assert_eq!(post(&mut client, "/json", "br", encode("br", b"[1, 2, 3]")), (200, "6".to_string()));
    assert_eq!(post(&mut client, "/told", "zstd", encode("zstd", b"told")), (200, "told".to_string()));
    assert_eq!(post(&mut client, "/told", "", "plain").0, 500);
    assert_eq!(post(&mut client, "/none", "unknown", "?").0, 200);
    assert_eq!(post(&mut client, "/collected", "gzip", encode("gzip", &[b'x'; 5000])), (200, "5000".to_string()));
    assert_eq!(post(&mut client, "/collected", "gzip", encode("gzip", &[b'x'; 5001])).0, 413);
}

#[test]
fn one_around_another_decodes_once() {
    let app = App::new().post("/", length.with(Decompression::new())).with(Decompression::new());
    assert_eq!(post(&mut client(app), "/", "gzip", encode("gzip", b"once")), (200, "4".to_string()));
}

#[test]
fn what_cannot_be_decoded_is_refused() {
    let mut client = decoding(Decompression::new().codings([Coding::Gzip, Coding::Brotli]));
    let gzip = encode("gzip", text(9000).as_bytes());
    let twice = encode("gzip", &gzip);
    let thrice = encode("gzip", &twice);
    let broken: Vec<u8> = gzip.iter().enumerate().map(|(at, &byte)| if at == 500 { !byte } else { byte }).collect();
    for path in ["/whole", "/parts"] {
        for (codings, body, status) in [
            ("compress", &gzip[..], 415),
            ("zstd", &encode("zstd", b"not wanted"), 415),
            ("gzip, gzip, gzip", &thrice, 415),
            ("gzip, unknown", &gzip, 415),
            ("gzip;q=1", &gzip, 415),
            ("gzip", b"this is not gzip", 400),
            ("gzip", &gzip[..gzip.len() - 1], 400),
            ("gzip", &[&gzip[..], b"behind"].concat(), 400),
            ("gzip", &broken, 400),
            ("br", &gzip, 400),
            ("gzip, gzip", &gzip, 400),
            ("gzip, gzip", &twice, 200),
        ] {
            let answer = client.post(path).header("content-encoding", codings).body(body.to_vec()).send();
            assert_eq!(answer.status(), status, "{path} {codings}: {}", answer.text());
            let accepted = if status == 415 { "gzip, br" } else { "" };
            assert_eq!(answer.header("accept-encoding"), accepted, "{path} {codings}");
        }
    }
    let nothing =
        decoding(Decompression::new().codings([])).post("/whole").header("content-encoding", "gzip").body(gzip).send();
    assert_eq!((nothing.status().as_u16(), nothing.header("accept-encoding")), (415, "identity"));
}

#[test]
fn bombs_and_crowds_are_refused() {
    let mut client = decoding(Decompression::new());
    let large = vec![0; 8 << 20];
    for coding in CODINGS {
        // The whole body exceeds the limit of 1 MiB. The body in parts exceeds the ratio of 100, which counts beyond 1
        // MiB.
        let body = encode(coding, &large);
        assert_eq!(post(&mut client, "/whole", coding, body.clone()).0, 413, "{coding}");
        assert_eq!(post(&mut client, "/parts", coding, body.clone()).0, 413, "{coding}");
        let twice = encode("gzip", &body);
        assert_eq!(post(&mut client, "/parts", &format!("{coding}, gzip"), twice).0, 413, "{coding} in gzip");
        let generous = &mut decoding(Decompression::new().ratio(1_000_000));
        assert_eq!(post(generous, "/parts", coding, body).1, (8 << 20).to_string(), "{coding}");
        let full = &mut decoding(Decompression::new().memory(1000));
        let answer = full.post("/parts").header("content-encoding", coding).body(encode(coding, b"x")).send();
        assert_eq!((answer.status().as_u16(), answer.header("retry-after")), (503, "1"), "{coding}");
        assert_eq!(post(full, "/whole", coding, encode(coding, b"x")).0, 200, "whole bodies are not counted");
    }
    // Decoders give their memory back to the limit.
    let body = encode("br", b"x");
    let mut narrow = decoding(Decompression::new().memory(17 << 20));
    for _ in 0..3 {
        assert_eq!(post(&mut narrow, "/parts", "br", body.clone()).0, 200);
    }
}

#[test]
fn a_routes_own_limit_counts_for_what_bodies_decode_to() {
    let app = App::new()
        .post("/whole", length.with(BodyLimit::new(2000)))
        .post("/parts", length_in_parts.with(BodyLimit::new(2000)))
        .with(Decompression::new());
    let mut client = client(app);
    for path in ["/whole", "/parts"] {
        assert_eq!(post(&mut client, path, "gzip", encode("gzip", &[b'x'; 2000])), (200, "2000".to_string()), "{path}");
        assert_eq!(post(&mut client, path, "gzip", encode("gzip", &[b'x'; 2001])).0, 413, "{path}");
    }
}
