//! Apps as services of the tower family: called directly, in axum routers, and with layers and other apps around them.

use crate::asked::*;
use crate::engines;
use bytes::Bytes;
use highwire::body::BodyError;
use highwire::server::Engine;
use highwire::testing::Client;
use highwire::tower as service;
use highwire::{
    App, Authority, Body, Extension, HeaderName, HeaderValue, InterimResponses, Method, Path, Peer, Reply, Response,
    StatusCode, Upgrade,
};
use http_body::{Body as HttpBody, Frame};
use std::future::pending;
use std::io::Write;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

#[test]
fn requests_find_their_routes_and_answers_their_way_back() {
    let app = App::new()
        .get("/hello", || "hello")
        .get("/users/{id}", async |Path(id): Path<u32>| format!("user {id}"))
        .get("/later", async || {
            highwire::time::sleep(Duration::from_millis(1)).await;
            "later"
        })
        .get("/reply", |reply: Reply| drop(std::thread::spawn(move || reply.send("replied"))))
        .get("/panics", || -> &'static str { panic!("on purpose") })
        .get("/panics/later", async || -> &'static str {
            highwire::time::sleep(Duration::from_millis(1)).await;
            panic!("on purpose")
        })
        .get("/upgrade", |upgrade: Upgrade| upgrade.accept("echo", async |_| {}))
        .get("/hints", async |interim: InterimResponses| {
            interim.send(StatusCode::EARLY_HINTS, []);
            "hinted"
        })
        .get("/none", || StatusCode::NO_CONTENT)
        .get("/reset", || (StatusCode::RESET_CONTENT, "content"))
        .get("/reset/parts", || Response::stream(stream_of(vec!["a"])).with_status(StatusCode::RESET_CONTENT))
        .get("/unchanged", || (StatusCode::NOT_MODIFIED, "content"))
        .get("/streamed", || Response::stream_of(3, stream_of(vec!["a", "bc"])))
        .get("/closes", || Response::text("bye").and_close())
        .post("/whole", |text: String| text)
        .post("/small", |text: String| text)
        .post("/ignored", || "ignored")
        .configure(|config| config.limits.body_bytes = 1000);
    let service = start(app);
    let check = |method: &str, uri: &str, body: Sent, expected: (u16, &str)| {
        let request = request(method, uri).body(body).expect("a request");
        let (status, text, fields) = run(get(&service, request));
        assert_eq!((status, text.as_str()), expected, "{method} {uri}");
        assert!(!fields.contains_key("server") && !fields.contains_key("date"), "{fields:?}");
        fields
    };
    let nothing = Sent::nothing;
    let fields = check("GET", "/hello", nothing(), (200, "hello"));
    assert_eq!(fields["content-length"], "5");
    assert_eq!(fields["content-type"], "text/plain; charset=utf-8");
    assert_eq!(check("HEAD", "/hello", nothing(), (200, ""))["content-length"], "5");
    assert_eq!(check("HEAD", "/streamed", nothing(), (200, ""))["content-length"], "3");
    assert_eq!(check("GET", "/streamed", nothing(), (200, "abc"))["content-length"], "3");
    assert_eq!(check("GET", "/closes", nothing(), (200, "bye"))["connection"], "close");
    assert!(!check("GET", "/none", nothing(), (204, "")).contains_key("content-length"));
    assert!(!check("GET", "/unchanged", nothing(), (304, "")).contains_key("content-length"));
    assert_eq!(check("GET", "/reset", nothing(), (205, ""))["content-length"], "0");
    assert_eq!(check("GET", "/reset/parts", nothing(), (205, ""))["content-length"], "0");
    check("GET", "/users/7", nothing(), (200, "user 7"));
    check("GET", "http://host/users/8?x", nothing(), (200, "user 8"));
    check("GET", "/later", nothing(), (200, "later"));
    check("GET", "/reply", nothing(), (200, "replied"));
    check("GET", "/hints", nothing(), (200, "hinted"));
    check("GET", "/missing", nothing(), (404, "not found\n"));
    check("GET", "/../x", nothing(), (400, "the path climbs above its root\n"));
    let fields = check("DELETE", "/hello", nothing(), (405, "the method is not allowed here\n"));
    assert_eq!(fields["allow"], "GET, HEAD, OPTIONS");
    assert_eq!(check("OPTIONS", "/hello", nothing(), (204, ""))["allow"], "GET, HEAD, OPTIONS");
    check("GET", "/panics", nothing(), (500, "internal server error\n"));
    check("GET", "/panics/later", nothing(), (500, "internal server error\n"));
    check("CONNECT", "host:443", nothing(), (501, "there is no tunnel here\n"));
    check("POST", "/whole", Sent::of(&["ab", "", "c"]), (200, "abc"));
    check("POST", "/whole", nothing(), (200, ""));
    check("POST", "/ignored", Sent::of(&["abc"]).without_end(), (200, "ignored"));
    let long = Box::leak("x".repeat(1001).into_boxed_str());
    check("POST", "/whole", Sent::of(&[long]), (413, "the body is larger than the 1000 bytes that are taken here\n"));
    check(
        "POST",
        "/whole",
        Sent { length: Some(1001), ..nothing() }.without_end(),
        (413, "the body is larger than the 1000 bytes that are taken here\n"),
    );
    // A body must have its announced length.
    for length in [2, 4] {
        check("POST", "/whole", Sent { length: Some(length), ..Sent::of(&["ab", "c"]) }, (400, SHORT));
    }
    check("POST", "/whole", Sent::of(&["ab"]).and(Err(BodyError::CutShort)), (400, SHORT));
    check("POST", "/whole", Sent::of(&["ab"]).and(Err(BodyError::TooSlow)), (408, SLOW));
    let Ok(panicked) = run(service.clone().call(request("POST", "/whole").body(Panics).expect("a request")));
    assert_eq!(panicked.status(), 400);
    let upgrade =
        request("GET", "/upgrade").header("host", "x").header("connection", "upgrade").header("upgrade", "echo");
    let answer = run(get(&service, upgrade.body(nothing()).expect("a request")));
    assert_eq!((answer.0, answer.1.as_str()), (501, "there is no other protocol here\n"));
}

