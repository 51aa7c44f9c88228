//! The test client under TLS: `testing::Client::https`.

use highwire::cookie::{Cookie, Cookies};
use highwire::testing::Client;
use highwire::{App, Https, Response, Scheme, StatusCode, Tls, body, time};
use std::time::Duration;

/// A number of bytes that is larger than a TLS record and than the buffer of the simulated link.
const LARGE: usize = 300_001;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

fn app() -> App {
    App::new()
        .get("/", |Scheme(scheme): Scheme, tls: Option<Tls>| match tls {
            Some(Tls { version, server_name, alpn, resumed, client, .. }) => {
                format!("{scheme} {version} {server_name:?} {alpn:?} {resumed} {client:?}")
            }
            None => scheme.to_string(),
        })
        .get("/safe", |_: Tls| "safe")
        .get("/large", || pattern(LARGE))
        .post("/echo", |body: bytes::Bytes| body)
        .get("/stream", || {
            let (mut sender, receiver) = body::channel();
            highwire::spawn(async move {
                for _ in 0..3 {
                    time::sleep(Duration::from_secs(10)).await;
                    sender.send("abcd").await.expect("a reader");
                }
                sender.finish();
            });
            Response::stream(receiver)
        })
        .get("/cut", || {
            let (sender, receiver) = body::channel();
            sender.finish();
            Response::stream_of(8, receiver)
        })
        .post("/login", |mut cookies: Cookies| {
            cookies.add(Cookie::new("__Host-user", "ann"));
            (cookies, "welcome")
        })
        .https(Https::new().redirect(443).hsts(Duration::from_secs(60)))
}

fn client() -> Client {
    Client::https(app()).expect("an app")
}

#[test]
fn requests_come_by_https() {
    let mut client = client();
    let answer = client.get("/").send();
    assert_eq!(answer.text(), r#"https TLSv1.3 Some("test") Some("http/1.1") false None"#);
    assert_eq!(answer.header("strict-transport-security"), "max-age=60");
    for (host, name) in [("Shop.Example:8443", r#"Some("shop.example")"#), ("[::1]", r#"Some("test")"#)] {
        assert!(client.get("/").header("host", host).send().text().contains(name), "{host}");
    }
    assert_eq!(client.get("/safe").send().text(), "safe");
    let mut clear = Client::new(app()).expect("an app");
    assert_eq!(clear.get("/safe").send().status(), StatusCode::PERMANENT_REDIRECT);
}

#[test]
fn bodies_of_every_kind_pass_in_both_directions() {
    let mut client = client();
    assert!(client.get("/large").send().bytes() == pattern(LARGE));
    assert!(client.post("/echo").body(pattern(LARGE)).send().bytes() == pattern(LARGE));
    assert_eq!(client.get("/stream").send().text(), "abcdabcdabcd");
    let answer = client.post("/login").send();
    assert_eq!(answer.header("set-cookie"), "__Host-user=ann; Path=/; SameSite=Lax; Secure; HttpOnly");
}

#[test]
#[should_panic(expected = "cut")]
fn an_answer_that_is_cut_short_is_not_taken_for_whole() {
    client().get("/cut").send();
}

#[test]
fn mistakes_of_an_app_are_told() {
    assert!(Client::https(App::new().get("no/slash", || "")).is_err());
}
