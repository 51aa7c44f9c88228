//! Sends requests that two servers could read differently through the reverse proxy to nginx, Apache, Node and Python, and
//! through nginx and HAProxy to Highwire. Each party notes the targets of the requests that it has seen. None may see a
//! request that the party before it has not seen.

use crate::programs;
use crate::programs::{Folder, program};
use highwire::middleware::Middleware;
use highwire::proxy::Proxy;
use highwire::server::Handle;
use highwire::{App, Request, Response};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use testkit::ports::free_port;

/// Returns the requests. `{n}` in one is its number; a second request, which only a party that reads the first one in
/// another way sees, has the target `/hidden{n}`.
fn corpus() -> Vec<Vec<u8>> {
    let hidden = "GET /hidden{n} HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut corpus = Vec::new();
    // Two ways to say where the body ends.
    let codings = [
        "Transfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:chunked",
        "Transfer-Encoding:\tchunked",
        "Transfer-Encoding: chunked ",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding:\x0cchunked",
        " Transfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "Transfer-Encoding\r\n: chunked",
        "Transfer-Encoding:\r\n chunked",
        "transfer-encoding: CHUNKED",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunkedx",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;a=b",
        "Transfer-Encoding: chun\0ked",
        "Transfer_Encoding: chunked",
        "X-Transfer-Encoding: chunked\r\nTransfer-Encoding: ",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: chunked,",
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
        "Connection: close, Content-Length\r\nTransfer-Encoding: chunked",
        "TE: chunked",
    ];
    for coding in codings {
        for version in ["1.1", "1.0"] {
            let chunked = format!("0\r\n\r\n{hidden}");
            for length in
                [format!("Content-Length: {}\r\n", chunked.len() + 2), "Content-Length: 4\r\n".into(), String::new()]
            {
                for is_first in [true, false] {
                    let (one, other) = (format!("{coding}\r\n"), length.clone());
                    let lines = if is_first { one + &other } else { other + &one };
                    corpus.push(format!("POST /seen{{n}} HTTP/{version}\r\nHost: a\r\n{lines}\r\n{chunked}"));
                    if length.is_empty() {
                        break;
                    }
                }
            }
        }
    }
    // Lengths.
    let body = format!("abcd{hidden}");
    for length in [
        "Content-Length: 4\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 0",
        "Content-Length: 0\r\nContent-Length: 4",
        "Content-Length: 4, 4",
        "Content-Length: 0, 4",
        "Content-Length: +4",
        "Content-Length: -4",
        "Content-Length: 0x4",
        "Content-Length: 4 0",
        "Content-Length: 4;a",
        "Content-Length : 4",
        "Content-Length: 4\0",
        "Content-Length: 004",
        "Content-Length: 4.0",
        "Content-Length: 18446744073709551620",
        "Content-Length: ",
        "Content_Length: 4",
        "X: y\r\n Content-Length: 4",
        "X: y\nContent-Length: 4",
        "Connection: Content-Length\r\nContent-Length: 4",
        "Expect: 100-continue\r\nContent-Length: 4",
        "Expect: 100-continue, x\r\nContent-Length: 4",
        "Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 4",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 4",
        "Content-Encoding: chunked\r\nContent-Length: 4",
    ] {
        for method in ["POST", "GET", "HEAD", "DELETE", "OPTIONS", "X"] {
            corpus.push(format!("{method} /seen{{n}} HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n{body}"));
        }
    }
    // Chunks.
    for chunks in [
        "4\r\nabcd\r\n0\r\n\r\n",
        "4\nabcd\n0\n\n",
        "4 \r\nabcd\r\n0\r\n\r\n",
        " 4\r\nabcd\r\n0\r\n\r\n",
        "0x4\r\nabcd\r\n0\r\n\r\n",
        "4;a\r\nabcd\r\n0\r\n\r\n",
        "4;a\nb\r\nabcd\r\n0\r\n\r\n",
        "4;a=\"\r\n\"\r\nabcd\r\n0\r\n\r\n",
        "4\r\nabcde\r\n0\r\n\r\n",
        "4\r\nabcd0\r\n\r\n",
        "4\r\nabcd\r\n00000000000000000\r\n\r\n",
        "10000000000000004\r\nabcd\r\n0\r\n\r\n",
        "-4\r\nabcd\r\n0\r\n\r\n",
        "+4\r\nabcd\r\n0\r\n\r\n",
        "4_0\r\nabcd\r\n0\r\n\r\n",
        "\r\n4\r\nabcd\r\n0\r\n\r\n",
        "4\r\nabcd\r\n0\r\nX: y\r\n\r\n",
        "4\r\nabcd\r\n0\r\nContent-Length: 50\r\n\r\n",
        "4\r\nabcd\r\n0\r\nTransfer-Encoding: identity\r\n\r\n",
        "4\r\nabcd\r\n0\r\n X\r\n\r\n",
        "4\r\nabcd\r\n0\r\nX\r\n\r\n",
        "4\r\nabcd\r\n0\n\r\n",
        "4\r\nabcd\r\n0\r\n\n",
    ] {
        corpus
            .push(format!("POST /seen{{n}} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}{hidden}"));
    }
    // Request lines, targets, hosts and other fields.
    for head in [
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nHost: b",
        "GET /seen{n} HTTP/1.1\r\nHost: a, b",
        "GET /seen{n} HTTP/1.1\r\nHost: a b",
        "GET /seen{n} HTTP/1.1\r\nHost: a/../b",
        "GET /seen{n} HTTP/1.1\r\nHost : a",
        "GET /seen{n} HTTP/1.1\r\n Host: a",
        "GET /seen{n} HTTP/1.1\r\nHost: a@b",
        "GET /seen{n} HTTP/1.1",
        "GET http://b/seen{n} HTTP/1.1\r\nHost: a",
        "GET http://b@a/seen{n} HTTP/1.1\r\nHost: a",
        "GET //b/seen{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}/../hidden{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}/%2e%2e/hidden{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}/..;/hidden{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}\\..\\hidden{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}%5c..%5chidden{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}%00/hidden{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}%0d%0aX: HTTP/1.1\r\nHost: a",
        "GET /seen{n}#/hidden{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}?a=b#c HTTP/1.1\r\nHost: a",
        "GET /seen{n} HTTP/1.1 HTTP/1.1\r\nHost: a",
        "GET  /seen{n} HTTP/1.1\r\nHost: a",
        "GET /seen{n}  HTTP/1.1\r\nHost: a",
        "GET\t/seen{n}\tHTTP/1.1\r\nHost: a",
        "GET /seen{n} HTTP/1.1\nHost: a",
        "GET /seen{n} HTTP/1.10\r\nHost: a",
        "GET /seen{n} HTTP/1.2\r\nHost: a",
        "GET /seen{n} HTTP/2.0\r\nHost: a",
        "GET /seen{n} http/1.1\r\nHost: a",
        "GET /seen{n} HTTP/0.9\r\nHost: a",
        "GET /seen{n}",
        "get /seen{n} HTTP/1.1\r\nHost: a",
        "G\0ET /seen{n} HTTP/1.1\r\nHost: a",
        "\r\nGET /seen{n} HTTP/1.1\r\nHost: a",
        "\nGET /seen{n} HTTP/1.1\r\nHost: a",
        " GET /seen{n} HTTP/1.1\r\nHost: a",
        "CONNECT a:80 HTTP/1.1\r\nHost: a",
        "CONNECT /seen{n} HTTP/1.1\r\nHost: a",
        "OPTIONS * HTTP/1.1\r\nHost: a",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nX: a\0b",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nX: a\rb",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\n: b",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nX",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nConnection: Host",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Forwarded-For\r\nX-Forwarded-For: 1.2.3.4",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: POST",
        "GET /seen{n} HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0",
        "TRACE /seen{n} HTTP/1.1\r\nHost: a",
    ] {
        corpus.push(format!("{head}\r\n\r\n{hidden}"));
    }
    let numbered = |(number, text): (usize, String)| text.replace("{n}", &number.to_string()).into_bytes();
    corpus.into_iter().enumerate().map(numbered).collect()
}

