//! Layers of tower and tower-http around routes of Highwire: what they change on the way, the state that they share, and layers that
//! misuse the routes.

use bytes::Bytes;
use highwire::body::BodyError;
use highwire::middleware::{after, before};
use highwire::testing::Client;
use highwire::ws::{Message, WebSocket, WebSocketUpgrade};
use highwire::{
    App, Body, Extension, HeaderMap, HeaderName, HeaderValue, Method, Path, Peer, Reply, Request, Response, StatusCode,
    time, tower,
};
use std::convert::Infallible;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{MakeRequestUuid, SetRequestIdLayer};
use tower_http::set_header::{SetRequestHeaderLayer, SetResponseHeaderLayer};
use tower_service::Service;

fn client(app: App) -> Client {
    Client::new(app).expect("an app")
}

/// Handlers of every kind, that use bodies in every way.
fn routes() -> App {
    App::new()
        .get("/hello", || "hello")
        .get("/long", || "long ".repeat(2000))
        .get("/users/{id}", async |Path(id): Path<u32>| {
            time::sleep(Duration::from_secs(1)).await;
            format!("user {id}")
        })
        .get("/reply", |reply: Reply| drop(std::thread::spawn(move || reply.send("replied"))))
        .get("/parts", || Response::stream(stream(["a", "b", "c"])))
        .get("/trailers", || {
            Response::stream(stream(["a"]))
                .with_trailers(|| vec![(HeaderName::from_static("x-t"), HeaderValue::from_static("1"))])
        })
        .get("/header/{name}", |Path(name): Path<String>, fields: HeaderMap| {
            fields.get(&name).map_or("none".to_string(), |value| value.to_str().unwrap_or_default().to_string())
        })
        .get("/peer", |peer: Peer| peer.to_string())
        .get("/none", || StatusCode::NO_CONTENT)
        .post("/whole", |text: String| text)
        .post("/sum", async |mut body: Body| -> Result<String, BodyError> {
            let mut sum = 0;
            while let Some(part) = body.next().await {
                sum += part?.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            }
            Ok(sum.to_string())
        })
        .post("/ignored", || "ignored")
        .get("/panics", || -> &'static str { panic!("on purpose") })
        .ws("/ws", async |mut socket: WebSocket| {
            while let Some(Ok(message)) = socket.recv().await {
                let _ = socket.send(message).await;
            }
        })
}

fn stream<const N: usize>(parts: [&'static str; N]) -> impl futures_core::Stream<Item = Result<Bytes, Infallible>> {
    struct Parts<const N: usize>(std::array::IntoIter<&'static str, N>);
    impl<const N: usize> futures_core::Stream for Parts<N> {
        type Item = Result<Bytes, Infallible>;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.next().map(|part| Ok(Bytes::from_static(part.as_bytes()))))
        }
    }
    Parts(parts.into_iter())
}

/// Marks the responses that have passed a layer.
fn marked() -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(HeaderName::from_static("x-layer"), HeaderValue::from_static("yes"))
}

#[test]
fn handlers_of_every_kind_answer_through_a_layer_as_without_one() {
    let (mut plain, mut layered) = (client(routes()), client(routes().with(tower::layer(marked()))));
    let long: Vec<u8> = (0..300_000_u32).map(|at| at.to_be_bytes()[3]).collect();
    let bodies: [&[u8]; 3] = [b"", b"short", &long];
    for path in [
        "/hello",
        "/long",
        "/users/7",
        "/users/x",
        "/reply",
        "/parts",
        "/trailers",
        "/none",
        "/missing",
        "/header/host",
    ] {
        for method in [Method::GET, Method::HEAD, Method::DELETE] {
            let (expected, answer) =
                (plain.request(method.clone(), path).send(), layered.request(method.clone(), path).send());
            assert_eq!((answer.status(), answer.bytes()), (expected.status(), expected.bytes()), "{method} {path}");
            assert_eq!(answer.header("x-layer"), "yes", "{method} {path}");
            for name in ["content-type", "content-length", "allow"] {
                assert_eq!(answer.header(name), expected.header(name), "{name} of {method} {path}");
            }
        }
    }
    for path in ["/whole", "/sum", "/ignored"] {
        for body in bodies {
            let (expected, answer) =
                (plain.post(path).body(body.to_vec()).send(), layered.post(path).body(body.to_vec()).send());
            assert_eq!((answer.status(), answer.bytes()), (expected.status(), expected.bytes()), "{path}");
        }
    }
    assert!(layered.get("/peer").send().text().starts_with("10."));
    assert_eq!(layered.get("/panics").send().status(), 500);
    assert_eq!(layered.get("/hello").send().text(), "hello");
}

