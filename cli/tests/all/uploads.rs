//! Tests forms with files from third-party clients, and uploads that are cut short, endless, or do not fit on the disk,
//! on every engine.
//!
//! Needs a real kernel, because the clients are separate programs and uploads are written to files.

use crate::demo::{Demo, HIGHWIRE, get, until};
use crate::programs::{Folder, not_run, on_every_engine, output, output_text, program, random_bytes};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;

on_every_engine! {
    uring, readiness, threads:
    [curl, python, node, an_upload_that_is_cut_short_leaves_no_file, a_client_that_is_killed_leaves_no_file, forms_without_an_end_are_refused, a_full_disk_is_507_and_the_service_goes_on]
}

/// The size of an uploaded file: more than any buffer holds, and not a multiple of a buffer size.
const FILE_BYTES: usize = 5_000_011;

/// Starts the demo with a separate folder for temporary files.
fn demo(engine: &str, folder: &Folder) -> Option<Demo> {
    let mut command = Command::new(HIGHWIRE);
    command.args(["demo", "--engine", engine, "--listen", "127.0.0.1:0"]).env("TMPDIR", folder.path("spool"));
    std::fs::create_dir_all(folder.path("spool")).expect("a folder");
    Demo::of(command, engine)
}

/// Waits until a folder is empty, because the server removes files after its answer. Returns false if that takes too
/// long.
fn becomes_empty(folder: &Path) -> bool {
    until(|| std::fs::read_dir(folder).expect("a folder").next().is_none())
}

/// Returns true if the folder contains a file that is not empty.
fn is_written(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    entries.filter_map(|entry| entry.metadata().ok()).any(|file| file.len() > 0)
}

/// Writes a file of pseudo-random bytes. Returns its path and its SHA-256 sum, or `None` without sha256sum.
fn file(folder: &Folder) -> Option<(String, String)> {
    let sum = program(&["sha256sum"])?;
    let path = folder.path("file \u{e9}\"1.bin");
    std::fs::write(&path, random_bytes(FILE_BYTES, 7)).expect("a file");
    // sha256sum escapes names with a backslash or a line feed; this name has neither.
    let sum = output_text(&sum, &[&path]).split(' ').next().expect("a word").to_string();
    Some((path, sum))
}

