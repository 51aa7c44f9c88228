//! The middleware of this crate, as applications use it.

use highwire::middleware::{
    AccessLog, BodyLimit, ClientAddress, ConcurrencyLimit, Cors, Forwarded, RateLimit, RequestId, RequestIds,
    SecurityHeaders, Timeout, TraceContext, TraceParent, TrustedProxies,
};
use highwire::testing::{Client, TestResponse};
use highwire::{App, Body, Handler, HeaderValue, Method, Response, StatusCode, body, header, time};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn client(app: App) -> Client {
    Client::new(app).expect("an app")
}

/// Returns all values of a field, separated by ` | `.
fn all(answer: &TestResponse, name: &str) -> String {
    let values = answer.headers().get_all(name).iter().map(|value| value.to_str().expect("text"));
    values.collect::<Vec<_>>().join(" | ")
}

#[test]
fn browsers_are_told_which_origins_may_do_what() {
    let cors = Cors::new()
        .origin("https://a.example")
        .methods([Method::PUT, Method::DELETE])
        .allow_headers([header::AUTHORIZATION])
        .expose([header::ETAG])
        .credentials()
        .max_age(60 * SECOND);
    let mut named = client(App::new().get("/", || "here").put("/", || "put").with(cors));
    let mut preflight = |origin: &str| {
        let call = named.request(Method::OPTIONS, "/").header("origin", origin);
        call.header("access-control-request-method", "PUT").send()
    };
    let allowed = preflight("https://a.example");
    assert_eq!(allowed.status(), 204);
    for (name, value) in [
        ("access-control-allow-origin", "https://a.example"),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-methods", "PUT, DELETE"),
        ("access-control-allow-headers", "authorization"),
        ("access-control-max-age", "60"),
        ("vary", "origin, access-control-request-method, access-control-request-headers"),
    ] {
        assert_eq!(all(&allowed, name), value, "{name}");
    }
    for origin in ["https://b.example", "https://a.example.b", "https://a.example:444", "null", "HTTPS://A.EXAMPLE"] {
        let refused = preflight(origin);
        assert_eq!(
            (refused.status().as_u16(), all(&refused, "access-control-allow-origin").as_str()),
            (403, ""),
            "{origin}"
        );
    }
    let answer = named.get("/").header("origin", "https://a.example").send();
    assert_eq!((answer.text(), all(&answer, "vary").as_str()), ("here", "origin"));
    assert_eq!(all(&answer, "access-control-allow-origin"), "https://a.example");
    assert_eq!(all(&answer, "access-control-expose-headers"), "etag");
    let answer = named.get("/missing").header("origin", "https://a.example").send();
    assert_eq!((answer.status().as_u16(), answer.header("access-control-allow-origin")), (404, "https://a.example"));
    let answer = named.get("/").header("origin", "https://b.example").send();
    assert_eq!((answer.text(), all(&answer, "access-control-allow-origin").as_str()), ("here", ""));
    assert_eq!(named.request(Method::OPTIONS, "/").send().header("allow"), "GET, HEAD, PUT, OPTIONS");

    let api = App::new().put("/thing", || "put").with(Cors::new().origin("https://a.example").methods([Method::PUT]));
    let mut nested = client(App::new().get("/", || "here").nest("/api", api));
    let call = nested.request(Method::OPTIONS, "/api/thing").header("origin", "https://a.example");
    let allowed = call.header("access-control-request-method", "PUT").send();
    assert_eq!((allowed.status().as_u16(), allowed.header("access-control-allow-methods")), (204, "PUT"));

    let mut any = client(App::new().get("/", || "here").with(Cors::new().any_origin().credentials()));
    // The response to a request without Origin has the field too, because a cache may serve it to a page of another
    // origin.
    assert_eq!(any.get("/").send().header("access-control-allow-origin"), "*");
    let answer = any.get("/").header("origin", "https://who.example").send();
    assert_eq!((all(&answer, "access-control-allow-origin").as_str(), all(&answer, "vary").as_str()), ("*", ""));
    assert_eq!(all(&answer, "access-control-allow-credentials"), "", "no credentials for any origin");
}

