//! Tests `tower::serve` with applications in the shapes in which people write them for axum. Each runs on `axum::serve` and on
//! Highwire, with no other change than the line that serves, and must answer the same.
//!
//! Needs a real kernel, because axum has its own server.

use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{ConnectInfo, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{any, delete, get, post};
use axum::{Extension, Json, Router};
use futures_core::Stream;
use highwire::tower;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The longest time of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request of a test: method, path, fields and body.
type Ask = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

/// What a client sees: the status, some fields and the body.
type Seen = (u16, Vec<String>, String);

/// The fields that both servers must send with the same value.
const FIELDS: [&str; 5] = ["content-type", "location", "allow", "x-layer", "content-length"];

async fn ask(address: SocketAddr, (method, path, fields, body): Ask) -> Seen {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE);
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let mut request = client.build().expect("a client").request(method, format!("http://{address}{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let response = request.body(body).send().await.expect("a response");
    let headers = response.headers();
    let fields = FIELDS.iter().map(|name| format!("{name}: {:?}", headers.get(*name))).collect();
    (response.status().as_u16(), fields, response.text().await.expect("a body"))
}

/// Runs an application on both servers, asks both the same, and compares the answers. Returns them.
fn compare(app: impl Fn() -> Router, asks: &[Ask]) -> Vec<Seen> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut all = Vec::new();
        for is_ours in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
            let address = listener.local_addr().expect("its address");
            let (stop, stopped) = oneshot::channel::<()>();
            let stopped = async move { drop(stopped.await) };
            let app = app();
            let serving = tokio::spawn(async move {
                if is_ours {
                    tower::serve(listener, app).with_graceful_shutdown(stopped).await
                } else {
                    axum::serve(listener, app).with_graceful_shutdown(stopped).await
                }
            });
            let mut seen = Vec::new();
            for request in asks {
                seen.push(ask(address, *request).await);
            }
            stop.send(()).expect("the server waits");
            let ended = tokio::time::timeout(PATIENCE, serving).await.expect("the server ends");
            ended.expect("no panic").expect("no error");
            all.push(seen);
        }
        let ours = all.pop().expect("ours");
        let theirs = all.pop().expect("theirs");
        for ((ours, theirs), request) in ours.iter().zip(&theirs).zip(asks) {
            assert_eq!((ours.0, &ours.1), (theirs.0, &theirs.1), "{} {}", request.0, request.1);
            assert!(ours.2 == theirs.2, "{} {}: {:.200} instead of {:.200}", request.0, request.1, ours.2, theirs.2);
        }
        ours
    })
}

#[test]
fn hello_world_and_a_form_of_html() {
    let app = || {
        Router::new()
            .route("/", get(async || "Hello, World!"))
            .route("/page", get(async || Html("<h1>Hello</h1>")))
            .route("/old", get(async || Redirect::permanent("/page")))
            .route("/empty", get(async || StatusCode::NO_CONTENT))
    };
    let asks: &[Ask] = &[
        ("GET", "/", &[], ""),
        ("HEAD", "/", &[], ""),
        ("GET", "/page", &[], ""),
        ("GET", "/old", &[], ""),
        ("GET", "/empty", &[], ""),
        ("GET", "/nowhere", &[], ""),
        ("POST", "/", &[], "x"),
    ];
    let seen = compare(app, asks);
    assert_eq!(seen[0].2, "Hello, World!");
    assert_eq!(seen[6].0, 405);
}

