//! Tests of the reverse proxy over sockets: heads, bodies, other protocols, further attempts, the health of upstreams.

use crate::served::{serve, stop};
use bytes::Bytes;
use highwire::client::{Body, Client, Timeouts, block_on};
use highwire::proxy::{Balance, Forwarding, HealthCheck, Proxy};
use highwire::ws::{Connect, Message, WebSocket};
use highwire::{App, FromRequest, HeaderValue, Request, Response, StatusCode, Upgrade, header};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The head of a request, as an upstream sees it.
struct Seen(String);

impl FromRequest for Seen {
    fn from_request(request: &mut Request<'_>) -> Result<Seen, Response> {
        let mut lines = vec![format!("{} {} {}", request.method(), request.target(), request.authority())];
        let fields = request.headers().filter(|(name, _)| *name != "host" && *name != "Host");
        lines
            .extend(fields.map(|(name, value)| format!("{}: {}", name.to_lowercase(), String::from_utf8_lossy(value))));
        lines[1..].sort();
        Ok(Seen(lines.join("\n")))
    }
}

#[test]
fn heads_are_written_anew() {
    let (behind, upstream) = serve(App::new().any("/{*rest}", |Seen(seen): Seen| seen));
    let authority = upstream.trim_start_matches("http://").to_string();
    for (make, sent, expected) in [
        (
            Proxy::to([&upstream]).expect("a proxy"),
            "GET /a/b?c=d HTTP/1.1\r\nHost: front\r\nA: b\r\nConnection: x, close\r\nX: y\r\nKeep-Alive: z\r\nTE: trailers\r\n\
             Proxy-Authorization: p\r\nProxy-Connection: q\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n\
             Forwarded: for=1.2.3.4\r\nX_Forwarded_For: 6.6.6.6\r\nX-Real-IP: 7.7.7.7\r\n\r\n",
            format!(
                "GET /a/b?c=d {authority}\na: b\nconnection: TE\nte: trailers\nvia: 1.1 highwire\nx-forwarded-for: 127.0.0.1\n\
                 x-forwarded-host: front\nx-forwarded-proto: http"
            ),
        ),
        (
            Proxy::to([format!("{upstream}/base/")]).expect("a proxy").strip_prefix("/a").preserve_host(),
            "GET /a HTTP/1.1\r\nHost: front:81\r\nConnection: close\r\n\r\n",
            "GET /base/ front:81\nvia: 1.1 highwire\nx-forwarded-for: 127.0.0.1\nx-forwarded-host: front:81\n\
             x-forwarded-proto: http"
                .to_string(),
        ),
        (
            Proxy::to([&upstream]).expect("a proxy").forwarding(Forwarding::Append).keep_underscores(),
            "GET /a HTTP/1.0\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8\r\nX-Forwarded-Proto: https\r\na_b: c\r\n\r\n",
            format!(
                "GET /a {authority}\na_b: c\nvia: 1.0 highwire\nx-forwarded-for: 1.2.3.4, 5.6.7.8, 127.0.0.1\n\
                 x-forwarded-proto: https"
            ),
        ),
        (
            Proxy::to([&upstream]).expect("a proxy").forwarding(Forwarding::Standard),
            "DELETE /a HTTP/1.1\r\nHost: front\r\nConnection: close\r\nForwarded: for=x\r\n\r\n",
            format!("DELETE /a {authority}\nforwarded: for=127.0.0.1;proto=http;host=\"front\"\nvia: 1.1 highwire"),
        ),
        (
            Proxy::to([&upstream]).expect("a proxy").forwarding(Forwarding::Off),
            "GET /a HTTP/1.1\r\nHost: front\r\nConnection: close\r\n\r\n",
            format!("GET /a {authority}\nvia: 1.1 highwire"),
        ),
    ] {
        let (front, url) = serve(App::new().proxy("/", make));
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("a connection");
        stream.write_all(sent.as_bytes()).expect("a server");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("text");
        let (_, body) = reply.split_once("\r\n\r\n").expect("a head");
        assert_eq!(body, expected, "{sent}\n{reply}");
        stop([front]);
    }
    stop([behind]);
}

