//! Middleware around apps, nested apps and handlers: order, every kind of response, early responses, cancelled
//! handlers.

use highwire::middleware::{Middleware, Next, OwnedRequest, after, around, before, from_fn};
use highwire::testing::Client;
use highwire::{
    App, Body, Extension, Handler, HeaderName, HeaderValue, InterimResponses, Method, Path, Reply, Request, Response,
    StatusCode, blocking, body, time,
};
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Returns a middleware that adds a value to the field `x-seen`.
fn mark(name: &'static str) -> impl Middleware {
    after(move |response: &mut Response| {
        response.add_header(HeaderName::from_static("x-seen"), HeaderValue::from_static(name));
    })
}

fn client(app: App) -> Client {
    Client::new(app).expect("an app")
}

fn seen(client: &mut Client, path: &str) -> String {
    let answer = client.get(path).send();
    let seen: Vec<&str> =
        answer.headers().get_all("x-seen").iter().map(|value| value.to_str().expect("text")).collect();
    format!("{} {}", answer.status().as_u16(), seen.join(","))
}

/// Returns an app with handlers of every kind.
fn kinds() -> App {
    App::new()
        .get("/plain", || "plain")
        .get("/ready", async || "ready")
        .get("/later", async || {
            time::sleep(Duration::from_secs(1)).await;
            "later"
        })
        .get("/blocking", blocking(|| "blocking"))
        .get("/reply", |reply: Reply| reply.send("replied"))
        .get("/late-reply", |reply: Reply| drop(std::thread::spawn(move || reply.send("replied"))))
        .get("/forgotten", |reply: Reply| drop(reply))
        .get("/stream", || {
            let (sender, receiver) = body::channel();
            sender.finish();
            Response::stream(receiver)
        })
        .get("/panics", || -> &str { std::panic::resume_unwind(Box::new("on purpose")) })
        .get("/panics-late", async || -> &'static str {
            time::sleep(Duration::from_secs(1)).await;
            std::panic::resume_unwind(Box::new("on purpose"))
        })
        .get("/refused/{number}", |Path(number): Path<u32>| number.to_string())
}

const KINDS: [(&str, u16); 11] = [
    ("/plain", 200),
    ("/ready", 200),
    ("/later", 200),
    ("/blocking", 200),
    ("/reply", 200),
    ("/late-reply", 200),
    ("/forgotten", 500),
    ("/stream", 200),
    ("/panics", 500),
    ("/panics-late", 500),
    ("/refused/x", 404),
];

#[test]
fn every_kind_of_answer_passes_in_order() {
    let mut client = client(kinds().with(mark("outer")).with(mark("inner")));
    for (path, status) in KINDS {
        // Requests twice, because places in the pools of futures are reused.
        for _ in 0..2 {
            assert_eq!(seen(&mut client, path), format!("{status} inner,outer"), "{path}");
        }
    }
    assert_eq!(seen(&mut client, "/nothing"), "404 inner,outer");
    let answer = client.post("/plain").body("unread").send();
    assert_eq!(
        (answer.status().as_u16(), answer.header("allow"), answer.header("x-seen")),
        (405, "GET, HEAD, OPTIONS", "inner")
    );
    assert_eq!(client.get("/later").send().text(), "later");
}

#[test]
fn nests_hosts_and_handlers_have_their_own() {
    let nested =
        App::new().get("/a", || "a").get("/b", (|| "b").with(mark("one")).with(mark("two"))).with(mark("nest"));
    let host = App::new().get("/h", || "h").with(mark("host"));
    let app = App::new().get("/own", || "own").nest("/n", nested).host("a.test", host).with(mark("app"));
    let mut client = client(app);
    for (path, expected) in
        [("/own", "200 app"), ("/n/a", "200 nest,app"), ("/n/b", "200 two,one,nest,app"), ("/n/c", "404 app")]
    {
        assert_eq!(seen(&mut client, path), expected, "{path}");
    }
    let answer = client.get("/h").header("host", "a.test").send();
    assert_eq!(answer.headers().get_all("x-seen").iter().count(), 2);
    let mut without = self::client(App::new().get("/own", || "own").fallback(|| "fallback").with(mark("app")));
    assert_eq!(seen(&mut without, "/nothing"), "200 app");
}