/// A request's body that panics when it is polled.
struct Panics;

impl HttpBody for Panics {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        panic!("on purpose")
    }
}

#[test]
fn extensions_and_peers_come_along() {
    let app = App::new()
        .get("/word", |Extension(word): Extension<&'static str>| word)
        .get("/peer", |peer: Peer| peer.to_string());
    let service = start(app);
    let asked = |uri: &str| request("GET", uri).body(Sent::nothing()).expect("a request");
    let mut word = asked("/word");
    word.extensions_mut().insert("carried");
    assert_eq!(run(get(&service, word)).1, "carried");
    assert_eq!(run(get(&service, asked("/peer"))).1, "0.0.0.0:0", "an unknown peer is not trusted as a local one");
    let socket: std::net::SocketAddr = "10.0.0.1:5".parse().expect("an address");
    let mut by_socket = asked("/peer");
    by_socket.extensions_mut().insert(socket);
    assert_eq!(run(get(&service, by_socket)).1, "10.0.0.1:5");
    let mut by_peer = asked("/peer");
    by_peer.extensions_mut().insert(Peer::Internet([10, 0, 0, 2].into(), 6));
    assert_eq!(run(get(&service, by_peer)).1, "10.0.0.2:6");
}

#[test]
fn a_rate_limit_does_not_count_callers_without_an_address_as_one() {
    let app = App::new().get("/", || "here").with(highwire::middleware::RateLimit::new(1, Duration::from_secs(600)));
    let service = start(app);
    let status = |address: Option<&str>| {
        let mut asked = request("GET", "/").body(Sent::nothing()).expect("a request");
        if let Some(address) = address {
            asked.extensions_mut().insert(Peer::Internet(address.parse().expect("an address"), 5));
        }
        run(get(&service, asked)).0
    };
    let one = Some("10.0.0.1");
    assert_eq!([status(None), status(None), status(one), status(one), status(None)], [200, 200, 200, 429, 200]);
}

#[test]
fn the_last_clone_ends_the_workers_after_what_is_under_way() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let (told, ended) = told();
        let (give, take) = mpsc::channel();
        let give = Mutex::new(give);
        let app = App::new()
            .state(Arc::new(told))
            .get("/", move |reply: Reply| give.lock().expect("no panic").send(reply).expect("the test waits"))
            .configure(|config| (config.workers, config.engine) = (2, engine));
        let service = start(app);
        let clone = service.clone();
        let mut asked = service.clone();
        let answers: Vec<_> =
            (0..4).map(|_| asked.call(request("GET", "/").body(Sent::nothing()).expect("a request"))).collect();
        drop((service, asked, clone));
        let replies: Vec<Reply> = (0..4).map(|_| take.recv_timeout(PATIENCE).expect("the handler runs")).collect();
        assert!(ended.try_recv().is_err(), "the workers have ended before their requests");
        replies.into_iter().for_each(|reply| reply.send("answered"));
        run(async {
            for answer in answers {
                let Ok(answer) = answer.await;
                assert_eq!(whole(answer.into_body()).await.0, b"answered");
            }
        });
        ended.recv_timeout(PATIENCE).expect("the workers end");
    }
}

