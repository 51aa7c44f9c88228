//! Tests a client's connections against servers of this engine over sockets: HTTP/1 and HTTP/2, with and without TLS, on
//! each driver.

use crate::signed::self_signed;
use bytes::Bytes;
use highwire_engine::body::{BodyStream, channel};
use highwire_engine::client::{
    Answer, AnswerBody, Asked, Bounds, Failure, Open, Opened, OpeningTimes, Pool, Protocol, Request, Timeouts,
};
use highwire_engine::connect::connect;
use highwire_engine::http::{Method, StatusCode};
use highwire_engine::io::{Address, Driver, Readiness, Uring};
use highwire_engine::proto::Head;
use highwire_engine::request::{Caller, Ready};
use highwire_engine::response::{Content, Streamed};
use highwire_engine::{Begin, BodyUse, Config, Handle, Outcome, Response, Server, Service, Worker, bytes};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

/// Answers with the request's body, in parts if the path is `/parts`.
struct Echo;

impl Service for Echo {
    fn route(&mut self, head: &Head, window: &[u8], _: Caller<'_>) -> Result<u32, Box<Response>> {
        match head.target.path.of(window) {
            b"/whole" => Ok(0),
            b"/parts" => Ok(1),
            _ => Err(Box::new(Response::new(StatusCode::NOT_FOUND))),
        }
    }

    fn body_use(&self, route: u32) -> BodyUse {
        if route == 0 { BodyUse::Whole } else { BodyUse::Parts }
    }

    fn body_limit(&self, _: u32, _: BodyUse) -> Option<u64> {
        Some(1 << 30)
    }

    fn begin(&mut self, request: Begin<'_>, answer: &mut Option<Response>) -> Outcome {
        *answer = Some(match std::mem::take(request.body) {
            Ready::Whole(body) => Response::bytes("text/plain", body),
            Ready::Parts(body) => Response::stream(body),
            _ => Response::text("nothing"),
        });
        Outcome::Ready
    }
}

/// The TLS configuration of a client, if it uses TLS.
type Tls = Option<Arc<ClientConfig>>;

/// Starts a server, and returns its address and the configuration of a client that trusts it.
fn serve(with_tls: bool, protocol: Protocol) -> (Handle, Address, Tls) {
    let mut config = Config::default();
    config.workers = 1;
    let server = Server::new(|_: &_| Echo, config).expect("a server");
    let (server, tls) = match with_tls {
        false => (server.listen("127.0.0.1:0").expect("an address"), None),
        true => {
            let protocols: &[&[u8]] = match protocol {
                Protocol::Auto => &[b"h2", b"http/1.1"],
                _ => &[b"http/1.1"],
            };
            let (config, client) = self_signed(protocols);
            (server.listen_tls("127.0.0.1:0", config).expect("an address"), Some(Arc::new(client)))
        }
    };
    let address = Address::parse(&server.addresses()[0]).expect("an address");
    (server.start().expect("cannot start"), address, tls)
}

fn client<D: Driver>(driver: D) -> Worker<D, impl Service> {
    let server = Server::new(|_: &_| Echo, Config::default()).expect("a server");
    server.into_worker(driver).expect("a worker")
}

fn open(address: Address, tls: Tls) -> Box<Open> {
    Box::new(move || {
        let (address, tls) = (address.clone(), tls.clone());
        Box::pin(async move {
            let stream = connect(address).await.map_err(Failure::Connect)?;
            Ok(Opened {
                stream,
                times: OpeningTimes::default(),
                tls: tls.map(|tls| (tls, ServerName::try_from("localhost").expect("a name"))),
            })
        })
    })
}

async fn answer(mut asked: Asked) -> Result<Box<Answer>, Failure> {
    poll_fn(|cx| asked.poll(cx)).await
}

async fn body(answer: Box<Answer>) -> Vec<u8> {
    match answer.body {
        AnswerBody::Empty => Vec::new(),
        AnswerBody::Whole(bytes) => bytes.to_vec(),
        AnswerBody::Parts(body) => body.collect(usize::MAX).await.expect("a whole body"),
        AnswerBody::Tunnel(_) => panic!("a tunnel"),
    }
}

fn request(method: Method, target: &str, content: Content) -> Request {
    Request { content, ..Request::new(method, "http", Rc::from("localhost"), target.to_string()) }
}

fn play<D: Driver>(driver: D, protocol: Protocol, with_tls: bool) {
    let (handle, address, tls) = serve(with_tls, protocol);
    let mut worker = client(driver);
    let pool = Pool::new(&Timeouts::default(), Bounds::default());
    let origin = pool.origin("it", protocol, || open(address, tls));
    let played = async {
        let none = || Content::Bytes(Bytes::new());
        for _ in 0..3 {
            let got = answer(origin.send(request(Method::GET, "/whole", none()))).await.expect("a response");
            assert_eq!(got.status(), StatusCode::OK);
            assert_eq!(body(got).await, b"nothing");
        }
        assert_eq!((pool.connections(), pool.idle()), (1, 1));
        for length in [0, 1, 16 * 1024, 16 * 1024 + 1, 300_000, 3_000_000] {
            let sent = Bytes::from((0..length).map(|at| at as u8).collect::<Vec<_>>());
            let got = answer(origin.send(request(Method::POST, "/parts", Content::Bytes(sent.clone()))));
            let got = got.await.expect("a response");
            assert!(
                body(got).await == if length == 0 { Bytes::from_static(b"nothing") } else { sent.clone() },
                "{length}"
            );
        }
        let missing = answer(origin.send(request(Method::GET, "/missing", none()))).await.expect("a response");
        assert_eq!((missing.status(), body(missing).await), (StatusCode::NOT_FOUND, Vec::new()));
        // Both bodies at the same time, in parts.
        let (mut writer, reader) = channel();
        let streamed = Streamed { length: None, body: BodyStream::new(reader), trailers: None };
        let asked = origin.send(request(Method::POST, "/parts", Content::Stream(Box::new(streamed))));
        writer.send("one").await.expect("a reader");
        let got = answer(asked).await.expect("a response");
        let AnswerBody::Parts(mut parts) = got.body else { panic!("no parts") };
        assert_eq!(parts.next().await.expect("a part").expect("a part"), "one");
        writer.send("two").await.expect("a reader");
        assert_eq!(parts.next().await.expect("a part").expect("a part"), "two");
        writer.finish();
        assert!(parts.next().await.is_none());
        // Many requests at the same time, with a bound of connections.
        let many = (0..1000).map(|_| answer(origin.send(request(Method::GET, "/whole", none())))).collect::<Vec<_>>();
        for got in many {
            assert_eq!(body(got.await.expect("a response")).await, b"nothing");
        }
        pool.connections()
    };
    let connections = worker.block_on(played).expect("a worker");
    assert!((1..=256).contains(&connections), "{connections} connections");
    drop(worker);
    handle.shutdown();
    handle.join().expect("cannot stop");
}

#[test]
fn requests_and_bodies_in_both_directions() {
    for (protocol, with_tls) in
        [(Protocol::Http11, false), (Protocol::Http2, false), (Protocol::Http11, true), (Protocol::Auto, true)]
    {
        play(Readiness::new().expect("a driver"), protocol, with_tls);
        if let Ok(driver) = Uring::new() {
            play(driver, protocol, with_tls);
        }
    }
}
