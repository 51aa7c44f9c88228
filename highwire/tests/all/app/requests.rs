//! Tests routing, extractors and responses as an application uses them, on the simulated driver and without sockets.

use crate::served::body_of;
use highwire::{
    App, Authority, Body, HeaderMap, HeaderName, HeaderValue, InterimResponses, IntoResponse, Json, Method, Params,
    Path, Query, RawQuery, Request, Response, Scheme, StatusCode, Version, body, header,
};
use highwire_io::sim::{Arrived, Faults, Network, Simulated};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Sends bytes on one connection to a new server. Returns the bytes that the server sends within two seconds of virtual
/// time.
fn answer(app: App, request: &str) -> String {
    let network = Network::new(1, Faults::default());
    let driver = Simulated::new(network.clone()).expect("a driver");
    let mut worker = app.server().expect("an app").into_worker(driver).expect("a worker");
    let client = network.connect();
    let mut rest = request.as_bytes();
    let mut answer = Vec::new();
    for _ in 0..400 {
        rest = &rest[client.send(rest)..];
        worker.turn(Some(network.now())).expect("a turn");
        while let Some(Arrived::Bytes(bytes)) = client.receive(usize::MAX) {
            answer.extend(bytes);
        }
        network.advance(Duration::from_millis(5));
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(app: App, path: &str) -> String {
    answer(app, &format!("GET {path} HTTP/1.1\r\nHost: example.org:8080\r\n\r\n"))
}

/// Checks the status and body of the response. `request` is a whole request, or a path to GET.
fn check(app: fn() -> App, request: &str, status: u16, body: &str) {
    let answer = if request.contains("\r\n") { answer(app(), request) } else { get(app(), request) };
    let (head, its_body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    assert_eq!(its_body, body, "{request:?}: {answer}");
}

fn routes() -> App {
    let api = App::new().get("/", || "api root").get("/users/{id}", |Path(id): Path<u32>| format!("api user {id}"));
    let admin = App::new().get("/hello", || "admin");
    App::new()
        .get("/hello", || "everybody")
        .nest("/api", api)
        .host("admin.example.org", admin)
        .any("/any", |method: Method| method.to_string())
        .route(Method::from_bytes(b"PURGE").expect("a token"), "/cache", || "purged")
        .get("/files/{*rest}", |Path(rest): Path<String>| rest)
        .get("/params/{a}/{b}", |request: &Request<'_>| {
            let params: Params<'_> = request.params();
            format!("{}+{}", params.get("a").unwrap_or_default(), params.get("b").unwrap_or_default())
        })
        .not_found(|request: &Request<'_>| (StatusCode::NOT_FOUND, format!("no {}", request.path())))
        .on_error(|status: StatusCode, text: &str| format!("{}: {text}", status.as_u16()))
}

#[test]
fn nests_hosts_methods_and_handlers_for_errors() {
    check(routes, "/hello", 200, "everybody");
    check(routes, "GET /hello HTTP/1.1\r\nHost: Admin.Example.org:80\r\n\r\n", 200, "admin");
    check(routes, "/api", 200, "api root");
    check(routes, "/api/users/7", 200, "api user 7");
    let unfit = r#"{"title":"Not Found","status":404,"detail":"the path does not fit: \"x\": invalid digit found in string","in":"path","field":"id"}"#;
    check(routes, "/api/users/x", 404, unfit);
    check(routes, "BREW /any HTTP/1.1\r\nHost: a\r\n\r\n", 200, "BREW");
    check(routes, "PURGE /cache HTTP/1.1\r\nHost: a\r\n\r\n", 200, "purged");
    check(routes, "/files/a/b%20c", 200, "a/b c");
    check(routes, "/files/a/../b", 200, "b");
    check(routes, "/params/1/%2F", 200, "1+/");
    check(routes, "/nowhere", 404, "no /nowhere");
    check(routes, "PUT /hello HTTP/1.1\r\nHost: a\r\n\r\n", 405, "405: the method is not allowed here");
    check(routes, "GET /hello HTTP/1.1\r\n\r\n", 400, "400: the Host field is missing");
}

#[test]
fn a_bare_handler_needs_no_router() {
    let app = || App::new().fallback(|request: &Request<'_>| format!("{} {}", request.method(), request.path()));
    check(app, "/whatever", 200, "GET /whatever");
    check(app, "BREW /x HTTP/1.1\r\nHost: a\r\n\r\n", 200, "BREW /x");
}

#[derive(Deserialize, Serialize)]
struct Point {
    x: i32,
    y: i32,
}

fn extractors() -> App {
    App::new()
        .post("/json", |Json(Point { x, y }): Json<Point>| Json(Point { x: y, y: x }))
        .get("/query", |Query(point): Query<Point>| format!("{}", point.x + point.y))
        .get("/raw", |RawQuery(query): RawQuery| query)
        .get("/two/{a}/{b}", |Path((a, b)): Path<(String, u8)>| format!("{a}{b}"))
        .get("/map/{a}", |Path(map): Path<BTreeMap<String, String>>| format!("{map:?}"))
        .get("/about", |Authority(authority): Authority, Scheme(scheme): Scheme, Version(version): Version| {
            format!("{scheme} {authority} {version:?}")
        })
        .get("/agent", |headers: HeaderMap| headers.get(header::USER_AGENT).map(|agent| agent.as_bytes().to_vec()))
        .post("/text", |text: String| text)
        .post("/parts", async |mut body: Body| {
            let mut count = 0;
            while let Some(Ok(part)) = body.next().await {
                count += part.len();
            }
            format!("{count} {:?}", body.trailers())
        })
        .get("/maybe", |query: Option<Query<Point>>| query.map_or("none", |_| "some"))
}

#[test]
fn extractors_take_what_fits_and_refuse_the_rest() {
    let post = |path: &str, kind: &str, body: &str| {
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    check(extractors, &post("/json", "application/json", "{\"x\":1,\"y\":2}"), 200, "{\"x\":2,\"y\":1}");
    check(
        extractors,
        &post("/json", "application/geo+json; charset=utf-8", "{\"x\":1,\"y\":2}"),
        200,
        "{\"x\":2,\"y\":1}",
    );
    check(
        extractors,
        &post("/json", "text/plain", "{}"),
        415,
        r#"{"title":"Unsupported Media Type","status":415,"detail":"the body is not application/json","in":"content-type"}"#,
    );
    check(
        extractors,
        &post("/json", "application/json", "{\"x\":1"),
        400,
        r#"{"title":"Bad Request","status":400,"detail":"the JSON is malformed: EOF while parsing an object at line 1 column 6","in":"body","line":1,"column":6}"#,
    );
    check(
        extractors,
        &post("/json", "application/json", ""),
        400,
        r#"{"title":"Bad Request","status":400,"detail":"JSON is expected, and the body is empty","in":"body","line":1,"column":0}"#,
    );
    check(
        extractors,
        &post("/json", "application/json", "{\"x\":1}"),
        422,
        r#"{"title":"Unprocessable Content","status":422,"detail":"the JSON does not fit: missing field `y` at line 1 column 7","in":"body","line":1,"column":7}"#,
    );
    check(extractors, "/query?x=1&y=2", 200, "3");
    check(
        extractors,
        "/query?x=1",
        400,
        r#"{"title":"Bad Request","status":400,"detail":"the query does not fit: missing field `y`","in":"query","field":"y"}"#,
    );
    check(extractors, "/raw?a=%20b&c", 200, "a=%20b&c");
    check(extractors, "/two/a%20/7", 200, "a 7");
    check(extractors, "/map/v", 200, "{\"a\": \"v\"}");
    check(extractors, "/about", 200, "http example.org:8080 HTTP/1.1");
    check(extractors, "GET http://other/about HTTP/1.0\r\n\r\n", 200, "http other HTTP/1.0");
    check(extractors, "/agent", 404, "not found\n");
    check(extractors, &post("/text", "x/y", "\u{e9}"), 200, "\u{e9}");
    check(
        extractors,
        "POST /parts HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-t: 1\r\nHost: evil\r\n\r\n",
        200,
        "3 [(\"x-t\", \"1\")]",
    );
    check(extractors, "/maybe", 200, "none");
    check(extractors, "/maybe?x=1&y=1", 200, "some");
}

fn named() -> App {
    let text = |host: &[u8]| String::from_utf8_lossy(host).into_owned();
    App::new()
        .get("/", move |request: &Request<'_>| {
            let listed = request.headers().find(|(name, _)| name.eq_ignore_ascii_case("host"));
            let field = request.header("host").unwrap_or_default();
            format!(
                "{} {} {}",
                request.authority(),
                text(field),
                listed.map_or_else(String::new, |(_, value)| text(value))
            )
        })
        .get("/map", |fields: HeaderMap| fields.get(header::HOST).map(|host| host.as_bytes().to_vec()))
        .host("b", App::new().get("/route", || "the field's"))
        .host("a", App::new().get("/route", || "the target's"))
}

fn named_once() -> App {
    named().configure(|config| config.refuse_other_host = true)
}

#[test]
fn routes_and_handlers_see_one_host() {
    let ask = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    check(named, &ask("http://a/", "b"), 200, "a a a");
    check(named, &ask("http://a/map", "b"), 200, "a");
    check(named, &ask("http://a/route", "b"), 200, "the target's");
    check(named, &ask("http://a./route", "b"), 200, "the target's");
    check(named, &ask("/route", "b.:80"), 200, "the field's");
    check(named, &ask("/", "b"), 200, "b b b");
    check(named_once, &ask("http://a/route", "A"), 200, "the target's");
    check(named_once, &ask("/route", "b"), 200, "the field's");
    check(named_once, &ask("http://a/route", "b"), 400, "the target and the Host field name different hosts\n");
    check(named_once, "GET http://a/route HTTP/1.0\r\n\r\n", 200, "the target's");
}

fn responses() -> App {
    App::new()
        .get("/status", || StatusCode::IM_A_TEAPOT)
        .get("/tuple", || (StatusCode::CREATED, [(header::LOCATION, HeaderValue::from_static("/x"))], "made"))
        .get("/error", || Err::<&str, _>((StatusCode::CONFLICT, "clash")))
        .get("/framed", || {
            (
                [
                    (header::CONTENT_LENGTH, HeaderValue::from_static("99")),
                    (header::TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
                ],
                "three",
            )
        })
        .get("/dated", || ([(header::DATE, HeaderValue::from_static("long ago"))], ""))
        .get("/reset", || (StatusCode::RESET_CONTENT, "content"))
        .get("/reset/parts", || Response::stream(body_of(["a", "b"])).with_status(StatusCode::RESET_CONTENT))
        .get("/unchanged", || (StatusCode::NOT_MODIFIED, "content"))
        .get("/unchanged/parts", || Response::stream_of(2, body_of(["a", "b"])).with_status(StatusCode::NOT_MODIFIED))
        .get("/none", || (StatusCode::NO_CONTENT, "content"))
        .get("/large", || vec![b'x'; 100_000])
        .get("/interim", |interim: InterimResponses| {
            interim.send(StatusCode::EARLY_HINTS, [(header::LINK, HeaderValue::from_static("</x>"))]);
            interim.send(StatusCode::OK, []);
            "final"
        })
        .get("/wrong", || Response::new(StatusCode::EARLY_HINTS))
        .get("/short", || Response::stream_of(10, body_of(["abc"])))
        .get("/trailers", || {
            Response::stream(body_of(["a", "b"]))
                .with_trailers(|| vec![(HeaderName::from_static("x-sum"), HeaderValue::from_static("2"))])
        })
        .get("/forever", async || std::future::pending::<()>().await)
        .get("/panics", || -> &'static str { std::panic::resume_unwind(Box::new("on purpose")) })
        .get("/body-panics", || {
            let (sender, receiver) = body::channel();
            drop(sender);
            Response::stream(receiver)
        })
}

#[test]
fn responses_are_framed_by_the_engine_alone() {
    check(responses, "/status", 418, "");
    check(responses, "/tuple", 201, "made");
    assert!(get(responses(), "/tuple").contains("location: /x\r\n"));
    check(responses, "/error", 409, "clash");
    let framed = get(responses(), "/framed");
    assert!(
        framed.contains("Content-Length: 5\r\n") && !framed.contains("99") && !framed.contains("chunked"),
        "{framed}"
    );
    let dated = get(responses(), "/dated");
    assert_eq!((dated.matches("ate: ").count(), dated.contains("long ago")), (1, true), "{dated}");
    assert!(get(responses(), "/large").ends_with(&"x".repeat(100_000)));
    let interim = get(responses(), "/interim");
    assert!(interim.starts_with("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n"), "{interim}");
    check(responses, "/wrong", 500, "");
    assert!(get(responses(), "/trailers").ends_with("1\r\na\r\n1\r\nb\r\n0\r\nx-sum: 2\r\n\r\n"));
    let head = answer(responses(), "HEAD /trailers HTTP/1.1\r\nHost: a\r\n\r\nGET /status HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(head.contains("chunked\r\n\r\nHTTP/1.1 418 "), "{head}");
}

#[test]
fn a_status_that_forbids_content_has_none_whatever_its_handler_returns() {
    for (path, status, length) in [
        ("/reset", 205, Some("Content-Length: 0")),
        ("/reset/parts", 205, Some("Content-Length: 0")),
        ("/unchanged", 304, None),
        ("/unchanged/parts", 304, None),
        ("/none", 204, None),
    ] {
        let requests = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\nGET /status HTTP/1.1\r\nHost: a\r\n\r\n");
        let answers = answer(responses(), &requests);
        let (head, rest) = answers.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answers}");
        assert_eq!(head.lines().find(|line| line.starts_with("Content-Length")), length, "{path}: {answers}");
        assert!(!head.contains("Transfer-Encoding") && rest.starts_with("HTTP/1.1 418 "), "{path}: {answers}");
    }
}

#[test]
fn an_answer_that_breaks_off_is_seen_to() {
    for path in ["/short", "/body-panics"] {
        let answer = get(responses(), path);
        assert!(!answer.ends_with("0\r\n\r\n") && !answer.contains("HTTP/1.1 500"), "{path}: {answer}");
    }
    check(responses, "/panics", 500, "internal server error\n");
}

#[test]
fn reasons_and_fields_cannot_split_a_response() {
    assert!(Response::text("").with_reason("fine\r\nx: y").is_err());
    assert!(HeaderValue::from_str("a\r\nb").is_err());
    assert!(HeaderName::from_bytes(b"a b").is_err());
    let _ = "text".into_response();
}

#[test]
fn mistakes_in_building_are_told_when_it_is_finished() {
    for (app, text) in [
        (App::new().get("x", || ""), "does not begin with a slash"),
        (App::new().get("/{", || ""), "a parameter is a whole segment"),
        (App::new().get("/a", || "").get("/a", || ""), "registered twice"),
        (App::new().configure(|config| config.workers = 100_000), "100000 workers are too many: the most is 1024"),
        (
            App::new().configure(|config| config.server_name = Some("a\r\nb".into())),
            "must contain only printable ASCII characters",
        ),
    ] {
        let error = app.server().expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn the_date_is_that_of_the_answer() {
    let network = Network::new(1, Faults::default());
    // The server starts late in a second, and must not treat that moment as the start of a second.
    network.advance(Duration::from_millis(900));
    let driver = Simulated::new(network.clone()).expect("a driver");
    let app = App::new().get("/", || "x");
    let mut worker = app.server().expect("an app").into_worker(driver).expect("a worker");
    let client = network.connect();
    let mut lates = Vec::new();
    for _ in 0..40 {
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nx") {
            worker.turn(Some(network.now())).expect("a turn");
            while let Some(Arrived::Bytes(bytes)) = client.receive(usize::MAX) {
                answer.extend(bytes);
            }
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        let date = text.split("Date: ").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("a date").to_string();
        let seconds = httpdate::parse_http_date(&date).expect("a date").duration_since(std::time::UNIX_EPOCH);
        let seconds = seconds.expect("after 1970").as_secs();
        lates.push(network.now().nanoseconds as i64 / 1_000_000 - seconds as i64 * 1000);
        network.advance(Duration::from_millis(900));
    }
    // The date has whole seconds and is updated ten times a second. The simulated clock started 1,800,000,000 s after
    // 1970.
    for late in lates {
        assert!((0..1100).contains(&(late + 1_800_000_000_000)), "{late} ms");
    }
}
