//! Tests `highwire demo` over HTTP/2 with third-party clients: curl, nghttp, h2load, Node.js, Go and httpx, on both engines
//! that support HTTP/2. All use cleartext with prior knowledge, and all but curl also TLS; `tls.rs` tests curl under
//! TLS.
//!
//! Needs a real kernel, because the clients are separate programs.

use crate::demo::Demo;
use crate::programs::{Folder, not_run, on_every_engine, output, output_text, program, python_with, random_bytes};
use std::path::{Path, PathBuf};

on_every_engine! {
    uring, readiness:
    [curl_asks_every_route, curl_uploads_and_downloads, curl_keeps_its_connection, nghttp, h2load, node, go, httpx,
     both_protocols_share_a_port]
}

/// Options for a cleartext and a TLS listener, for clients that test both.
const BOTH: [&str; 5] = ["--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--tls-self-signed"];

/// Returns the root URLs of both listeners, each with h2load's name of its protocol.
fn both(demo: &Demo) -> [(String, &'static str); 2] {
    [(demo.url(""), "h2c"), (demo.tls_url(""), "h2")]
}

const PRIOR: &str = "--http2-prior-knowledge";

/// Returns the path of curl if it is installed and supports HTTP/2.
fn curl_with_http2() -> Option<PathBuf> {
    let program = program(&["curl"])?;
    if output_text(&program, &["--version"]).contains("HTTP2") {
        return Some(program);
    }
    not_run("curl has no HTTP/2");
    None
}

/// Runs curl with `--include`. Returns the final answer's head in lower case and its body.
fn curl(program: &Path, arguments: &[&str]) -> (String, Vec<u8>) {
    let fixed = [PRIOR, "--silent", "--show-error", "--include", "--max-time", "30"];
    let mut rest = &output(program, &[&fixed[..], arguments].concat())[..];
    loop {
        let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the end of a head") + 4;
        let head = String::from_utf8_lossy(&rest[..end]).to_lowercase();
        rest = &rest[end..];
        if !head.starts_with("http/2 1") {
            return (head, rest.to_vec());
        }
    }
}

fn curl_asks_every_route(engine: &str) {
    let Some(program) = curl_with_http2() else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let letters = &"x".repeat(200_000)[..];
    let large = "some text ".repeat(50_000);
    let folder = Folder::new(&format!("routes-{engine}"));
    let file = format!("@{}", folder.path("file"));
    std::fs::write(folder.path("file"), &large).expect("a file");
    let continues = "Expect: 100-continue";
    let cases: &[(&[&str], &str, u16, &str, &str)] = &[
        (&[], "/hello", 200, "content-length: 13\r\n", "Hello, World!"),
        (&[], "/echo?a=1&b=x%20y", 200, "content-type: application/json", r#"{"query":{"a":"1","b":"x y"}}"#),
        (&[], "/users/42", 200, "text/plain", "user 42\n"),
        (&["--data", "some text"], "/body", 200, "content-length: 9\r\n", "some text"),
        (&["--data", "some text", "--header", continues], "/body", 200, "", "some text"),
        (&["--data-binary", &file], "/body", 200, "content-length: 500000\r\n", &large),
        (&["--data", ""], "/body", 200, "content-length: 0\r\n", ""),
        (&[], "/stream?bytes=200000", 200, "", letters),
        (&[], "/stream?bytes=0", 200, "", ""),
        (&[], "/sleep?ms=20", 200, "", "slept 20 ms\n"),
        (&[], "/block?ms=20", 200, "", "blocked 20 ms\n"),
        (&["--head"], "/hello", 200, "content-length: 13\r\n", ""),
        (&["--head"], "/stream?bytes=10", 200, "", ""),
        (&["--request", "OPTIONS"], "/hello", 204, "allow: get, head, options\r\n", ""),
    ];
    for &(arguments, path, status, field, body) in cases {
        let (head, came) = curl(&program, &[arguments, &[&demo.url(path)]].concat());
        assert!(head.starts_with(&format!("http/2 {status} ")), "{arguments:?} {path}: {head}");
        assert!(head.contains(field), "{arguments:?} {path}: {field:?} is missing in\n{head}");
        assert!(came == body.as_bytes(), "{arguments:?} {path}: a wrong body of {} bytes", came.len());
        for field in ["\r\nconnection:", "\r\ntransfer-encoding:", "\r\nkeep-alive:"] {
            assert!(!head.contains(field), "{path}: a field of HTTP/1 in\n{head}");
        }
    }
    // The texts of these bodies may change, so the test checks only that no body is empty.
    for (method, path, status, field) in [
        ("GET", "/", 200, "content-type: text/html"),
        ("GET", "/nothing/here", 404, ""),
        ("DELETE", "/hello", 405, "allow: get, head, options\r\n"),
        ("PUT", "/body", 405, "allow: post, options\r\n"),
        ("GET", "/stream?bytes=many", 400, ""),
    ] {
        let (head, body) = curl(&program, &["--request", method, &demo.url(path)]);
        assert!(head.starts_with(&format!("http/2 {status} ")), "{method} {path}: {head}");
        assert!(head.contains(field), "{method} {path}: {field:?} is missing in\n{head}");
        assert!(!body.is_empty(), "{method} {path}: the body is empty");
    }
}

/// The size of an upload, which is not a multiple of a buffer size.
const UPLOAD_BYTES: usize = 50_000_011;

fn curl_uploads_and_downloads(engine: &str) {
    let (Some(program), Some(sum)) = (curl_with_http2(), program(&["sha256sum"])) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let folder = Folder::new(&format!("upload-{engine}"));
    let (file, at_file) = (folder.path("file"), format!("@{}", folder.path("file")));
    std::fs::write(&file, random_bytes(UPLOAD_BYTES, 1)).expect("a file");
    let sum = output_text(&sum, &[&file]);
    let sum = sum.split(' ').next().expect("a word");
    let expected = format!("{{\"bytes\":{UPLOAD_BYTES},\"sha256\":\"{sum}\"}}\n");
    let fixed = [PRIOR, "--silent", "--show-error", "--max-time", "300"];
    for arguments in [&["--data-binary", &at_file][..], &["--upload-file", &file, "--request", "POST"]] {
        let answer = output_text(&program, &[&fixed[..], arguments, &[&demo.url("/upload")]].concat());
        assert_eq!(answer, expected, "{arguments:?}");
    }
    // The file is too large for a handler that takes the body whole. A reset must not destroy the answer while curl
    // still sends.
    let (head, _) = curl(&program, &["--data-binary", &at_file, &demo.url("/body")]);
    assert!(head.starts_with("http/2 413 "), "{head}");
    let counts = ["--output", "/dev/null", "--write-out", "%{http_code} %{http_version} %{size_download}"];
    let counted = output_text(&program, &[&fixed[..], &counts, &[&demo.url("/stream?bytes=100000000")]].concat());
    assert_eq!(counted, "200 2 100000000");
}

fn curl_keeps_its_connection(engine: &str) {
    let Some(program) = curl_with_http2() else { return };
    let version = output_text(&program, &["--version"]);
    if version.starts_with("curl 7.8") {
        // curl 7.87 and 7.88 have a bug in reusing such connections: https://github.com/curl/curl/pull/10643.
        return not_run("reusing a connection by prior knowledge, which this curl cannot");
    }
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let mut arguments =
        vec![PRIOR, "--silent", "--show-error", "--max-time", "30", "--write-out", "%{http_code} %{num_connects}\n"];
    let urls = ["/hello", "/users/7", "/stream?bytes=300000", "/nothing", "/sleep?ms=1", "/block?ms=1"];
    let urls: Vec<String> = urls.iter().map(|path| demo.url(path)).collect();
    for url in &urls {
        arguments.extend(["--output", "/dev/null", url]);
    }
    assert_eq!(output_text(&program, &arguments), "200 1\n200 0\n200 0\n404 0\n200 0\n200 0\n");
}

fn nghttp(engine: &str) {
    let Some(program) = program(&["nghttp"]) else { return };
    let Some(demo) = Demo::start(engine, &BOTH) else { return };
    let paths =
        [("/hello", 200), ("/stream?bytes=3000000", 200), ("/sleep?ms=50", 200), ("/block?ms=50", 200), ("/no", 404)];
    let folder = Folder::new(&format!("nghttp-{engine}"));
    let file = folder.path("file");
    std::fs::write(&file, "x".repeat(700_000)).expect("a file");
    for (root, _) in both(&demo) {
        let urls = paths.map(|(path, _)| format!("{root}{path}"));
        for window in ["16", "24"] {
            let mut arguments = vec!["-n", "-s", "-w", window, "-W", window];
            arguments.extend(urls.iter().map(String::as_str));
            let report = output_text(&program, &arguments);
            for (path, status) in paths {
                // The columns are a number, three times, the status, the size and the path.
                let line = report.lines().find(|line| line.ends_with(&format!(" {path}")));
                let line = line.unwrap_or_else(|| panic!("{root}{path} was not answered:\n{report}"));
                let words: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(words.get(4), Some(&status.to_string().as_str()), "{root}{path}:\n{report}");
            }
        }
        // Sends the same upload on five streams at the same time.
        let url = format!("{root}/body");
        let came = output(&program, &["-H", ":method: POST", "-d", &file, "-m", "5", &url]);
        assert!(came == "x".repeat(5 * 700_000).as_bytes(), "{url}: {} bytes came back", came.len());
    }
}

fn h2load(engine: &str) {
    let Some(program) = program(&["h2load"]) else { return };
    let Some(demo) = Demo::start(engine, &BOTH) else { return };
    for (root, protocol) in both(&demo) {
        for (clients, streams, path, count) in [
            ("16", "32", "/hello", "8000"),
            ("1", "100", "/hello", "8000"),
            ("16", "32", "/stream?bytes=20000", "2000"),
            ("1", "100", "/sleep?ms=5", "2000"),
            ("1", "100", "/block?ms=1", "500"),
        ] {
            let url = format!("{root}{path}");
            let report = output_text(&program, &["-n", count, "-c", clients, "-m", streams, &url]);
            assert!(report.contains(&format!("Application protocol: {protocol}\n")), "{url}: {report}");
            assert!(report.contains(&format!(" {count} succeeded, 0 failed, 0 errored, 0 timeout")), "{url}: {report}");
            assert!(report.contains(&format!("status codes: {count} 2xx, ")), "{url}: {report}");
        }
    }
}

const NODE: &str = r#"
const http2 = require("http2"), assert = require("assert");
const session = http2.connect(process.argv[1], { rejectUnauthorized: false });
session.on("error", (error) => { console.error(error); process.exit(1); });
const ask = (method, path, status, body, parts) => new Promise((resolve, reject) => {
  const stream = session.request({ ":method": method, ":path": path }, { endStream: !parts });
  let read = "", got;
  stream.setEncoding("utf8");
  stream.setTimeout(30000, () => reject(new Error("no answer: " + path)));
  stream.on("response", (head) => { got = head[":status"]; });
  stream.on("data", (part) => { read += part; });
  stream.on("error", reject);
  stream.on("end", () => {
    try { assert.deepStrictEqual([got, read], [status, body], path); resolve(); } catch (error) { reject(error); }
  });
  for (const part of parts || []) stream.write(part);
  if (parts) stream.end();
});
(async () => {
  const large = "y".repeat(400000);
  await Promise.all([
    ask("GET", "/hello", 200, "Hello, World!"),
    ask("HEAD", "/hello", 200, ""),
    ask("GET", "/stream?bytes=3000000", 200, "x".repeat(3000000)),
    ask("POST", "/body", 200, "in parts", ["in ", "parts"]),
    ask("POST", "/body", 200, large, [large]),
    ask("OPTIONS", "/hello", 204, ""),
    ask("GET", "/users/%C3%A9", 200, "user é\n"),
    ask("GET", "/sleep?ms=100", 200, "slept 100 ms\n"),
    ...Array.from({ length: 90 }, (_, at) => ask("GET", "/users/" + at, 200, "user " + at + "\n")),
  ]);
  // A cancelled stream does not affect the others.
  const endless = session.request({ ":path": "/stream?bytes=100000000000" });
  endless.on("error", () => {});
  await new Promise((resolve) => endless.once("data", resolve));
  endless.close(http2.constants.NGHTTP2_CANCEL);
  await ask("GET", "/hello", 200, "Hello, World!");
  await new Promise((resolve, reject) => session.ping((error) => (error ? reject(error) : resolve())));
  session.close(() => { console.log("done"); process.exit(0); });
})().catch((error) => { console.error(error); process.exit(1); });
"#;

fn node(engine: &str) {
    let Some(program) = program(&["node"]) else { return };
    let Some(demo) = Demo::start(engine, &BOTH) else { return };
    for (root, _) in both(&demo) {
        assert_eq!(output_text(&program, &["-e", NODE, &root]), "done\n", "{root}");
    }
}

const GO: &str = r#"
package main

import ("bytes"; "crypto/tls"; "fmt"; "io"; "net/http"; "os"; "strings"; "sync"; "time")

func main() {
  protocols := new(http.Protocols)
  protocols.SetHTTP2(true)
  protocols.SetUnencryptedHTTP2(true)
  trust := &tls.Config{InsecureSkipVerify: true}
  transport := &http.Transport{Protocols: protocols, TLSClientConfig: trust}
  client := &http.Client{Transport: transport, Timeout: 60 * time.Second}
  base := os.Args[1]
  ask := func(method, path, body string, status int, expected string) {
    request, _ := http.NewRequest(method, base+path, bytes.NewReader([]byte(body)))
    answer, err := client.Do(request)
    if err != nil { fmt.Println(path, err); os.Exit(1) }
    defer answer.Body.Close()
    read, err := io.ReadAll(answer.Body)
    if err != nil || answer.StatusCode != status || string(read) != expected || answer.ProtoMajor != 2 {
      fmt.Println(method, path, err, answer.Status, answer.Proto, len(read)); os.Exit(1)
    }
  }
  large := strings.Repeat("y", 900000)
  var group sync.WaitGroup
  for at := 0; at < 50; at++ {
    group.Add(1)
    go func() {
      defer group.Done()
      ask("GET", "/hello", "", 200, "Hello, World!")
      ask("HEAD", "/hello", "", 200, "")
      ask("GET", fmt.Sprintf("/users/%d", at), "", 200, fmt.Sprintf("user %d\n", at))
      ask("GET", "/stream?bytes=300000", "", 200, strings.Repeat("x", 300000))
      ask("GET", "/sleep?ms=10", "", 200, "slept 10 ms\n")
      if at % 10 == 0 { ask("POST", "/body", large, 200, large) }
    }()
  }
  group.Wait()
  fmt.Println("done")
}
"#;

fn go(engine: &str) {
    let Some(program) = program(&["go"]) else { return };
    // Go 1.24 is the first version whose standard library supports cleartext HTTP/2.
    let version = output_text(&program, &["env", "GOVERSION"]);
    let minor = version.trim().strip_prefix("go1.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    if minor.is_none_or(|minor| minor < 24) {
        return not_run(&format!("Go's HTTP/2 in cleartext: {version}"));
    }
    let Some(demo) = Demo::start(engine, &BOTH) else { return };
    let folder = Folder::new(&format!("go-{engine}"));
    let (source, built) = (folder.path("main.go"), folder.path("main"));
    std::fs::write(&source, GO).expect("a file");
    output(&program, &["build", "-o", &built, &source]);
    for (root, _) in both(&demo) {
        assert_eq!(output_text(Path::new(&built), &[&root]), "done\n", "{root}");
    }
}

/// httpx sends as much as RFC 9113 lets it before it reads our SETTINGS, and fails if these make a window negative.
const HTTPX: &str = r#"
import httpx, sys
options = dict(http1=False, http2=True, verify=False, timeout=30, trust_env=False)

def check(answer, body):
    assert (answer.status_code, answer.http_version) == (200, "HTTP/2"), answer
    assert answer.content == body, (len(answer.content), len(body))

for size in (1000, 65535, 65536, 70000, 1000000):
    body = b"x" * size
    # The upload is the first request of its connection, then the second one.
    with httpx.Client(**options) as client:
        for _ in range(2):
            check(client.post(sys.argv[1] + "/body", content=body), body)
print("done")
"#;

fn httpx(engine: &str) {
    let Some(python) = python_with("httpx, h2") else {
        return not_run("httpx or h2 for Python is not installed");
    };
    let Some(demo) = Demo::start(engine, &BOTH) else { return };
    for (root, _) in both(&demo) {
        assert_eq!(output_text(&python, &["-c", HTTPX, &root]), "done\n", "{root}");
    }
}

fn both_protocols_share_a_port(engine: &str) {
    let Some(program) = curl_with_http2() else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let urls: Vec<String> = (0..10).map(|at| demo.url(&format!("/stream?bytes={}", at * 60_000))).collect();
    std::thread::scope(|scope| {
        for (flag, version) in [("--http1.1", "1.1"), (PRIOR, "2"), ("--http1.1", "1.1"), (PRIOR, "2")] {
            let (program, urls) = (&program, &urls);
            scope.spawn(move || {
                let fixed = [flag, "--silent", "--show-error", "--max-time", "60", "--output", "/dev/null"];
                let counts = ["--write-out", "%{http_code} %{http_version} %{size_download}"];
                for (at, url) in urls.iter().enumerate() {
                    let counted = output_text(program, &[&fixed[..], &counts, &[url]].concat());
                    assert_eq!(counted, format!("200 {version} {}", at * 60_000));
                }
            });
        }
    });
}