#[test]
fn a_layer_changes_head_and_body_of_requests_and_responses() {
    let app = routes()
        .with(tower::layer(CompressionLayer::new()))
        .with(tower::layer(RequestDecompressionLayer::new()))
        .with(tower::layer(SetRequestIdLayer::x_request_id(MakeRequestUuid)))
        .with(tower::layer(SetRequestHeaderLayer::overriding(
            HeaderName::from_static("x-own"),
            HeaderValue::from_static("set"),
        )));
    let mut client = client(app);
    assert_eq!(client.get("/header/x-own").send().text(), "set");
    assert_eq!(client.get("/header/x-own").header("x-own", "forged").send().text(), "set");
    assert_eq!(client.get("/header/x-request-id").send().text().len(), 36);
    let answer = client.get("/long").header("accept-encoding", "gzip").send();
    assert_eq!((answer.header("content-encoding"), answer.bytes().len() < 200), ("gzip", true));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&[1; 100_000]).expect("memory");
    let gzip = gzip.finish().expect("memory");
    for (path, expected) in [("/sum", "100000".to_string()), ("/whole", "\u{1}".repeat(100_000))] {
        let answer = client.post(path).header("content-encoding", "gzip").body(gzip.clone()).send();
        assert_eq!((answer.status().as_u16(), answer.text()), (200, expected.as_str()), "{path}");
    }
}

#[test]
fn the_routes_limit_and_the_layers_hold_for_the_body_that_the_layer_makes() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&[1; 100_000]).expect("memory");
    let gzip = gzip.finish().expect("memory");
    let limited = routes().configure(|config| {
        (config.limits.body_bytes, config.limits.streamed_body_bytes) = (10_000, 10_000);
    });
    let mut client = client(limited.with(tower::layer(RequestDecompressionLayer::new())));
    for path in ["/sum", "/whole"] {
        let answer = client.post(path).header("content-encoding", "gzip").body(gzip.clone()).send();
        assert_eq!(answer.status(), 413, "{path}");
    }
    let mut client = self::client(routes().with(tower::layer(RequestBodyLimitLayer::new(10))));
    assert_eq!(client.post("/whole").body("ten bytes.").send().text(), "ten bytes.");
    assert_eq!(client.post("/whole").body("eleven byte").send().status(), 413);
}

#[test]
fn a_layers_state_is_one_for_all_routes_and_a_failing_service_is_a_500() {
    let limit = ::tower::ServiceBuilder::new().load_shed().concurrency_limit(1);
    let app = routes()
        .get("/other", async || {
            time::sleep(Duration::from_secs(1)).await;
            "other"
        })
        .with(tower::layer(limit));
    let mut client = client(app);
    let mut first = client.get("/users/1").open();
    first.received(&mut client);
    assert_eq!(client.get("/other").send().status(), 500);
    client.advance(Duration::from_secs(2));
    assert_eq!(first.received(&mut client).text(), "user 1");
    assert_eq!(client.get("/other").send().text(), "other", "the place is free again");
}