#[test]
fn what_is_under_way_is_cut_when_the_time_of_the_shutdown_is_up() {
    let (told, ended) = told();
    let app = App::new()
        .state(Arc::new(told))
        .get("/never", async || pending::<&'static str>().await)
        .get("/streams", || Response::stream(Stuck))
        .configure(|config| config.timeouts.shutdown = Duration::from_millis(100));
    let service = start(app);
    let ask = |uri: &str| service.clone().call(request("GET", uri).body(Sent::nothing()).expect("a request"));
    let (never, streams) = (ask("/never"), ask("/streams"));
    let Ok(streamed) = run(streams);
    drop(service);
    let Ok(never) = run(never);
    assert_eq!(never.status(), 503);
    let failed = run(async { next(&mut streamed.into_body()).await.expect("no end").expect_err("an error") });
    assert_eq!(failed.to_string(), "the server stops");
    ended.recv_timeout(PATIENCE).expect("the workers end");
}

#[test]
fn a_thousand_requests_at_once_each_get_their_own_answer() {
    let app = App::new().post("/{id}", async |Path(id): Path<u32>, mut body: Body| {
        let first = body.next().await;
        highwire::time::sleep(Duration::from_millis(1)).await;
        let mut text = format!("{id}:").into_bytes();
        text.extend(first.transpose().ok().flatten().unwrap_or_default());
        text.extend(body.collect(1000).await.unwrap_or_default());
        text
    });
    let service = start(app.configure(|config| config.workers = 2));
    let answers: Vec<_> = (0..1000)
        .map(|id| {
            let mut body = Sent::of(&["body "]);
            body.frames.push_back(Ok(Frame::data(Bytes::from(format!("of {id}")))));
            let Ok(asked) = request("POST", &format!("/{id}")).body(body) else { unreachable!() };
            service.clone().call(asked)
        })
        .collect();
    run(async {
        for (id, answer) in answers.into_iter().enumerate() {
            let Ok(answer) = answer.await;
            let (bytes, _) = whole(answer.into_body()).await;
            assert_eq!(String::from_utf8_lossy(&bytes), format!("{id}:body of {id}"));
        }
    });
}

#[test]
fn there_are_bounds() {
    let app = App::new()
        .get("/never", async || pending::<&'static str>().await)
        .get("/turn", || "turned")
        .configure(|config| config.limits.connections = Some(2));
    let service = start(app);
    let ask = |uri: &str| service.clone().call(request("GET", uri).body(Sent::nothing()).expect("a request"));
    let under_way = (ask("/never"), ask("/never"));
    let Ok(third) = run(ask("/turn"));
    assert_eq!(third.status(), 503);
    drop(under_way);
    // There is room again as soon as the worker has noticed that both requests were dropped.
    run(async {
        loop {
            let Ok(answer) = ask("/turn").await;
            if answer.status() == 200 {
                break;
            }
        }
    });

    let app = App::new()
        .post("/", |body: Bytes| body.len().to_string())
        .configure(|config| (config.memory, config.limits.body_bytes) = (Some(200_000), 200_000));
    let service = start(app);
    let half: &'static str = Box::leak("x".repeat(75_000).into_boxed_str());
    // The memory does not suffice for the waiting request and another one. It does once the waiting request is dropped.
    let waiting = Sent::of(&[half]).without_end();
    let kept = service.clone().call(request("POST", "/").body(waiting).expect("a request"));
    let statuses: Vec<u16> = (0..3)
        .map(|_| run(get(&service, request("POST", "/").body(Sent::of(&[half, half])).expect("a request"))).0)
        .collect();
    assert_eq!(statuses, [503, 503, 503]);
    drop(kept);
    run(async {
        loop {
            let asked = request("POST", "/").body(Sent::of(&[half, half])).expect("a request");
            let (status, text, _) = get(&service, asked).await;
            if status == 200 {
                return assert_eq!(text, "150000");
            }
        }
    });
    let threads = App::new().configure(|config| config.engine = Engine::Threads);
    assert!(service::into_service(threads).is_err());
}

/// `sim/tests/all/decoded_bodies.rs` tests the same on connections.
#[cfg(feature = "compress")]
#[test]
fn what_a_waiting_handler_holds_of_a_decoded_body_is_charged() {
    let bomb = zstd::encode_all(&[b'x'; 1 << 20][..], 3).expect("encoded");
    for (memory, status) in [(4 << 20, 200), (600_000, 503)] {
        let waits = async |body: Bytes| {
            highwire::time::sleep(Duration::from_millis(1)).await;
            body.len().to_string()
        };
        let app = App::new().post("/", waits).with(highwire::compress::Decompression::new());
        let service = start(app.configure(|config| config.memory = Some(memory)));
        let mut body = Sent::nothing();
        body.frames.push_back(Ok(Frame::data(Bytes::from(bomb.clone()))));
        let asked = request("POST", "/").header("content-encoding", "zstd").body(body).expect("a request");
        assert_eq!(run(get(&service, asked)).0, status, "{memory} bytes of memory");
    }
}

#[test]
fn an_app_behind_layers_stands_in_another_app() {
    let inner = App::new().get("/hello", || "hello").post("/echo", echo).get("/peer", |peer: Peer| peer.to_string());
    let limited = ::tower::limit::ConcurrencyLimit::new(start(inner), 1);
    let outer = App::new().get("/own", || "own").fallback(service::service(limited));
    let mut client = Client::new(outer).expect("an app");
    assert_eq!(client.get("/own").send().text(), "own");
    for _ in 0..3 {
        let answer = client.get("/hello").send();
        assert_eq!((answer.text(), answer.header("content-length")), ("hello", "5"));
        assert_eq!(answer.headers().get_all("date").iter().count(), 1);
    }
    let head = client.request(Method::HEAD, "/hello").send();
    assert_eq!((head.text(), head.header("content-length")), ("", "5"));
    assert_eq!(client.get("/missing").send().status(), 404);
    assert_eq!(client.request(Method::DELETE, "/hello").send().status(), 405);
    assert!(client.get("/peer").send().text().starts_with("10."));
    let long: Vec<u8> = (0..600_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let answer = client.post("/echo").body(long.clone()).send();
    assert!(answer.bytes() == long, "{} bytes", answer.bytes().len());
}

/// Runs curl. Returns its output.
fn curl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("curl starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("curl ends");
    writer.join().expect("no panic").expect("curl reads all of its input");
    assert!(output.status.success(), "{arguments:?}: {}", output.status);
    output.stdout
}

#[test]
fn an_app_stands_in_an_axum_router_on_hyper() {
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        // Writes directly to standard error, because the test harness captures the output of macros in passing tests.
        let _ = writeln!(std::io::stderr(), "not run: curl is not installed");
        return;
    }
    let app = App::new()
        .get("/hello", || "hello")
        .get("/host", |authority: Authority| authority.0)
        .get("/long", || Bytes::from(vec![b'x'; 3_000_000]))
        .get("/streamed", || Response::stream(stream_of(vec!["a", "bc"])))
        .get("/trailers", || {
            let field = (HeaderName::from_static("x-sum"), HeaderValue::from_static("7"));
            Response::stream(stream_of(vec!["a"])).with_trailers(|| vec![field])
        })
        .get("/panics", || -> &'static str { panic!("on purpose") })
        .post("/echo", echo)
        .post("/whole", |body: Bytes| body.len().to_string())
        .configure(|config| config.limits.body_bytes = 2_000_000);
    let service = start(app);
    let router = axum::Router::new()
        .route("/own", axum::routing::get(async || "axum's own"))
        .nest_service("/nested", service.clone())
        .fallback_service(service);
    let (stop, stopped) = mpsc::channel::<()>();
    let (tell, address) = mpsc::channel();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            tell.send(listener.local_addr().expect("an address")).expect("the test waits");
            let stopped = tokio::task::spawn_blocking(move || stopped.recv());
            let served = axum::serve(listener, router).with_graceful_shutdown(async { drop(stopped.await) });
            served.await.expect("axum serves");
        });
    });
    let address = address.recv_timeout(PATIENCE).expect("axum listens");
    let at = |path: &str| format!("http://{address}{path}");
    let text = |arguments: &[&str], input: &[u8]| String::from_utf8(curl(arguments, input)).expect("text");
    assert_eq!(text(&[&at("/own")], b""), "axum's own");
    assert_eq!(text(&[&at("/hello")], b""), "hello");
    assert_eq!(text(&[&at("/nested/hello")], b""), "hello");
    assert_eq!(text(&[&at("/host")], b""), address.to_string());
    assert_eq!(text(&["--http1.0", &at("/streamed")], b""), "abc");
    let head = text(&["-I", &at("/hello")], b"").to_lowercase();
    assert!(head.starts_with("http/1.1 200") && head.contains("content-length: 5\r\n"), "{head}");
    let answer = text(&["-i", &at("/streamed")], b"").to_lowercase();
    assert!(answer.contains("transfer-encoding: chunked\r\n") && answer.ends_with("\r\n\r\nabc"), "{answer}");
    assert_eq!(curl(&[&at("/long")], b"").len(), 3_000_000);
    for (path, status) in [("/missing", "404"), ("/nested/missing", "404"), ("/panics", "500"), ("/echo", "405")] {
        assert_eq!(text(&["-o", "/dev/null", "-w", "%{http_code}", &at(path)], b""), status, "{path}");
    }
    let long: Vec<u8> = (0..1_000_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for framing in ["X-Length: announced", "Transfer-Encoding: chunked"] {
        let sent = ["--data-binary", "@-", "-H", "Expect:", "-H", framing, &at("/echo")];
        assert!(curl(&sent, &long) == long, "{framing}");
        let sent = ["--data-binary", "@-", "-H", framing, &at("/whole")];
        assert_eq!(text(&sent, &long), "1000000", "{framing}");
    }
    let has_http2 = text(&["--version"], b"").contains("HTTP2");
    if !has_http2 {
        let _ = writeln!(std::io::stderr(), "not run: this curl has no HTTP/2");
    }
    for kind in ["--http2-prior-knowledge"].into_iter().filter(|_| has_http2) {
        let answer = text(&[kind, "-i", &at("/host")], b"");
        assert!(answer.starts_with("HTTP/2 200") && answer.ends_with(&address.to_string()), "{answer}");
        assert_eq!(text(&[kind, &at("/nested/hello")], b""), "hello");
        assert!(text(&[kind, "-I", &at("/hello")], b"").contains("content-length: 5\r\n"));
        assert!(curl(&[kind, "--data-binary", "@-", &at("/echo")], &long) == long);
        let answer = text(&[kind, "-D", "-", &at("/trailers")], b"");
        assert_eq!(answer.matches("x-sum: 7\r\n").count(), 1, "{answer}");
    }
    drop(stop);
    server.join().expect("no panic");
}
