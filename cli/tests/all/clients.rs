//! Tests `highwire demo` with third-party clients: curl, ab, wrk, Python, Node.js and Chromium, on every engine.
//!
//! Needs a real kernel, because the clients are separate programs.

use crate::demo::Demo;
use crate::programs::{Folder, not_run, on_every_engine, output, output_text, program, random_bytes};
use std::path::Path;

on_every_engine! {
    uring, readiness, threads:
    [curl_asks_every_route, curl_uploads, curl_keeps_its_connection, curl_on_every_kind_of_listener, ab, wrk, python, node, chromium]
}

/// The final answer as curl prints it with `--include`.
struct Answer {
    status: u16,
    /// The status line and fields, in lower case.
    head: String,
    body: Vec<u8>,
    /// The number of interim answers (1xx) before the final answer.
    interim: usize,
}

fn curl(program: &Path, arguments: &[&str]) -> Answer {
    let fixed = ["--silent", "--show-error", "--include", "--max-time", "30"];
    let mut rest = &output(program, &[&fixed[..], arguments].concat())[..];
    let mut interim = 0;
    loop {
        let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the end of a head") + 4;
        let head = String::from_utf8_lossy(&rest[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        rest = &rest[end..];
        if status >= 200 {
            return Answer { status, head, body: rest.to_vec(), interim };
        }
        interim += 1;
    }
}

fn curl_asks_every_route(engine: &str) {
    let Some(program) = program(&["curl"]) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let allow = "allow: get, head, options\r\n";
    let letters = &"x".repeat(200_000)[..];
    let chunked = "Transfer-Encoding: chunked";
    let continues = "Expect: 100-continue";
    let cases: &[(&[&str], &str, u16, &str, &str)] = &[
        (&[], "/hello", 200, "content-length: 13\r\n", "Hello, World!"),
        (&[], "/echo?a=1&b=x%20y", 200, "content-type: application/json", r#"{"query":{"a":"1","b":"x y"}}"#),
        (&[], "/users/42", 200, "text/plain", "user 42\n"),
        (
            &["--header", "X-Test: yes", "--user-agent", "", "--header", "Host: here", "--header", "Accept:"],
            "/headers",
            200,
            "",
            "Host: here\nX-Test: yes\n",
        ),
        (&["--data", "some text"], "/body", 200, "content-length: 9\r\n", "some text"),
        (&["--data", "some text", "--header", chunked], "/body", 200, "", "some text"),
        (&["--data", "some text", "--header", continues], "/body", 200, "", "some text"),
        (&["--data", "some text", "--header", continues, "--header", chunked], "/body", 200, "", "some text"),
        (&["--data", ""], "/body", 200, "content-length: 0\r\n", ""),
        (
            &["--json", "{ \"a\": [1, 2.5, null] }"],
            "/json",
            200,
            "content-type: application/json\r\n",
            r#"{"a":[1,2.5,null]}"#,
        ),
        (&[], "/stream?bytes=200000", 200, "transfer-encoding: chunked\r\n", letters),
        (&[], "/stream?bytes=0", 200, "", ""),
        (&[], "/sleep?ms=20", 200, "", "slept 20 ms\n"),
        (&[], "/block?ms=20", 200, "", "blocked 20 ms\n"),
        (&["--head"], "/hello", 200, "content-length: 13\r\n", ""),
        (&["--head"], "/stream?bytes=10", 200, "", ""),
        (&["--request", "OPTIONS"], "/hello", 204, allow, ""),
        (&["--http1.0"], "/hello", 200, "connection: close\r\n", "Hello, World!"),
        (&["--http1.0"], "/stream?bytes=200000", 200, "connection: close\r\n", letters),
        (&["--http1.0", "--data", "some text"], "/body", 200, "connection: close\r\n", "some text"),
    ];
    for &(arguments, path, status, field, body) in cases {
        let answer = curl(&program, &[arguments, &[&demo.url(path)]].concat());
        assert_eq!(answer.status, status, "{arguments:?} {path}");
        assert!(answer.head.contains(field), "{arguments:?} {path}: {field:?} is missing in\n{}", answer.head);
        assert!(answer.body == body.as_bytes(), "{arguments:?} {path}: {}", String::from_utf8_lossy(&answer.body));
        let expects = arguments.contains(&continues);
        assert_eq!(answer.interim, usize::from(expects), "{arguments:?} {path}: interim answers");
    }
    // The texts of these bodies may change, so the test checks only that no body is empty.
    for (method, path, status, field) in [
        ("GET", "/", 200, "content-type: text/html"),
        ("GET", "/nothing/here", 404, ""),
        ("DELETE", "/hello", 405, allow),
        ("PUT", "/body", 405, "allow: post, options\r\n"),
        ("GET", "/stream?bytes=many", 400, ""),
    ] {
        let answer = curl(&program, &["--request", method, &demo.url(path)]);
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.head.contains(field), "{method} {path}: {field:?} is missing in\n{}", answer.head);
        assert!(!answer.body.is_empty(), "{method} {path}: the body is empty");
    }
    let page = curl(&program, &[&demo.url("/")]);
    assert!(String::from_utf8_lossy(&page.body).contains("<title>Highwire demo</title>"), "the page has no title");
}

/// The size of an upload: more than a handler takes whole (1 MiB), and not a multiple of a buffer size.
const UPLOAD_BYTES: usize = 5_000_011;

fn curl_uploads(engine: &str) {
    let (Some(program), Some(sum)) = (program(&["curl"]), program(&["sha256sum"])) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let folder = Folder::new(&format!("upload-{engine}"));
    let (file, at_file) = (folder.path("file"), format!("@{}", folder.path("file")));
    std::fs::write(&file, random_bytes(UPLOAD_BYTES, 1)).expect("a file");
    let sum = output_text(&sum, &[&file]);
    let sum = sum.split(' ').next().expect("a word");
    let expected = format!("{{\"bytes\":{UPLOAD_BYTES},\"sha256\":\"{sum}\"}}\n");
    let (chunked, at_once) = ("Transfer-Encoding: chunked", "Expect:");
    for arguments in [
        &["--data-binary", &at_file][..],
        &["--data-binary", &at_file, "--header", at_once],
        &["--data-binary", &at_file, "--header", chunked],
        &["--data-binary", &at_file, "--header", chunked, "--header", at_once],
        &["--upload-file", &file, "--request", "POST"],
    ] {
        let answer = curl(&program, &[arguments, &[&demo.url("/upload")]].concat());
        assert_eq!(answer.status, 200, "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&answer.body), expected, "{arguments:?}");
    }
    // The file is too large for a handler that takes the body whole. A reset must not destroy the answer while curl
    // still sends.
    for arguments in [
        &["--data-binary", &at_file][..],
        &["--data-binary", &at_file, "--header", at_once],
        &["--data-binary", &at_file, "--header", chunked, "--header", at_once],
    ] {
        let answer = curl(&program, &[arguments, &[&demo.url("/body")]].concat());
        assert_eq!(answer.status, 413, "{arguments:?}");
    }
}

fn curl_keeps_its_connection(engine: &str) {
    let Some(program) = program(&["curl"]) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let mut arguments =
        vec!["--silent", "--show-error", "--max-time", "30", "--write-out", "%{http_code} %{num_connects}\n"];
    let urls = ["/hello", "/users/7", "/stream?bytes=300000", "/nothing", "/sleep?ms=1", "/block?ms=1"];
    let urls: Vec<String> = urls.iter().map(|path| demo.url(path)).collect();
    for url in &urls {
        arguments.extend(["--output", "/dev/null", url]);
    }
    assert_eq!(output_text(&program, &arguments), "200 1\n200 0\n200 0\n404 0\n200 0\n200 0\n");
}

fn curl_on_every_kind_of_listener(engine: &str) {
    let Some(program) = program(&["curl"]) else { return };
    let folder = Folder::new(&format!("listeners-{engine}"));
    let socket = folder.path("socket");
    let unix = format!("unix:{socket}");
    let mut listeners = vec!["--listen", "127.0.0.1:0", "--listen", &unix];
    match std::net::TcpListener::bind("[::1]:0") {
        Ok(_) => listeners.extend(["--listen", "[::1]:0"]),
        Err(error) => not_run(&format!("IPv6: {error}")),
    }
    let Some(mut demo) = Demo::start(engine, &listeners) else { return };
    // Several requests per address, because each listener's connections are spread over all workers.
    for _ in 0..8 {
        for address in &demo.addresses {
            let answer = match address.strip_prefix("unix:") {
                Some(path) => curl(&program, &["--unix-socket", path, "http://localhost/hello"]),
                None => curl(&program, &["--globoff", &format!("http://{address}/hello")]),
            };
            assert_eq!((answer.status, &answer.body[..]), (200, &b"Hello, World!"[..]), "{address}");
        }
    }
    demo.terminate();
    assert!(demo.wait().success(), "{}", demo.log());
    assert!(!Path::new(&socket).exists(), "the socket's file is left behind");
}

/// Returns the value of a name in a report of lines `name: value`.
fn value<'a>(report: &'a str, name: &str) -> &'a str {
    let line = report.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name:?} in\n{report}")).trim()
}

