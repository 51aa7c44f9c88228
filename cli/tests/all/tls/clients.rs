//! Tests `highwire demo` under TLS with third-party clients: curl with each version and protocol and with client
//! certificates, h2load and Node.js over HTTP/1.1, httpx over both protocols, and Chromium over HTTP/2. `http2.rs` has
//! more HTTP/2 clients.
//!
//! Needs a real kernel, because the clients are separate programs.

use crate::demo::Demo;
use crate::programs::{Folder, attempt, not_run, on_every_engine, output_text, program, python_with, random_bytes};
use crate::site::Site;
use crate::site::tls_peer::{Authority, Pem};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

on_every_engine! {
    uring, readiness:
    [curl_speaks_each_version_and_protocol, curl_uploads_and_downloads, curl_keeps_its_connection,
     curl_shows_its_certificate, curl_looks_at_ours, h2load_over_http1, node_over_http1, httpx, chromium]
}

/// Options for curl, and the HTTP version of the answer. The server answers HTTP/1.0 requests with its own version, 1.1
/// (RFC 9110 section 6.2).
const WAYS: &[(&[&str], &str)] = &[
    (&["--http1.0", "--tls-max", "1.2"], "1.1"),
    (&["--http1.0", "--tlsv1.3"], "1.1"),
    (&["--http1.1", "--tls-max", "1.2"], "1.1"),
    (&["--http1.1", "--tlsv1.3"], "1.1"),
    (&["--http2", "--tls-max", "1.2"], "2"),
    (&["--http2", "--tlsv1.3"], "2"),
    // Without the extension ALPN.
    (&["--no-alpn", "--tls-max", "1.2"], "1.1"),
    (&["--no-alpn", "--tlsv1.3"], "1.1"),
];

/// Returns the path of curl if it is installed, supports HTTP/2 and uses OpenSSL.
fn curl() -> Option<PathBuf> {
    let program = program(&["curl"])?;
    let version = output_text(&program, &["--version"]);
    if version.contains("HTTP2") && version.contains("OpenSSL/") {
        return Some(program);
    }
    not_run(&format!("curl has no OpenSSL or no HTTP/2: {version}"));
    None
}

/// Runs curl with the site's authority trusted, and returns its output.
fn ask(program: &Path, site: &Site, arguments: &[&str]) -> String {
    let authority = site.file("ca.pem");
    let fixed = ["--silent", "--show-error", "--max-time", "60", "--cacert", &authority];
    output_text(program, &[&fixed[..], arguments].concat())
}

fn curl_speaks_each_version_and_protocol(engine: &str) {
    let Some(program) = curl() else { return };
    let site = Site::new();
    let Some(demo) = site.start(engine, &[]) else { return };
    let letters = &"x".repeat(200_000)[..];
    for (way, version) in WAYS {
        for (arguments, path, status, expected) in [
            (&[][..], "/hello", 200, "Hello, World!"),
            (&[], "/users/42", 200, "user 42\n"),
            (&["--data", "some text"], "/body", 200, "some text"),
            (&["--data", "some text", "--header", "Expect: 100-continue"], "/body", 200, "some text"),
            (&[], "/stream?bytes=200000", 200, letters),
            (&[], "/sleep?ms=20", 200, "slept 20 ms\n"),
            (&[], "/block?ms=20", 200, "blocked 20 ms\n"),
            (&["--request", "OPTIONS"], "/hello", 204, ""),
        ] {
            let url = demo.tls_url(path);
            let told = ["--write-out", "\n%{scheme} %{http_version} %{http_code}", &url];
            let answer = ask(&program, &site, &[way, arguments, &told].concat());
            // curl 8 writes the scheme in lower case.
            let (body, told) = answer.rsplit_once('\n').expect("the line of --write-out");
            assert_eq!(told.to_uppercase(), format!("HTTPS {version} {status}"), "{way:?} {path}");
            assert!(body == expected, "{way:?} {path}: a wrong body of {} bytes", body.len());
        }
    }
}

/// The size of an upload, which is not a multiple of the size of a buffer or a TLS record.
const UPLOAD_BYTES: usize = 5_000_011;

