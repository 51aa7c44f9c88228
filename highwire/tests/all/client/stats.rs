//! Tests of the figures of a client's requests.

use crate::served::{serve, stop};
use highwire::client::{Client, block_on};
use highwire::{App, Redirect, Response};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(20);

/// Answers `/parts` slowly and in two parts, and redirects `/away` to it.
fn app() -> App {
    let parts = async || {
        highwire::time::sleep(PAUSE).await;
        let (mut sender, body) = highwire::body::channel();
        highwire::spawn(async move {
            sender.send("12345").await.expect("the body is wanted");
            highwire::time::sleep(PAUSE).await;
            sender.send("678").await.expect("the body is wanted");
            sender.finish();
        });
        Response::stream(body)
    };
    App::new().get("/", || "hello").get("/parts", parts).get("/away", || Redirect::temporary("/parts"))
}

#[test]
fn figures_grow_with_the_body() {
    let (handle, url) = serve(app());
    block_on(async {
        let client = Client::new();
        let mut response = client.get(&format!("{url}/away")).send().await.expect("a response");
        let head = response.stats();
        assert_eq!((head.redirects, head.retries, head.body_bytes), (1, 0, 0));
        assert!(head.first_byte >= PAUSE && head.total >= head.first_byte, "{head:?}");
        // The redirect opened the connection, the last request did not.
        assert_eq!((head.resolve, head.connect, head.handshake), Default::default());
        let first = response.next().await.expect("a part").expect("a part");
        assert_eq!((&first[..], response.stats().body_bytes), (&b"12345"[..], 5));
        assert_eq!(response.collect().await.expect("the rest"), "678");
        let whole = response.stats();
        assert_eq!(whole.body_bytes, 8);
        assert!(whole.total >= head.first_byte + PAUSE, "{whole:?}");
        assert_eq!(whole.first_byte, head.first_byte);
        let mut body = client.get(&format!("{url}/parts")).send().await.expect("a response").into_body();
        while let Some(part) = body.next().await {
            part.expect("a part");
        }
        assert_eq!(body.stats().body_bytes, 8);
    })
    .expect("a worker");
    stop([handle]);
}

#[test]
fn a_blocking_response_has_figures_after_its_body() {
    let (handle, url) = serve(app());
    let client = highwire::client::blocking::Client::new().expect("a worker");
    let mut response = client.get(&format!("{url}/parts")).send().expect("a response");
    let mut start = [0; 3];
    std::io::Read::read_exact(&mut response, &mut start).expect("the start");
    assert_eq!((&start, &response.collect().expect("the rest")[..]), (b"123", &b"45678"[..]));
    assert_eq!(response.stats().body_bytes, 8);
    drop((response, client));
    stop([handle]);
}

#[cfg(feature = "tls")]
#[test]
fn the_request_that_opens_a_connection_has_its_times() {
    use highwire::tls::{ClientTls, TlsConfig};
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    let config = TlsConfig::new().certificate_pem(made.cert.pem(), made.signing_key.serialize_pem());
    let server = app().configure(|config| config.workers = 1).server().expect("a server");
    let server = server.listen_tls("127.0.0.1:0", config).expect("an address");
    let url = format!("https://{}", server.addresses()[0].replace("127.0.0.1", "localhost"));
    let handle = server.start().expect("cannot start");
    block_on(async {
        let tls = ClientTls::new().without_system_roots().root_pem(made.cert.pem());
        let client = Client::builder().tls(tls).build().expect("a client");
        for is_first in [true, false] {
            let mut response = client.get(&url).send().await.expect("a response");
            response.collect().await.expect("a body");
            let stats = response.stats();
            let opening = stats.resolve + stats.connect + stats.handshake;
            assert_eq!(stats.handshake > Duration::ZERO, is_first, "{stats:?}");
            assert_eq!(opening > Duration::ZERO, is_first, "{stats:?}");
            assert!(stats.connection >= opening && stats.total >= stats.connection + stats.first_byte, "{stats:?}");
        }
    })
    .expect("a worker");
    stop([handle]);
}