#[test]
fn requests_have_names() {
    let app = || App::new().get("/", |id: RequestId| id.to_string());
    let mut own = client(app().with(RequestIds::new()));
    let (first, second) = (own.get("/").send(), own.get("/").header("x-request-id", "mine").send());
    for answer in [&first, &second] {
        assert_eq!(answer.header("x-request-id"), answer.text());
        assert!(answer.text().len() == 32 && answer.text().bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    assert_ne!(first.text(), second.text());
    let mut trusting = client(app().with(RequestIds::new().trust_incoming()));
    let longest = "x".repeat(128);
    for (given, taken) in
        [("mine-1", true), (&longest, true), (&format!("{longest}x"), false), ("a b", false), ("\u{e9}", false)]
    {
        let answer = trusting.get("/").header("x-request-id", given).send();
        assert_eq!(answer.text() == given, taken, "{given}");
    }
    assert_eq!(own.get("/missing").send().header("x-request-id").len(), 32);
}

#[test]
fn handlers_that_take_too_long_are_left() {
    let app = App::new()
        .get("/fast", || "fast")
        .get("/slow/{seconds}", async |highwire::Path(seconds): highwire::Path<u32>| {
            time::sleep(seconds * SECOND).await;
            "slow"
        })
        .with(Timeout::new(5 * SECOND));
    let mut client = client(app);
    for (path, status) in [("/fast", 200), ("/slow/4", 200), ("/slow/6", 503), ("/slow/4", 200)] {
        let answer = client.get(path).send();
        assert_eq!(
            (answer.status().as_u16(), answer.header("retry-after").is_empty()),
            (status, status == 200),
            "{path}"
        );
    }
}

#[test]
fn no_more_work_is_taken_on_than_can_be_done() {
    let limit = ConcurrencyLimit::new(2);
    let app = App::new()
        .get("/", || "here")
        .get("/nested", async || {
            time::sleep(SECOND).await;
            "done"
        })
        .with(limit);
    let mut client = client(app);
    for _ in 0..5 {
        assert_eq!(client.get("/").send().status(), 200, "finished requests free their places");
        assert_eq!(client.get("/nested").send().status(), 200);
    }
    let mut none = self::client(App::new().get("/", || "here").with(ConcurrencyLimit::new(0)));
    let answer = none.get("/").send();
    assert_eq!((answer.status().as_u16(), answer.header("retry-after")), (503, "1"));
}

#[test]
fn callers_who_ask_too_often_are_told_when_to_come_again() {
    let by_key = |request: &mut highwire::Request<'_>| request.header("key").map(<[u8]>::to_vec);
    let limit = RateLimit::new(3, 3 * SECOND).by(by_key);
    let mut client = client(App::new().get("/", || "here").with(limit));
    let mut ask = |key: &str| {
        let answer = client.get("/").header("key", key).send();
        let fields = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "retry-after"];
        format!("{} {}", answer.status().as_u16(), fields.map(|name| answer.header(name).to_string()).join(" "))
    };
    assert_eq!([ask("a"), ask("a"), ask("a")], ["200 3 2 1 ", "200 3 1 2 ", "200 3 0 3 "]);
    assert_eq!([ask("a"), ask("b")], ["429 3 0 3 1", "200 3 2 1 "]);
    client.advance(SECOND);
    let answer = client.get("/").header("key", "a").send();
    assert_eq!((answer.status().as_u16(), answer.header("ratelimit-remaining")), (200, "0"));
    for _ in 0..10 {
        let answer = client.get("/").send();
        assert_eq!((answer.status().as_u16(), answer.header("ratelimit-limit")), (200, ""), "no key, so no limit");
    }
}

#[test]
fn browsers_are_made_careful() {
    let policy = HeaderValue::from_static("default-src 'self'");
    let fields = SecurityHeaders::new().policy(policy).without(&header::REFERRER_POLICY);
    let own = || Response::text("own").with_header(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
    let mut client = client(App::new().get("/", || "here").get("/own", own).with(fields));
    for (path, frames) in [("/", "DENY"), ("/own", "SAMEORIGIN"), ("/missing", "DENY")] {
        let answer = client.get(path).send();
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", frames),
            ("referrer-policy", ""),
            ("cross-origin-opener-policy", "same-origin"),
            ("content-security-policy", "default-src 'self'"),
        ] {
            assert_eq!(all(&answer, name), value, "{path} {name}");
        }
    }
}

#[test]
fn traces_go_on() {
    let app = App::new().get("/", |context: TraceParent| format!("{context} {:x}", context.parent)).with(TraceContext);
    let mut client = client(app);
    let answer =
        client.get("/").header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").send();
    assert!(answer.text().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{}", answer.text());
    assert!(answer.text().ends_with("-01 f067aa0ba902b7") && !answer.text().contains("-00f067aa0ba902b7"));
    let (fresh, other) = (client.get("/").send(), client.get("/").header("traceparent", "nonsense").send());
    assert!(fresh.text().ends_with("-00 0") && fresh.text() != other.text());
}

/// A writer that keeps the written bytes.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn lines(&self) -> Vec<String> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8(std::mem::take(&mut *bytes)).expect("text");
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(str::to_string).collect()
    }
}