fn curl_uploads_and_downloads(engine: &str) {
    let Some(program) = curl() else { return };
    let site = Site::new();
    let Some(demo) = site.start(engine, &[]) else { return };
    let content = random_bytes(UPLOAD_BYTES, 1);
    let sum: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = format!("{{\"bytes\":{UPLOAD_BYTES},\"sha256\":\"{sum}\"}}\n");
    let (at_file, large) = (format!("@{}", site.write("upload", content)), demo.tls_url("/stream?bytes=20000000"));
    for (way, version) in WAYS {
        let upload = ["--data-binary", &at_file, &demo.tls_url("/upload")];
        let answer = ask(&program, &site, &[way, &upload[..]].concat());
        assert_eq!(answer, expected, "{way:?}");
        // The upload is too large for a handler that takes the body whole. A reset must not destroy the answer while
        // curl still sends.
        let counts = ["--output", "/dev/null", "--write-out", "%{http_code} %{http_version} %{size_download}"];
        let rejected = ["--data-binary", &at_file, &demo.tls_url("/body")];
        let counted = ask(&program, &site, &[way, &counts[..], &rejected].concat());
        assert!(counted.starts_with(&format!("413 {version} ")), "{way:?}: {counted}");
        let counted = ask(&program, &site, &[way, &counts[..], &[&large[..]]].concat());
        assert_eq!(counted, format!("200 {version} 20000000"), "{way:?}");
    }
}

fn curl_keeps_its_connection(engine: &str) {
    let Some(program) = curl() else { return };
    let site = Site::new();
    let Some(demo) = site.start(engine, &[]) else { return };
    let urls = ["/users/[1-200]", "/stream?bytes=300000", "/nothing", "/sleep?ms=1", "/block?ms=1", "/hello"];
    let urls = urls.map(|path| demo.tls_url(path));
    let mut arguments = vec!["--write-out", "%{http_code} %{num_connects}\n"];
    for url in &urls {
        arguments.extend(["--output", "/dev/null", url]);
    }
    let kept = "200 0\n";
    let expected = format!("200 1\n{}{kept}404 0\n{}", kept.repeat(199), kept.repeat(3));
    for (way, _) in WAYS.iter().filter(|(way, _)| way[0] != "--http1.0") {
        assert_eq!(ask(&program, &site, &[way, &arguments[..]].concat()), expected, "{way:?}");
    }
}