/// Returns the demo's answer to the form that every client sends.
fn expected(sum: &str) -> String {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    [
        r#"[{"name":"note","text":"one\r\ntwo é"},"#,
        &format!(r#"{{"name":"file","file":"file é\"1.bin","media_type":"application/octet-stream","bytes":{FILE_BYTES},"sha256":"{sum}"}},"#),
        &format!(r#"{{"name":"none","file":"none.txt","media_type":"text/plain","bytes":0,"sha256":"{empty}"}},"#),
        "{\"name\":\"note\",\"text\":\"\"}]\n",
    ]
    .concat()
}

fn curl(engine: &str) {
    let Some(program) = program(&["curl"]) else { return };
    let folder = Folder::new(&format!("forms-curl-{engine}"));
    let Some((path, sum)) = file(&folder) else { return };
    let Some(demo) = demo(engine, &folder) else { return };
    let none = folder.path("none.txt");
    std::fs::write(&none, "").expect("a file");
    let quoted = path.replace('"', "\\\"");
    let file = format!("file=@\"{quoted}\";type=application/octet-stream");
    let form = [
        "--form-string",
        "note=one\r\ntwo é",
        "--form",
        &file,
        "--form",
        &format!("none=@{none}"),
        "--form-string",
        "note=",
    ];
    let fixed = ["--silent", "--show-error", "--max-time", "60", "--write-out", "%{http_code}"];
    for more in [
        &[][..],
        &["--header", "Expect:"],
        &["--header", "Transfer-Encoding: chunked"],
        &["--http1.0"],
        &["--http2-prior-knowledge"],
    ] {
        let url = demo.url("/form");
        let said = output(&program, &[&fixed[..], more, &form, &[&url]].concat());
        assert_eq!(String::from_utf8_lossy(&said), format!("{}200", expected(&sum)), "{more:?}");
    }
    let url = demo.url("/form");
    let said = output_text(&program, &[&fixed[..], &["--data", "a=b", &url]].concat());
    assert!(said.ends_with("415") && said.contains("the body is not multipart/form-data"), "{said}");
    assert!(becomes_empty(Path::new(&folder.path("spool"))), "uploads are left behind");
}

const PYTHON: &str = r#"
import sys
try:
    import requests
except ImportError:
    print("missing")
    sys.exit()
url, path, expected = sys.argv[1:]
name = path.rsplit("/", 1)[1]
with open(path, "rb") as file:
    fields = [("note", (None, "one\r\ntwo é")), ("file", (name, file, "application/octet-stream")),
              ("none", ("none.txt", b"", "text/plain")), ("note", (None, ""))]
    answer = requests.post(url, files=fields, timeout=60)
assert answer.status_code == 200, (answer.status_code, answer.text)
assert answer.text == expected, (answer.text, expected)
answer = requests.post(url, files={"a": (None, "x" * 70000)}, timeout=60)
assert answer.status_code == 413, (answer.status_code, answer.text)
assert answer.headers["content-type"] == "application/problem+json" and answer.json()["field"] == "a", answer.text
print("done")
"#;

fn python(engine: &str) {
    let Some(program) = program(&["python3"]) else { return };
    let folder = Folder::new(&format!("forms-python-{engine}"));
    let Some((path, sum)) = file(&folder) else { return };
    let Some(demo) = demo(engine, &folder) else { return };
    match &*output_text(&program, &["-c", PYTHON, &demo.url("/form"), &path, &expected(&sum)]) {
        "missing\n" => not_run("requests for Python is not installed"),
        said => assert_eq!(said, "done\n"),
    }
    assert!(becomes_empty(Path::new(&folder.path("spool"))), "uploads are left behind");
}

const NODE: &str = r#"
const fs = require("fs"), assert = require("assert"), [url, path, expected] = process.argv.slice(1);
if (!globalThis.FormData || !globalThis.File) { console.log("missing"); process.exit(0); }
(async () => {
  const form = new FormData();
  form.append("note", "one\r\ntwo é");
  form.append("file", new File([fs.readFileSync(path)], path.split("/").pop(), { type: "application/octet-stream" }));
  form.append("none", new File([], "none.txt", { type: "text/plain" }));
  form.append("note", "");
  const answer = await fetch(url, { method: "POST", body: form });
  assert.deepStrictEqual([answer.status, await answer.text()], [200, expected]);
  console.log("done");
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
"#;

fn node(engine: &str) {
    let Some(program) = program(&["node"]) else { return };
    let folder = Folder::new(&format!("forms-node-{engine}"));
    let Some((path, sum)) = file(&folder) else { return };
    let Some(demo) = demo(engine, &folder) else { return };
    match &*output_text(&program, &["-e", NODE, &demo.url("/form"), &path, &expected(&sum)]) {
        "missing\n" => not_run("this Node.js has no FormData and File of its own"),
        said => assert_eq!(said, "done\n"),
    }
    assert!(becomes_empty(Path::new(&folder.path("spool"))), "uploads are left behind");
}

/// The head of a form request, and the head of its first part, a file.
const BEGUN: &str = "POST /form HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: 9000000\r\n\r\n\
    --B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";

fn an_upload_that_is_cut_short_leaves_no_file(engine: &str) {
    let folder = Folder::new(&format!("forms-cut-{engine}"));
    let Some(demo) = demo(engine, &folder) else { return };
    let spool = folder.path("spool");
    let spool = Path::new(&spool);
    // The client ends its direction in order, or resets the connection (a linger of zero).
    for orderly in [true, false] {
        let mut stream = TcpStream::connect(&demo.addresses[0]).expect("a connection");
        stream.write_all(BEGUN.as_bytes()).expect("a successful write");
        stream.write_all(&vec![b'x'; 1_000_000]).expect("a successful write");
        assert!(until(|| is_written(spool)), "nothing is written");
        if orderly {
            stream.shutdown(Shutdown::Write).expect("an end");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        } else {
            let socket = socket2::SockRef::from(&stream);
            socket.set_linger(Some(std::time::Duration::ZERO)).expect("a reset at the end");
        }
        drop(stream);
        assert!(becomes_empty(spool), "an upload is left behind");
    }
    get(&demo.addresses[0], "/hello").expect("an answer after the failures");
}

fn a_client_that_is_killed_leaves_no_file(engine: &str) {
    let Some(curl) = program(&["curl"]) else { return };
    let folder = Folder::new(&format!("forms-killed-{engine}"));
    let Some((path, _)) = file(&folder) else { return };
    let Some(demo) = demo(engine, &folder) else { return };
    let spool = folder.path("spool");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let form = format!("file=@\"{}\"", path.replace('"', "\\\""));
        let mut command = Command::new(&curl);
        // The upload is so slow that the test kills curl before the end.
        command.args(["--silent", "--limit-rate", "100k", version, "--form", &form, &demo.url("/form")]);
        let mut child = command.spawn().expect("curl starts");
        let begun = until(|| is_written(Path::new(&spool)));
        child.kill().expect("a running process");
        child.wait().expect("a status");
        assert!(begun, "{version}: nothing is written");
        assert!(becomes_empty(Path::new(&spool)), "{version}: an upload is left behind");
    }
    get(&demo.addresses[0], "/hello").expect("an answer after the failures");
}

/// Sends `begun`, and then `again` up to 50,000 times, and returns the demo's answer.
fn endless(demo: &Demo, begun: &str, again: &str) -> String {
    let mut stream = TcpStream::connect(&demo.addresses[0]).expect("a connection");
    stream.write_all(begun.as_bytes()).expect("a successful write");
    let again = again.repeat(1000);
    let mut writer = stream.try_clone().expect("a socket");
    let writes = std::thread::spawn(move || (0..50).all(|_| writer.write_all(again.as_bytes()).is_ok()));
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    // A reset may end the reading, because the writer continues. The demo makes sure that the answer arrives before the
    // reset.
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
    }
    writes.join().expect("no panic");
    String::from_utf8_lossy(&answer).into_owned()
}

fn forms_without_an_end_are_refused(engine: &str) {
    let folder = Folder::new(&format!("forms-endless-{engine}"));
    let Some(demo) = demo(engine, &folder) else { return };
    let head = BEGUN.split_inclusive("\r\n\r\n").next().expect("a head");
    let empty_part = "--B\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
    for (begun, again, words) in [
        (head.to_string(), empty_part, "there are too many parts"),
        (format!("{head}--B\r\n"), "x: y\r\n", "a part's header fields are too large"),
        (head.to_string(), "no boundary ", "there is no boundary at the body's beginning"),
        (BEGUN.replace("; filename=\"f\"", ""), "text without an end ", "the part is larger than 65536 bytes"),
    ] {
        let answer = endless(&demo, &begun, again);
        let expected = if words.contains("beginning") { "400" } else { "413" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")) && answer.contains(words), "{words}: {answer}");
    }
    get(&demo.addresses[0], "/hello").expect("an answer after the failures");
}

fn a_full_disk_is_507_and_the_service_goes_on(engine: &str) {
    let (Some(curl), Some(unshare)) = (program(&["curl"]), program(&["unshare"])) else { return };
    let folder = Folder::new(&format!("forms-full-{engine}"));
    let Some((path, _)) = file(&folder) else { return };
    let small = folder.path("small");
    std::fs::create_dir_all(&small).expect("a folder");
    let in_namespace = |options: &[&str], program: &[&str]| {
        let mut command = Command::new(&unshare);
        let script = "mount -t tmpfs -o size=1m none \"$TMPDIR\" && exec \"$@\"";
        command.args(options).args(["--mount", "sh", "-c", script, "sh"]).args(program).env("TMPDIR", &small);
        command
    };
    // Mounts as root, or as root of a new user namespace.
    let ways = [&[][..], &["--user", "--map-root-user"]];
    let works = |options: &&&[&str]| in_namespace(options, &["true"]).output().is_ok_and(|done| done.status.success());
    let Some(options) = ways.iter().find(works) else {
        return not_run("a full disk: mounting a small file system is not permitted");
    };
    let command = in_namespace(options, &[HIGHWIRE, "demo", "--engine", engine, "--listen", "127.0.0.1:0"]);
    let Some(demo) = Demo::of(command, engine) else { return };
    // The path of the small file system, which is mounted only in the demo's mount namespace.
    let disk = format!("/proc/{}/root{small}", demo.id());
    let url = demo.url("/form");
    let post = |form: &str| {
        let fixed = ["--silent", "--show-error", "--max-time", "60", "--write-out", "%{http_code}", "--form", form];
        output_text(&curl, &[&fixed[..], &[&url]].concat())
    };
    for _ in 0..3 {
        let said = post(&format!("file=@\"{}\"", path.replace('"', "\\\"")));
        assert!(said.ends_with("507") && said.contains("the server has no room left for the upload"), "{said}");
        assert!(becomes_empty(Path::new(&disk)), "an upload is left behind");
        let said = post("file=small;filename=small.txt");
        assert!(said.ends_with("200") && said.contains("\"bytes\":5"), "{said}");
    }
    // Over HTTP/2 the demo answers before the end of the request and then resets the stream. Old versions of curl
    // report only the reset, so this uses nghttp.
    if let Some(nghttp) = program(&["nghttp"]) {
        let form = BEGUN.split_once("\r\n\r\n").expect("a head").1.as_bytes();
        let content = std::fs::read(&path).expect("the file");
        let body = folder.path("body");
        std::fs::write(&body, [form, &content, b"\r\n--B--\r\n"].concat()).expect("a file");
        let field = "Content-Type: multipart/form-data; boundary=B";
        let said = output_text(&nghttp, &["--data", &body, "--header", field, &url]);
        assert!(said.contains("the server has no room left for the upload"), "{said}");
        assert!(becomes_empty(Path::new(&disk)), "an upload is left behind");
    }
    get(&demo.addresses[0], "/hello").expect("an answer after the failures");
}