#[test]
fn paths_that_could_be_read_differently_reach_no_upstream() {
    let (behind, upstream) = serve(App::new().any("/{*rest}", |Seen(seen): Seen| seen));
    let (front, url) = serve(App::new().proxy("/api", Proxy::to([&upstream]).expect("a proxy")));
    for path in ["/api/../admin", "/api/%2e%2e/admin", "/api/..%2fadmin", "/api/a%5c..%5cb", "/api/%00", "/api/.;a/b"] {
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("a connection");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("a server");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("text");
        let status = &reply[9..12];
        assert!(status == "400" || status == "404", "{path}: {reply}");
    }
    stop([front, behind]);
}

#[test]
fn bodies_pass_in_parts_with_their_trailers_over_every_pair_of_versions() {
    let echo = || {
        App::new().post("/echo", |body: highwire::Body| Response::stream(body)).post("/sum", |body: Bytes| {
            format!("{} {}", body.len(), body.iter().map(|&byte| u64::from(byte)).sum::<u64>())
        })
    };
    for (is_front_2, is_back_2, buffers) in
        [(false, false, false), (false, true, false), (true, false, false), (true, true, false), (false, false, true)]
    {
        let (behind, upstream) = serve(echo());
        let proxy = Proxy::with_client([&upstream], move || {
            let builder = Client::builder();
            if is_back_2 { builder.http2_prior_knowledge() } else { builder }
        });
        let proxy = proxy.expect("a proxy");
        let proxy = if buffers { proxy.buffer_requests() } else { proxy };
        let (front, url) = serve(App::new().proxy("/", proxy));
        block_on(async {
            let builder = Client::builder();
            let builder = if is_front_2 { builder.http2_prior_knowledge() } else { builder };
            let client = builder.build().expect("a client");
            for length in [0, 1, 1000, 100_000, 1_000_000] {
                let body = vec![3; length];
                let response = client.post(&format!("{url}/sum")).body(body).send().await.expect("a response");
                assert_eq!(response.text().await.expect("a body"), format!("{length} {}", 3 * length));
            }
            if buffers {
                return;
            }
            let (mut sender, body) = Body::channel();
            let mut response = client.post(&format!("{url}/echo")).body(body).send().await.expect("a response");
            for part in ["one", "two"] {
                sender.send(part).await.expect("a receiver");
                assert_eq!(response.next().await.expect("a part").expect("a part"), part);
            }
            sender.finish();
            assert!(response.next().await.is_none());
            let large = vec![5; 3_000_000];
            let response = client.post(&format!("{url}/echo")).body(large.clone()).send().await.expect("a response");
            assert!(response.bytes().await.expect("a body") == large);
        })
        .expect("a worker");
        stop([front, behind]);
    }
}

#[test]
fn trailers_pass() {
    let app = App::new().get("/", || {
        let (mut sender, receiver) = highwire::body::channel();
        highwire::spawn(async move {
            sender.send("body").await.expect("a receiver");
            sender.finish();
        });
        Response::stream(receiver)
            .with_trailers(|| vec![("digest".parse().expect("a name"), HeaderValue::from_static("x"))])
    });
    let (behind, upstream) = serve(app);
    let (front, url) = serve(App::new().proxy("/", Proxy::to([&upstream]).expect("a proxy")));
    block_on(async {
        for builder in [Client::builder(), Client::builder().http2_prior_knowledge()] {
            let client = builder.build().expect("a client");
            let mut response = client.get(&url).send().await.expect("a response");
            while let Some(part) = response.next().await {
                assert_eq!(part.expect("a part"), "body");
            }
            assert_eq!(response.trailers(), [("digest".parse().expect("a name"), HeaderValue::from_static("x"))]);
        }
    })
    .expect("a worker");
    stop([front, behind]);
}

