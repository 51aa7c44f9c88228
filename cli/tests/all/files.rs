//! Tests `highwire serve` with third-party clients: curl gets ten thousand files, wget finds them by the listings, and
//! every byte is compared. Also tests files that are not in the kernel's caches.
//!
//! Needs a real kernel, because the clients are separate programs and some tests are about the kernel's caches.

use crate::demo::{Demo, HIGHWIRE, get};
use crate::programs::{Folder, not_run, on_every_engine, output, output_text, program, random_bytes};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

on_every_engine! {
    uring, readiness, threads:
    [curl_gets_ten_thousand_files, what_is_not_in_the_caches_is_served_all_the_same]
}

const FOLDERS: usize = 100;

const FILES_A_FOLDER: usize = 100;

/// Names that must be encoded in a URL or escaped in HTML, or that look like another syntax. None contains a
/// percent-encoding, because wget decodes names twice.
const ODD_NAMES: [&str; 9] =
    ["a b", "a&b", "50% off", "<b>", "it's \"it\"", "ä-日本", "a+b=c;d", "#a?b", "javascript:alert(1)"];

/// Makes a folder with ten thousand files, from empty ones to ones too large for the cache in memory, and with `hello`
/// for the harness.
fn ten_thousand(name: &str) -> Folder {
    let folder = Folder::new(name);
    let root = folder.0.join("root");
    for number in 0..FOLDERS {
        let inner = root.join(format!("folder {number}/inner"));
        std::fs::create_dir_all(&inner).expect("a folder");
        for file in 0..FILES_A_FOLDER {
            let odd = ODD_NAMES.get(file).map_or_else(|| format!("{file}.txt"), |odd| format!("{odd}.bin"));
            let place = if file % 2 == 0 { inner.join(odd) } else { root.join(format!("folder {number}/{odd}")) };
            let length = match file {
                0 => 0,
                1 if number % 10 == 0 => 300_000 + number,
                file => (number * 31 + file * 97) % 3000,
            };
            std::fs::write(place, content(length, number * FILES_A_FOLDER + file)).expect("a file");
        }
    }
    std::fs::write(root.join("hello"), "Hello, World!").expect("a file");
    folder
}

/// Returns pseudo-random bytes that depend on the seed.
fn content(length: usize, seed: usize) -> Vec<u8> {
    random_bytes(length, seed as u64 + 1)
}

/// Returns the paths of all files below a folder, relative to it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.iter().map(|path| path.strip_prefix(folder).expect("a path below the folder").to_path_buf()).collect()
}