fn logged() -> App {
    App::new()
        .get("/", || "here")
        .post("/", |body: String| body)
        .get("/stream", || {
            let (mut sender, receiver) = body::channel();
            highwire::spawn(async move {
                for _ in 0..3 {
                    sender.send("abcd").await.expect("a reader");
                }
                sender.finish();
            });
            Response::stream(receiver)
        })
        .get("/empty", || StatusCode::NO_CONTENT)
}

#[test]
fn each_request_is_one_line_of_the_common_log() {
    let sink = Sink::default();
    let mut client = client(logged().with(AccessLog::common(sink.clone())));
    client.get("/?a=b").send();
    client.get("/").header("authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").send();
    client.get("/").header("authorization", "Basic YSBiOmM=").send();
    client.get("/").header("authorization", "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==").send();
    client.get("/").header("authorization", "Basic bm9ib2R5").send();
    client.get("/stream").send();
    client.get("/empty").send();
    client.request(Method::HEAD, "/").send();
    client.get("/missing").send();
    client.request(Method::DELETE, "/").send();
    let lines = sink.lines();
    let expected = [
        ("- - -", "\"GET /?a=b HTTP/1.1\" 200 4"),
        ("- - Aladdin", "\"GET / HTTP/1.1\" 200 4"),
        ("- - a\\x20b", "\"GET / HTTP/1.1\" 200 4"),
        ("- - -", "\"GET / HTTP/1.1\" 200 4"),
        ("- - -", "\"GET / HTTP/1.1\" 200 4"),
        ("- - -", "\"GET /stream HTTP/1.1\" 200 12"),
        ("- - -", "\"GET /empty HTTP/1.1\" 204 -"),
        ("- - -", "\"HEAD / HTTP/1.1\" 200 -"),
        ("- - -", "\"GET /missing HTTP/1.1\" 404 10"),
        ("- - -", "\"DELETE / HTTP/1.1\" 405 31"),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (front, back)) in lines.iter().zip(expected) {
        let (before, rest) = line.split_once(" [").expect("a time");
        let (time, after) = rest.split_once("] ").expect("a time");
        let day = time.split_once(':').map(|(day, _)| day.split('/').count());
        assert_eq!(
            (before.split_once(' ').map(|(_, user)| user), day),
            (front.split_once(' ').map(|(_, user)| user), Some(3)),
            "{line}"
        );
        assert!(time.ends_with(" +0000") && time.len() == 26, "{line}");
        assert_eq!(after, back);
    }
}