#[test]
fn a_json_api_with_state() {
    type Todos = Arc<Mutex<HashMap<u64, String>>>;
    #[derive(serde::Deserialize)]
    struct New {
        text: String,
    }
    let app = || {
        let list = async |State(todos): State<Todos>, Query(query): Query<HashMap<String, String>>| {
            let todos = todos.lock().expect("no panic");
            let mut all: Vec<_> = todos.iter().map(|(id, text)| format!("{id} {text}")).collect();
            all.sort();
            Json((all, query.get("page").cloned()))
        };
        let add = async |State(todos): State<Todos>, Json(new): Json<New>| {
            let mut todos = todos.lock().expect("no panic");
            let id = todos.len() as u64;
            todos.insert(id, new.text);
            (StatusCode::CREATED, Json(id))
        };
        let remove =
            async |State(todos): State<Todos>, Path(id): Path<u64>| match todos.lock().expect("no panic").remove(&id) {
                Some(_) => StatusCode::NO_CONTENT,
                None => StatusCode::NOT_FOUND,
            };
        Router::new()
            .route("/todos", get(list).post(add))
            .route("/todos/{id}", delete(remove))
            .with_state(Todos::default())
    };
    const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
    let asks: &[Ask] = &[
        ("POST", "/todos", JSON, r#"{"text":"first"}"#),
        ("POST", "/todos", JSON, r#"{"text":"second"}"#),
        ("GET", "/todos?page=2", &[], ""),
        ("DELETE", "/todos/0", &[], ""),
        ("DELETE", "/todos/0", &[], ""),
        ("DELETE", "/todos/x", &[], ""),
        ("POST", "/todos", JSON, "{"),
        ("POST", "/todos", &[], r#"{"text":"no type"}"#),
    ];
    let seen = compare(app, asks);
    assert_eq!(seen[2].2, r#"[["0 first","1 second"],"2"]"#);
    assert_eq!(seen[6].0, 400);
}

#[test]
fn middleware_extensions_and_layers_of_tower() {
    async fn mark(mut request: Request, next: Next) -> Response {
        request.extensions_mut().insert("from a layer");
        let mut response = next.run(request).await;
        response.headers_mut().insert("x-layer", "seen".parse().expect("a value"));
        response
    }
    async fn guard(headers: HeaderMap, request: Request, next: Next) -> Result<Response, StatusCode> {
        if headers.contains_key("authorization") { Ok(next.run(request).await) } else { Err(StatusCode::UNAUTHORIZED) }
    }
    let app = || {
        Router::new()
            .route("/secret", get(async || "secret").layer(middleware::from_fn(guard)))
            .route("/", get(async |Extension(text): Extension<&'static str>| text))
            .layer(middleware::from_fn(mark))
            .layer(::tower::limit::ConcurrencyLimitLayer::new(8))
    };
    let asks: &[Ask] =
        &[("GET", "/", &[], ""), ("GET", "/secret", &[], ""), ("GET", "/secret", &[("authorization", "x")], "")];
    let seen = compare(app, asks);
    assert_eq!((&*seen[0].2, seen[1].0, &*seen[2].2), ("from a layer", 401, "secret"));
}

#[test]
fn a_store_of_keys_behind_layers_of_tower_http() {
    type Store = Arc<Mutex<HashMap<String, Bytes>>>;
    async fn value(Path(key): Path<String>, State(store): State<Store>) -> Result<Bytes, StatusCode> {
        store.lock().expect("no panic").get(&key).cloned().ok_or(StatusCode::NOT_FOUND)
    }
    async fn set(Path(key): Path<String>, State(store): State<Store>, bytes: Bytes) {
        store.lock().expect("no panic").insert(key, bytes);
    }
    let app = || {
        Router::new()
            .route("/{key}", get(value).post(set))
            .route("/slow", get(async || tokio::time::sleep(PATIENCE).await))
            .layer(tower_http::compression::CompressionLayer::new())
            .layer(tower_http::limit::RequestBodyLimitLayer::new(8))
            .layer(tower_http::cors::CorsLayer::permissive())
            .layer(tower_http::timeout::TimeoutLayer::with_status_code(
                StatusCode::REQUEST_TIMEOUT,
                Duration::from_millis(50),
            ))
            .with_state(Store::default())
    };
    let asks: &[Ask] = &[
        ("GET", "/a", &[], ""),
        ("POST", "/a", &[], "12345678"),
        ("GET", "/a", &[("origin", "https://b.example")], ""),
        ("POST", "/a", &[], "123456789"),
        ("OPTIONS", "/a", &[("origin", "https://b.example"), ("access-control-request-method", "POST")], ""),
        ("GET", "/slow", &[], ""),
    ];
    let seen = compare(app, asks);
    assert_eq!(seen.iter().map(|seen| seen.0).collect::<Vec<_>>(), [404, 200, 200, 413, 200, 408]);
    assert_eq!(seen[2].2, "12345678");
}

#[test]
fn bodies_that_middleware_reads_and_versions_in_the_path() {
    async fn upper(request: Request, next: Next) -> Result<Response, StatusCode> {
        let (parts, body) = request.into_parts();
        let bytes = axum::body::to_bytes(body, 100).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        let response = next.run(Request::from_parts(parts, Body::from(bytes.to_ascii_uppercase()))).await;
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 100).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok(Response::from_parts(parts, Body::from([&bytes[..], b"!"].concat())))
    }
    let echo = async |Path(version): Path<u32>, text: String| format!("{version}: {text}");
    let app = move || Router::new().route("/v{version}/echo", post(echo)).layer(middleware::from_fn(upper));
    let asks: &[Ask] = &[("POST", "/v2/echo", &[], "text"), ("POST", "/vx/echo", &[], "text")];
    let seen = compare(app, asks);
    assert_eq!((&*seen[0].2, seen[1].0), ("2: TEXT!", 400));
}

#[test]
fn errors_with_the_question_mark_and_an_extractor_of_ones_own() {
    struct Failed(Box<dyn std::error::Error>);
    impl IntoResponse for Failed {
        fn into_response(self) -> Response {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("it failed: {}", self.0)).into_response()
        }
    }
    impl<E: Into<Box<dyn std::error::Error>>> From<E> for Failed {
        fn from(error: E) -> Failed {
            Failed(error.into())
        }
    }
    struct Version(u8);
    impl<S: Sync> FromRequestParts<S> for Version {
        type Rejection = (StatusCode, &'static str);
        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Version, Self::Rejection> {
            let version = parts.headers.get("x-version").and_then(|value| value.to_str().ok()?.parse().ok());
            version.map(Version).ok_or((StatusCode::BAD_REQUEST, "no version"))
        }
    }
    let app = || {
        Router::new()
            .route("/number/{n}", get(async |Path(n): Path<String>| Ok::<_, Failed>(n.parse::<i32>()?.to_string())))
            .route("/version", get(async |Version(version): Version| format!("version {version}")))
    };
    let asks: &[Ask] = &[
        ("GET", "/number/7", &[], ""),
        ("GET", "/number/x", &[], ""),
        ("GET", "/version", &[], ""),
        ("GET", "/version", &[("x-version", "3")], ""),
    ];
    let seen = compare(app, asks);
    assert_eq!((seen[1].0, &*seen[3].2), (500, "version 3"));
}

#[test]
fn nested_routers_fallbacks_and_merged_ones() {
    let app = || {
        let users = Router::new()
            .route("/", get(async || "users"))
            .route("/{id}", get(async |Path(id): Path<u32>| id.to_string()));
        let admin =
            Router::new().route("/panel", any(async |method: Method| method.to_string())).fallback(async || "no panel");
        Router::new()
            .nest("/users", users)
            .nest("/admin", admin)
            .merge(Router::new().route("/merged", post(async |body: String| body.to_uppercase())))
            .fallback(async |uri: axum::http::Uri| (StatusCode::NOT_FOUND, format!("nothing at {uri}")))
    };
    let asks: &[Ask] = &[
        ("GET", "/users", &[], ""),
        ("GET", "/users/7", &[], ""),
        ("GET", "/users/x", &[], ""),
        ("PUT", "/admin/panel", &[], ""),
        ("GET", "/admin/other", &[], ""),
        ("POST", "/merged", &[], "loud"),
        ("GET", "/a%20b?c=d", &[], ""),
    ];
    let seen = compare(app, asks);
    assert_eq!(seen[6].2, "nothing at /a%20b?c=d");
}

/// A stream of some items, with a wait of tokio's between them.
struct Slowly {
    left: u32,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl Slowly {
    fn new(left: u32) -> Slowly {
        Slowly { left, sleep: Box::pin(tokio::time::sleep(Duration::from_millis(2))) }
    }
}

impl Stream for Slowly {
    type Item = Result<String, Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        std::task::ready!(self.sleep.as_mut().poll(cx));
        let next = tokio::time::Instant::now() + Duration::from_millis(2);
        self.sleep.as_mut().reset(next);
        self.left -= 1;
        Poll::Ready(Some(Ok(format!("item {}", self.left))))
    }
}

/// The items as events.
struct Events(Slowly);

impl Stream for Events {
    type Item = Result<Event, Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx).map_ok(|item| Event::default().data(item))
    }
}

#[test]
fn streams_events_and_uploads() {
    let app = || {
        Router::new()
            .route("/stream", get(async || Body::from_stream(Slowly::new(3))))
            .route("/events", get(async || Sse::new(Events(Slowly::new(3)))))
            .route("/bytes", post(async |body: Bytes| body.len().to_string()))
            .route(
                "/echo",
                post(async |request: Request| Body::new(request.into_body()))
                    .layer(axum::extract::DefaultBodyLimit::disable()),
            )
    };
    let long: &'static str = "0123456789".repeat(30_000).leak();
    let longer: &'static str = "0123456789".repeat(300_000).leak();
    let asks: &[Ask] = &[
        ("GET", "/stream", &[], ""),
        ("GET", "/events", &[], ""),
        ("POST", "/bytes", &[], long),
        ("POST", "/bytes", &[], longer),
        ("POST", "/echo", &[], long),
    ];
    let seen = compare(app, asks);
    assert_eq!(seen[0].2, "item 2item 1item 0");
    assert_eq!(seen[1].2, "data: item 2\n\ndata: item 1\n\ndata: item 0\n\n");
    assert_eq!((seen[2].0, seen[3].0), (200, 413));
    assert!(seen[4].2 == long);
}

#[test]
fn tasks_timers_and_channels_of_tokio() {
    let app = || {
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<oneshot::Sender<u32>>(4);
        // It lives in the caller's runtime.
        tokio::spawn(async move {
            let mut count = 0;
            while let Some(reply) = receiver.recv().await {
                count += 1;
                let _ = reply.send(count);
            }
        });
        Router::new().route(
            "/",
            get(async move || {
                let (reply, answer) = oneshot::channel();
                sender.send(reply).await.expect("the task lives");
                let local = tokio::spawn(async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    "and a task"
                });
                format!("{} {}", answer.await.expect("an answer"), local.await.expect("its output"))
            }),
        )
    };
    let seen = compare(app, &[("GET", "/", &[], ""), ("GET", "/", &[], "")]);
    assert_eq!(seen[1].2, "2 and a task");
}

/// Serves with a given function, and lets `ask` talk to the server on a thread.
fn serving<F: Future<Output = std::io::Result<()>> + Send>(
    serve: impl FnOnce(TcpListener) -> F,
    ask: impl FnOnce(SocketAddr) + Send + 'static,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("its address");
        let asking = tokio::task::spawn_blocking(move || ask(address));
        let serving = serve(listener);
        tokio::select! {
            ended = serving => panic!("the server ended: {ended:?}"),
            asked = tokio::time::timeout(PATIENCE, asking) => asked.expect("in time").expect("no panic"),
        }
    });
}

