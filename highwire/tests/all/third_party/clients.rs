//! The features of this crate as third-party programs use them: curl, wget and Python's requests against one app, over
//! HTTP/1 and HTTP/2, with and without TLS, on both engines that support HTTP/2 and TLS.
//!
//! Needs a real kernel, because the clients are separate programs.

use crate::everything;
use crate::everything::{CHANGED, LARGE, NOTHING, Site, sum, text};
use crate::folder::{Place, bytes};
use crate::programs::{attempt, not_run, on_every_engine, output, output_text, program, python_with};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;

on_every_engine! {
    uring, readiness:
    [curl_sends_forms, curl_sends_json, curl_keeps_a_jar_of_cookies, curl_shows_who_it_is, curl_gets_parts_of_files,
     curl_asks_whether_a_file_has_changed, curl_decodes_what_is_compressed, curl_follows_redirects, curl_uploads,
     curl_prints_trailers, curl_prints_events_as_they_come, wget_goes_on_where_it_stopped, python_requests]
}

/// The scheme and the option of curl for each protocol.
const WAYS: [(&str, &str); 4] =
    [("http", "--http1.1"), ("http", "--http2-prior-knowledge"), ("https", "--http1.1"), ("https", "--http2")];

/// curl, a server for it, and the files of both.
struct Curl {
    program: PathBuf,
    site: Site,
    place: Place,
}

/// A response, as curl prints it with `--include`.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// In lower case.
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// Checks the status and the body.
    fn check(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.text()), (status, body), "{}", self.head);
    }
}

impl Curl {
    /// Returns the protocols by which this curl can send a second request on a connection. Some versions before 8.0
    /// cannot do so over HTTP/2 without TLS.
    fn ways_to_ask_again(&self) -> Vec<(&'static str, &'static str)> {
        let is_old = output_text(&self.program, &["--version"]).starts_with("curl 7.");
        WAYS.into_iter().filter(|way| !is_old || *way != ("http", "--http2-prior-knowledge")).collect()
    }

    /// Starts a server. If curl is not installed or lacks HTTP/2, TLS or gzip, prints that and returns `None`.
    fn new(test: &str, engine: &str) -> Option<Curl> {
        let program = program(&["curl"])?;
        let version = output_text(&program, &["--version"]);
        if !["HTTP2", "SSL", "libz"].iter().all(|feature| version.contains(feature)) {
            not_run(&format!("this curl lacks HTTP/2, TLS or gzip: {version}"));
            return None;
        }
        let place = everything::place(&format!("curl-{test}-{engine}"));
        let site = Site::start(engine, everything::app(&place, mpsc::channel().0))?;
        Some(Curl { program, site, place })
    }

    /// Writes a file for the test. Returns its path.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    fn path(&self, name: &str) -> String {
        self.place.0.join(name).display().to_string()
    }

    fn arguments<'a>(&self, way: (&'a str, &'a str), arguments: &[&'a str], url: &'a str) -> Vec<&'a str> {
        let fixed = ["--silent", "--show-error", "--insecure", "--max-time", "60", way.1];
        [&fixed[..], arguments, &[url]].concat()
    }

    /// Runs curl. Returns the last of the responses that it prints.
    fn ask(&self, way: (&str, &str), arguments: &[&str], path: &str) -> Answer {
        let url = self.site.url(way.0, path);
        let said = output(&self.program, &self.arguments(way, &[&["--include"], arguments].concat(), &url));
        let mut rest = &said[..];
        loop {
            let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the end of a head") + 4;
            let head = String::from_utf8_lossy(&rest[..end]).to_lowercase();
            rest = &rest[end..];
            let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
            // Skips interim responses and redirects.
            if !rest.starts_with(b"HTTP/") {
                return Answer { status, head, body: rest.to_vec() };
            }
        }
    }
}