/// The number of requests that a party has seen, by their targets' paths.
type Seen = BTreeMap<String, usize>;

fn count(targets: impl Iterator<Item = String>) -> Seen {
    let mut seen = Seen::new();
    targets.for_each(|target| *seen.entry(path_of(&target)).or_default() += 1);
    seen
}

/// Returns the last part of a target's path: `seen7` or `hidden7`.
fn path_of(target: &str) -> String {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_string()
}

/// How long a connection is silent when all its requests have been answered.
const SILENCE: Duration = Duration::from_millis(60);

/// Sends each request on a connection of its own, and waits for the end of the answers. Highwire gives up requests whose client
/// ends its direction, so this happens only when nothing more comes.
fn send(port: u16, corpus: &[Vec<u8>]) {
    for request in corpus {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        // The server may refuse the request before it has read all of it.
        let _ = stream.write_all(request);
        let mut answers = Vec::new();
        for (wait, is_last) in [(SILENCE, false), (Duration::from_secs(10), true)] {
            if is_last {
                let _ = stream.shutdown(Shutdown::Write);
            }
            stream.set_read_timeout(Some(wait)).expect("a socket");
            let _ = stream.read_to_end(&mut answers);
        }
    }
}

/// Asserts that the second party has seen no request that the first one has not.
fn compare(name: &str, first: &Seen, second: &Seen, corpus: &[Vec<u8>]) {
    assert!(second.len() > 20, "{name}: only {} requests arrived; is the log complete?", second.len());
    for (target, times) in second {
        let before = first.get(target).copied().unwrap_or(0);
        let number = target.trim_start_matches(char::is_alphabetic).parse::<usize>();
        let text = number.ok().and_then(|number| corpus.get(number)).map(|request| String::from_utf8_lossy(request));
        assert!(*times <= before, "{name}: {target} was seen {before} times before, and then {times} times: {text:#?}");
    }
}

