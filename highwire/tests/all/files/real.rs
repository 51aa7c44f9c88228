//! Files over real sockets: paths that must not lead out of the folder, links that change while they are followed,
//! files that change while they are sent. Needs a real kernel, which keeps paths within the folder and sends the files.

use crate::engines;
use crate::folder::{Place, bytes};
use highwire::middleware::AccessLog;
use highwire::server::{Engine, Handle};
use highwire::{App, Files};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use testkit::http1;

fn start(prefix: &str, files: Files, engine: Engine) -> Handle {
    let app = App::new().files(prefix, files).configure(|config| {
        config.engine = engine;
        config.workers = 1;
    });
    app.listen("127.0.0.1:0").expect("a free port").start().expect("the server starts")
}

fn connect(handle: &Handle) -> TcpStream {
    http1::connect(&handle.addresses()[0])
}

/// Sends GET with exactly this target. Returns the status, the head and the body.
fn get(handle: &Handle, target: &[u8]) -> (u16, String, Vec<u8>) {
    get_with(handle, target, b"")
}

/// Does the same as [`get`], with more header lines.
fn get_with(handle: &Handle, target: &[u8], fields: &[u8]) -> (u16, String, Vec<u8>) {
    let front = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let request = [b"GET ", target, front, fields, b"\r\n"].concat();
    let answer = http1::exchange(connect(handle), request);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
    (status, head, answer[end..].to_vec())
}

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/files/escapes.txt");

/// Returns the bytes of a line of the corpus, in which `{outside}`, `\\` and escapes such as `\x00` are replaced.
fn target(line: &str, outside: &str) -> Vec<u8> {
    let line = line.replace("{outside}", outside);
    let mut bytes = Vec::new();
    let mut rest = line.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                after
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("two digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two hex digits"));
                after
            }
            _ => {
                bytes.push(byte);
                after
            }
        };
    }
    bytes
}

const SECRET: &str = "what nobody may see";

/// Returns the folder that the corpus describes.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    for path in ["a.txt", "inner/a.txt"] {
        place.write(path, "a file");
    }
    place.write(".hidden/secret.txt", SECRET);
    place.write("../secret.txt", SECRET);
    place.write("../root-other/secret.txt", SECRET);
    let outside = place.0.to_str().expect("a path in UTF-8");
    let secret = format!("{outside}/secret.txt");
    for (link, to) in [
        ("up", ".."),
        ("up-file", "../secret.txt"),
        ("inner/up2", "../.."),
        ("absolute", outside),
        ("absolute-file", &secret),
        ("system", "/"),
        ("process", "/proc/self/root"),
        ("chain", "chain2"),
        ("chain2", "up-file"),
        ("loop", "loop"),
        ("inner/deep", "../up/root/../secret.txt"),
    ] {
        symlink(to, place.root().join(link)).expect("a link");
    }
    place
}

#[test]
fn no_spelling_of_a_path_leads_out_of_the_folder() {
    let corpus = fs::read_to_string(CORPUS).expect("the corpus");
    let place = place("escapes");
    let outside = place.0.to_str().expect("a path in UTF-8");
    let below = start("/static", place.files().listing(), Engine::Readiness);
    let at_root = start("/", place.files().listing(), Engine::Readiness);
    let (mut within, mut out) = (0, 0);
    for line in corpus.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (is_within, path) = line.strip_prefix("= ").map_or((false, line), |path| (true, path));
        for (handle, path) in [(&below, Some(path)), (&at_root, path.strip_prefix("/static"))] {
            let Some(path) = path.filter(|path| !path.is_empty()) else { continue };
            let (status, head, body) = get(handle, &target(path, outside));
            let body = String::from_utf8_lossy(&body);
            if is_within {
                assert_eq!((status, &*body), (200, "a file"), "{line}: {head}");
                within += 1;
                continue;
            }
            out += 1;
            for secret in [SECRET, "root:x:", "secret.txt", "root-other"] {
                assert!(!body.contains(secret), "{line}: {head}{body}");
            }
            let is_refused = matches!(status, 400 | 404) || status == 308 && !head.contains("location: //");
            let is_listing = status == 200 && body.contains("<a href=\"./inner/\">");
            assert!(is_refused || is_listing, "{line}: {head}{body}");
        }
    }
    assert!(within > 10 && out > 800, "the corpus is incomplete: {within} paths within, {out} out");
    // The server still works.
    assert_eq!(get(&below, b"/static/a.txt").2, b"a file");
    for handle in [below, at_root] {
        handle.abort();
        handle.join().expect("the server ends");
    }
}

#[test]
fn a_link_that_changes_while_it_is_followed_leads_nowhere_else() {
    let place = place("swap");
    let root = place.root();
    symlink("inner", root.join("now")).expect("a link");
    let handle = start("/static", place.files().cache_bytes(0), Engine::Auto);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Replaces the link atomically by one that leads within the folder or out of it. Also moves the folder
            // `inner` out and back.
            let links = ["inner", "..", "up", "inner/up2", "inner/../inner"];
            for to in links.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                let new = root.join("next");
                symlink(to, &new).and_then(|()| fs::rename(&new, root.join("now"))).expect("a new link");
                let (moved, inner) = (place.0.join("moved"), root.join("inner"));
                fs::rename(&inner, &moved).and_then(|()| fs::rename(&moved, &inner)).expect("the folder moves");
            }
        });
        let end = scope.spawn(|| {
            let mut statuses = std::collections::BTreeMap::new();
            for _ in 0..500 {
                for path in
                    ["now/a.txt", "now/secret.txt", "now/../secret.txt", "now/root-other/secret.txt", "inner/a.txt"]
                {
                    let (status, _, body) = get(&handle, format!("/static/{path}").as_bytes());
                    assert!(!String::from_utf8_lossy(&body).contains(SECRET), "{path}");
                    *statuses.entry(status).or_insert(0) += 1;
                }
            }
            statuses
        });
        let statuses = end.join();
        stop.store(true, Ordering::Relaxed);
        let statuses = statuses.expect("no secret");
        assert!(statuses.keys().all(|status| [200, 404].contains(status)), "{statuses:?}");
    });
    assert_eq!(get(&handle, b"/static/inner/a.txt").2, b"a file");
    handle.abort();
    handle.join().expect("the server ends");
}