fn curl_sends_forms(engine: &str) {
    let Some(curl) = Curl::new("forms", engine) else { return };
    let (note, page) = (curl.write("note", "from a\r\nfile & more"), curl.write("p\u{e4}ge;1.html", "<p>a page"));
    for way in WAYS {
        let urlencoded = ["--data-urlencode", "name=a b&c=\u{e9}", "--data-urlencode", &format!("note@{note}")];
        let more = ["--data", "plain=1+1"];
        let answer = curl.ask(way, &[&urlencoded[..], &more].concat(), "/form");
        answer.check(200, r#"{"name":"a b&c=é","note":"from a\r\nfile & more","plain":"1 1"}"#);
        curl.ask(way, &["--form-string", "name=@no file"], "/form").check(200, r#"{"name":"@no file"}"#);
        let file = format!("file=@\"{page}\"");
        let parts = ["--form-string", "name=a b", "--form", &file, "--form", &format!("note=<{note}")];
        curl.ask(way, &parts, "/parts").check(
            200,
            concat!(
                r#"[{"name":"name","file":null,"media_type":null,"text":"a b"},"#,
                r#"{"name":"file","file":"päge;1.html","media_type":"text/html","text":"<p>a page"},"#,
                r#"{"name":"note","file":null,"media_type":null,"text":"from a\r\nfile & more"}]"#
            ),
        );
        assert_eq!(curl.ask(way, &["--data", "a=%zz"], "/form").status, 400);
        assert_eq!(curl.ask(way, &["--form-string", "name=a"], "/json").status, 415);
    }
}

fn curl_sends_json(engine: &str) {
    let Some(curl) = Curl::new("json", engine) else { return };
    if !output_text(&curl.program, &["--help", "all"]).contains("--json") {
        return not_run("this curl does not know --json");
    }
    for way in WAYS {
        curl.ask(way, &["--json", r#"{"a": [1, "é"]}"#], "/json").check(200, r#"{"a":[1,"é"]}"#);
        let wrong = curl.ask(way, &["--json", "{"], "/json");
        assert_eq!(wrong.status, 400, "{wrong:?}");
        assert!(wrong.head.contains("content-type: application/problem+json\r\n"), "{}", wrong.head);
    }
}

fn curl_keeps_a_jar_of_cookies(engine: &str) {
    let Some(curl) = Curl::new("cookies", engine) else { return };
    for way in WAYS {
        let jar = curl.write("jar", "");
        let with_jar = ["--cookie", &jar, "--cookie-jar", &jar];
        let ask = |path: &str| curl.ask(way, &with_jar, path);
        ask("/cookies/set").check(200, "set");
        ask("/cookies").check(200, "{\"hidden\":\"a b;\u{e9}\",\"seen\":\"a b;\u{e9}\",\"strict\":\"a b;\u{e9}\"}");
        let kept = std::fs::read_to_string(&jar).expect("the jar");
        assert_eq!(kept.matches("#HttpOnly_").count(), 1, "{kept}");
        // Not every version of curl removes the cookies from its jar, so this checks the fields only.
        let removed = ask("/cookies/remove");
        removed.check(200, "removed");
        assert_eq!(removed.head.matches("; max-age=0;").count(), 3, "{}", removed.head);
        for (path, name) in [("/count", "session"), ("/signed", "visits")] {
            for visit in 1..4 {
                ask(path).check(200, &visit.to_string());
            }
            // Without the cookie, and with a changed cookie, the count begins anew.
            curl.ask(way, &[], path).check(200, "1");
            let kept = std::fs::read_to_string(&jar).expect("the jar");
            let value = kept.lines().find_map(|line| line.split_once(&format!("\t{name}\t"))).expect("the cookie").1;
            curl.ask(way, &["--cookie", &format!("{name}={value}")], path).check(200, "4");
            let changed = format!("{name}={}", value.chars().rev().collect::<String>());
            curl.ask(way, &["--cookie", &changed], path).check(200, "1");
        }
    }
}

fn curl_shows_who_it_is(engine: &str) {
    let Some(curl) = Curl::new("auth", engine) else { return };
    for way in WAYS {
        curl.ask(way, &["--user", "ada:s\u{e9}:cret"], "/basic").check(200, "hello ada");
        if curl.ways_to_ask_again().contains(&way) {
            curl.ask(way, &["--anyauth", "--user", "ada:s\u{e9}:cret"], "/basic").check(200, "hello ada");
        }
        curl.ask(way, &["--oauth2-bearer", "x1y2"], "/bearer").check(200, "come in");
        for (arguments, path, challenge) in [
            (&["--user", "ada:s\u{e9}"][..], "/basic", "basic realm="),
            (&[], "/basic", "basic realm="),
            (&["--oauth2-bearer", "x1y"], "/bearer", "bearer realm="),
            (&["--user", "ada:s\u{e9}:cret"], "/bearer", "bearer realm="),
        ] {
            let answer = curl.ask(way, arguments, path);
            assert_eq!(answer.status, 401, "{arguments:?} {path}");
            assert!(answer.head.contains(&format!("www-authenticate: {challenge}")), "{path}: {}", answer.head);
        }
    }
}

fn curl_gets_parts_of_files(engine: &str) {
    let Some(curl) = Curl::new("ranges", engine) else { return };
    let whole = bytes(LARGE);
    for way in WAYS {
        for (range, part, named) in [
            ("0-99", 0..100, "0-99"),
            ("-11", LARGE - 11..LARGE, "3000000-3000010"),
            ("1500000-", 1_500_000..LARGE, "1500000-3000010"),
        ] {
            let answer = curl.ask(way, &["--range", range], "/files/large.bin");
            assert_eq!(answer.status, 206, "{range}");
            assert!(answer.body == whole[part], "{range}: {} bytes", answer.body.len());
            assert!(answer.head.contains(&format!("content-range: bytes {named}/{LARGE}\r\n")), "{}", answer.head);
        }
        let answer = curl.ask(way, &["--range", "0-9,1000-1009"], "/files/large.bin");
        assert_eq!(answer.status, 206);
        assert!(answer.head.contains("content-type: multipart/byteranges; boundary="), "{}", answer.head);
        for part in [&whole[..10], &whole[1000..1010]] {
            assert!(answer.body.windows(part.len()).any(|bytes| bytes == part));
        }
        assert_eq!(curl.ask(way, &["--range", "3000011-"], "/files/large.bin").status, 416);
        // Continues downloads that were cut at several places.
        for cut in [0, 1, 1_234_567, LARGE - 1] {
            let (begun, url) = (curl.write("begun", &whole[..cut]), curl.site.url(way.0, "/files/large.bin"));
            let resume = ["--fail", "--continue-at", "-", "--output", &begun];
            output(&curl.program, &curl.arguments(way, &resume, &url));
            assert!(std::fs::read(&begun).expect("the file") == whole, "from {cut}");
        }
    }
}

fn curl_asks_whether_a_file_has_changed(engine: &str) {
    let Some(curl) = Curl::new("conditions", engine) else { return };
    for way in WAYS {
        for (since, status) in [
            (CHANGED, 304),
            ("15 Jan 2021 07:59:59 GMT", 200),
            ("15 Jan 2022", 304),
            ("-15 Jan 2021 07:59:59 GMT", 412),
        ] {
            let answer = curl.ask(way, &["--time-cond", since], "/files/text.txt");
            assert_eq!(answer.status, status, "{since}: {}", answer.head);
            assert_eq!(answer.text() == text(2000), status == 200, "{since}");
        }
        for coding in [&[][..], &["--compressed"]] {
            let tag = curl.path("tag");
            let saved = curl.ask(way, &[coding, &["--etag-save", &tag]].concat(), "/files/text.txt");
            saved.check(200, &text(2000));
            let again = curl.ask(way, &[coding, &["--etag-compare", &tag]].concat(), "/files/text.txt");
            again.check(304, "");
            let other = curl.write("other", "\"another\"");
            curl.ask(way, &["--etag-compare", &other], "/files/text.txt").check(200, &text(2000));
        }
    }
}

fn curl_decodes_what_is_compressed(engine: &str) {
    let Some(curl) = Curl::new("compressed", engine) else { return };
    for way in WAYS {
        for path in ["/text", "/files/text.txt"] {
            let answer = curl.ask(way, &["--compressed"], path);
            answer.check(200, &text(2000));
            assert!(answer.head.contains("\r\ncontent-encoding: "), "{}", answer.head);
            let plain = curl.ask(way, &[], path);
            plain.check(200, &text(2000));
            assert!(!plain.head.contains("content-encoding"), "{}", plain.head);
            for answer in [answer, plain] {
                assert!(answer.head.contains("\r\nvary: accept-encoding\r\n"), "{}", answer.head);
            }
        }
    }
}

fn curl_follows_redirects(engine: &str) {
    let Some(curl) = Curl::new("redirects", engine) else { return };
    for way in curl.ways_to_ask_again() {
        for (path, status, body) in [
            ("/see-other", 303, "GET "),
            ("/temporary", 307, "POST some text"),
            // Redirects to /temporary, which redirects again.
            ("/permanent", 308, "POST some text"),
        ] {
            let post = ["--data", "some text"];
            assert_eq!(curl.ask(way, &post, path).status, status, "{path}");
            curl.ask(way, &[&post[..], &["--location"]].concat(), path).check(200, body);
        }
        let folder = curl.ask(way, &["--location"], "/files/inner?a=1");
        assert_eq!(folder.status, 200);
        assert!(folder.text().contains("a%20b.txt"), "{folder:?}");
    }
}

fn curl_uploads(engine: &str) {
    let Some(curl) = Curl::new("uploads", engine) else { return };
    let content = bytes(LARGE);
    let (file, none) = (curl.write("upload", &content), curl.write("none", ""));
    let expected = format!("{LARGE} {}", sum(content.iter().copied(), NOTHING));
    for way in WAYS {
        curl.ask(way, &["--upload-file", &file], "/store/named").check(201, &format!("named {expected}"));
        // curl appends the name of the file to a URL that ends in a slash.
        let missing = curl.ask(way, &["--upload-file", &file], "/store/");
        missing.check(201, &format!("upload {expected}"));
        curl.ask(way, &["--upload-file", &none], "/store/none").check(201, &format!("none 0 {NOTHING}"));
        let url = curl.site.url(way.0, "/store/piped");
        let (succeeded, said) = attempt(&curl.program, &curl.arguments(way, &["--upload-file", "-"], &url), &content);
        assert!(succeeded && said == format!("piped {expected}"), "{said}");
    }
}

fn curl_prints_trailers(engine: &str) {
    let Some(curl) = Curl::new("trailers", engine) else { return };
    for way in WAYS {
        let (head, url) = (curl.path("head"), curl.site.url(way.0, "/trailers"));
        let arguments = ["--dump-header", &head, "--header", "TE: trailers"];
        assert_eq!(output(&curl.program, &curl.arguments(way, &arguments, &url)), b"one two");
        let head = std::fs::read_to_string(head).expect("curl's header file").to_lowercase();
        let (_, trailers) = head.split_once("\r\n\r\n").expect("the end of the head");
        assert_eq!(trailers.trim_end(), "etag: \"the sum\"", "{way:?}: {head}");
    }
}

fn curl_prints_events_as_they_come(engine: &str) {
    let Some(curl) = Curl::new("events", engine) else { return };
    for (number, way) in WAYS.into_iter().enumerate() {
        for coding in [&[][..], &["--compressed"]] {
            let gate = format!("{number}-{}", coding.len());
            let url = curl.site.url(way.0, &format!("/events/{gate}"));
            let mut command = Command::new(&curl.program);
            command.args(curl.arguments(way, &[coding, &["--no-buffer"]].concat(), &url)).stdout(Stdio::piped());
            let mut child = command.spawn().expect("curl starts");
            let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
            let mut first = String::new();
            while !first.ends_with("\n\n") {
                assert_ne!(lines.read_line(&mut first).expect("text"), 0, "curl ended after {first:?}");
            }
            assert_eq!(first, "data: one\ndata: and a half\nevent: word\nid: 1\n\n");
            // The server sends the second event only after this request, so it has not held back the first one.
            assert_eq!(curl.ask(way, &["--request", "POST"], &format!("/open/{gate}")).status, 204);
            let mut rest = String::new();
            lines.read_to_string(&mut rest).expect("text");
            assert_eq!(rest, "data: two\nid: 2\n\n");
            assert!(child.wait().expect("a status").success());
        }
    }
}

fn wget_goes_on_where_it_stopped(engine: &str) {
    let Some(program) = program(&["wget"]) else { return };
    let place = everything::place(&format!("wget-{engine}"));
    let Some(site) = Site::start(engine, everything::app(&place, mpsc::channel().0)) else { return };
    let whole = bytes(LARGE);
    for scheme in ["http", "https"] {
        for cut in [0, 1, 2_345_678, LARGE] {
            let folder = place.0.join(format!("{scheme}-{cut}"));
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("large.bin"), &whole[..cut]).expect("a file");
            let prefix = format!("--directory-prefix={}", folder.display());
            let url = site.url(scheme, "/files/large.bin");
            output(&program, &["--continue", "--no-verbose", "--tries=1", "--no-check-certificate", &prefix, &url]);
            assert!(std::fs::read(folder.join("large.bin")).expect("the file") == whole, "{scheme} from {cut}");
        }
    }
}

fn python_requests(engine: &str) {
    let python = python_with("requests, brotli").or_else(|| python_with("requests"));
    let Some(python) = python else {
        return not_run("requests for Python is not installed");
    };
    let place = everything::place(&format!("requests-{engine}"));
    let Some(site) = Site::start(engine, everything::app(&place, mpsc::channel().0)) else { return };
    let expected = sum(bytes(LARGE), NOTHING).to_string();
    let file = place.root().join("large.bin").display().to_string();
    for scheme in ["http", "https"] {
        let said = output_text(
            &python,
            &["-c", include_str!("../everything/requests.py"), &site.url(scheme, ""), &file, &expected],
        );
        let (missing, done) = said.rsplit_once("done\n").expect("the script prints `done` at its end");
        assert_eq!(done, "");
        missing.lines().for_each(|coding| not_run(&format!("requests in this Python cannot decode {coding}")));
    }
}