#[test]
fn methods_that_a_nested_path_does_not_have_are_answered_within_its_middleware() {
    let inner = App::new().get("/{id}", || "inner").with(mark("inner"));
    let nested = App::new().get("/a", || "a").nest("/in", inner).with(mark("nest"));
    let host = App::new().get("/h", || "h").with(mark("host"));
    let bare = App::new().get("/", || "bare");
    let app = App::new().get("/own", || "own").nest("/n", nested).nest("/bare", bare).host("a.test", host);
    let mut client = client(app.with(mark("app")));
    for (path, host, expected) in [
        ("/own", "", "app"),
        ("/bare", "", "app"),
        ("/n/a", "", "nest,app"),
        ("/n/in/7", "", "inner,nest,app"),
        ("/h", "a.test", "host,app"),
    ] {
        for (method, status) in [(Method::OPTIONS, 204), (Method::PUT, 405)] {
            let call = client.request(method, path);
            let answer = if host.is_empty() { call } else { call.header("host", host) }.send();
            let seen: Vec<&str> =
                answer.headers().get_all("x-seen").iter().map(|value| value.to_str().expect("text")).collect();
            assert_eq!((answer.status().as_u16(), seen.join(",").as_str()), (status, expected), "{path}");
            assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS", "{path}");
        }
    }
}

#[test]
fn one_that_answers_itself_is_seen_by_those_around_it_only() {
    let key = |request: &mut Request<'_>| match request.header("key") {
        Some(b"right") => {
            request.extensions().insert("known".to_string());
            Ok(())
        }
        _ => Err((StatusCode::UNAUTHORIZED, "who are you?")),
    };
    let app = App::new().get("/", |Extension(who): Extension<String>| who);
    let mut client = client(app.with(mark("outer")).with(before(key)).with(mark("inner")));
    assert_eq!(seen(&mut client, "/"), "401 outer");
    let answer = client.get("/").header("key", "right").send();
    assert_eq!((answer.text(), answer.headers().get_all("x-seen").iter().count()), ("known", 2));
    let mut without = self::client(App::new().get("/", |Extension(who): Extension<String>| who));
    assert_eq!(without.get("/").send().status(), 500, "no middleware has stored a value");
}

#[test]
fn what_is_kept_of_a_request_reaches_its_answer() {
    let app = kinds().with(around(|request: &mut Request<'_>| {
        let path = request.path().to_string();
        Ok::<_, Response>(move |response: &mut Response| {
            response.add_header(HeaderName::from_static("x-path"), HeaderValue::try_from(path).expect("a path"));
        })
    }));
    let mut client = client(app);
    for (path, _) in KINDS {
        assert_eq!(client.get(path).send().header("x-path"), path);
    }
}

/// Answers in place of handlers that are pending for more than two polls. Counts the states that are alive.
struct Impatient;

thread_local! {
    static LIVING: Cell<i32> = const { Cell::new(0) };
}

struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        LIVING.set(LIVING.get() - 1);
    }
}

impl Middleware for Impatient {
    type State = Counted;
    fn before(&self, _: &mut Request<'_>) -> Result<Counted, Response> {
        LIVING.set(LIVING.get() + 1);
        Ok(Counted(Rc::default()))
    }
    fn pending(&self, state: &mut Counted, cx: &mut Context<'_>) -> Poll<Response> {
        state.0.set(state.0.get() + 1);
        if state.0.get() > 2 {
            return Poll::Ready(Response::text("too late").with_status(StatusCode::GATEWAY_TIMEOUT));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
    fn after(&self, _: Counted, _: &mut Response) {}
}

#[test]
fn one_may_answer_while_the_handler_works_and_nothing_is_left() {
    let mut client = client(kinds().with(mark("outer")).with(Impatient));
    for path in ["/later", "/panics-late"] {
        for _ in 0..3 {
            assert_eq!(seen(&mut client, path), "504 outer", "{path}");
            assert_eq!(LIVING.get(), 0);
        }
    }
    assert_eq!((seen(&mut client, "/plain"), LIVING.get()), ("200 outer".to_string(), 0));
    // The timer of the cancelled handler is gone too.
    client.advance(Duration::from_secs(5));
    assert_eq!((seen(&mut client, "/plain"), LIVING.get()), ("200 outer".to_string(), 0));
}

/// Panics while the handler is pending.
struct PanicsWhilePending;

impl Middleware for PanicsWhilePending {
    type State = Counted;
    fn before(&self, _: &mut Request<'_>) -> Result<Counted, Response> {
        LIVING.set(LIVING.get() + 1);
        Ok(Counted(Rc::default()))
    }
    fn pending(&self, _: &mut Counted, _: &mut Context<'_>) -> Poll<Response> {
        std::panic::resume_unwind(Box::new("on purpose"))
    }
    fn after(&self, _: Counted, _: &mut Response) {}
}

#[test]
fn a_middleware_that_panics_while_the_handler_is_pending_leaves_nothing() {
    let mut client = client(kinds().with(mark("outer")).with(PanicsWhilePending));
    for _ in 0..3 {
        assert_eq!(seen(&mut client, "/later"), "500 outer");
        assert_eq!(LIVING.get(), 0, "the handler's future and the middleware's data are dropped");
    }
    client.advance(Duration::from_secs(5));
    assert_eq!((seen(&mut client, "/plain"), LIVING.get()), ("200 outer".to_string(), 0));
}

/// A value that panics when it is dropped.
#[derive(Clone)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn an_extension_that_panics_when_it_is_dropped_takes_no_answer_away() {
    let arm = before(|request: &mut Request<'_>| {
        request.extensions().insert(Bomb);
        Ok::<(), Response>(())
    });
    let mut client = client(kinds().with(arm));
    for path in ["/plain", "/ready", "/later"] {
        for _ in 0..2 {
            assert_eq!(client.get(path).send().status(), 200, "{path}");
        }
    }
}

