//! Tests the metrics of an app: what is counted, by which labels, and that no client adds series without end.

use highwire::testing::Client;
use highwire::{App, Body, Path, Reply, Status, StatusCode, blocking, time};
use std::time::Duration;

/// Returns the value of a series.
fn value(page: &str, series: &str) -> Option<String> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')).map(str::to_string)
}

fn labels(method: &str, status: u16, rest: &str) -> String {
    format!(
        "{{http_request_method=\"{method}\",url_scheme=\"http\",http_response_status_code=\"{status}\",network_protocol_version=\"1.1\"{rest}}}"
    )
}

fn count(page: &str, method: &str, status: u16, rest: &str) -> Option<String> {
    value(page, &format!("http_server_request_duration_seconds_count{}", labels(method, status, rest)))
}

#[test]
fn requests_are_counted_by_route_whoever_answers_them() {
    let nested =
        App::new().get("/{id}", |Path(id): Path<u8>| id.to_string()).with(highwire::middleware::SecurityHeaders::new());
    let app = App::new()
        .get("/plain", || "hello")
        .post("/plain", async |body: String| Status::<201, _>(body))
        .get("/slow", async || {
            time::sleep(Duration::from_secs(2)).await;
            "slow"
        })
        .get("/later", |reply: Reply| {
            std::thread::spawn(move || reply.send("later"));
        })
        .get("/blocking", blocking(|| "blocked"))
        .get("/panics", || -> &'static str { panic!("on purpose") })
        .post("/stream", async |body: Body| highwire::Response::stream(body))
        .nest("/users", nested)
        .metrics("/metrics");
    let mut client = Client::new(app).expect("an app");
    for _ in 0..3 {
        client.get("/plain").send();
    }
    assert_eq!(client.post("/plain").body("four").send().status(), 201);
    for (path, status) in [
        ("/slow", 200),
        ("/later", 200),
        ("/blocking", 200),
        ("/panics", 500),
        ("/users/7", 200),
        ("/users/x", 404),
        ("/none", 404),
    ] {
        assert_eq!(client.get(path).send().status(), status, "{path}");
    }
    assert_eq!(client.request(highwire::Method::HEAD, "/plain").send().status(), 200);
    assert_eq!(client.delete("/plain").send().status(), 405);
    assert_eq!(client.post("/stream").body("streamed").send().text(), "streamed");
    let answer = client.get("/metrics").send();
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let page = answer.text();
    for (method, status, rest, expected) in [
        ("GET", 200, ",http_route=\"/plain\"", "3"),
        ("HEAD", 200, ",http_route=\"/plain\"", "1"),
        ("POST", 201, ",http_route=\"/plain\"", "1"),
        ("GET", 200, ",http_route=\"/slow\"", "1"),
        ("GET", 200, ",http_route=\"/later\"", "1"),
        ("GET", 200, ",http_route=\"/blocking\"", "1"),
        ("GET", 500, ",http_route=\"/panics\",error_type=\"500\"", "1"),
        ("GET", 200, ",http_route=\"/users/{id}\"", "1"),
        ("GET", 404, ",http_route=\"/users/{id}\"", "1"),
        ("GET", 404, "", "1"),
        ("DELETE", 405, "", "1"),
        ("POST", 200, ",http_route=\"/stream\"", "1"),
    ] {
        assert_eq!(count(page, method, status, rest).as_deref(), Some(expected), "{method} {status} {rest}\n{page}");
    }
    // Virtual time: the slow handler has taken two seconds, and the others none.
    let slow = labels("GET", 200, ",http_route=\"/slow\"");
    assert_eq!(value(page, &format!("http_server_request_duration_seconds_sum{slow}")).as_deref(), Some("2.0"));
    let bucket = |bound: &str| {
        let labels = format!("{},le=\"{bound}\"}}", slow.trim_end_matches('}'));
        value(page, &format!("http_server_request_duration_seconds_bucket{labels}"))
    };
    assert_eq!([bucket("1.0"), bucket("2.5"), bucket("+Inf")].map(Option::unwrap), ["0", "1", "1"]);
    let bytes = |rest: &str, method: &str, status| {
        value(page, &format!("highwire_response_body_bytes_total{}", labels(method, status, rest)))
    };
    assert_eq!(bytes(",http_route=\"/plain\"", "GET", 200).as_deref(), Some("15"));
    assert_eq!(bytes(",http_route=\"/plain\"", "HEAD", 200).as_deref(), Some("0"));
    assert_eq!(bytes(",http_route=\"/stream\"", "POST", 200).as_deref(), Some("8"));
    assert_eq!(value(page, "highwire_worker_requests_total{worker=\"0\"}").as_deref(), Some("14"), "{page}");
    assert!(value(page, "process_resident_memory_bytes").is_some() || !cfg!(target_os = "linux"));
}

#[test]
fn open_metrics_is_written_for_those_who_prefer_it() {
    let mut client = Client::new(App::new().get("/", || "hello").metrics("/metrics")).expect("an app");
    client.get("/").send();
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    let answer = client.get("/metrics").header("accept", prometheus).send();
    assert_eq!(answer.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(answer.text().ends_with("\n# EOF\n"));
    // The family of a counter has no `_total` in this format, and the sample has.
    assert!(answer.text().contains("# TYPE highwire_requests counter\nhighwire_requests_total "));
    let answer = client.get("/metrics").send();
    assert!(answer.text().contains("# TYPE highwire_requests_total counter\nhighwire_requests_total "));
}

#[test]
fn no_client_adds_series_without_end() {
    let app = App::new()
        .any("/{status}", |Path(status): Path<u16>| StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT))
        .metrics("/metrics");
    let mut client = Client::new(app).expect("an app");
    for status in 200..500 {
        client.get(&format!("/{status}")).send();
        client.get(&format!("/not/a/path/{status}")).send();
    }
    let answer = client.get("/metrics").send();
    let series =
        answer.text().lines().filter(|line| line.starts_with("http_server_request_duration_seconds_count")).count();
    assert!(series <= 26, "{series}");
    let other = r#"{http_request_method="_OTHER",http_route="_OTHER"}"#;
    assert_eq!(
        value(answer.text(), &format!("http_server_request_duration_seconds_count{other}")).as_deref(),
        Some("276")
    );
}

#[test]
fn only_one_page_of_metrics_is_possible() {
    let twice = App::new().metrics("/a").metrics("/b").server().expect_err("two pages");
    assert!(twice.to_string().contains("App::metrics was called twice"), "{twice}");
    let nested = App::new().nest("/n", App::new().metrics("/a")).server().expect_err("a nested page");
    assert!(nested.to_string().contains("a nested app has called metrics"), "{nested}");
}

#[test]
fn requests_that_end_early_are_counted_as_such() {
    let app = App::new()
        .get("/never", async || {
            time::sleep(Duration::from_secs(1000)).await;
        })
        .get("/endless", || highwire::Response::stream(Endless))
        .post("/small", |_: String| ())
        .configure(|config| {
            config.timeouts.handler = Duration::from_secs(5);
            config.limits.body_bytes = 3;
        })
        .metrics("/metrics");
    let mut client = Client::new(app).expect("an app");
    // An answer of the engine in place of the handler's is complete.
    assert_eq!(client.post("/small").body("four").send().status(), 413);
    for path in ["/never", "/endless"] {
        let mut left = client.get(path).open();
        left.received(&mut client);
        client.advance(Duration::from_secs(2));
        drop(left);
        client.advance(Duration::from_secs(3));
    }
    assert_eq!(client.get("/never").send().status(), 503);
    let answer = client.get("/metrics").send();
    let page = answer.text();
    let posted = count(page, "POST", 413, ",http_route=\"/small\"");
    assert_eq!(posted.as_deref(), Some("1"), "{page}");
    for (status, rest) in [
        (499, ",http_route=\"/never\",error_type=\"cut\""),
        (503, ",http_route=\"/never\",error_type=\"503\""),
        (200, ",http_route=\"/endless\",error_type=\"cut\""),
    ] {
        assert_eq!(count(page, "GET", status, rest).as_deref(), Some("1"), "{status} {rest}\n{page}");
    }
}

/// A body that has one part and then waits for ever.
struct Endless;

impl futures_core::Stream for Endless {
    type Item = Result<bytes::Bytes, std::io::Error>;
    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Pending
    }
}