fn curl_shows_its_certificate(engine: &str) {
    let Some(program) = curl() else { return };
    let (site, clients, other) = (Site::new(), Authority::new("clients"), Authority::new("another"));
    let authorities = site.write("clients.pem", &clients.pem);
    let Some(demo) = site.start(engine, &["--client-ca", &authorities]) else { return };
    let show = |name: &str, pem: &Pem| {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        ["--cert".to_string(), site.write(&cert, &pem.chain), "--key".to_string(), site.write(&key, &pem.key)]
    };
    let expired = clients.issue_with(&["late"], |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let cases = [
        ("a certificate of the authority", show("good", &clients.issue(&["client"])).to_vec(), Ok("Hello, World!")),
        ("no certificate", Vec::new(), Err(["certificate required", "handshake failure"])),
        ("one of another authority", show("bad", &other.issue(&["client"])).to_vec(), Err(["unknown ca"; 2])),
        // curl may describe the alert `certificate expired` in its own words.
        ("one that is expired", show("late", &expired).to_vec(), Err(["certificate expired", "verification failed"])),
    ];
    let (ca, url) = (site.file("ca.pem"), demo.tls_url("/hello"));
    // The first case runs again at the end, because refused clients must not affect other clients.
    for (what, shown, expected) in cases.iter().chain(&cases[..1]) {
        for (way, _) in &WAYS[2..6] {
            let mut arguments = vec!["--silent", "--show-error", "--max-time", "60", "--cacert", &ca, &url];
            arguments.extend(way.iter().copied().chain(shown.iter().map(String::as_str)));
            let (succeeded, said) = attempt(&program, &arguments, b"");
            match expected {
                Ok(body) => assert!(succeeded && said == *body, "{what} {way:?}: {said}"),
                Err(alerts) => {
                    assert!(!succeeded, "{what} {way:?} was let in: {said}");
                    assert!(alerts.iter().any(|alert| said.contains(alert)), "{what} {way:?}: {said}");
                }
            }
        }
    }
}

fn curl_looks_at_ours(engine: &str) {
    let Some(program) = curl() else { return };
    let site = Site::new();
    let one = site.authority.issue(&["one.example", "*.wild.example"]);
    let (cert, key) = (site.write("one.pem", &one.chain), site.write("one.key", &one.key));
    let Some(demo) = site.start(engine, &["--cert", &cert, "--key", &key]) else { return };
    let (_, port) = demo.tls_addresses[0].rsplit_once(':').expect("a port");
    let (ca, other) = (site.file("ca.pem"), site.write("other.pem", &Authority::new("another").pem));
    for (trusted, host, good) in [
        (&ca, "localhost", true),
        (&ca, "one.example", true),
        (&ca, "ONE.example", true),
        (&ca, "any.wild.example", true),
        (&ca, "127.0.0.1", true),
        // The server sends its first certificate if none matches the name, and curl refuses it.
        (&ca, "two.example", false),
        (&ca, "wild.example", false),
        (&other, "localhost", false),
    ] {
        let (resolve, url) = (format!("{host}:{port}:127.0.0.1"), format!("https://{host}:{port}/hello"));
        let fixed = ["--silent", "--show-error", "--max-time", "60", "--cacert", trusted, "--resolve", &resolve, &url];
        let (succeeded, said) = attempt(&program, &fixed, b"");
        assert_eq!(succeeded, good, "{host}: {said}");
        assert_eq!(said == "Hello, World!", good, "{host}: {said}");
    }
}

fn h2load_over_http1(engine: &str) {
    let Some(program) = program(&["h2load"]) else { return };
    let site = Site::new();
    let Some(demo) = site.start(engine, &[]) else { return };
    for (path, count) in [("/hello", "4000"), ("/stream?bytes=20000", "500"), ("/sleep?ms=1", "500")] {
        let report = output_text(&program, &["--h1", "-n", count, "-c", "16", &demo.tls_url(path)]);
        assert!(report.contains("Application protocol: http/1.1\n"), "{report}");
        assert!(report.contains(&format!(" {count} succeeded, 0 failed, 0 errored, 0 timeout")), "{path}: {report}");
    }
}

const NODE: &str = r#"
const https = require("https"), fs = require("fs"), assert = require("assert");
const base = process.argv[1], ca = fs.readFileSync(process.argv[2]);
const agent = new https.Agent({ keepAlive: true, maxSockets: 1, ca });
const ask = (agent, method, path, status, body, parts) => new Promise((resolve, reject) => {
  const request = https.request(base + path, { method, agent, timeout: 30000 }, (answer) => {
    const { socket } = answer;
    let read = "";
    answer.setEncoding("utf8").on("data", (part) => { read += part; }).on("end", () => {
      try { assert.deepStrictEqual([answer.statusCode, read], [status, body], path); } catch (error) { reject(error); }
      resolve({ kept: request.reusedSocket, resumed: socket.isSessionReused(), verified: socket.authorized });
    });
  });
  request.on("error", reject).on("timeout", () => reject(new Error("no answer: " + path)));
  for (const part of parts || []) request.write(part);
  request.end();
});
(async () => {
  const first = await ask(agent, "GET", "/hello", 200, "Hello, World!");
  assert.deepStrictEqual(first, { kept: false, resumed: false, verified: true });
  for (const [method, path, status, body, parts] of [
    ["HEAD", "/hello", 200, ""],
    ["GET", "/stream?bytes=300000", 200, "x".repeat(300000)],
    ["POST", "/body", 200, "in parts", ["in ", "parts"]],
    ["OPTIONS", "/hello", 204, ""],
    ["GET", "/users/%C3%A9", 200, "user é\n"],
  ]) assert.ok((await ask(agent, method, path, status, body, parts)).kept, "the connection was not kept before " + path);
  agent.destroy();
  // Each connection resumes the session of the one before by its ticket, in both versions.
  for (const maxVersion of ["TLSv1.2", "TLSv1.3"]) {
    const fresh = new https.Agent({ keepAlive: false, ca, maxVersion });
    for (const resumed of [false, true, true, true]) {
      assert.strictEqual((await ask(fresh, "GET", "/hello", 200, "Hello, World!")).resumed, resumed, maxVersion);
    }
  }
  console.log("done");
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
"#;

fn node_over_http1(engine: &str) {
    let Some(program) = program(&["node"]) else { return };
    let site = Site::new();
    let Some(demo) = site.start(engine, &[]) else { return };
    assert_eq!(output_text(&program, &["-e", NODE, &demo.tls_url(""), &site.file("ca.pem")]), "done\n");
}

const HTTPX: &str = r#"
import asyncio, hashlib, ssl, sys, httpx
base, authority = sys.argv[1:]
trust = ssl.create_default_context(cafile=authority)
# Python 3.13 and later require extensions that the tests' authority does not have.
trust.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
def check(client, version):
    def ask(method, path, status, expected, **rest):
        answer = client.request(method, base + path, **rest)
        got = (answer.http_version, answer.status_code, answer.content)
        assert got == (version, status, expected), (method, path, got[:2], answer.content[:200])
    ask("GET", "/hello", 200, b"Hello, World!")
    ask("HEAD", "/hello", 200, b"")
    ask("GET", "/stream?bytes=3000000", 200, b"x" * 3000000)
    ask("POST", "/body", 200, b"text", content=b"text")
    ask("POST", "/body", 200, b"in parts", content=iter([b"in ", b"parts"]))
    ask("OPTIONS", "/hello", 204, b"")
    ask("GET", "/users/%C3%A9", 200, "user é\n".encode())
    large = bytes(range(256)) * 8001
    sum = hashlib.sha256(large).hexdigest()
    ask("POST", "/upload", 200, f'{{"bytes":{len(large)},"sha256":"{sum}"}}\n'.encode(), content=large)
# Parallel requests use tasks: threads that share a synchronous client sometimes get the same HTTP/2 stream number.
async def several(http2, version):
    async with httpx.AsyncClient(http2=http2, verify=trust, timeout=60) as client:
        async def one():
            for at in range(20):
                answer = await client.get(f"{base}/users/{at}")
                assert (answer.http_version, answer.text) == (version, f"user {at}\n"), answer
        await asyncio.gather(*(one() for _ in range(8)))
for http2, version in ((False, "HTTP/1.1"), (True, "HTTP/2")):
    with httpx.Client(http2=http2, verify=trust, timeout=60) as client:
        check(client, version)
    asyncio.run(several(http2, version))
print("done")
"#;

fn httpx(engine: &str) {
    let Some(python) = python_with("httpx, h2") else {
        return not_run("httpx or h2 for Python is not installed");
    };
    let site = Site::new();
    let Some(demo) = site.start(engine, &[]) else { return };
    assert_eq!(output_text(&python, &["-c", HTTPX, &demo.tls_url(""), &site.file("ca.pem")]), "done\n");
}

fn chromium(engine: &str) {
    let Some(program) = program(&["chromium", "chromium-browser", "google-chrome", "chrome"]) else { return };
    let Some(demo) = Demo::start(engine, &["--tls-listen", "127.0.0.1:0", "--tls-self-signed"]) else { return };
    let folder = Folder::new(&format!("tls-chromium-{engine}"));
    let (data, url) = (format!("--user-data-dir={}", folder.path("data")), demo.tls_url("/"));
    let log = format!("--log-net-log={}", folder.path("net.json"));
    let mut flags = vec!["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
    flags.extend(["--disable-background-networking", "--disable-component-update", "--disable-sync", &data]);
    flags.extend(["--ignore-certificate-errors", &log, "--dump-dom", &url]);
    let page = output_text(&program, &flags);
    assert!(page.contains("<title>Highwire demo</title>"), "{page}");
    let log = std::fs::read_to_string(folder.path("net.json")).expect("a log");
    let protocols: Vec<&str> =
        log.split(r#""next_proto":""#).skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(!protocols.is_empty() && protocols.iter().all(|protocol| *protocol == "h2"), "{protocols:?}");
}