#[test]
fn an_async_function_waits_before_and_after_every_kind_of_handler() {
    let app = kinds()
        .get("/users/{id}", |Path(id): Path<u32>, Extension(who): Extension<&'static str>| format!("{id} {who}"))
        .get("/early", |interim: InterimResponses| {
            interim.send(StatusCode::EARLY_HINTS, []);
            "early"
        })
        .post("/whole", |body: String| body)
        .post("/parts", async |body: Body| body.collect(100).await.map_err(|_| StatusCode::BAD_REQUEST))
        .with(mark("outer"))
        .with(from_fn(async |mut request: OwnedRequest, next: Next| {
            // Looks at the request twice, which must not lose a part of it.
            assert!(request.request().path().starts_with('/'));
            request.request().extensions().insert("somebody");
            time::sleep(Duration::from_secs(1)).await;
            let mut response = next.run(request).await;
            time::sleep(Duration::from_secs(1)).await;
            response.add_header(HeaderName::from_static("x-waited"), HeaderValue::from_static("twice"));
            response
        }))
        .with(mark("inner"));
    let mut client = client(app);
    for (path, status) in KINDS {
        for _ in 0..2 {
            // The response to a panic passes through both middlewares too.
            assert_eq!(seen(&mut client, path), format!("{status} inner,outer"), "{path}");
        }
        assert_eq!(client.get(path).send().header("x-waited"), "twice");
    }
    assert_eq!(seen(&mut client, "/nothing"), "404 inner,outer");
    assert_eq!(client.get("/users/7").send().text(), "7 somebody");
    let early = client.get("/early").send();
    assert_eq!((early.text(), early.interim().len()), ("early", 1));
    for path in ["/whole", "/parts"] {
        assert_eq!(client.post(path).body("a body").send().text(), "a body", "{path}");
    }
}

#[test]
fn an_async_function_may_answer_without_the_handler() {
    let app = kinds()
        .with(mark("outer"))
        .with(from_fn(async |_: OwnedRequest, _: Next| StatusCode::IM_A_TEAPOT))
        .with(mark("inner"));
    let mut client = client(app);
    for (path, _) in KINDS {
        assert_eq!(seen(&mut client, path), "418 outer");
    }
}

#[test]
fn a_body_in_parts_comes_after_the_middleware_and_one_that_is_whole_before_it() {
    let parts = async |body: Body| body.collect(100).await.map(|bytes| bytes.len().to_string());
    let app = App::new().post("/whole", |body: String| body.len().to_string()).post("/parts", parts);
    let refusing = before(|request: &mut Request<'_>| match request.header("x-refuse") {
        Some(_) => Err(StatusCode::FORBIDDEN),
        None => Ok(()),
    });
    let mut client = client(app.with(mark("m")).with(refusing).configure(|config| {
        config.limits.body_bytes = 10;
        config.limits.streamed_body_bytes = 20;
    }));
    // The path, the length of the body, true if the middleware refuses, and the status and `x-seen` of the response.
    for (path, length, refuses, status, seen) in [
        ("/whole", 10, false, 200, "m"),
        ("/whole", 10, true, 403, "m"),
        ("/whole", 11, false, 413, ""),
        ("/whole", 11, true, 413, ""),
        ("/parts", 20, false, 200, "m"),
        ("/parts", 20, true, 403, "m"),
    ] {
        let call = client.post(path).body(vec![b'x'; length]);
        let answer = if refuses { call.header("x-refuse", "1") } else { call }.send();
        assert_eq!((answer.status().as_u16(), answer.header("x-seen")), (status, seen), "{path} {length} {refuses}");
    }
}