#[test]
fn a_websocket_of_axum() {
    async fn echo(upgrade: WebSocketUpgrade) -> Response {
        upgrade.on_upgrade(async |mut socket| {
            while let Some(Ok(Message::Text(text))) = socket.recv().await {
                tokio::time::sleep(Duration::from_millis(1)).await;
                if socket.send(Message::Text(format!("echo {text}").into())).await.is_err() {
                    return;
                }
            }
        })
    }
    let ask = |address: SocketAddr| {
        let (mut socket, _) = tungstenite::connect(format!("ws://{address}/ws")).expect("a WebSocket");
        for word in ["a", "b"] {
            socket.send(tungstenite::Message::text(word)).expect("the server reads");
            assert_eq!(socket.read().expect("an answer").into_text().expect("a text").as_str(), format!("echo {word}"));
        }
    };
    let app = || Router::new().route("/ws", any(echo));
    serving(|listener| tower::serve(listener, app()).into_future(), ask);
    serving(|listener| axum::serve(listener, app()).into_future(), ask);
}

#[test]
fn the_clients_address_by_connect_info() {
    let app = || {
        let handler = async |ConnectInfo(address): ConnectInfo<SocketAddr>| format!("{}", address.ip());
        Router::new().route("/", get(handler)).into_make_service_with_connect_info::<SocketAddr>()
    };
    let ask =
        |address: SocketAddr| assert!(testkit::http1::get(&address.to_string(), "/").ends_with("\r\n\r\n127.0.0.1"));
    serving(|listener| tower::serve(listener, app()).into_future(), ask);
    serving(|listener| axum::serve(listener, app()).into_future(), ask);
}

