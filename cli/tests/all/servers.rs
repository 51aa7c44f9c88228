//! Tests of the client, and of the reverse proxy, against servers of other projects: nginx, h2o, Node, Python and Go. Each
//! server is a separate program that listens on a port of its own; one that is not installed is reported as not run.

use crate::programs;
use crate::programs::{Folder, program};
use highwire::App;
use highwire::client::{Body, Client, ClientBuilder, Error, block_on};
use highwire::proxy::Proxy;
use highwire::tls::ClientTls;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::ports::free_port;

/// The size of the large body in bytes.
const LARGE: usize = 2_000_000;

/// A server of another project. Dropping the value stops it.
struct Server {
    child: Child,
    /// The URLs at which it listens, each with true if it is for HTTP/2.
    urls: Vec<(String, bool)>,
    /// True if it echoes the body of a POST to `/echo`.
    echoes: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        programs::stop(&mut self.child);
    }
}

/// Starts a server and waits until it listens.
fn start(command: &mut Command, ports: &[u16], urls: Vec<(String, bool)>, echoes: bool) -> Server {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program");
    let server = Server { child, urls, echoes };
    let begun = Instant::now();
    for port in ports {
        while !testkit::http1::listens(("127.0.0.1", *port)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
            // Polls a program of another project, which has no other way to say that it is ready.
            std::thread::yield_now();
        }
    }
    server
}

/// The files that all servers use: a page, a large file, and a certificate.
fn folder(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    std::fs::create_dir_all(folder.path("root")).expect("a folder");
    for (name, content) in [
        ("root/hello", b"Hello, World!".to_vec()),
        ("root/large", vec![b'x'; LARGE]),
        ("cert.pem", made.cert.pem().into_bytes()),
        ("key.pem", made.signing_key.serialize_pem().into_bytes()),
    ] {
        std::fs::write(folder.path(name), content).expect("a file");
    }
    (folder, made.cert.pem())
}

fn builder(pem: &str, is_http2: bool) -> ClientBuilder {
    let builder = Client::builder().tls(ClientTls::new().without_system_roots().root_pem(pem)).retries(0);
    if is_http2 { builder } else { builder.http1_only() }
}

/// Sends requests of several shapes to each URL of a server, directly and through our proxy.
fn play(server: &Server, pem: &str) {
    for (url, is_http2) in &server.urls {
        let result = block_on(ask(&builder(pem, *is_http2).build().expect("a client"), url, server.echoes));
        result.expect("a worker").unwrap_or_else(|error| panic!("{url}: {error}"));
        let proxy = Proxy::with_client([url], || builder(pem, *is_http2)).expect("a proxy");
        let front = App::new().configure(|config| config.workers = 1).proxy("/", proxy);
        let front = front.listen("127.0.0.1:0").expect("an address");
        let through = format!("http://{}", front.addresses()[0]);
        let handle = front.start().expect("cannot start");
        let result = block_on(ask(&Client::new(), &through, server.echoes));
        handle.abort();
        handle.join().expect("cannot stop");
        result.expect("a worker").unwrap_or_else(|error| panic!("through the proxy to {url}: {error}"));
    }
}

async fn ask(client: &Client, url: &str, echoes: bool) -> Result<(), Error> {
    for _ in 0..20 {
        let hello = client.get(&format!("{url}/hello")).send().await?.error_for_status()?;
        assert_eq!(hello.text().await?, "Hello, World!");
    }
    let head = client.head(&format!("{url}/hello")).send().await?.error_for_status()?;
    assert_eq!(head.bytes().await?.len(), 0);
    let large = client.get(&format!("{url}/large")).send().await?.error_for_status()?.bytes().await?;
    assert!(large.len() == LARGE && large.iter().all(|&byte| byte == b'x'));
    assert_eq!(client.get(&format!("{url}/missing")).send().await?.status(), 404);
    let many = (0..50).map(|_| client.get(&format!("{url}/hello")).send());
    for response in futures(many).await {
        assert_eq!(response?.text().await?, "Hello, World!");
    }
    if echoes {
        for length in [0, 1, 100_000, 1_000_000] {
            let sent = vec![b'y'; length];
            let echoed = client.post(&format!("{url}/echo")).body(sent.clone()).send().await?.bytes().await?;
            assert!(echoed == sent, "{length} bytes");
        }
        let (mut sender, body) = Body::channel();
        highwire::spawn(async move {
            for part in ["one ", "two ", "three"] {
                sender.send(part).await.expect("a receiver");
            }
            sender.finish();
        });
        let echoed = client.post(&format!("{url}/echo")).body(body).send().await?;
        assert_eq!(echoed.text().await?, "one two three");
    }
    Ok(())
}