type Log = Arc<Mutex<Vec<String>>>;

/// Middleware that notes the targets of the requests.
struct Notes(Log);

impl Middleware for Notes {
    type State = ();

    fn before(&self, request: &mut Request<'_>) -> Result<(), Response> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(request.target().to_string());
        Ok(())
    }

    fn after(&self, (): (), _: &mut Response) {}
}

/// Starts our server, which notes the targets that it sees.
fn highwire(app: App) -> (Handle, u16, Log) {
    let log = Log::default();
    let noted = log.clone();
    let app = app.with(Notes(noted));
    let server = app.configure(|config| config.workers = 1).listen("127.0.0.1:0").expect("an address");
    let port = server.addresses()[0].rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    (server.start().expect("cannot start"), port, log)
}

/// A program of another project. Dropping the value stops it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        programs::stop(&mut self.0);
    }
}

fn start(command: &mut Command, port: u16) -> Running {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program");
    let running = Running(child);
    let begun = Instant::now();
    while !testkit::http1::listens(("127.0.0.1", port)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
        std::thread::yield_now();
    }
    running
}

/// Returns the targets in a log with a request line on each line.
fn read_log(path: &str) -> Seen {
    let log = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&log).into_owned();
    count(text.lines().filter_map(|line| line.split_ascii_whitespace().nth(1).map(str::to_string)))
}