#[test]
fn a_maker_of_services_settings_and_a_listener_of_the_standard_library() {
    let app = Router::new().route("/", get(async || "made")).into_make_service();
    let serve = |listener: TcpListener| {
        let listener = listener.into_std().expect("a socket");
        tower::serve(listener, app)
            .configure(|config| (config.workers, config.parser.head_bytes) = (1, 512))
            .into_future()
    };
    serving(serve, |address| {
        let address = address.to_string();
        assert!(testkit::http1::get(&address, "/").ends_with("\r\n\r\nmade"));
        assert!(testkit::http1::get(&address, &format!("/{}", "x".repeat(600))).starts_with("HTTP/1.1 414"));
    });
}

#[test]
fn a_server_that_cannot_start_says_so() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let serving = tower::serve(listener, Router::new()).configure(|config| config.memory = Some(1));
        let error = serving.await.expect_err("the memory is too little");
        assert!(error.to_string().contains("memory"), "{error}");
    });
}

#[test]
fn a_router_below_a_prefix_sees_the_rest_of_the_path() {
    let router = || {
        Router::new()
            .fallback(async |uri: axum::http::Uri| uri.path_and_query().map(ToString::to_string).unwrap_or_default())
    };
    let guarded = highwire::App::new()
        .with(highwire::middleware::before(|request: &mut highwire::Request<'_>| {
            if request.header("x-key").is_some() { Ok(()) } else { Err(highwire::StatusCode::FORBIDDEN) }
        }))
        .nest("", tower::nested("/guarded", router()));
    let app =
        highwire::App::new().get("/", || "ours").nest("", tower::nested("/old/api/", router())).nest("/in", guarded);
    let mut client = highwire::testing::Client::new(app).expect("an app");
    for (path, expected) in [
        ("/", "ours"),
        ("/old/api", "/"),
        ("/old/api/", "/"),
        ("/old/api/a%2Fb/c?d=%20", "/a%2Fb/c?d=%20"),
        ("/old/./x/../api/y", "/y"),
        ("/in/guarded/z", "/z"),
    ] {
        assert_eq!(client.get(path).header("x-key", "1").send().text(), expected, "{path}");
    }
    assert_eq!(client.get("/old/apis").send().status(), 404);
    // Other spellings of the prefix do not avoid the middleware.
    for path in ["/in/guarded/z", "/in/%67uarded/z", "/in/x/../guarded/z"] {
        assert_eq!(client.get(path).send().status(), 403, "{path}");
    }
}