/// Waits for futures at the same time.
async fn futures<T: 'static>(futures: impl Iterator<Item = impl Future<Output = T> + 'static>) -> Vec<T> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut count = 0;
    for future in futures {
        let sender = sender.clone();
        count += 1;
        highwire::spawn(async move { drop(sender.send(future.await)) });
    }
    let mut results = Vec::new();
    while results.len() < count {
        results.extend(receiver.try_iter());
        highwire::time::sleep(Duration::from_millis(1)).await;
    }
    results
}

#[test]
fn nginx() {
    let Some(program) = program(&["nginx"]) else { return };
    let ((folder, pem), plain, tls) = (folder("servers-nginx"), free_port(), free_port());
    let path = |name: &str| folder.path(name);
    let config = format!(
        "daemon off; worker_processes 1; pid {pid}; error_log /dev/null;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; client_body_temp_path {temp}; proxy_temp_path {temp}; fastcgi_temp_path {temp};\n\
         uwsgi_temp_path {temp}; scgi_temp_path {temp}; default_type text/plain; root {root};\n\
         server {{ listen 127.0.0.1:{plain}; }}\n\
         server {{ listen 127.0.0.1:{tls} ssl http2; ssl_certificate {cert}; ssl_certificate_key {key}; }} }}\n",
        pid = path("pid"),
        temp = path("temp"),
        root = path("root"),
        cert = path("cert.pem"),
        key = path("key.pem"),
    );
    std::fs::write(path("nginx.conf"), config).expect("a file");
    // As root, its worker would run as another user, who must reach the folder.
    let mut command = Command::new(program);
    command.args(["-e", "/dev/null", "-p", &path(""), "-c", &path("nginx.conf")]);
    let urls = vec![
        (format!("http://127.0.0.1:{plain}"), false),
        (format!("https://localhost:{tls}"), false),
        (format!("https://localhost:{tls}"), true),
    ];
    play(&start(&mut command, &[plain, tls], urls, false), &pem);
}

#[test]
fn h2o() {
    let Some(program) = program(&["h2o"]) else { return };
    let ((folder, pem), plain, tls) = (folder("servers-h2o"), free_port(), free_port());
    let path = |name: &str| folder.path(name);
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_string());
    let paths = format!("    paths:\n      /:\n        file.dir: {}\n", path("root"));
    let ssl =
        format!("      ssl:\n        certificate-file: {}\n        key-file: {}\n", path("cert.pem"), path("key.pem"));
    let listen = |port: u16| format!("    listen:\n      host: 127.0.0.1\n      port: {port}\n");
    let (plainly, securely) = (listen(plain), listen(tls));
    let config = format!("user: {user}\nhosts:\n  plain:\n{plainly}{paths}  secure:\n{securely}{ssl}{paths}");
    std::fs::write(path("h2o.conf"), config).expect("a file");
    let mut command = Command::new(program);
    command.args(["-c", &path("h2o.conf")]);
    let urls = vec![
        (format!("http://127.0.0.1:{plain}"), false),
        (format!("https://localhost:{tls}"), false),
        (format!("https://localhost:{tls}"), true),
    ];
    play(&start(&mut command, &[plain, tls], urls, false), &pem);
}