#[test]
fn websockets_and_other_protocols_pass() {
    let echo = async |mut socket: WebSocket| {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    };
    let raw = async |upgrade: Upgrade| {
        upgrade.accept("echo", async |mut stream| {
            while let Ok(Some(bytes)) = stream.read().await {
                if stream.write(bytes).await.is_err() {
                    return;
                }
            }
        })
    };
    let (behind, upstream) = serve(App::new().ws("/ws", echo).get("/raw", raw));
    let proxy = Proxy::to([&upstream]).expect("a proxy").allow_upgrade("echo");
    let (front, url) = serve(App::new().proxy("/", proxy));
    block_on(async {
        let mut socket = Connect::new(&format!("{}/ws", url.replace("http:", "ws:"))).expect("a URL").connect().await;
        let socket = socket.as_mut().expect("a socket");
        socket.send("hello").await.expect("a server");
        assert_eq!(socket.recv().await.expect("a message").expect("a message"), Message::from("hello"));

        // Over HTTP/2, the upstream still gets an Upgrade.
        for (builder, status) in [
            (Client::builder(), StatusCode::SWITCHING_PROTOCOLS),
            (Client::builder().http2_prior_knowledge(), StatusCode::OK),
        ] {
            let client = builder.build().expect("a client");
            // The settings of an HTTP/2 server, which allow other protocols, come with the first response.
            client.get(&format!("{url}/raw")).send().await.expect("a response");
            let response = client.get(&format!("{url}/raw")).upgrade("echo").send().await.expect("a response");
            assert_eq!(response.status(), status);
            let mut stream = response.upgrade().expect("a stream");
            stream.write("hello").await.expect("a server");
            assert_eq!(stream.read().await.expect("bytes").expect("bytes"), "hello");
        }
    })
    .expect("a worker");
    stop([front, behind]);
}

#[test]
fn an_upstream_sees_whether_a_client_of_another_protocol_has_ended_or_was_cut() {
    /// Tells how a protocol has ended. The task of one whose connection is cut is dropped.
    struct Told(std::sync::mpsc::Sender<&'static str>, &'static str);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(self.1);
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    let raw = move |upgrade: Upgrade| {
        let tell = tell.clone();
        upgrade.accept("echo", async move |mut stream| {
            let mut end = Told(tell, "cut");
            while let Ok(Some(bytes)) = stream.read().await {
                stream.write(bytes).await.expect("a client");
            }
            end.1 = "ended";
        })
    };
    let (behind, upstream) = serve(App::new().get("/raw", raw));
    let proxy = Proxy::to([&upstream]).expect("a proxy").allow_upgrade("echo");
    let (front, url) = serve(App::new().proxy("/", proxy));
    for reads in [true, false] {
        let mut client = TcpStream::connect(url.trim_start_matches("http://")).expect("a server");
        let upgrade = "GET /raw HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        client.write_all(upgrade.as_bytes()).expect("a server");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            client.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        client.write_all(b"x").expect("a server");
        // A connection that is closed before all of its bytes are read is reset.
        client.peek(&mut byte).expect("the byte comes back");
        if reads {
            client.read_exact(&mut byte).expect("the byte");
        }
        drop(client);
        let expected = if reads { "ended" } else { "cut" };
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(expected));
    }
    stop([front, behind]);
}

/// An upstream that sends these bytes to each request and closes the connection.
fn says(reply: &'static [u8]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 4000]);
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(reply);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read(&mut [0; 4000]);
        }
    });
    (url, count)
}

/// Returns the URL of a port on which nothing listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    format!("http://{}", listener.local_addr().expect("an address"))
}