/// A number of bytes that is far larger than sockets and the server hold for a peer that does not read.
const LARGE: u64 = 64 << 20;

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection_alone() {
    let place = Place::new("shrinks");
    place.write("small.txt", "small");
    for engine in engines::available(engines::ALL) {
        place.write("large.bin", "");
        let file = fs::File::options().write(true).open(place.root().join("large.bin")).expect("a file");
        file.set_len(LARGE).expect("room for its length");
        let handle = start("/", place.files(), engine);
        let mut stream = connect(&handle);
        stream.write_all(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n").expect("the server reads");
        let mut begin = vec![0; 100_000];
        stream.read_exact(&mut begin).expect("the beginning");
        let announced = format!("Content-Length: {LARGE}\r\n");
        assert!(String::from_utf8_lossy(&begin).contains(&announced), "{engine:?}");
        file.set_len(1000).expect("the file shrinks");
        let mut rest = Vec::new();
        // The connection ends by a reset or a close. In both cases the response is incomplete.
        let _ = stream.read_to_end(&mut rest);
        assert!(((begin.len() + rest.len()) as u64) < LARGE, "{engine:?}: {} bytes", rest.len());
        assert_eq!(get(&handle, b"/small.txt").2, b"small", "{engine:?}: other files are served");
        assert_eq!(get(&handle, b"/large.bin").2.len(), 1000, "{engine:?}: the rest of the file is served");
        handle.abort();
        handle.join().expect("the server ends");
    }
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn large_files_and_large_parts_of_them_arrive_and_are_counted() {
    let place = Place::new("large");
    let whole = bytes(3_000_000);
    place.write("large.bin", &whole);
    for engine in engines::available(engines::ALL) {
        let log = Log::default();
        let app = App::new().files("/", place.files()).with(AccessLog::common(log.clone())).configure(|config| {
            config.engine = engine;
            config.workers = 1;
        });
        let handle = app.listen("127.0.0.1:0").expect("a free port").start().expect("the server starts");
        let all = get(&handle, b"/large.bin");
        assert!(all.0 == 200 && all.2 == whole, "{engine:?}: {} of {} bytes", all.2.len(), whole.len());
        // The second part is too short for the kernel to send it from the file. The parts around it are long enough.
        let ranges = [(1, 700_000), (800_000, 800_009), (900_000, 2_999_999)];
        let parts = get_with(&handle, b"/large.bin", b"Range: bytes=1-700000,800000-800009,900000-2999999\r\n");
        let boundary = parts.1.split("boundary=").nth(1).and_then(|rest| rest.lines().next()).expect("a boundary");
        let mut expected = Vec::new();
        for (first, last) in ranges {
            let line_end = if first == 1 { "" } else { "\r\n" };
            let head = format!("{line_end}--{boundary}\r\nContent-Type: application/octet-stream\r\n");
            expected.extend_from_slice(format!("{head}Content-Range: bytes {first}-{last}/3000000\r\n\r\n").as_bytes());
            expected.extend_from_slice(&whole[first..=last]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(parts.0 == 206 && parts.2 == expected, "{engine:?}: {} of {}", parts.2.len(), expected.len());
        handle.shutdown();
        handle.join().expect("the server ends");
        let log = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("a log in UTF-8");
        let sent: Vec<_> = log.lines().map(|line| line.rsplit_once("\" ").expect("a status").1).collect();
        assert_eq!(sent, ["200 3000000".to_string(), format!("206 {}", expected.len())], "{engine:?}");
    }
}

#[test]
fn large_files_that_are_kept_open_are_sent_between_other_answers() {
    let place = Place::new("kept");
    // The second file is larger than a socket takes at once.
    let (one, step) = (bytes(100_000), bytes(540_000));
    place.write("one.bin", &one);
    place.write("step.bin", &step);
    place.write("small.txt", "small");
    let head = |method: &str, path: &str, more: &str| format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let requests = [
        head("GET", "/one.bin", ""),
        head("HEAD", "/step.bin", ""),
        head("GET", "/step.bin", ""),
        head("GET", "/small.txt", ""),
        head("GET", "/step.bin", "Range: bytes=0-99999\r\n"),
        head("GET", "/one.bin", ""),
        head("GET", "/step.bin", "Connection: close\r\n"),
    ];
    let bodies: [&[u8]; 7] = [&one, b"", &step, b"small", &step[..100_000], &one, &step];
    for engine in engines::available(engines::ALL) {
        let handle = start("/", place.files(), engine);
        for round in 0..3 {
            let answers = http1::exchange(connect(&handle), requests.concat());
            let mut rest = &answers[..];
            for (request, body) in requests.iter().zip(bodies) {
                let end = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
                let at = format!("{engine:?}, round {round}: {request}");
                assert!(rest.starts_with(b"HTTP/1.1 20"), "{at}");
                assert!(rest[end..].starts_with(body), "{at}");
                rest = &rest[end + body.len()..];
            }
            assert!(rest.is_empty(), "{engine:?}: {} bytes more", rest.len());
        }
        handle.shutdown();
        handle.join().expect("the server ends");
    }
}
