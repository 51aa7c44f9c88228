//! Tests of the client against servers of this crate over sockets: requests, bodies, redirects, further attempts, time
//! limits, proxies, TLS.

use crate::served::{body_of, serve, stop};
use bytes::Bytes;
use highwire::client::{
    Body, Bounds, Client, Error, Next, Redirects, Request, Timeouts, block_on, blocking, from_fn, multipart,
};
use highwire::{
    App, BodyUse, FromRequest, HeaderValue, InterimResponses, Json, Multipart, Path, RawQuery, Response, State,
    StatusCode, Upgrade, header,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Runs a test with a server for each version of HTTP.
fn on_both<F: Future>(app: impl Fn() -> App, test: impl Fn(Client, String) -> F) {
    for is_http2 in [false, true] {
        let (handle, url) = serve(app());
        let builder = Client::builder();
        let builder = if is_http2 { builder.http2_prior_knowledge() } else { builder };
        block_on(test(builder.build().expect("a client"), url)).expect("a worker");
        stop([handle]);
    }
}

#[test]
fn requests_in_each_shape() {
    let app = || {
        App::new()
            .get("/hello", || "Hello")
            .get("/query", |RawQuery(query): RawQuery| query.to_string())
            .post("/json", |Json(value): Json<BTreeMap<String, u32>>| Json(value))
            .post("/echo", |body: Bytes| body)
            .put("/echo", |body: Bytes| body)
            .delete("/users/{id}", |Path(id): Path<u64>| (StatusCode::ACCEPTED, id.to_string()))
            .post("/form", async |mut form: Multipart| {
                let mut said = String::new();
                while let Some(Ok(part)) = form.next().await {
                    let (name, file) = (part.name().to_string(), part.file_name().map(str::to_string));
                    let text = part.text(1000).await.unwrap_or_default();
                    said += &format!("{name}={text} {file:?};");
                }
                said
            })
    };
    on_both(app, async |client, url| {
        let get = client.get(&format!("{url}/hello")).send().await.expect("a response");
        assert_eq!((get.status(), get.header("content-type")), (StatusCode::OK, Some("text/plain; charset=utf-8")));
        assert_eq!(get.headers()["content-length"], "5");
        assert_eq!(get.content_length(), Some(5));
        assert_eq!(get.text().await.expect("a body"), "Hello");

        let head = client.head(&format!("{url}/hello")).send().await.expect("a response");
        assert_eq!((head.content_length(), head.bytes().await.expect("no body").len()), (Some(5), 0));

        let query = client.get(&format!("{url}/query?a=b")).query(&[("c", "d e"), ("f", "&")]).send().await;
        assert_eq!(query.expect("a response").text().await.expect("a body"), "a=b&c=d+e&f=%26");

        let value = BTreeMap::from([("x".to_string(), 1)]);
        let json = client.post(&format!("{url}/json")).json(&value).send().await.expect("a response");
        assert_eq!(json.json::<BTreeMap<String, u32>>().await.expect("JSON"), value);

        let form = client.post(&format!("{url}/echo")).form(&[("a", "b c")]).send().await.expect("a response");
        assert_eq!(form.text().await.expect("a body"), "a=b+c");

        let form = multipart::Form::new().text("t", "x").part("f", multipart::Part::bytes("y").file_name("z"));
        let form = client.post(&format!("{url}/form")).multipart(form).send().await.expect("a response");
        assert_eq!(form.text().await.expect("a body"), "t=x None;f=y Some(\"z\");");

        let file = multipart::Part::stream(body_of(["in ", "parts"])).file_name("z");
        let form = multipart::Form::new().text("t", "x").part("f", file).text("u", "last");
        let form = client.post(&format!("{url}/form")).multipart(form).send().await.expect("a response");
        assert_eq!(form.text().await.expect("a body"), "t=x None;f=in parts Some(\"z\");u=last None;");

        let delete = client.delete(&format!("{url}/users/7")).send().await.expect("a response");
        assert_eq!((delete.status(), delete.text().await.expect("a body")), (StatusCode::ACCEPTED, "7".to_string()));

        let missing = client.get(&format!("{url}/missing")).send().await.expect("a response").error_for_status();
        let error = missing.expect_err("an error");
        assert_eq!((error.status(), error.is_status()), (Some(StatusCode::NOT_FOUND), true));

        for wrong in ["", "hello", "ftp://a/", "http://", "http://a:0/"] {
            assert!(client.get(wrong).send().await.expect_err("an error").is_builder(), "{wrong}");
        }
        let wrong = client.get(&url).header("a b", "c").send().await.expect_err("an error");
        assert!(wrong.is_builder(), "{wrong}");
        let wrong = client.get(&url).header("a", "b\r\nc: d").send().await.expect_err("an error");
        assert!(wrong.is_builder(), "{wrong}");
        // Everything went over one connection.
        assert_eq!(client.connections(), (1, 1));
    });
}

#[test]
fn bodies_in_parts_in_both_directions() {
    let app = || App::new().post("/echo", |body: highwire::Body| Response::stream(body));
    on_both(app, async |client, url| {
        let (mut sender, body) = Body::channel();
        let mut response = client.post(&format!("{url}/echo")).body(body).send().await.expect("a response");
        for part in ["one", "two"] {
            sender.send(part).await.expect("a receiver");
            assert_eq!(response.next().await.expect("a part").expect("a part"), part);
        }
        sender.finish();
        assert!(response.next().await.is_none());

        // A body that ends without `finish` is cut, and the server sees that.
        let (sender, body) = Body::channel();
        let mut response = client.post(&format!("{url}/echo")).body(body).send().await.expect("a response");
        drop(sender);
        assert!(response.next().await.expect("an error").expect_err("an error").is_body());

        let parts = Body::channel().1.with_length(3);
        let wrong = client.post(&format!("{url}/echo")).body(parts).send().await;
        assert!(wrong.is_err() || wrong.is_ok_and(|response| response.status().is_success()));
        // The client can go on.
        let after = client.post(&format!("{url}/echo")).body("after").send().await.expect("a response");
        assert_eq!(after.text().await.expect("a body"), "after");
    });
}

/// Says what a server has seen of a request.
struct Seen(String);

impl FromRequest for Seen {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request(request: &mut highwire::Request<'_>) -> Result<Seen, Response> {
        let has = |name| if request.header(name).is_some() { name } else { "" };
        let has = format!("{} {}", has("authorization"), has("content-type"));
        let (method, body) = (request.method().to_string(), request.take_body()?);
        Ok(Seen(format!("{method} {} {has}", body.len())))
    }
}

fn to(status: u16, location: &str) -> Response {
    let response = Response::new(StatusCode::from_u16(status).expect("a status"));
    response.with_header(header::LOCATION, HeaderValue::try_from(location).expect("a value"))
}

#[test]
fn redirects_follow_their_rules() {
    let end = |Seen(seen): Seen| seen;
    let away = |Path(status): Path<u16>, _: Bytes| to(status, "x/../../end");
    let app = move || {
        App::new()
            .get("/end", end)
            .post("/end", end)
            .put("/end", end)
            .get("/to/{status}", away)
            .post("/to/{status}", away)
            .put("/to/{status}", away)
            .get("/loop", || to(302, "/loop"))
            .get("/file", || to(302, "file:///etc/passwd"))
            .get("/other", |highwire::Authority(host): highwire::Authority| {
                to(307, &format!("http://localhost:{}/end", host.split(':').next_back().unwrap_or_default()))
            })
    };
    on_both(app, async |client, url| {
        for (method, status, expected) in [
            ("GET", 301, "GET 0 authorization content-type"),
            ("GET", 308, "GET 0 authorization content-type"),
            ("POST", 301, "GET 0 authorization "),
            ("POST", 302, "GET 0 authorization "),
            ("POST", 303, "GET 0 authorization "),
            ("POST", 307, "POST 4 authorization content-type"),
            ("POST", 308, "POST 4 authorization content-type"),
            ("PUT", 302, "PUT 4 authorization content-type"),
            ("PUT", 303, "GET 0 authorization "),
        ] {
            let request = client.request(method.parse().expect("a method"), &format!("{url}/to/{status}"));
            let request = request.bearer("secret").header("content-type", "x/y");
            let request = if method == "GET" { request } else { request.body("body") };
            let response = request.send().await.expect("a response");
            assert_eq!((response.uri().path(), response.stats().redirects), ("/end", 1));
            assert_eq!(response.text().await.expect("a body"), expected, "{method} {status}");
        }
        let endless = client.get(&format!("{url}/loop")).send().await.expect_err("an error");
        assert!(endless.is_redirect(), "{endless}");
        let file = client.get(&format!("{url}/file")).send().await.expect_err("an error");
        assert!(file.is_redirect(), "{file}");
        // Another origin does not get the credentials.
        let other = client.get(&format!("{url}/other")).bearer("secret").send().await.expect("a response");
        assert_eq!(other.text().await.expect("a body"), "GET 0  ");
        // A body in parts cannot be sent again.
        let (sender, body) = Body::channel();
        sender.finish();
        let parts = client.post(&format!("{url}/to/307")).body(body).send().await.expect("a response");
        assert_eq!(parts.status(), StatusCode::TEMPORARY_REDIRECT);
    });
    let (handle, url) = serve(app());
    block_on(async {
        let client = Client::builder().redirects(Redirects::none()).build().expect("a client");
        let response = client.get(&format!("{url}/to/301")).send().await.expect("a response");
        assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
        let client = Client::builder().redirects(Redirects::limited(3).same_origin()).build().expect("a client");
        let response = client.get(&format!("{url}/other")).send().await.expect("a response");
        assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
    })
    .expect("a worker");
    stop([handle]);
}

/// A server that closes each connection after a number of requests, without a word, when the next one has come. Returns
/// its URL and the number of requests that it has received.
fn forgetful(answers: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counted) = (stream.expect("a connection"), counted.clone());
            std::thread::spawn(move || {
                for answer in 0..=answers {
                    let mut head = [0; 1000];
                    let length = stream.read(&mut head).unwrap_or(0);
                    if length == 0 {
                        return;
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                    if answer < answers {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    }
                }
            });
        }
    });
    (url, count)
}

