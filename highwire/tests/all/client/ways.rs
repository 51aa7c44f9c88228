//! Tests of the ways of the client to a server: proxies, TLS, unix sockets; and of compressed bodies.

use crate::served::{serve, stop};
use highwire::client::{Client, Proxy, block_on};
#[cfg(feature = "tls")]
use highwire::client::{ClientBuilder, Error};
#[cfg(feature = "tls")]
use highwire::server::Handle;
use highwire::{App, FromRequest, Response};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A proxy for one connection at a time, which counts its connections: HTTP with CONNECT, or SOCKS5.
fn proxy(is_socks: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = listener.local_addr().expect("an address");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut client = stream.expect("a connection");
            std::thread::spawn(move || {
                let target = if is_socks { socks(&mut client) } else { connect(&mut client) };
                let mut server = TcpStream::connect(target).expect("a server");
                let (mut from, mut to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    (address.to_string(), count)
}

fn connect(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    assert!(head.contains("Proxy-Authorization: Basic dTpw\r\n"), "{head}");
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").expect("a client");
    head.split(' ').nth(1).expect("a target").to_string()
}

fn socks(client: &mut TcpStream) -> String {
    let mut bytes = [0; 4];
    client.read_exact(&mut bytes).expect("a greeting");
    assert_eq!(bytes, [5, 2, 0, 2]);
    client.write_all(&[5, 2]).expect("a client");
    let mut login = [0; 5];
    client.read_exact(&mut login).expect("a login");
    assert_eq!(&login, b"\x01\x01u\x01p");
    client.write_all(&[1, 0]).expect("a client");
    client.read_exact(&mut bytes).expect("a request");
    assert_eq!(bytes[..3], [5, 1, 0]);
    let mut length = [4];
    if bytes[3] == 3 {
        client.read_exact(&mut length).expect("a length");
    }
    let mut host = vec![0; usize::from(length[0])];
    client.read_exact(&mut host).expect("a host");
    let mut port = [0; 2];
    client.read_exact(&mut port).expect("a port");
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).expect("a client");
    let host = match bytes[3] {
        1 => host.iter().map(u8::to_string).collect::<Vec<_>>().join("."),
        _ => String::from_utf8(host).expect("a name"),
    };
    format!("{host}:{}", u16::from_be_bytes(port))
}

#[test]
fn requests_go_through_proxies() {
    let (handle, url) = serve(App::new().get("/", |request: Whole| request.0));
    let port = url.rsplit(':').next().expect("a port");
    for address in ["socks5://u:p@", "socks5h://u:p@"] {
        let (proxy, count) = proxy(true);
        let proxy = Proxy::all(&format!("{address}{proxy}")).expect("a proxy");
        let client = Client::builder().proxy(proxy).build().expect("a client");
        block_on(async {
            for _ in 0..2 {
                let response = client.get(&format!("http://localhost:{port}/")).send().await.expect("a response");
                assert_eq!(response.text().await.expect("a body"), format!("/ localhost:{port} "));
            }
        })
        .expect("a worker");
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
    // An HTTP proxy gets whole URLs; our own server takes them, too.
    let client = Client::builder().proxy(Proxy::http(&url.replace("http://", "u:p@")).expect("a proxy"));
    let client = client.build().expect("a client");
    block_on(async {
        let response = client.get("http://unknown.invalid/").send().await.expect("a response");
        assert_eq!(response.text().await.expect("a body"), "http://unknown.invalid/ unknown.invalid Basic dTpw");
    })
    .expect("a worker");
    stop([handle]);
}

/// Says the target, the authority and the credentials for a proxy.
struct Whole(String);

impl FromRequest for Whole {
    fn from_request(request: &mut highwire::Request<'_>) -> Result<Whole, Response> {
        let credentials = String::from_utf8_lossy(request.header("proxy-authorization").unwrap_or_default());
        Ok(Whole(format!("{} {} {credentials}", request.target(), request.authority())))
    }
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;
    use highwire::tls::{ClientTls, TlsConfig};

    fn serve_tls(name: &str) -> (Handle, u16, String) {
        let made = rcgen::generate_simple_self_signed([name.to_string()]).expect("a certificate");
        let config = TlsConfig::new().certificate_pem(made.cert.pem(), made.signing_key.serialize_pem());
        let app = App::new().get("/", |version: highwire::Version| format!("{:?}", version.0));
        let server = app.configure(|config| config.workers = 1).server().expect("a server");
        let server = server.listen_tls("127.0.0.1:0", config).expect("an address");
        let port = server.addresses()[0].rsplit(':').next().expect("a port").parse().expect("a port");
        (server.start().expect("cannot start"), port, made.cert.pem())
    }

    async fn ask(builder: ClientBuilder, url: &str) -> Result<String, Error> {
        builder.build()?.get(url).send().await?.text().await
    }

    #[test]
    fn certificates_are_verified_and_versions_negotiated() {
        let (handle, port, pem) = serve_tls("localhost");
        let url = format!("https://localhost:{port}/");
        let trusting = || Client::builder().tls(ClientTls::new().without_system_roots().root_pem(&pem));
        block_on(async {
            assert_eq!(ask(trusting(), &url).await.expect("a response"), "HTTP/2.0");
            assert_eq!(ask(trusting().http1_only(), &url).await.expect("a response"), "HTTP/1.1");
            assert_eq!(ask(trusting().http2_prior_knowledge(), &url).await.expect("a response"), "HTTP/2.0");
            assert_eq!(ask(trusting().http10_only(), &url).await.expect("a response"), "HTTP/1.0");
            let other = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
            let other = ClientTls::new().without_system_roots().root_pem(other.cert.pem());
            let unknown = ask(Client::builder().tls(other), &url).await;
            let unknown = unknown.expect_err("an error");
            assert!(unknown.is_connect() && unknown.to_string().contains("certificate"), "{unknown}");
            let other = ask(trusting(), &format!("https://127.0.0.1:{port}/")).await.expect_err("an error");
            assert!(other.is_connect(), "{other}");
            let named = ask(trusting().tls_name("localhost"), &format!("https://127.0.0.1:{port}/")).await;
            assert_eq!(named.expect("a response"), "HTTP/2.0");
            let any = Client::builder().tls(ClientTls::new().without_system_roots().accept_invalid_certificates());
            assert_eq!(ask(any, &url).await.expect("a response"), "HTTP/2.0");
            let pinned = ClientTls::new().without_system_roots().root_pem(&pem).pin_sha256([7; 32]);
            let pinned = ask(Client::builder().tls(pinned), &url).await.expect_err("an error");
            assert!(pinned.to_string().contains("pinned"), "{pinned}");
            let plain = ask(Client::builder(), &format!("http://localhost:{port}/")).await;
            assert!(plain.is_ok() || plain.is_err_and(|error| !error.is_builder()));
            let refused = ask(Client::builder().https_only(), "http://localhost/").await.expect_err("an error");
            assert!(refused.is_builder(), "{refused}");
        })
        .expect("a worker");
        stop([handle]);
    }

    #[test]
    fn tls_goes_through_the_tunnel_of_a_proxy() {
        let (handle, port, pem) = serve_tls("localhost");
        let (address, count) = proxy(false);
        let proxy = Proxy::https(&format!("http://u:p@{address}")).expect("a proxy");
        let builder = Client::builder().proxy(proxy).tls(ClientTls::new().without_system_roots().root_pem(&pem));
        block_on(async {
            let text = ask(builder, &format!("https://localhost:{port}/")).await.expect("a response");
            assert_eq!(text, "HTTP/2.0");
        })
        .expect("a worker");
        assert_eq!(count.load(Ordering::SeqCst), 1);
        stop([handle]);
    }

    #[test]
    fn a_server_without_tls_is_an_error() {
        let (handle, url) = serve(App::new().get("/", || "plain"));
        block_on(async {
            let error = ask(Client::builder(), &url.replace("http:", "https:")).await.expect_err("an error");
            assert!(error.is_connect() && error.to_string().contains("TLS"), "{error}");
        })
        .expect("a worker");
        stop([handle]);
    }
}

#[cfg(feature = "compress")]
#[test]
fn compressed_bodies_are_decoded_within_bounds() {
    use highwire::compress::Compression;
    let app = || {
        App::new()
            .get("/", || "compress me, ".repeat(1000))
            .get("/bomb", || "0".repeat(50_000_000))
            .with(Compression::new())
    };
    let (handle, url) = serve(app());
    block_on(async {
        let response = Client::new().get(&url).send().await.expect("a response");
        assert_eq!((response.header("content-encoding"), response.header("content-length")), (None, None));
        assert_eq!(response.text().await.expect("a body").len(), 13_000);
        let plain = Client::builder().without_decompression().build().expect("a client");
        let plain = plain.get(&url).header("accept-encoding", "gzip").send().await.expect("a response");
        assert_eq!(plain.header("content-encoding"), Some("gzip"));
        let small = Client::builder().max_body_bytes(1_000_000).build().expect("a client");
        let bomb = small.get(&format!("{url}/bomb")).send().await.expect("a response").bytes().await;
        assert!(bomb.expect_err("an error").is_body());
    })
    .expect("a worker");
    stop([handle]);
}

#[cfg(unix)]
#[test]
fn requests_go_to_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("highwire-client-{}.sock", std::process::id()));
    let app = App::new().get("/", |highwire::Authority(host): highwire::Authority| host);
    let server = app.configure(|config| config.workers = 1);
    let handle = server.listen(&format!("unix:{}", path.display())).expect("an address").start().expect("cannot start");
    let client = Client::builder().unix_socket(&path).build().expect("a client");
    let text = block_on(async { client.get("http://service.example/").send().await?.text().await });
    assert_eq!(text.expect("a worker").expect("a response"), "service.example");
    stop([handle]);
}
