//! A C program that uses hooks, values, forms, certificates and bodies in both directions, over every engine, and under sanitizers.
//! Needs a real kernel, because the programs are processes of their own.

use crate::programs::{BUILDS, Build, C99, Running, compile, has, libraries};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::http1::{Http1, body, connect, exchange, exchange_text, get};

const CLOSE: &str = "Host: a\r\nConnection: close\r\n";

/// Sends a request without a body. `fields` are further lines.
fn ask(address: &str, target: &str, fields: &str) -> String {
    exchange_text(connect(address), format!("GET {target} HTTP/1.1\r\n{CLOSE}{fields}\r\n"))
}

fn post(address: &str, target: &str, content_type: &str, content: &[u8]) -> String {
    let head = format!(
        "POST {target} HTTP/1.1\r\n{CLOSE}Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    exchange_text(connect(address), [head.as_bytes(), content].concat())
}

/// Asks a running `features` for everything but TLS.
fn ask_for_features(address: &str, what: &str) {
    let values = post(
        address,
        "/values/-7?tag=a&tag=b%20c&x=%ff&page=12&stop&more=1",
        "application/x-www-form-urlencoded",
        b"f=5&raw=\xff&g=1",
    );
    assert_eq!(body(&values), "tag=a\ntag=b c\npage=12\nstop=\nf=5\ng=1\n-2", "{what}");
    for wrong in ["x", "1.5", "+1", "9223372036854775808", "%31x"] {
        let answer = get(address, &format!("/values/{wrong}?page=1"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {wrong}: {answer}");
    }
    let fields = get(address, "/fields").to_lowercase();
    assert!(fields.contains("x-first: 1\r\nx-a: 3\r\n") && !fields.contains("x-b"), "{what}: {fields}");

    // The first hook refuses, or keeps a value that the handler and the other hook get.
    let refused = get(address, "/whoami");
    assert!(refused.starts_with("HTTP/1.1 401 ") && refused.contains("x-mark: /whoami 401 -"), "{what}: {refused}");
    for path in ["/whoami", "/whoami/later"] {
        let answer = ask(address, path, "X-Name: Ada\r\n");
        assert_eq!(body(&answer), "Ada", "{what}");
        assert!(answer.contains(&format!("x-mark: {path} 200 Ada\r\n")), "{what}: {answer}");
    }
    let changed = get(address, "/changed");
    assert!(changed.starts_with("HTTP/1.1 203 ") && changed.ends_with("\r\n\r\nby the hook"), "{what}: {changed}");
    assert!(changed.contains("text/x-changed") && !changed.contains("text/plain"), "{what}: {changed}");

    // Errors have the program's form, wherever they arise.
    for (request, status) in [
        ("GET /nowhere HTTP/1.1\r\n", 404),
        ("PUT /fields HTTP/1.1\r\n", 405),
        ("GET / HTTP/1.1\r\nBad Header: 1\r\n", 400),
        ("POST /values/1 HTTP/1.1\r\nContent-Length: 2000000\r\n", 413),
    ] {
        let answer = exchange_text(connect(address), format!("{request}{CLOSE}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer}");
        assert_eq!(body(&answer), format!("{{\"status\":{status},\"hasReason\":true}}"), "{what}");
        assert!(answer.contains("application/problem+json"), "{what}: {answer}");
    }

    let long = exchange(connect(address), format!("GET /long HTTP/1.1\r\n{CLOSE}Accept-Encoding: gzip\r\n\r\n"));
    let long = String::from_utf8_lossy(&long);
    assert!(long.to_lowercase().contains("content-encoding: gzip\r\n") && long.len() < 2000, "{what}: {long}");
    assert!(long.contains("x-mark: /long 200 -"), "{what}: {long}");

    assert_eq!(body(&get(address, "/lengths")), "hello", "{what}");
    let mut short = connect(address);
    write!(short, "GET /short HTTP/1.1\r\n{CLOSE}\r\n").expect("a request");
    short.read_to_end(&mut Vec::new()).expect_err("the connection is reset");
    let socket = get(address, "/socket");
    assert!(socket.starts_with("HTTP/1.1 4"), "{what}: {socket}");
    ask_for_forms(address, what);
    ask_for_both_directions(address, what);
}

fn ask_for_forms(address: &str, what: &str) {
    let file = "f".repeat(300_000);
    let form = format!(
        "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nan entry\r\n--B\r\n\
         Content-Disposition: form-data; name=\"f\"; filename=\"../x.txt\"\r\nContent-Type: text/x\r\n\r\n{file}\r\n--B--\r\n"
    );
    for path in ["/form/whole", "/form/parts"] {
        let answer = post(address, path, "multipart/form-data; boundary=B", form.as_bytes());
        let expected = "name=a\nbytes=8\nname=f\nfile=x.txt\ntype=text/x\nbytes=300000\n";
        assert_eq!(body(&answer), expected, "{what}: {path}");
        let other = post(address, path, "application/json", b"{}");
        assert!(other.starts_with("HTTP/1.1 415 "), "{what}: {path}: {other}");
        let broken = post(address, path, "multipart/form-data; boundary=B", b"--B\r\nnonsense\r\n\r\n1\r\n--B--\r\n");
        assert!(broken.starts_with("HTTP/1.1 400 "), "{what}: {path}: {broken}");
    }
}

/// The answer to a part comes before the next part is sent.
fn ask_for_both_directions(address: &str, what: &str) {
    let mut stream = connect(address);
    let read = |stream: &mut std::net::TcpStream, wanted: &str| {
        let mut got = String::new();
        while !got.contains(wanted) {
            let mut bytes = [0; 1024];
            let count = stream.read(&mut bytes).expect("bytes");
            assert_ne!(count, 0, "{what}: the connection has ended behind {got:?}, before {wanted:?}");
            got += &String::from_utf8_lossy(&bytes[..count]);
        }
    };
    write!(stream, "POST /duplex HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").expect("a head");
    read(&mut stream, "begin\n");
    for part in ["one", "two", "three"] {
        write!(stream, "{:x}\r\n{part}\r\n", part.len()).expect("a part");
        read(&mut stream, part);
    }
    write!(stream, "0\r\n\r\n").expect("the end");
    read(&mut stream, "0\r\n\r\n");
    // The connection serves the next request.
    let mut next = Http1::new(stream);
    next.send(b"GET /fields HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
    assert_eq!(next.response().expect("an answer").text(), "fields", "{what}");
    // The answer ends before the body.
    let mut stream = connect(address);
    write!(stream, "POST /end HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").expect("a head");
    read(&mut stream, "the end");
    let _ = write!(stream, "1\r\na\r\n0\r\n\r\n");
    // Clients that leave in the middle, also while the server sends.
    for path in ["/duplex", "/both", "/both", "/both"] {
        let mut stream = connect(address);
        write!(stream, "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            .expect("a part");
        read(&mut stream, "begin\n");
    }
    let form = "--B\r\nContent-Disposition: form-data; name=n\r\n\r\nhello\r\n--B--\r\n";
    for _ in 0..3 {
        let mut stream = connect(address);
        let head = "POST /form/slow HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=B\r\n";
        write!(stream, "{head}Content-Length: {}\r\n\r\n{form}", form.len()).expect("a form");
        read(&mut stream, "begin\n");
    }
}

/// Writes two certificates with their keys, the authority, and the certificate of a client. Returns the files.
fn certificates(folder: &Path) -> [PathBuf; 4] {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    let issue = |name: &str| {
        let mut params = CertificateParams::new([name.to_string()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        params.signed_by(&key, &issuer).expect("a certificate").pem() + &key.serialize_pem()
    };
    std::fs::create_dir_all(folder).expect("a folder");
    let files = [
        ("localhost.pem", issue("localhost")),
        ("other.pem", issue("other.test")),
        ("authority.pem", authority),
        ("ada.pem", issue("ada")),
    ];
    files.map(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    })
}

/// Asks by curl with TLS, as `name`.
fn secure(port: &str, name: &str, path: &str, files: &[PathBuf; 4], with_certificate: bool) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "--cacert"]).arg(&files[2]);
    command.args(["--resolve", &format!("{name}:{port}:127.0.0.1")]);
    if with_certificate {
        command.arg("--cert").arg(&files[3]);
    }
    let output = command.arg(format!("https://{name}:{port}{path}")).output().expect("curl");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts the program, asks it, and stops it. Returns what it has printed to standard error.
fn run(program: &Path, engine: &str, what: &str, files: &[PathBuf; 4]) -> String {
    let mut command = Command::new(program);
    command.arg(engine);
    // A thread for each connection has no TLS.
    let has_tls = engine != "3";
    if has_tls {
        command.args(files);
    }
    let running = Running::start(command);
    let (address, secure_address) = running.address.split_once(' ').unwrap_or((&running.address, ""));
    ask_for_features(address, what);
    if has_tls {
        ask_with_tls(address, secure_address, files, what);
    }
    get(address, "/stop");
    running.end()
}

fn ask_with_tls(address: &str, secure_address: &str, files: &[PathBuf; 4], what: &str) {
    let port = secure_address.rsplit(':').next().expect("a port");
    if has("curl") {
        for name in ["localhost", "other.test"] {
            assert_eq!(secure(port, name, "/certificate", files, false), "nobody", "{what}");
            for path in ["/certificate", "/certificate/later"] {
                assert!(secure(port, name, path, files, true).contains("CN=ada"), "{what}: {name}");
            }
        }
    }
    assert!(body(&get(address, &format!("/call/{port}"))).contains("CN=ada"), "{what}");
}

#[test]
fn a_program_uses_hooks_forms_and_certificates() {
    let files = certificates(&libraries().join("c-features"));
    for build in BUILDS.iter().filter(|build| has(build.compiler)) {
        let program = compile("tests/all/programs/features.c", *build);
        let engines: &[&str] = if *build == C99 { &["1", "2", "3"] } else { &["0"] };
        for engine in engines {
            run(&program, engine, &format!("{build:?}, engine {engine}"), &files);
        }
    }
}

#[test]
fn the_sanitizers_find_nothing_in_it() {
    if !has("gcc") {
        return;
    }
    let files = certificates(&libraries().join("c-features-sanitized"));
    let options = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let program = compile("tests/all/programs/features.c", Build { compiler: "gcc", standard: "c99", options });
    for engine in ["1", "2"] {
        let said = run(&program, engine, &format!("sanitizers, engine {engine}"), &files);
        assert!(!said.contains("Sanitizer"), "{said}");
    }
}

#[test]
fn the_example_of_an_api_answers() {
    if !has("gcc") {
        return;
    }
    let running = Running::start(Command::new(compile("examples/api.c", C99)));
    let address = &running.address;
    let ada = "Authorization: Bearer ada\r\n";
    let order = ask(address, "/orders/7?limit=2&tag=new&x=1&tag=paid", ada);
    assert_eq!(body(&order), "order 7 of ada, at most 2 lines #new #paid");
    assert!(order.to_lowercase().contains("cache-control: private\r\n"), "{order}");
    assert!(ask(address, "/orders/seven", ada).starts_with("HTTP/1.1 400 "));
    assert!(ask(address, "/orders/7?limit=x", ada).starts_with("HTTP/1.1 400 "));
    assert!(ask(address, "/orders/7", "").starts_with("HTTP/1.1 401 "));
    assert_eq!(body(&ask(address, "/nowhere", ada)), "{\"status\":404}\n");
    let form = "--B\r\nContent-Disposition: form-data; name=n\r\n\r\nhello\r\n\
                --B\r\nContent-Disposition: form-data; name=p; filename=p\r\n\r\n12345\r\n--B--\r\n";
    let head = format!("POST /photos HTTP/1.1\r\n{CLOSE}{ada}Content-Type: multipart/form-data; boundary=B\r\n");
    let sent = exchange_text(connect(address), format!("{head}Content-Length: {}\r\n\r\n{form}", form.len()));
    assert_eq!(body(&sent), "5 bytes of photos\n");
    running.terminate();
}