const NODE: &str = r#"
const fs = require("fs"), http = require("http"), http2 = require("http2");
const [, , folder, plain, tls] = process.argv;
const handle = (request, response) => {
  const path = request.url;
  if (path === "/hello") return response.end("Hello, World!");
  if (path === "/large") return fs.createReadStream(folder + "/root/large").pipe(response);
  if (path === "/echo") return request.pipe(response);
  response.statusCode = 404;
  response.end("missing");
};
http.createServer(handle).listen(plain, "127.0.0.1");
const options = { cert: fs.readFileSync(folder + "/cert.pem"), key: fs.readFileSync(folder + "/key.pem"), allowHTTP1: true };
http2.createSecureServer(options, handle).listen(tls, "127.0.0.1");
"#;

#[test]
fn node() {
    let Some(program) = program(&["node", "nodejs"]) else { return };
    let ((folder, pem), plain, tls) = (folder("servers-node"), free_port(), free_port());
    std::fs::write(folder.path("server.js"), NODE).expect("a file");
    let mut command = Command::new(program);
    command.args([&folder.path("server.js"), &folder.path(""), &plain.to_string(), &tls.to_string()]);
    let urls = vec![
        (format!("http://127.0.0.1:{plain}"), false),
        (format!("https://localhost:{tls}"), false),
        (format!("https://localhost:{tls}"), true),
    ];
    play(&start(&mut command, &[plain, tls], urls, true), &pem);
}

const PYTHON: &str = r#"
import http.server, socketserver, sys
folder, one, zero = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self): self.do_GET()
    def do_GET(self):
        if self.path in ("/hello", "/large"):
            body = open(folder + "/root" + self.path, "rb").read()
            self.send_response(200)
        else:
            body = b"missing"
            self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(body)
    def log_message(self, *arguments): pass
class New(Handler): protocol_version = "HTTP/1.1"
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 200
import threading
threading.Thread(target=Server(("127.0.0.1", zero), Handler).serve_forever, daemon=True).start()
Server(("127.0.0.1", one), New).serve_forever()
"#;

#[test]
fn python() {
    let Some(program) = program(&["python3"]) else { return };
    let ((folder, pem), one, zero) = (folder("servers-python"), free_port(), free_port());
    std::fs::write(folder.path("server.py"), PYTHON).expect("a file");
    let mut command = Command::new(program);
    command.args([&folder.path("server.py"), &folder.path(""), &one.to_string(), &zero.to_string()]);
    // The second one closes the connection after each response.
    let urls = vec![(format!("http://127.0.0.1:{one}"), false), (format!("http://127.0.0.1:{zero}"), false)];
    play(&start(&mut command, &[one, zero], urls, false), &pem);
}

const GO: &str = r#"
package main

import (
  "io"
  "net/http"
  "os"
)

func main() {
  folder, plain, tls := os.Args[1], os.Args[2], os.Args[3]
  http.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "Hello, World!") })
  http.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, folder+"/root/large") })
  http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
    http.NewResponseController(w).EnableFullDuplex()
    io.Copy(w, r.Body)
  })
  go http.ListenAndServe("127.0.0.1:"+plain, nil)
  http.ListenAndServeTLS("127.0.0.1:"+tls, folder+"/cert.pem", folder+"/key.pem", nil)
}
"#;

#[test]
fn go() {
    let Some(program) = program(&["go"]) else { return };
    let ((folder, pem), plain, tls) = (folder("servers-go"), free_port(), free_port());
    std::fs::write(folder.path("server.go"), GO).expect("a file");
    let built = folder.path("server");
    let made = Command::new(&program).args(["build", "-o", &built, &folder.path("server.go")]).output().expect("go");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut command = Command::new(Path::new(&built));
    command.args([&folder.path(""), &plain.to_string(), &tls.to_string()]);
    let urls = vec![
        (format!("http://127.0.0.1:{plain}"), false),
        (format!("https://localhost:{tls}"), false),
        (format!("https://localhost:{tls}"), true),
    ];
    play(&start(&mut command, &[plain, tls], urls, true), &pem);
}