#[test]
fn lost_requests_are_sent_again_if_that_is_safe() {
    for (method, answers, expected, received) in [
        ("GET", 1, true, 3),
        ("PUT", 1, true, 3),
        ("DELETE", 1, true, 3),
        ("POST", 1, false, 2),
        ("PATCH", 1, false, 2),
        // The server never answers: the first attempt and three others.
        ("GET", 0, false, 4),
        ("POST", 0, false, 1),
    ] {
        let (url, count) = forgetful(answers);
        let result = block_on(async {
            let client = Client::new();
            let request = |method: &str| client.request(method.parse().expect("a method"), &url).body("x");
            for _ in 0..answers {
                request("GET").send().await?.bytes().await?;
            }
            let response = request(method).send().await?;
            let retries = response.stats().retries;
            response.bytes().await?;
            Ok::<_, Error>(retries)
        });
        let result = result.expect("a worker");
        assert_eq!(result.is_ok(), expected, "{method}: {result:?}");
        assert_eq!(count.load(Ordering::SeqCst), received, "{method}");
        if let Err(error) = result {
            assert!(error.failure().is_some_and(|failure| failure.is_lost()), "{error}");
        }
    }
}

#[test]
fn a_body_in_parts_is_sent_once_and_never_again() {
    let (url, count) = forgetful(0);
    let result = block_on(async {
        let (mut sender, body) = Body::channel();
        sender.send("part").await.expect("a receiver");
        sender.finish();
        Client::new().put(&url).body(body).send().await.map(drop)
    });
    assert!(result.expect("a worker").is_err());
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn every_wait_has_its_time_limit() {
    let app = || {
        App::new()
            .get("/later", async || {
                highwire::time::sleep(Duration::from_secs(30)).await;
                "late"
            })
            .get("/slow", || {
                let (mut sender, receiver) = highwire::body::channel();
                highwire::spawn(async move {
                    let _ = sender.send("first").await;
                    highwire::time::sleep(Duration::from_secs(30)).await;
                });
                Response::stream(receiver)
            })
    };
    let (handle, url) = serve(app());
    block_on(async {
        let short = Duration::from_millis(200);
        let timeouts = Timeouts::default().head(short).body(short);
        for builder in [Client::builder(), Client::builder().http2_prior_knowledge()] {
            let client = builder.timeouts(timeouts.clone()).build().expect("a client");
            let late = client.get(&format!("{url}/later")).send().await.expect_err("an error");
            assert!(late.is_timeout(), "{late}");
            let slow = client.get(&format!("{url}/slow")).send().await.expect("a response");
            let slow = slow.bytes().await.expect_err("an error");
            assert!(slow.is_timeout(), "{slow}");
        }
        let client = Client::new();
        let whole = client.get(&format!("{url}/later")).timeout(short).send().await.expect_err("an error");
        assert!(whole.is_timeout(), "{whole}");
        let whole = client.get(&format!("{url}/slow")).timeout(short).send().await.expect("a response");
        let whole = whole.bytes().await.expect_err("an error");
        assert!(whole.is_timeout(), "{whole}");
        // The only connection is busy.
        let bounds = Bounds::default().connections(1).waiting(1);
        let client = Client::builder().bounds(bounds).pool_timeout(short).build().expect("a client");
        let busy = client.get(&format!("{url}/slow")).send().await.expect("a response");
        let waits = client.get(&format!("{url}/slow")).send().await.expect_err("an error");
        assert!(waits.is_timeout(), "{waits}");
        drop(busy);
        // The connection of the dropped response has ended.
        let next = client.get(&format!("{url}/slow")).send().await.expect("a response");
        assert_eq!(next.status(), StatusCode::OK);
        // A blackhole: nobody accepts, and the backlog is full or the packets are dropped.
        let client = Client::builder().connect_timeout(short).build().expect("a client");
        let unreachable = client.get("http://127.0.0.1:1/").send().await.expect_err("an error");
        assert!(unreachable.is_connect(), "{unreachable}");
        let unknown = client.get("http://unknown.invalid/").send().await.expect_err("an error");
        assert!(unknown.is_connect(), "{unknown}");
    })
    .expect("a worker");
    stop([handle]);
}

#[test]
fn a_body_waits_for_100_continue() {
    let app = || {
        App::new()
            .post("/takes", |body: Bytes| body.len().to_string())
            .post("/refuses", || (StatusCode::PAYLOAD_TOO_LARGE, "no"))
    };
    on_both(app, async |client, url| {
        let large = vec![7; 500_000];
        let takes = client.post(&format!("{url}/takes")).body(large.clone()).expect_continue().send().await;
        assert_eq!(takes.expect("a response").text().await.expect("a body"), "500000");
        let begun = std::time::Instant::now();
        let refuses = client.post(&format!("{url}/refuses")).body(large).expect_continue().send().await;
        assert_eq!(refuses.expect("a response").status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert!(begun.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn interim_responses_reach_their_function() {
    let app = || {
        App::new().get("/", async |interim: InterimResponses| {
            interim.send(StatusCode::EARLY_HINTS, [(header::LINK, HeaderValue::from_static("</a>"))]);
            highwire::time::sleep(Duration::from_millis(1)).await;
            "done"
        })
    };
    on_both(app, async |client, url| {
        let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let kept = seen.clone();
        let response = client.get(&url).on_interim(move |status, fields| {
            kept.borrow_mut().push((status.as_u16(), fields.len()));
        });
        assert_eq!(response.send().await.expect("a response").text().await.expect("a body"), "done");
        assert_eq!(*seen.borrow(), [(103, 1)]);
    });
}

#[test]
fn an_upgrade_gives_the_stream() {
    let app = || {
        App::new().get("/", async |upgrade: Upgrade| {
            upgrade.accept("echo", async |mut stream| {
                while let Ok(Some(bytes)) = stream.read().await {
                    if stream.write(bytes).await.is_err() {
                        return;
                    }
                }
            })
        })
    };
    let (handle, url) = serve(app());
    block_on(async {
        let response = Client::new().get(&url).upgrade("echo").send().await.expect("a response");
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let mut stream = response.upgrade().expect("a stream");
        stream.write("hello").await.expect("a server");
        assert_eq!(stream.read().await.expect("bytes").expect("bytes"), "hello");
    })
    .expect("a worker");
    stop([handle]);
}

#[test]
fn middleware_sees_and_changes_requests_and_responses() {
    let app = || App::new().get("/", |Seen(seen): Seen| seen);
    let (handle, url) = serve(app());
    let client = Client::builder()
        .with(from_fn(async |mut request: Request, next: Next<'_>| {
            request.set_header(header::AUTHORIZATION, HeaderValue::from_static("x"));
            let mut response = next.run(request).await?;
            response.headers_mut().insert("x-seen", HeaderValue::from_static("yes"));
            Ok(response)
        }))
        .build()
        .expect("a client");
    block_on(async {
        let response = client.get(&url).send().await.expect("a response");
        assert_eq!(response.header("x-seen"), Some("yes"));
        assert_eq!(response.text().await.expect("a body"), "GET 0 authorization ");
    })
    .expect("a worker");
    stop([handle]);
}

#[test]
fn many_requests_share_a_bounded_number_of_connections() {
    let app = || {
        App::new().get("/", async || {
            highwire::time::sleep(Duration::from_millis(1)).await;
            "ok"
        })
    };
    for (is_http2, most) in [(false, 8), (true, 2)] {
        let (handle, url) = serve(app());
        let bounds = Bounds::default().connections(most).streams(50);
        let builder = Client::builder().bounds(bounds);
        let client = if is_http2 { builder.http2_prior_knowledge() } else { builder }.build().expect("a client");
        block_on(async {
            let (done, all) = (std::rc::Rc::new(std::cell::Cell::new(0)), 500);
            for _ in 0..all {
                let (client, url, done) = (client.clone(), url.clone(), done.clone());
                highwire::spawn(async move {
                    let response = client.get(&url).send().await.expect("a response");
                    assert_eq!(response.text().await.expect("a body"), "ok");
                    done.set(done.get() + 1);
                });
            }
            while done.get() < all {
                highwire::time::sleep(Duration::from_millis(1)).await;
                assert!(client.connections().0 <= most);
            }
            assert_eq!(client.connections(), (client.connections().0, client.connections().0));
        })
        .expect("a worker");
        stop([handle]);
    }
}

#[test]
fn dropped_requests_free_their_connections() {
    let app = || {
        App::new().get("/never", async || {
            highwire::time::sleep(Duration::from_secs(60)).await;
            "never"
        })
    };
    on_both(app, async |client, url| {
        for _ in 0..20 {
            let request = client.get(&format!("{url}/never")).send();
            let gone = highwire::time::timeout(Duration::from_millis(5), request).await;
            assert!(gone.is_err());
        }
        highwire::time::sleep(Duration::from_millis(20)).await;
        let (all, idle) = client.connections();
        assert_eq!(all, idle, "connections of dropped requests are busy");
    });
}

#[test]
fn a_handler_calls_another_server_on_its_own_worker() {
    let (back, url) = serve(App::new().get("/", || "from behind"));
    let app = App::new().state((Client::new(), url)).get("/", async |State(behind): State<(Client, String)>| {
        let text = behind.0.get(&behind.1).send().await?.text().await?;
        Ok::<_, Error>(text)
    });
    let (front, url) = serve(app);
    let client = blocking::Client::new().expect("a client");
    for _ in 0..3 {
        assert_eq!(client.get(&url).send().expect("a response").text().expect("a body"), "from behind");
    }
    stop([back]);
    let late = client.get(&url).send().expect("a response");
    assert_eq!(late.status(), StatusCode::BAD_GATEWAY);
    stop([front]);
}

#[test]
fn a_blocking_response_can_be_read() {
    let (handle, url) = serve(App::new().get("/", || "x".repeat(100_000)));
    let mut text = String::new();
    let mut response = blocking::Client::new().expect("a client").get(&url).send().expect("a response");
    response.read_to_string(&mut text).expect("text");
    assert_eq!(text.len(), 100_000);
    stop([handle]);
}

#[test]
fn an_authorization_field_replaces_the_credentials_of_the_url() {
    let mut request = Request::new(highwire::Method::GET, "http://user:secret@host/").expect("a URL");
    assert_eq!(request.headers().len(), 1);
    for token in ["Bearer a", "Bearer b"] {
        request.add_header(header::AUTHORIZATION, HeaderValue::from_static(token));
    }
    // The program's own fields stay as it adds them.
    let values: Vec<_> = request.headers().iter().map(|(_, value)| value.as_bytes()).collect();
    assert_eq!(values, [b"Bearer a", b"Bearer b"]);
}
