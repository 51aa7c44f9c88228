//! Compression with third-party programs: curl decodes the server's responses, and the server decodes bodies that gzip,
//! brotli and zstd have made. Needs a real kernel, because the programs connect to the server.

use highwire::App;
use highwire::compress::{Compression, Decompression};
use highwire::server::Handle;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the path of a program. If the program is not installed, prints that and returns `None`.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        not_run(&format!("{name} is not installed"));
    }
    found
}

/// Prints why a test was not run. Writes directly to standard error, because the test harness captures the output of
/// macros in passing tests.
fn not_run(why: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {why}");
}

/// Runs a program with `input` as its standard input. Returns its output.
fn run(program: &PathBuf, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("no panic").expect("the program reads all of its input");
    assert!(output.status.success(), "{program:?} {arguments:?}: {}", output.status);
    output.stdout
}

fn text(bytes: usize) -> String {
    let mut text: String = (0..bytes / 4).map(|number| format!("{} {}\n", number, number * number)).collect();
    text.truncate(bytes);
    text
}

const LENGTHS: [usize; 2] = [5_000, 150_000];

fn server() -> (Handle, String) {
    let app = App::new()
        .get("/5000", || text(5_000))
        .get("/150000", || text(150_000))
        .post("/echo", |body: bytes::Bytes| body)
        .post("/parts", async |body: highwire::Body| body.collect(100 << 20).await)
        .with(Compression::new())
        .with(Decompression::new())
        .configure(|config| config.limits.body_bytes = 10 << 20);
    let handle = app.listen("127.0.0.1:0").expect("a free port").start().expect("the server starts");
    let url = format!("http://{}", handle.addresses()[0]);
    (handle, url)
}

#[test]
fn curl_decodes_what_it_is_sent() {
    let Some(curl) = program("curl") else { return };
    let features = String::from_utf8_lossy(&run(&curl, &["--version"], b"")).into_owned();
    let (handle, url) = server();
    for (coding, feature) in [("gzip", "libz"), ("deflate", "libz"), ("br", "brotli"), ("zstd", "zstd"), ("", "libz")] {
        if !features.contains(feature) {
            not_run(&format!("this curl does not know {coding}"));
            continue;
        }
        for bytes in LENGTHS {
            for version in ["--http1.1", "--http2-prior-knowledge", "--http1.0"] {
                let (accepts, url) = (format!("Accept-Encoding: {coding}"), format!("{url}/{bytes}"));
                // With this field, curl names one coding. Without it, curl names all codings that it decodes.
                let field = if coding.is_empty() { vec![] } else { vec!["--header", &accepts] };
                let fixed = ["--silent", "--show-error", "--max-time", "30", "--compressed", version, &url];
                let body = run(&curl, &[&fixed[..], &field].concat(), b"");
                assert_eq!(String::from_utf8_lossy(&body), text(bytes), "{coding} {version} {url}");
                let fixed = ["--silent", "--show-error", "--max-time", "30", version, &url];
                let encoded = run(&curl, &[&fixed[..], &["--header", &accepts]].concat(), b"");
                assert_eq!(encoded.len() < bytes, !coding.is_empty(), "{coding} {version} {url}: {}", encoded.len());
            }
        }
    }
    handle.shutdown();
    handle.join().expect("the server ends");
}

#[test]
fn what_other_encoders_make_is_decoded() {
    let Some(curl) = program("curl") else { return };
    let (handle, url) = server();
    let encoders: [(&str, &str, &[&[&str]]); 3] = [
        ("gzip", "gzip", &[&["-1c"], &["-9c"]]),
        ("brotli", "br", &[&["-c", "-q", "1"], &["-c", "-q", "11", "--lgwin=24"]]),
        ("zstd", "zstd", &[&["-1c", "--check"], &["-19c"], &["-c", "--long=23"]]),
    ];
    for (name, coding, options) in encoders {
        let Some(encoder) = program(name) else { continue };
        for options in options {
            for bytes in LENGTHS {
                let body = run(&encoder, options, text(bytes).as_bytes());
                let field = format!("Content-Encoding: {coding}");
                for path in ["/echo", "/parts"] {
                    let url = format!("{url}{path}");
                    let fixed = ["--silent", "--show-error", "--max-time", "30", "--data-binary", "@-"];
                    let answer = run(&curl, &[&fixed[..], &["--header", &field, &url]].concat(), &body);
                    assert_eq!(String::from_utf8_lossy(&answer), text(bytes), "{name} {options:?} {path}");
                }
            }
        }
    }
    handle.shutdown();
    handle.join().expect("the server ends");
}