#[test]
fn preflights_websockets_and_middleware_pass_in_order() {
    fn tell(request: &mut Request<'_>) -> Result<(), Response> {
        request.extensions().insert("from outside");
        Ok(())
    }
    let app = routes()
        .get("/told", |Extension(told): Extension<&'static str>| told)
        .with(before(tell))
        .with(tower::layer(CorsLayer::permissive()))
        .with(tower::layer(marked()))
        .with(after(|response: &mut Response| {
            response.set_header(HeaderName::from_static("x-inner"), HeaderValue::from_static("1"));
        }));
    let mut client = client(app);
    let preflight = client
        .request(Method::OPTIONS, "/hello")
        .header("origin", "https://example.com")
        .header("access-control-request-method", "GET")
        .send();
    assert_eq!((preflight.status().as_u16(), preflight.header("access-control-allow-origin")), (200, "*"));
    let told = client.get("/told").send();
    assert_eq!((told.text(), told.header("x-layer"), told.header("x-inner")), ("from outside", "yes", "1"));
    let mut socket = client.get("/ws").websocket();
    socket.send(&mut client, Message::text("through"));
    assert_eq!(socket.recv(&mut client), Some(Message::text("through")));
}

/// A layer whose service does with the routes what `misuse` says.
#[derive(Clone)]
struct Misusing(fn(tower::Routes, http::Request<tower::Incoming>) -> Answering);

type Answer = http::Response<axum::body::Body>;
type Answering = Pin<Box<dyn Future<Output = Result<Answer, Infallible>>>>;

/// Waits for the routes' answer, whose body may be sent to other threads.
async fn answer_of(future: tower::RoutesFuture) -> Result<Answer, Infallible> {
    future.await.map(|answer| answer.map(axum::body::Body::new))
}

#[derive(Clone)]
struct Misuse {
    routes: tower::Routes,
    how: Misusing,
}

impl tower_layer::Layer<tower::Routes> for Misusing {
    type Service = Misuse;
    fn layer(&self, routes: tower::Routes) -> Misuse {
        Misuse { routes, how: self.clone() }
    }
}

impl Service<http::Request<tower::Incoming>> for Misuse {
    type Response = Answer;
    type Error = Infallible;
    type Future = Answering;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: http::Request<tower::Incoming>) -> Answering {
        (self.how.0)(self.routes.clone(), request)
    }
}

#[test]
fn a_layer_that_misuses_the_routes_gets_500_and_harms_no_other_request() {
    let without_extensions = Misusing(|mut routes, mut request| {
        request.extensions_mut().clear();
        Box::pin(answer_of(routes.call(request)))
    });
    let twice = Misusing(|mut routes, request| {
        let mut again = http::Request::new(axum::body::Body::empty());
        *again.extensions_mut() = request.extensions().clone();
        let (first, second) = (routes.call(request), routes.call(again));
        Box::pin(async move {
            assert_eq!(answer_of(second).await?.status(), 500);
            answer_of(first).await
        })
    });
    let elsewhere = Misusing(|mut routes, request| {
        let called = std::thread::scope(|scope| scope.spawn(|| routes.call(request)).join()).expect("a thread");
        Box::pin(answer_of(called))
    });
    let dropped_elsewhere = Misusing(|mut routes, request| {
        let called = routes.call(request);
        std::thread::spawn(|| drop(called)).join().expect("a thread");
        Box::pin(async { Ok(Answer::default()) })
    });
    for (layer, status) in [(without_extensions, 500), (twice, 200), (elsewhere, 500), (dropped_elsewhere, 200)] {
        let mut client = client(routes().with(tower::layer(layer)));
        for _ in 0..3 {
            assert_eq!(client.get("/hello").send().status().as_u16(), status);
        }
    }
}

#[test]
fn a_body_of_unknown_length_keeps_the_layers_limit_and_a_changed_one_gets_its_length() {
    /// Says a body twice.
    #[derive(Clone)]
    struct Twice(tower::Routes);
    impl Service<http::Request<tower::Incoming>> for Twice {
        type Response = http::Response<tower::RoutesBody>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: http::Request<tower::Incoming>) -> Self::Future {
            let mut routes = self.0.clone();
            Box::pin(async move {
                let (parts, body) = request.into_parts();
                let bytes = axum::body::to_bytes(axum::body::Body::new(body), 1000).await.expect("a short body");
                routes.call(http::Request::from_parts(parts, axum::body::Body::from(bytes.repeat(2)))).await
            })
        }
    }
    let doubling = |routes| Twice(routes);
    let length = async |fields: HeaderMap, body: Body| {
        let announced =
            fields.get("content-length").map_or(String::new(), |length| length.to_str().unwrap_or("").to_string());
        format!("{announced} {}", body.collect(100).await.map_or(0, |bytes| bytes.len()))
    };
    let app = App::new().post("/length", length).with(tower::layer(::tower::layer::layer_fn(doubling)));
    assert_eq!(client(app).post("/length").body("seven b").send().text(), "14 14");

    let app = routes().with(tower::layer(RequestBodyLimitLayer::new(10))).configure(|config| config.workers = 1);
    let server = app.listen("127.0.0.1:0").expect("a port").start().expect("a server");
    let chunked = b"POST /whole HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\nc\r\ntwelve bytes\r\n0\r\n\r\n";
    let mut socket = std::net::TcpStream::connect(server.addresses()[0].to_string()).expect("a connection");
    socket.write_all(chunked).expect("sent");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut socket, &mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    server.shutdown();
    server.join().expect("an end");
}