fn ab(engine: &str) {
    const REQUESTS: &str = "3000";
    let Some(program) = program(&["ab"]) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    for (arguments, kept) in [(&["-k"][..], Some(REQUESTS)), (&[], None)] {
        let url = demo.url("/hello");
        let report = output_text(&program, &[arguments, &["-q", "-n", REQUESTS, "-c", "16", &url]].concat());
        assert_eq!(value(&report, "Complete requests"), REQUESTS);
        assert_eq!(value(&report, "Failed requests"), "0");
        assert!(!report.contains("Non-2xx"), "{report}");
        if let Some(kept) = kept {
            assert_eq!(value(&report, "Keep-Alive requests"), kept);
        }
    }
}

fn wrk(engine: &str) {
    let Some(program) = program(&["wrk"]) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let report = output_text(&program, &["-t", "1", "-c", "16", "-d", "1s", &demo.url("/hello")]);
    assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
    assert!(report.contains(" requests in ") && !report.contains("\n  0 requests in "), "{report}");
}

const PYTHON: &str = r#"
import http.client, json, sys
host, port = sys.argv[1].rsplit(":", 1)
client = http.client.HTTPConnection(host, int(port), timeout=30)
client.connect()
socket = client.sock
def ask(method, path, status, expected, **rest):
    client.request(method, path, **rest)
    answer = client.getresponse()
    read = answer.read()
    assert (answer.status, read) == (status, expected), (method, path, answer.status, read[:200])
    assert client.sock is socket, "the connection was not kept after " + path