#[test]
fn what_peers_send_cannot_forge_lines() {
    let sink = Sink::default();
    let mut client = client(logged().with(AccessLog::combined(sink.clone())));
    client.get("/").header("referer", "http://a/\"b\\").header("user-agent", b"x\xe9\ty").send();
    let lines = sink.lines();
    assert!(lines[0].ends_with(r#"" 200 4 "http://a/\x22b\x5C" "x\xE9\x09y""#), "{}", lines[0]);
    let sink = Sink::default();
    let mut client = self::client(logged().with(AccessLog::json(sink.clone())));
    client.get("/?x").header("host", "a.test:80").header("referer", "\"\\").header("user-agent", b"x\xe9\ty").send();
    let line: serde_json::Value = serde_json::from_str(&sink.lines()[0]).expect("JSON");
    for (name, value) in [
        ("method", "GET"),
        ("authority", "a.test:80"),
        ("target", "/?x"),
        ("protocol", "HTTP/1.1"),
        ("referer", "\"\\"),
        ("agent", "x\u{e9}\ty"),
        ("user", "-"),
    ] {
        assert_eq!(line[name], value, "{name}");
    }
    assert!(line["status"] == 200 && line["bytes"] == 4 && line["microseconds"].is_u64());
    assert!(line["time"].as_str().is_some_and(|time| time.len() == 24 && time.ends_with('Z')));
}

#[test]
fn the_log_and_the_date_have_one_clock() {
    let sink = Sink::default();
    let mut client = client(logged().with(AccessLog::common(sink.clone())));
    for _ in 0..2 {
        let date = client.get("/").send().header("date").to_string();
        let line = sink.lines().remove(0);
        // A date is `Fri, 15 Jan 2027 08:00:01 GMT` in the field and `15/Jan/2027:08:00:01 +0000` in the log, for
        // example.
        let expected = format!("[{}:{} +0000]", date[5..16].replace(' ', "/"), &date[17..25]);
        assert!(line.contains(&expected), "{line} at {date}");
        client.advance(SECOND * 86_400 * 400);
    }
}

#[test]
fn proxies_are_believed_where_they_are_known() {
    let app = |proxies: TrustedProxies| {
        App::new()
            .get("/", |known: Forwarded| {
                let address = known.address.map_or_else(|| "-".to_string(), |address| address.to_string());
                format!("{address} {:?} {}", known.https, known.host.unwrap_or_default())
            })
            .get("/address", |ClientAddress(address): ClientAddress| address.to_string())
            .with(proxies)
    };
    // The simulated network's peers have addresses in 10.0.0.0/24.
    let proxies = || TrustedProxies::new(["10.0.0.0/8", "2001:db8::/32"]).expect("networks");
    let (mut trusting, mut standard) = (client(app(proxies())), client(app(proxies().by_forwarded())));
    let mut ask = |fields: &[(&str, &str)]| {
        let is_standard = fields.first().is_some_and(|(name, _)| *name == "forwarded");
        let asked = if is_standard { &mut standard } else { &mut trusting };
        let call = fields.iter().fold(asked.get("/"), |call, (name, value)| call.header(name, value));
        call.send().text().to_string()
    };
    let far = "x-forwarded-for";
    for (fields, expected) in [
        (&[(far, "192.0.2.1")][..], "192.0.2.1 None "),
        (&[(far, "203.0.113.9, 192.0.2.1")], "192.0.2.1 None "),
        (&[(far, "203.0.113.9, 192.0.2.1, 10.0.0.1,10.2.0.1")], "192.0.2.1 None "),
        (&[(far, "192.0.2.1"), (far, "10.0.0.1")], "192.0.2.1 None "),
        (&[(far, "10.0.0.2, 10.0.0.1")], "10.0.0.2 None "),
        (&[(far, "192.0.2.1:4711")], "192.0.2.1 None "),
        (&[(far, "[2001:db9::1]:80, 2001:db8::1")], "2001:db9::1 None "),
        (&[(far, "garbage, 10.0.0.1")], "- None "),
        (&[(far, "::ffff:192.0.2.1")], "192.0.2.1 None "),
        (&[(far, "[::ffff:192.0.2.1]:80, ::ffff:10.0.0.1")], "192.0.2.1 None "),
        (
            &[(far, "192.0.2.1"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "a.test")],
            "192.0.2.1 Some(true) a.test",
        ),
        (&[(far, "192.0.2.1, 10.0.0.1"), ("x-forwarded-proto", "http, https")], "192.0.2.1 Some(false) "),
        // In lists of unequal length, the nearest proxy's entry counts, and not the entries that a client has put
        // before it.
        (&[(far, "192.0.2.1, 10.0.0.1"), ("x-forwarded-proto", "https")], "192.0.2.1 Some(true) "),
        (&[(far, "192.0.2.1, 10.0.0.2, 10.0.0.1"), ("x-forwarded-proto", "http, https")], "192.0.2.1 Some(true) "),
        (&[(far, "192.0.2.1, 10.0.0.1"), ("x-forwarded-proto", "http, http, https")], "192.0.2.1 Some(true) "),
        (&[(far, "192.0.2.1, 10.0.0.2, 10.0.0.1"), ("x-forwarded-host", "evil.test, a.test")], "192.0.2.1 None a.test"),
        (&[("forwarded", "for=192.0.2.1;proto=https;host=a.test"), (far, "192.0.2.9")], "192.0.2.1 Some(true) a.test"),
        // A proxy that sets X-Forwarded-* passes on the client's own Forwarded field.
        (&[(far, "192.0.2.1"), ("forwarded", "for=203.0.113.9;proto=https;host=evil.test")], "192.0.2.1 None "),
        (&[("forwarded", "For=\"[2001:db9::1]:80\" , for=10.0.0.1;by=x")], "2001:db9::1 None "),
        (&[("forwarded", "for=\"a,b\", for=192.0.2.1")], "192.0.2.1 None "),
        (&[("forwarded", "for=unknown, for=10.0.0.1")], "- None "),
        (&[("forwarded", "for=_hidden")], "- None "),
        (&[("forwarded", "host=\"a b\";for=192.0.2.1")], "192.0.2.1 None "),
        // Quotes that a client has left open, before the entry of its proxy.
        (&[(far, "\", 192.0.2.1")], "192.0.2.1 None "),
        (&[(far, "203.0.113.9:\", 192.0.2.1")], "192.0.2.1 None "),
        (&[(far, "[2001:db9::9]\""), (far, "192.0.2.1")], "192.0.2.1 None "),
        (&[("forwarded", "for=203.0.113.9;x=\", for=192.0.2.1")], "192.0.2.1 None "),
        (&[("forwarded", "for=203.0.113.9;x=\"\\, for=\"[2001:db9::1]:80\"")], "2001:db9::1 None "),
        (&[("forwarded", "for=192.0.2.1;x=\"a\\\", b\"")], "192.0.2.1 None "),
    ] {
        assert_eq!(ask(fields), expected, "{fields:?}");
    }
    // Without an address in the fields, the client is the proxy itself.
    assert!(ask(&[]).starts_with("10.0.0.") && ask(&[("x-forwarded-proto", "https")]).ends_with(" Some(true) "));
    assert!(ask(&[("forwarded", "")]).starts_with("10.0.0."));
    let hidden = standard.get("/address").header("forwarded", "for=unknown").send();
    assert_eq!(hidden.status(), 400);
    let strangers = || TrustedProxies::new(["192.168.0.0/16"]).expect("a network");
    let mut wary = client(app(strangers()));
    for (proxies, name, value) in [
        (strangers(), far, "192.0.2.1"),
        (strangers().by_forwarded(), "forwarded", "for=192.0.2.1;proto=https;host=a.test"),
    ] {
        let answer = client(app(proxies)).get("/").header(name, value).send();
        assert!(answer.text().starts_with("10.0.0.") && answer.text().ends_with(" None "), "the peer is not trusted");
    }
    assert!(wary.get("/address").send().text().starts_with("10.0.0."));
    let error = TrustedProxies::new(["10.0.0.0/8", "ten"]).expect_err("no network");
    assert_eq!(error.to_string(), "`ten` is not a network; examples are 192.0.2.0/24, 2001:db8::/32 and 192.0.2.1");
}

#[test]
fn the_limit_nearest_to_a_handler_counts() {
    let whole = |body: String| body.len().to_string();
    let parts = async |body: Body| {
        body.collect(1 << 20).await.map_or_else(|error| error.to_string(), |body| body.len().to_string())
    };
    let app = App::new()
        .post("/small", whole)
        .post("/large", whole.with(BodyLimit::new(100)))
        .post("/parts", parts.with(BodyLimit::new(100)))
        .with(BodyLimit::new(10));
    let mut client = client(app);
    for (path, length, status) in [
        ("/small", 10, 200),
        ("/small", 11, 413),
        ("/large", 100, 200),
        ("/large", 101, 413),
        ("/parts", 100, 200),
        ("/parts", 101, 413),
    ] {
        let answer = client.post(path).body(vec![b'x'; length]).send();
        assert_eq!(answer.status().as_u16(), status, "{path} {length}");
        assert!(status != 200 || answer.text() == length.to_string());
    }
}

#[test]
fn a_post_may_stand_for_another_method_where_the_program_wants_that() {
    for wanted in [true, false] {
        let app = App::new()
            .post("/", |method: Method| format!("post {method}"))
            .put("/", |method: Method| format!("put {method}"))
            .delete("/", || "delete")
            .get("/", || "get")
            .configure(move |config| config.method_override = wanted);
        let mut client = client(app);
        for (given, expected) in
            [("PUT", "put PUT"), ("DELETE", "delete"), ("GET", "post POST"), ("put", "post POST"), ("", "post POST")]
        {
            let answer = client.post("/").header("x-http-method-override", given).send();
            assert_eq!(answer.text(), if wanted { expected } else { "post POST" }, "{given}");
        }
        let twice = client.post("/").header("x-http-method-override", "PUT").header("x-http-method-override", "DELETE");
        assert_eq!(twice.send().text(), "post POST");
        assert_eq!(client.get("/").header("x-http-method-override", "DELETE").send().text(), "get");
    }
}