#[test]
fn trailers_behind_a_body_of_known_length_pass() {
    let app = App::new().get("/", || {
        let trailers = || vec![(HeaderName::from_static("x-t"), HeaderValue::from_static("1"))];
        Response::stream_of(1, stream(["a"])).with_trailers(trailers)
    });
    let answer = client(app.with(tower::layer(marked()))).get("/").send();
    assert_eq!((answer.text(), answer.trailers()["x-t"].as_bytes()), ("a", &b"1"[..]));
}

#[test]
fn a_body_that_is_read_after_its_request_is_cut_short() {
    let kept = Arc::new(Mutex::new(None));
    let slot = kept.clone();
    let keeping = move |mut routes: tower::Routes, request: http::Request<tower::Incoming>| {
        let (called, slot) = (routes.call(request), slot.clone());
        async move {
            let (parts, body) = called.await?.into_parts();
            *slot.lock().expect("no panic") = Some(body);
            Ok::<_, Infallible>(http::Response::from_parts(parts, axum::body::Body::empty()))
        }
    };
    let layer = ::tower::layer::layer_fn(move |routes: tower::Routes| {
        let keeping = keeping.clone();
        ::tower::service_fn(move |request| keeping(routes.clone(), request))
    });
    let mut client = client(routes().with(tower::layer(layer)));
    assert_eq!(client.get("/parts").send().text(), "");
    let mut body = kept.lock().expect("no panic").take().expect("a body");
    let polled = http_body::Body::poll_frame(Pin::new(&mut body), &mut Context::from_waker(std::task::Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Some(Err(_)))), "{polled:?}");
}

#[test]
fn a_websocket_over_http2_gets_the_head_that_the_layer_has_made() {
    let own = SetRequestHeaderLayer::overriding(HeaderName::from_static("x-own"), HeaderValue::from_static("set"));
    let app = App::new()
        .get("/ws", |upgrade: WebSocketUpgrade, fields: HeaderMap| {
            let own = fields.get("x-own").cloned().unwrap_or(HeaderValue::from_static("none"));
            let mut response = upgrade.on_upgrade(async |_: WebSocket| {});
            response.set_header(HeaderName::from_static("x-seen"), own);
            response
        })
        .with(tower::layer(own));
    let server =
        app.configure(|config| config.workers = 1).listen("127.0.0.1:0").expect("a port").start().expect("a server");
    let address = server.addresses()[0].to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(&address).await.expect("a connection");
        let (mut client, connection) = h2::client::handshake(socket).await.expect("a handshake");
        tokio::spawn(connection);
        while !client.is_extended_connect_protocol_enabled() {
            client = client.ready().await.expect("a connection");
            tokio::task::yield_now().await;
        }
        let request = http::Request::connect(format!("http://{address}/ws"))
            .extension(h2::ext::Protocol::from_static("websocket"))
            .header("sec-websocket-version", "13")
            .header("x-own", "forged")
            .body(())
            .expect("a request");
        let (response, _stream) = client.send_request(request, false).expect("a stream");
        let response = response.await.expect("an answer");
        assert_eq!((response.status().as_u16(), response.headers()["x-seen"].as_bytes()), (200, &b"set"[..]));
    });
    server.shutdown();
    server.join().expect("an end");
}