ask("GET", "/hello", 200, b"Hello, World!")
ask("HEAD", "/hello", 200, b"")
ask("GET", "/stream?bytes=300000", 200, b"x" * 300000)
ask("POST", "/body", 200, b"text", body="text")
ask("POST", "/body", 200, b"in parts", body=iter([b"in ", b"parts"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
ask("OPTIONS", "/hello", 204, b"")
ask("GET", "/users/%C3%A9", 200, "user é\n".encode())
print("done")
"#;

fn python(engine: &str) {
    let Some(program) = program(&["python3"]) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    assert_eq!(output_text(&program, &["-c", PYTHON, &demo.addresses[0]]), "done\n");
}

const NODE: &str = r#"
const http = require("http"), assert = require("assert"), base = "http://" + process.argv[1];
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
let asked = 0;
const ask = (method, path, status, body, parts) => new Promise((resolve, reject) => {
  const request = http.request(base + path, { method, agent, timeout: 30000 }, (answer) => {
    let read = "";
    answer.setEncoding("utf8").on("data", (part) => { read += part; }).on("end", () => {
      assert.deepStrictEqual([answer.statusCode, read], [status, body], path);
      assert.strictEqual(request.reusedSocket, asked++ > 0, "the connection was not kept before " + path);
      resolve();
    });
  });
  request.on("error", reject).on("timeout", () => reject(new Error("no answer: " + path)));
  for (const part of parts || []) request.write(part);
  request.end();
});
(async () => {
  await ask("GET", "/hello", 200, "Hello, World!");
  await ask("HEAD", "/hello", 200, "");
  await ask("GET", "/stream?bytes=300000", 200, "x".repeat(300000));
  await ask("POST", "/body", 200, "in parts", ["in ", "parts"]);
  await ask("OPTIONS", "/hello", 204, "");
  await ask("GET", "/users/%C3%A9", 200, "user é\n");
  agent.destroy();
  if (globalThis.fetch) {
    const answer = await fetch(base + "/body", { method: "POST", body: "fetched" });
    assert.deepStrictEqual([answer.status, await answer.text()], [200, "fetched"]);
  }
  console.log("done");
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
"#;

fn node(engine: &str) {
    let Some(program) = program(&["node"]) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    assert_eq!(output_text(&program, &["-e", NODE, &demo.addresses[0]]), "done\n");
}

fn chromium(engine: &str) {
    let Some(program) = program(&["chromium", "chromium-browser", "google-chrome", "chrome"]) else { return };
    let Some(demo) = Demo::start(engine, &["--listen", "127.0.0.1:0"]) else { return };
    let folder = Folder::new(&format!("chromium-{engine}"));
    let data = format!("--user-data-dir={}", folder.path("data"));
    let mut flags = vec!["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
    flags.extend(["--disable-background-networking", "--disable-component-update", "--disable-sync", &data]);
    let url = demo.url("/");
    flags.extend(["--dump-dom", &url]);
    let page = output_text(&program, &flags);
    assert!(page.contains("<title>Highwire demo</title>"), "{page}");
}
