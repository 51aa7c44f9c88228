//! Parts of files as responses, on every engine, with and without TLS. Needs a real kernel, which sends files without
//! reading them into the process.

use crate::engines;
use crate::tls_peer::{Authority, Client, simple};
use highwire::server::{Engine, Handle};
use highwire::{App, Path, Response, StatusCode};
use highwire_io::file::{File, Files, Folder, Metadata, Open};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use testkit::http1::{self, Http1};

const FILE_BYTES: usize = 3_000_001;

fn content() -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// A file that the kernel can send, but whose bytes are never reported as cached in memory.
#[derive(Debug)]
struct Cold(Open);

impl File for Cold {
    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }

    fn read_now(&self, _: &mut [u8], _: u64) -> std::io::Result<Option<usize>> {
        Ok(None)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.read(buffer, offset)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

/// A file without a descriptor, which the kernel therefore cannot send.
#[derive(Debug)]
struct Unsendable(Open);

impl File for Unsendable {
    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }

    fn read_now(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<Option<usize>> {
        self.0.read_now(buffer, offset)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.read(buffer, offset)
    }
}

/// A temporary folder with the file. Dropping the value removes both.
struct Place(std::path::PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("highwire-part-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("file"), content()).expect("room");
        Place(path)
    }

    fn app(&self, engine: Engine) -> App {
        let root = self.0.clone();
        let part = move |Path((kind, from, to)): Path<(String, u64, u64)>| {
            let open = Folder::open(&root).and_then(|folder| folder.open(b"file"));
            let open = open.map_err(|_| StatusCode::NOT_FOUND)?;
            Ok::<_, StatusCode>(match kind.as_str() {
                "warm" => Response::file_part(Arc::new(open), from..to),
                "cold" => Response::file_part(Arc::new(Cold(open)), from..to),
                _ => Response::file_part(Arc::new(Unsendable(open)), from..to),
            })
        };
        App::new().get("/hello", || "hello").get("/{kind}/{from}/{to}", part).configure(|config| {
            config.engine = engine;
            config.workers = 1;
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn connect(handle: &Handle, listener: usize) -> TcpStream {
    http1::connect(&handle.addresses()[listener])
}

const PATHS: &[(&str, usize, usize)] = &[
    ("warm", 0, FILE_BYTES),
    ("warm", 7, 1_007),
    ("warm", 5, 5),
    ("cold", 100_000, 2_000_000),
    ("other", 1, 700_000),
    ("warm", 3, 40_000),
    ("cold", 9, 20_000),
    ("warm", 0, 2_500_000),
];

/// Sends requests for all parts at once, and checks the responses.
fn pipelined(stream: &mut (impl Read + Write), content: &[u8]) {
    let mut requests = String::new();
    for (kind, from, to) in PATHS {
        requests +=
            &format!("GET /{kind}/{from}/{to} HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    requests += "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut client = Http1::new(stream);
    client.send(requests.as_bytes()).expect("the server reads");
    let mut next = |expected: &[u8], what: &str| {
        let response = client.response().unwrap_or_else(|error| panic!("{what}: {error}"));
        let length = expected.len().to_string();
        assert_eq!((response.status, response.field("content-length")), (200, Some(length.as_str())), "{what}");
        assert!(response.body == expected, "{what}");
    };
    for (kind, from, to) in PATHS {
        next(&content[*from..*to], &format!("{kind} {from} {to}"));
        next(b"hello", "the response after it");
    }
    next(b"hello", "the last response");
    assert_eq!(client.read_to_end(), Ok(Vec::new()));
}

#[test]
fn parts_arrive_in_order_among_other_answers() {
    let place = Place::new("order");
    let content = content();
    for engine in engines::available(engines::ALL) {
        let handle = place.app(engine).listen("127.0.0.1:0").expect("a port").start().expect("the server starts");
        pipelined(&mut connect(&handle, 0), &content);
        handle.shutdown();
        handle.join().expect("the server ends");
    }
}

#[test]
fn parts_arrive_under_tls() {
    let place = Place::new("tls");
    let content = content();
    let authority = Authority::new("servers");
    for engine in engines::available(engines::EVENT_LOOPS) {
        let server = place.app(engine).listen("127.0.0.1:0").expect("a port");
        let server = server.listen_tls("127.0.0.1:0", simple(&authority)).expect("another");
        let handle = server.start().expect("the server starts");
        let name = ServerName::try_from("a.example").expect("a name");
        let client = Client { alpn: &["http/1.1"], ..Client::of(&authority) };
        let client = ClientConnection::new(client.config(), name).expect("a client");
        pipelined(&mut StreamOwned::new(client, connect(&handle, 1)), &content);
        handle.shutdown();
        handle.join().expect("the server ends");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_cuts_the_connection_and_nothing_else() {
    for engine in engines::available(engines::ALL) {
        for kind in ["warm", "cold", "other"] {
            let place = Place::new(&format!("shrinks-{engine:?}-{kind}"));
            // The file is larger than all buffers between the server and the client, so its end is not sent yet when
            // the file shrinks.
            let longer = std::fs::File::options().write(true).open(place.0.join("file")).expect("the file");
            longer.set_len(64 << 20).expect("room for a hole");
            let handle = place.app(engine).listen("127.0.0.1:0").expect("a port").start().expect("the server starts");
            let mut stream = connect(&handle, 0);
            write!(stream, "GET /{kind}/0/{} HTTP/1.1\r\nHost: a\r\n\r\n", 64 << 20).expect("the server reads");
            let mut some = vec![0; 100_000];
            stream.read_exact(&mut some).expect("it begins");
            longer.set_len(1_000_000).expect("the file shrinks");
            let error = stream.read_to_end(&mut some).expect_err("the rest of the file is gone");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{engine:?} {kind} after {}", some.len());
            assert!(some.len() < 64 << 20, "{engine:?} {kind}");
            let answer = http1::get(&handle.addresses()[0], "/hello");
            assert!(answer.ends_with("hello"), "{engine:?} {kind}: {answer}");
            handle.shutdown();
            handle.join().expect("the server ends");
        }
    }
}

#[test]
fn a_peer_that_goes_away_in_the_middle_harms_nobody() {
    let place = Place::new("gone");
    let content = content();
    for engine in engines::available(engines::ALL) {
        let handle = place.app(engine).listen("127.0.0.1:0").expect("a port").start().expect("the server starts");
        for kind in ["warm", "cold", "other"] {
            for read in [0, 1, 200_000] {
                let mut stream = connect(&handle, 0);
                write!(stream, "GET /{kind}/0/{FILE_BYTES} HTTP/1.1\r\nHost: a\r\n\r\n").expect("the server reads");
                stream.read_exact(&mut vec![0; read]).expect("it begins");
            }
        }
        pipelined(&mut connect(&handle, 0), &content);
        handle.shutdown();
        handle.join().expect("the server ends");
    }
}