/// Keeps the thread busy for 20 ms, so that the worker's clock of a turn stands still meanwhile.
fn busy() -> &'static str {
    let until = std::time::Instant::now() + Duration::from_millis(20);
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
    "busy"
}

#[test]
fn the_time_of_a_plain_handler_counts_on_every_engine() {
    use crate::engines;
    use crate::served::stop;
    use highwire::client::{Client, block_on};
    use highwire::server::Engine;
    for engine in [Engine::Uring, Engine::Readiness, Engine::Threads] {
        if !engines::has(engine) {
            continue;
        }
        let app = App::new().get("/busy", busy).metrics("/metrics").configure(|config| {
            config.engine = engine;
            config.workers = 1;
        });
        let handle = app.listen("127.0.0.1:0").expect("an address").start().expect("a server");
        let url = format!("http://{}", handle.addresses()[0]);
        let page = block_on(async {
            // Connections of their own, which are workers of their own on the engine `threads`.
            for _ in 0..2 {
                Client::new().get(&format!("{url}/busy")).send().await.expect("a response");
            }
            let response = Client::new().get(&format!("{url}/metrics")).send().await.expect("a response");
            response.text().await.expect("a page")
        });
        let page = page.expect("a worker");
        let busy = labels("GET", 200, ",http_route=\"/busy\"");
        let sum = value(&page, &format!("http_server_request_duration_seconds_sum{busy}")).expect("a sum");
        assert!(sum.parse::<f64>().expect("a number") >= 0.04, "{engine:?}: {sum}");
        assert_eq!(count(&page, "GET", 200, ",http_route=\"/busy\"").as_deref(), Some("2"), "{engine:?}");
        assert_eq!(page.contains("highwire_worker_requests_total{"), engine != Engine::Threads, "{engine:?}");
        stop([handle]);
    }
}