#[test]
fn a_failing_upstream_is_reported_and_never_hidden_after_a_byte() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    for (reply, expected) in [
        (&b"not HTTP\r\n\r\n"[..], Some(502)),
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"[..], Some(502)),
        (&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nok"[..], Some(502)),
        (&b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"[..], Some(502)),
        (&b""[..], Some(502)),
        (&half[..], None),
        (&chunk[..], None),
    ] {
        for is_http2 in [false, true] {
            let (upstream, count) = says(reply);
            let (front, url) = serve(App::new().proxy("/", Proxy::to([&upstream]).expect("a proxy")));
            let result = block_on(async {
                let builder = Client::builder().retries(0);
                let builder = if is_http2 { builder.http2_prior_knowledge() } else { builder };
                let response = builder.build()?.post(&url).body("x").send().await?;
                let status = response.status().as_u16();
                response.bytes().await.map(|_| status)
            });
            let result = result.expect("a worker");
            match expected {
                Some(status) => assert_eq!(result.expect("a response"), status, "{reply:?}"),
                None => assert!(result.expect_err("a cut body").is_body(), "{reply:?}"),
            }
            assert_eq!(count.load(Ordering::SeqCst), 1, "a POST was sent twice");
            stop([front]);
        }
    }
    let (front, url) = serve(App::new().proxy("/", Proxy::to([nobody()]).expect("a proxy")));
    let status = block_on(async { Client::new().get(&url).send().await.expect("a response").status() });
    assert_eq!(status.expect("a worker"), StatusCode::BAD_GATEWAY);
    stop([front]);
}

#[test]
fn white_space_before_a_colon_is_removed_from_responses() {
    let (upstream, _) = says(b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\nA \t: b\r\n\r\nok and more");
    let (front, url) = serve(App::new().proxy("/", Proxy::to([&upstream]).expect("a proxy")));
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("a server");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("text");
    assert!(reply.to_lowercase().contains("\r\na: b\r\n") && reply.ends_with("\r\n\r\nok"), "{reply}");
    stop([front]);
}

#[test]
fn a_slow_upstream_is_a_504() {
    let (behind, upstream) = serve(App::new().get("/", async || {
        highwire::time::sleep(Duration::from_secs(30)).await;
        "late"
    }));
    let timeouts = Timeouts::default().head(Duration::from_millis(200));
    let proxy = Proxy::with_client([&upstream], || Client::builder().timeouts(timeouts.clone())).expect("a proxy");
    let (front, url) = serve(App::new().proxy("/", proxy));
    let status = block_on(async { Client::new().get(&url).send().await.expect("a response").status() });
    assert_eq!(status.expect("a worker"), StatusCode::GATEWAY_TIMEOUT);
    stop([front, behind]);
}

async fn ask(client: &Client, url: &str, count: usize) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..count {
        let response = client.get(url).send().await.expect("a response");
        *answers.entry(response.text().await.expect("a body")).or_default() += 1;
    }
    answers
}

#[test]
fn requests_are_balanced_and_go_elsewhere_if_an_upstream_is_gone() {
    let (first, one) = serve(App::new().get("/", || "one"));
    let (second, two) = serve(App::new().get("/", || "two"));
    let of = |pairs: &[(&str, usize)]| -> BTreeMap<String, usize> {
        pairs.iter().map(|(name, count)| ((*name).to_string(), *count)).collect()
    };
    for (balance, expected) in [
        (Balance::RoundRobin, Some(of(&[("one", 10), ("two", 10)]))),
        (Balance::LeastPending, Some(of(&[("one", 10), ("two", 10)]))),
        (Balance::PowerOfTwo, None),
    ] {
        let proxy = Proxy::to([&one, &two]).expect("a proxy").balance(balance.clone());
        let (front, url) = serve(App::new().proxy("/", proxy));
        let got = block_on(ask(&Client::new(), &url, 20)).expect("a worker");
        match expected {
            Some(expected) => assert_eq!(got, expected, "{balance:?}"),
            None => assert_eq!(got.values().sum::<usize>(), 20, "{balance:?}"),
        }
        stop([front]);
    }
    let proxy = Proxy::to([&one, &two]).expect("a proxy").balance(Balance::ClientAddress);
    let (front, url) = serve(App::new().proxy("/", proxy));
    assert_eq!(block_on(ask(&Client::new(), &url, 20)).expect("a worker").len(), 1);
    stop([front]);
    // Every request succeeds, although one of three upstreams is gone. After three failures it gets no more.
    let gone = nobody();
    let (front, url) = serve(App::new().proxy("/", Proxy::to([&gone, &one, &two]).expect("a proxy")));
    let got = block_on(ask(&Client::new(), &url, 30)).expect("a worker");
    assert_eq!(got.keys().map(String::as_str).collect::<Vec<_>>(), ["one", "two"]);
    stop([front, first, second]);
}

#[test]
fn health_checks_take_upstreams_out_and_back() {
    let is_healthy = Arc::new(AtomicBool::new(true));
    let shown = is_healthy.clone();
    let health = move || if shown.load(Ordering::SeqCst) { StatusCode::OK } else { StatusCode::IM_A_TEAPOT };
    let (first, one) = serve(App::new().get("/", || "one").get("/health", health));
    let (second, two) = serve(App::new().get("/", || "two").get("/health", || "fine"));
    let check = HealthCheck::new("/health").interval(Duration::from_millis(20)).healthy_after(1).unhealthy_after(2);
    let proxy = Proxy::to([&one, &two]).expect("a proxy").health_check(check);
    let (front, url) = serve(App::new().proxy("/", proxy));
    block_on(async {
        let client = Client::new();
        assert_eq!(ask(&client, &url, 10).await.len(), 2);
        for (healthy, upstreams) in [(false, 1), (true, 2)] {
            is_healthy.store(healthy, Ordering::SeqCst);
            let mut rounds = 0;
            while ask(&client, &url, 10).await.len() != upstreams {
                rounds += 1;
                assert!(rounds < 1000, "the health check has not seen the change");
                highwire::time::sleep(Duration::from_millis(20)).await;
            }
        }
    })
    .expect("a worker");
    stop([front, first, second]);
}

#[test]
fn a_client_that_leaves_frees_the_upstream() {
    let (left, told) = std::sync::mpsc::channel::<()>();
    let app =
        App::new().state(left).get("/", async |highwire::State(left): highwire::State<std::sync::mpsc::Sender<()>>| {
            struct Gone(std::sync::mpsc::Sender<()>);
            impl Drop for Gone {
                fn drop(&mut self) {
                    let _ = self.0.send(());
                }
            }
            let _gone = Gone(left);
            highwire::time::sleep(Duration::from_secs(60)).await;
            "never"
        });
    let (behind, upstream) = serve(app);
    let (front, url) = serve(App::new().proxy("/", Proxy::to([&upstream]).expect("a proxy")));
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("a server");
    assert!(told.recv_timeout(Duration::from_millis(100)).is_err());
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(stream);
    told.recv_timeout(Duration::from_secs(20)).expect("the upstream's handler was not cancelled");
    stop([front, behind]);
}

#[test]
fn a_head_request_and_statuses_without_bodies_pass() {
    let app = App::new().get("/", || "twelve bytes").get("/empty", || StatusCode::NO_CONTENT).get("/same", || {
        Response::new(StatusCode::NOT_MODIFIED).with_header(header::ETAG, HeaderValue::from_static("\"x\""))
    });
    let (behind, upstream) = serve(app);
    let (front, url) = serve(App::new().proxy("/", Proxy::to([&upstream]).expect("a proxy")));
    block_on(async {
        for builder in [Client::builder(), Client::builder().http2_prior_knowledge()] {
            let client = builder.build().expect("a client");
            let head = client.head(&url).send().await.expect("a response");
            assert_eq!((head.status(), head.content_length()), (StatusCode::OK, Some(12)));
            assert_eq!(head.bytes().await.expect("no body").len(), 0);
            for (path, status) in [("/empty", StatusCode::NO_CONTENT), ("/same", StatusCode::NOT_MODIFIED)] {
                let response = client.get(&format!("{url}{path}")).send().await.expect("a response");
                assert_eq!(response.status(), status);
                assert_eq!(response.bytes().await.expect("no body").len(), 0);
            }
        }
    })
    .expect("a worker");
    stop([front, behind]);
}