/// Sends the corpus through our proxy to another server, whose log is at `log`.
fn in_front_of(name: &str, port: u16, log: &str) {
    let corpus = corpus();
    assert!(corpus.len() >= 300, "{} requests", corpus.len());
    let proxy = Proxy::to([format!("http://127.0.0.1:{port}")]).expect("a proxy");
    let (handle, front, seen) = highwire(App::new().proxy("/", proxy));
    send(front, &corpus);
    handle.abort();
    handle.join().expect("cannot stop");
    let first = count(seen.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
    compare(name, &first, &read_log(log), &corpus);
}

/// Sends the corpus through another proxy, whose log is at `log`, to our server.
fn behind(name: &str, proxy: impl Fn(u16, u16) -> Running, log: &str) {
    let corpus = corpus();
    let app = App::new().any("/{*rest}", |request: &Request<'_>| request.target().to_string());
    let (handle, back, seen) = highwire(app.any("/", || "root"));
    let front = free_port();
    let running = proxy(front, back);
    send(front, &corpus);
    drop(running);
    handle.abort();
    handle.join().expect("cannot stop");
    let second = count(seen.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
    if log.is_empty() {
        let hidden: Vec<&String> = second.keys().filter(|target| target.starts_with("hidden")).collect();
        assert!(second.len() > 20 && hidden.len() < second.len(), "{name}: {hidden:?}");
        return;
    }
    compare(name, &read_log(log), &second, &corpus);
}

fn nginx_config(folder: &Folder, port: u16, location: &str) -> String {
    let path = |name: &str| folder.path(name);
    format!(
        "worker_processes 1; pid {}; error_log /dev/null; daemon off;\n\
         events {{ worker_connections 512; }}\n\
         http {{ log_format line '$request'; access_log {} line; client_body_temp_path {temp};\n\
         proxy_temp_path {temp}; fastcgi_temp_path {temp}; uwsgi_temp_path {temp}; scgi_temp_path {temp};\n\
         server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }} }}\n",
        path("pid"),
        path("log"),
        temp = path("temp"),
    )
}

fn nginx_command(program: &std::path::Path, folder: &Folder) -> Command {
    let mut command = Command::new(program);
    command.args(["-e", "/dev/null", "-p", &folder.path(""), "-c", &folder.path("nginx.conf")]);
    command
}

#[test]
fn highwire_before_nginx() {
    let Some(program) = program(&["nginx"]) else { return };
    let (folder, port) = (Folder::new("ambiguous-nginx"), free_port());
    std::fs::write(folder.path("nginx.conf"), nginx_config(&folder, port, "return 200 ok;")).expect("a file");
    let _running = start(&mut nginx_command(&program, &folder), port);
    in_front_of("nginx", port, &folder.path("log"));
}

#[test]
fn highwire_before_apache() {
    let Some(program) = program(&["apache2", "httpd"]) else { return };
    let (folder, port) = (Folder::new("ambiguous-apache"), free_port());
    let path = |name: &str| folder.path(name);
    std::fs::create_dir_all(path("root")).expect("a folder");
    let modules = ["/usr/lib/apache2/modules", "/usr/lib/httpd/modules"];
    let modules = modules.iter().find(|folder| std::path::Path::new(folder).is_dir()).expect("Apache's modules");
    let config = format!(
        "ServerName a\nListen 127.0.0.1:{port}\nPidFile {}\nErrorLog /dev/null\nServerRoot {}\nDocumentRoot {}\n\
         LoadModule mpm_event_module {modules}/mod_mpm_event.so\nLoadModule authz_core_module {modules}/mod_authz_core.so\n\
         Mutex file:{} default\nLogFormat \"%m %U\" line\nCustomLog {} line\n",
        path("pid"),
        path(""),
        path("root"),
        path(""),
        path("log"),
    );
    std::fs::write(path("apache.conf"), config).expect("a file");
    let mut command = Command::new(program);
    command.args(["-f", &path("apache.conf"), "-D", "FOREGROUND"]);
    let running = start(&mut command, port);
    in_front_of("Apache", port, &path("log"));
    drop(running);
}

const NODE: &str = r#"
const fs = require("fs");
const [, , port, log] = process.argv;
require("http").createServer((request, response) => {
  fs.appendFileSync(log, request.method + " " + request.url + "\n");
  request.resume();
  response.end("ok");
}).listen(port, "127.0.0.1");
"#;

#[test]
fn highwire_before_node() {
    let Some(program) = program(&["node", "nodejs"]) else { return };
    let (folder, port) = (Folder::new("ambiguous-node"), free_port());
    std::fs::write(folder.path("server.js"), NODE).expect("a file");
    let mut command = Command::new(program);
    command.args([&folder.path("server.js"), &port.to_string(), &folder.path("log")]);
    let _running = start(&mut command, port);
    in_front_of("Node", port, &folder.path("log"));
}

const PYTHON: &str = r#"
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def parse_request(self):
        parsed = super().parse_request()
        if parsed:
            open(sys.argv[2], "a").write(self.command + " " + self.path + "\n")
            setattr(self, "do_" + self.command, self.answer)
        return parsed
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        while self.headers.get("Transfer-Encoding"):
            size = int(self.rfile.readline().split(b";")[0], 16)
            self.rfile.read(size)
            if size == 0:
                while self.rfile.readline().strip(): pass
                break
            self.rfile.readline()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *arguments): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn highwire_before_python() {
    let Some(program) = program(&["python3"]) else { return };
    let (folder, port) = (Folder::new("ambiguous-python"), free_port());
    std::fs::write(folder.path("server.py"), PYTHON).expect("a file");
    let mut command = Command::new(program);
    command.args([&folder.path("server.py"), &port.to_string(), &folder.path("log")]);
    let _running = start(&mut command, port);
    in_front_of("Python", port, &folder.path("log"));
}

#[test]
fn highwire_behind_nginx() {
    let Some(program) = program(&["nginx"]) else { return };
    let folder = Folder::new("ambiguous-behind-nginx");
    let proxy = |front: u16, back: u16| {
        // By default nginx gives up a request whose client has shut down its writing half, as `send` does.
        let location =
            format!("proxy_pass http://127.0.0.1:{back}; proxy_http_version 1.1; proxy_ignore_client_abort on;");
        std::fs::write(folder.path("nginx.conf"), nginx_config(&folder, front, &location)).expect("a file");
        start(&mut nginx_command(&program, &folder), front)
    };
    behind("nginx", proxy, &folder.path("log"));
}

#[test]
fn highwire_behind_haproxy() {
    let Some(program) = program(&["haproxy"]) else { return };
    let folder = Folder::new("ambiguous-behind-haproxy");
    let proxy = |front: u16, back: u16| {
        let config = format!(
            "global\n  nbthread 1\n  log stdout format raw local0\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  \
             timeout server 5s\n  log global\n  log-format \"%HM %HU\"\nfrontend f\n  bind 127.0.0.1:{front}\n  \
             default_backend b\nbackend b\n  server s 127.0.0.1:{back}\n"
        );
        std::fs::write(folder.path("haproxy.cfg"), config).expect("a file");
        let log = std::fs::File::create(folder.path("log")).expect("a file");
        let mut command = Command::new(&program);
        let child = command.args(["-f", &folder.path("haproxy.cfg"), "-db"]).stdin(Stdio::null()).stdout(log);
        let running = Running(child.stderr(Stdio::null()).spawn().expect("a program"));
        let begun = Instant::now();
        while !testkit::http1::listens(("127.0.0.1", front)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "HAProxy does not listen");
            std::thread::yield_now();
        }
        running
    };
    behind("HAProxy", proxy, &folder.path("log"));
}