/// Asserts that `to` contains every file of `from`, byte for byte.
fn assert_copied(from: &Path, to: &Path) {
    let files = files_below(from);
    assert_eq!(files.len(), FOLDERS * FILES_A_FOLDER + 1);
    for path in files {
        let copy = std::fs::read(to.join(&path)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert!(copy == std::fs::read(from.join(&path)).expect("the file"), "{path:?} differs");
    }
}

/// Starts `highwire serve` on an engine.
fn serve(engine: &str, root: &Path, options: &[&str]) -> Option<Demo> {
    let mut command = Command::new(HIGHWIRE);
    command.arg("serve").arg(root).args(["--listen", "127.0.0.1:0", "--workers", "2", "--engine", engine]);
    command.args(options);
    Demo::of(command, engine)
}

fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.to_str().expect("UTF-8").bytes() {
        match byte {
            b'/' => text.push('/'),
            byte if byte.is_ascii_alphanumeric() => text.push(byte as char),
            byte => write!(text, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
    }
    text
}

fn curl_gets_ten_thousand_files(engine: &str) {
    let Some(program) = program(&["curl"]) else { return };
    let folder = ten_thousand(&format!("curl-files-{engine}"));
    let root = folder.0.join("root");
    let Some(demo) = serve(engine, &root, &[]) else { return };
    let mut config = String::new();
    let copies = folder.0.join("copies");
    for path in files_below(&root) {
        let quoted = copies.join(&path).to_str().expect("UTF-8").replace('\\', "\\\\").replace('"', "\\\"");
        writeln!(config, "url = \"{}\"\noutput = \"{quoted}\"", demo.url(&format!("/{}", encoded(&path))))
            .expect("writing to a string cannot fail");
    }
    std::fs::write(folder.path("config"), config).expect("a file");
    let fixed =
        ["--silent", "--show-error", "--fail", "--create-dirs", "--globoff", "--config", &folder.path("config")];
    output(&program, &fixed);
    assert_copied(&root, &copies);
}

#[test]
fn wget_finds_and_gets_ten_thousand_files() {
    let Some(program) = program(&["wget"]) else { return };
    let folder = ten_thousand("wget-files");
    let root = folder.0.join("root");
    let Some(demo) = serve("auto", &root, &["--listing"]) else { return };
    let copies = folder.path("copies");
    let recursive = ["--recursive", "--level=inf", "--no-host-directories", "--no-parent", "--no-verbose", "--tries=1"];
    let names = ["--restrict-file-names=nocontrol", "--execute=robots=off", "--directory-prefix", &copies];
    output(&program, &[&recursive[..], &names, &[&demo.url("/")]].concat());
    assert_copied(&root, Path::new(&copies));
}

#[test]
fn files_over_http2_are_the_same() {
    let Some(program) = program(&["curl"]) else { return };
    if !output_text(&program, &["--version"]).contains("HTTP2") {
        return not_run("curl has no HTTP/2");
    }
    let folder = Folder::new("http2-files");
    let root = folder.0.join("root");
    std::fs::create_dir_all(&root).expect("a folder");
    std::fs::write(root.join("hello"), "Hello, World!").expect("a file");
    for (name, length) in [("small.css", 5000), ("large.css", 3_000_000)] {
        std::fs::write(root.join(name), content(length, length)).expect("a file");
    }
    let Some(demo) = serve("auto", &root, &["--cache-control", "*.css=no-cache"]) else { return };
    for (name, length) in [("small.css", 5000), ("large.css", 3_000_000)] {
        let whole = content(length, length);
        for (arguments, status, body) in [
            (&[][..], 200, &whole[..]),
            (&["--header", "Range: bytes=100-4999"], 206, &whole[100..5000]),
            (&["--header", "If-None-Match: *"], 304, &[]),
            (&["--head"], 200, &[]),
        ] {
            let fixed = ["--http2-prior-knowledge", "--silent", "--show-error", "--include"];
            let answer = output(&program, &[&fixed[..], arguments, &[&demo.url(&format!("/{name}"))]].concat());
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
            let head = String::from_utf8_lossy(&answer[..end]);
            assert!(head.starts_with(&format!("HTTP/2 {status} ")), "{name} {arguments:?}: {head}");
            assert!(head.contains("etag: ") && head.contains("cache-control: no-cache\r\n"), "{head}");
            assert_eq!(head.contains("content-type: text/css; charset=utf-8\r\n"), status != 304, "{head}");
            assert!(&answer[end..] == body, "{name} {arguments:?}: {} bytes", answer.len() - end);
        }
    }
}

#[test]
fn files_are_compressed_for_those_who_take_it_where_that_is_asked_for() {
    let Some(program) = program(&["curl"]) else { return };
    let folder = Folder::new("compressed-files");
    let root = folder.0.join("root");
    std::fs::create_dir_all(&root).expect("a folder");
    std::fs::write(root.join("hello"), "Hello, World!").expect("a file");
    let style = "body { color: black }\n".repeat(1000);
    std::fs::write(root.join("style.css"), &style).expect("a file");
    for (options, coded) in [(&["--compress"][..], true), (&[], false)] {
        let Some(demo) = serve("auto", &root, options) else { return };
        let head = folder.path("head");
        let fixed = ["--silent", "--show-error", "--fail", "--dump-header", &head, "--compressed"];
        assert!(output_text(&program, &[&fixed[..], &[&demo.url("/style.css")]].concat()) == style);
        let head = std::fs::read_to_string(&head).expect("curl's header file").to_lowercase();
        assert_eq!(head.contains("\r\ncontent-encoding: "), coded, "{head}");
    }
}

/// Returns true if the blocking pool has started a thread.
fn has_pool(demo: &Demo) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", demo.id())).expect("a running process");
    let names = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.into_iter().any(|name| name.starts_with("highwire-blocki"))
}

fn what_is_not_in_the_caches_is_served_all_the_same(engine: &str) {
    let (Some(curl), Some(dd), Some(strace)) = (program(&["curl"]), program(&["dd"]), program(&["strace"])) else {
        return;
    };
    let folder = Folder::new(&format!("cold-{engine}"));
    let root = folder.0.join("root");
    std::fs::create_dir_all(&root).expect("a folder");
    std::fs::write(root.join("hello"), "Hello, World!").expect("a file");
    for (name, length) in [("small", 5000), ("large", 3_000_000)] {
        std::fs::write(root.join(name), content(length, length)).expect("a file");
    }
    let check = |demo: &Demo| {
        for (name, length) in [("small", 5000), ("large", 3_000_000)] {
            // Drops the file from the kernel's cache, which needs the data on the disk. tmpfs ignores the request.
            let file = root.join(name).display().to_string();
            output(&dd, &[&format!("of={file}"), "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]);
            let got = output(&curl, &["--silent", "--show-error", "--fail", &demo.url(&format!("/{name}"))]);
            assert!(got == content(length, length), "{name}: {} bytes", got.len());
        }
    };
    let Some(demo) = serve(engine, &root, &[]) else { return };
    check(&demo);
    if !has_pool(&demo) {
        not_run("reading uncached files: this file system keeps all files in the cache");
    }
    drop(demo);
    // Every second openat2 fails with EAGAIN, as if the kernel had to read the path from the disk.
    let mut command = Command::new(strace);
    command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=openat2"]);
    command.args(["-e", "inject=openat2:error=EAGAIN:when=1+2", HIGHWIRE, "serve"]).arg(&root);
    command.args(["--listen", "127.0.0.1:0", "--workers", "1", "--engine", engine]);
    let Some(demo) = Demo::of(command, "readiness") else { return };
    check(&demo);
    assert!(has_pool(&demo), "the blocking pool was not used");
}

#[test]
fn a_folder_that_cannot_be_served_is_told_at_the_start() {
    let folder = Folder::new("unserved");
    let gone = folder.path("gone");
    let mut commands = vec![(Command::new(HIGHWIRE), &*gone)];
    if let Some(strace) = program(&["strace"]) {
        let mut command = Command::new(strace);
        command.args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=openat2",
            "-e",
            "inject=openat2:error=ENOSYS",
            HIGHWIRE,
        ]);
        commands.push((command, folder.0.to_str().expect("UTF-8")));
    }
    for (mut command, folder) in commands {
        let output = command.args(["serve", folder, "--listen", "127.0.0.1:0"]).output().expect("a process");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(&format!("the folder {folder}: ")), "{errors}");
    }
}

#[test]
fn a_page_that_is_not_there_is_told_at_the_start_and_sent_once_it_comes() {
    let folder = Folder::new("pages");
    std::fs::write(folder.0.join("hello"), "Hello, World!").expect("a file");
    let Some(mut demo) = serve("auto", &folder.0, &["--not-found", "missing.html"]) else { return };
    demo.wait_for("cannot open the page missing.html in", 1);
    std::fs::write(folder.0.join("missing.html"), "nothing here").expect("a file");
    let answer = get(&demo.addresses[0], "/some/path").expect_err("404").to_string();
    assert!(answer.ends_with("nothing here"), "{answer}");
    // Without its single page, an application could not be served at all.
    let folder = folder.0.to_str().expect("UTF-8");
    let mut command = Command::new(HIGHWIRE);
    let output = command.args(["serve", folder, "--listen", "127.0.0.1:0", "--single-page", "app.html"]).output();
    let errors = String::from_utf8_lossy(&output.expect("a process").stderr).into_owned();
    assert!(errors.contains("cannot open the single page app.html in"), "{errors}");
}
