//! The tasks on axum, with the crates that its users take.

/// JSON in and out.
pub mod json {
    use axum::extract::{Path, State};
    use axum::http::StatusCode;
    use axum::routing::get;
    use axum::{Json, Router};
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, serde::Deserialize, serde::Serialize)]
    struct Note {
        text: String,
    }

    type Notes = Arc<Mutex<HashMap<u32, Note>>>;

    async fn show(State(notes): State<Notes>, Path(id): Path<u32>) -> Result<Json<Note>, StatusCode> {
        notes.lock().unwrap().get(&id).cloned().map(Json).ok_or(StatusCode::NOT_FOUND)
    }

    async fn put(State(notes): State<Notes>, Path(id): Path<u32>, Json(note): Json<Note>) -> StatusCode {
        notes.lock().unwrap().insert(id, note);
        StatusCode::NO_CONTENT
    }

    pub fn app() -> Router {
        Router::new().route("/notes/{id}", get(show).put(put)).with_state(Notes::default())
    }
}

/// A query with defaults, and pages.
pub mod query {
    use axum::extract::Query;
    use axum::routing::get;
    use axum::{Json, Router};

    #[derive(serde::Deserialize)]
    #[serde(default)]
    struct Page {
        page: usize,
        size: usize,
    }

    impl Default for Page {
        fn default() -> Page {
            Page { page: 0, size: 3 }
        }
    }

    async fn list(Query(Page { page, size }): Query<Page>) -> Json<Vec<usize>> {
        Json((0..100).skip(page * size).take(size).collect())
    }

    pub fn app() -> Router {
        Router::new().route("/numbers", get(list))
    }
}

/// Any error with `?`: 500, and a line in the log with what has failed.
pub mod errors {
    use axum::Router;
    use axum::http::StatusCode;
    use axum::response::{IntoResponse, Response};
    use axum::routing::get;

    struct Error(Box<dyn std::error::Error + Send + Sync>);

    impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Error {
        fn from(error: E) -> Error {
            Error(error.into())
        }
    }

    impl IntoResponse for Error {
        fn into_response(self) -> Response {
            tracing::error!(error = %self.0, "a request failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "internal server error").into_response()
        }
    }

    async fn count() -> Result<String, Error> {
        let number: u32 = tokio::fs::read_to_string("/proc/sys/kernel/ostype").await?.trim().parse()?;
        Ok(number.to_string())
    }

    pub fn app() -> Router {
        Router::new().route("/count", get(count))
    }
}

/// Values that keep rules: 422 with what is wrong in which field.
pub mod validation {
    use axum::extract::rejection::JsonRejection;
    use axum::extract::{FromRequest, Request};
    use axum::http::StatusCode;
    use axum::response::{IntoResponse, Response};
    use axum::routing::post;
    use axum::{Json, Router};
    use garde::Validate;

    #[derive(serde::Deserialize, Validate)]
    struct Account {
        #[garde(length(min = 2, max = 20))]
        name: String,
        #[garde(range(min = 18))]
        age: u8,
    }

    struct Valid<T>(T);

    impl<S, T> FromRequest<S> for Valid<T>
    where
        S: Send + Sync,
        T: Validate<Context = ()>,
        Json<T>: FromRequest<S, Rejection = JsonRejection>,
    {
        type Rejection = Response;

        async fn from_request(request: Request, state: &S) -> Result<Valid<T>, Response> {
            let Json(value) = Json::<T>::from_request(request, state).await.map_err(IntoResponse::into_response)?;
            match value.validate() {
                Ok(()) => Ok(Valid(value)),
                Err(report) => Err((StatusCode::UNPROCESSABLE_ENTITY, report.to_string()).into_response()),
            }
        }
    }

    async fn open(Valid(Account { name, age }): Valid<Account>) -> String {
        format!("{name}, {age}")
    }

    pub fn app() -> Router {
        Router::new().route("/accounts", post(open))
    }
}

/// A login with a session in an encrypted cookie.
pub mod login {
    use axum::http::StatusCode;
    use axum::response::{IntoResponse, Redirect, Response};
    use axum::routing::{get, post};
    use axum::{Form, Router};
    use axum_extra::extract::PrivateCookieJar;
    use axum_extra::extract::cookie::{Cookie, Key, SameSite};

    #[derive(serde::Deserialize)]
    struct Login {
        name: String,
        password: String,
    }

    async fn home(jar: PrivateCookieJar) -> Response {
        match jar.get("__Host-session") {
            Some(name) => ([("cache-control", "no-store")], format!("hello, {}", name.value())).into_response(),
            None => Redirect::to("/login").into_response(),
        }
    }

    async fn log_in(jar: PrivateCookieJar, Form(login): Form<Login>) -> Response {
        if login.password != "open sesame" {
            return StatusCode::FORBIDDEN.into_response();
        }
        let cookie = Cookie::build(("__Host-session", login.name)).path("/").secure(true).http_only(true);
        let jar = jar.add(cookie.same_site(SameSite::Lax));
        (jar, [("cache-control", "no-store")], Redirect::to("/")).into_response()
    }

    pub fn app(secret: &[u8]) -> Router {
        Router::new().route("/", get(home)).route("/login", post(log_in)).with_state(Key::from(secret))
    }
}

/// Routes for those who have a token.
pub mod bearer {
    use axum::Router;
    use axum::extract::Request;
    use axum::http::StatusCode;
    use axum::middleware::{Next, from_fn};
    use axum::response::{IntoResponse, Response};
    use axum::routing::get;
    use axum_extra::TypedHeader;
    use axum_extra::headers::Authorization;
    use axum_extra::headers::authorization::Bearer;

    async fn authorized(token: Option<TypedHeader<Authorization<Bearer>>>, request: Request, next: Next) -> Response {
        match token {
            Some(TypedHeader(token)) if token.token() == "secret" => next.run(request).await,
            _ => (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response(),
        }
    }

    pub fn app() -> Router {
        let admin = Router::new().route("/users", get(async || "all of them")).layer(from_fn(authorized));
        Router::new().route("/", get(async || "hello")).nest("/admin", admin)
    }
}

/// Uploads to the disk, as they arrive, of at most 10 MiB.
pub mod upload {
    use axum::Router;
    use axum::extract::multipart::MultipartError;
    use axum::extract::{DefaultBodyLimit, Multipart, State};
    use axum::http::StatusCode;
    use axum::response::{IntoResponse, Response};
    use axum::routing::post;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::fs::File;
    use tokio::io::AsyncWriteExt;

    static NEXT: AtomicU64 = AtomicU64::new(0);

    async fn upload(State(folder): State<PathBuf>, mut form: Multipart) -> Result<String, Response> {
        let mut bytes = 0;
        while let Some(mut part) = form.next_field().await.map_err(MultipartError::into_response)? {
            let path = folder.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
            let failed = |_| StatusCode::INTERNAL_SERVER_ERROR.into_response();
            let mut file = File::create_new(&path).await.map_err(failed)?;
            let written = async {
                while let Some(chunk) = part.chunk().await.map_err(MultipartError::into_response)? {
                    bytes += chunk.len();
                    file.write_all(&chunk).await.map_err(failed)?;
                }
                file.flush().await.map_err(failed)
            };
            if let Err(response) = written.await {
                let _ = tokio::fs::remove_file(path).await;
                return Err(response);
            }
        }
        Ok(format!("{bytes} bytes"))
    }

    pub fn app(folder: PathBuf) -> Router {
        Router::new().route("/", post(upload)).layer(DefaultBodyLimit::max(10 << 20)).with_state(folder)
    }
}

/// Files of a folder, compressed, with one page for all other paths.
pub mod files {
    use axum::Router;
    use tower_http::compression::CompressionLayer;
    use tower_http::services::{ServeDir, ServeFile};

    pub fn app(folder: &str) -> Router {
        let page = ServeFile::new(format!("{folder}/index.html"));
        Router::new().fallback_service(ServeDir::new(folder).fallback(page)).layer(CompressionLayer::new())
    }
}

/// Scripts of another site may call, with cookies; browsers get the usual headers for safety.
pub mod cors {
    use axum::Router;
    use axum::http::{HeaderValue, Method, header};
    use axum::routing::get;
    use tower_http::cors::CorsLayer;
    use tower_http::set_header::SetResponseHeaderLayer;

    pub fn app() -> Router {
        let cors = CorsLayer::new()
            .allow_origin(HeaderValue::from_static("https://example.com"))
            .allow_methods([Method::GET, Method::POST])
            .allow_credentials(true);
        let set = |name, value| SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value));
        Router::new()
            .route("/", get(async || "hello"))
            .layer(cors)
            .layer(set(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .layer(set(header::X_FRAME_OPTIONS, "DENY"))
            .layer(set(header::REFERRER_POLICY, "strict-origin-when-cross-origin"))
    }
}

/// One request a second for each address, with bursts of five.
pub mod rate_limit {
    use axum::Router;
    use axum::routing::get;
    use tower_governor::GovernorLayer;
    use tower_governor::governor::GovernorConfigBuilder;

    pub fn app() -> Router {
        let config = GovernorConfigBuilder::default().per_second(1).burst_size(5).finish().unwrap();
        Router::new().route("/", get(async || "hello")).layer(GovernorLayer::new(config))
    }
}

/// A time limit and a limit of bodies.
pub mod limits {
    use axum::Router;
    use axum::extract::DefaultBodyLimit;
    use axum::http::StatusCode;
    use axum::routing::post;
    use std::time::Duration;
    use tower_http::timeout::TimeoutLayer;

    async fn slow(body: String) -> String {
        tokio::time::sleep(Duration::from_secs(body.len() as u64)).await;
        body
    }

    pub fn app() -> Router {
        Router::new()
            .route("/", post(slow))
            .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(2)))
            .layer(DefaultBodyLimit::max(1000))
    }
}

/// Events for any number of readers, who resume after a lost connection.
pub mod events {
    use axum::Router;
    use axum::extract::State;
    use axum::http::HeaderMap;
    use axum::response::Sse;
    use axum::response::sse::{Event, KeepAlive};
    use axum::routing::get;
    use futures_util::{Stream, StreamExt, stream};
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};
    use tokio::sync::broadcast::{self, Sender};
    use tokio_stream::wrappers::BroadcastStream;

    #[derive(Clone)]
    struct News {
        next: Sender<(u64, String)>,
        kept: Arc<Mutex<VecDeque<(u64, String)>>>,
    }

    async fn publish(State(news): State<News>, text: String) {
        let mut kept = news.kept.lock().unwrap();
        let id = kept.back().map_or(1, |(id, _)| id + 1);
        if kept.len() == 100 {
            kept.pop_front();
        }
        kept.push_back((id, text.clone()));
        let _ = news.next.send((id, text));
    }

    async fn listen(
        State(news): State<News>,
        headers: HeaderMap,
    ) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
        let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
        let kept = news.kept.lock().unwrap();
        let next = BroadcastStream::new(news.next.subscribe()).filter_map(async |event| event.ok());
        let last: u64 = last.unwrap_or(u64::MAX);
        let missed: Vec<_> = kept.iter().filter(|(id, _)| *id > last).cloned().collect();
        let events = stream::iter(missed).chain(next);
        let events = events.map(|(id, text)| Ok(Event::default().id(id.to_string()).data(text)));
        Sse::new(events).keep_alive(KeepAlive::default())
    }

    pub fn app() -> Router {
        let news = News { next: broadcast::channel(100).0, kept: Arc::default() };
        Router::new().route("/news", get(listen).post(publish)).with_state(news)
    }
}

/// A chat over WebSockets.
pub mod chat {
    use axum::Router;
    use axum::extract::State;
    use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
    use axum::response::Response;
    use axum::routing::get;
    use tokio::sync::broadcast::error::RecvError;
    use tokio::sync::broadcast::{self, Sender};

    async fn chat(upgrade: WebSocketUpgrade, State(all): State<Sender<Message>>) -> Response {
        upgrade.on_upgrade(async move |mut socket: WebSocket| {
            let mut messages = all.subscribe();
            loop {
                tokio::select! {
                    received = socket.recv() => match received {
                        Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => drop(all.send(message)),
                        Some(Ok(_)) => {}
                        _ => return,
                    },
                    message = messages.recv() => match message {
                        Ok(message) => {
                            if socket.send(message).await.is_err() {
                                return;
                            }
                        }
                        Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => return,
                    },
                }
            }
        })
    }

    pub fn app() -> Router {
        Router::new().route("/chat", get(chat)).with_state(broadcast::channel(100).0)
    }
}

/// A call of another service, with a time limit and, if it has trouble, again.
pub mod call {
    use axum::extract::{Path, State};
    use axum::http::StatusCode;
    use axum::routing::get;
    use axum::{Json, Router};
    use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};
    use reqwest_retry::RetryTransientMiddleware;
    use reqwest_retry::policies::ExponentialBackoff;
    use std::time::Duration;

    #[derive(Clone)]
    struct Service {
        client: ClientWithMiddleware,
        url: String,
    }

    #[derive(serde::Deserialize, serde::Serialize)]
    struct Weather {
        temperature: f32,
    }

    async fn fetch(service: &Service, city: &str) -> Result<Weather, Error> {
        let mut url = reqwest::Url::parse(&format!("{}/current", service.url)).map_err(Error::middleware)?;
        url.query_pairs_mut().append_pair("city", city);
        Ok(service.client.get(url).send().await?.error_for_status()?.json().await?)
    }

    async fn weather(State(service): State<Service>, Path(city): Path<String>) -> Result<Json<Weather>, StatusCode> {
        fetch(&service, &city).await.map(Json).map_err(|error| {
            tracing::error!(%error, "the service failed");
            StatusCode::BAD_GATEWAY
        })
    }

    pub fn app(url: &str) -> Result<Router, reqwest::Error> {
        let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
        let retry = RetryTransientMiddleware::new_with_policy(ExponentialBackoff::builder().build_with_max_retries(3));
        let service = Service { client: ClientBuilder::new(client).with(retry).build(), url: url.to_string() };
        Ok(Router::new().route("/weather/{city}", get(weather)).with_state(service))
    }
}

/// Another server behind a prefix.
pub mod proxy {
    use axum::Router;
    use axum::routing::get;
    use axum_reverse_proxy::ReverseProxy;

    pub fn app(upstream: &str) -> Router {
        let proxy: Router = ReverseProxy::new("/api", upstream).into();
        Router::new().route("/", get(async || "own")).merge(proxy)
    }
}

/// Work after the response, for which a shutdown waits.
pub mod background {
    use axum::Router;
    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::routing::post;
    use std::time::Duration;
    use tokio::signal::unix::{SignalKind, signal};
    use tokio_util::task::TaskTracker;

    async fn order(State(tasks): State<TaskTracker>) -> StatusCode {
        tasks.spawn(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tracing::info!("the mail is sent");
        });
        StatusCode::ACCEPTED
    }

    async fn stopped() {
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    }

    pub async fn run() -> std::io::Result<()> {
        let tasks = TaskTracker::new();
        let app = Router::new().route("/orders", post(order)).with_state(tasks.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
        axum::serve(listener, app).with_graceful_shutdown(stopped()).await?;
        tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(30), tasks.wait()).await;
        Ok(())
    }
}

/// HTTPS with files that are reloaded, and a redirect from HTTP.
pub mod https {
    use axum::Router;
    use axum::handler::HandlerWithoutStateExt;
    use axum::http::uri::{Authority, Scheme};
    use axum::http::{StatusCode, Uri};
    use axum::response::Redirect;
    use axum::routing::get;
    use axum_extra::TypedHeader;
    use axum_extra::headers::Host;
    use axum_server::tls_rustls::RustlsConfig;
    use std::time::Duration;

    async fn redirect(TypedHeader(host): TypedHeader<Host>, uri: Uri) -> Result<Redirect, StatusCode> {
        let mut parts = uri.into_parts();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(Authority::try_from(host.hostname()).map_err(|_| StatusCode::BAD_REQUEST)?);
        let uri = Uri::from_parts(parts).map_err(|_| StatusCode::BAD_REQUEST)?;
        Ok(Redirect::permanent(&uri.to_string()))
    }

    pub async fn run() -> std::io::Result<()> {
        let config = RustlsConfig::from_pem_file("site.pem", "site.key").await?;
        let reloaded = config.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(60)).await;
                if let Err(error) = reloaded.reload_from_pem_file("site.pem", "site.key").await {
                    tracing::error!(%error, "cannot reload the certificate");
                }
            }
        });
        let plain = tokio::net::TcpListener::bind("0.0.0.0:80").await?;
        tokio::spawn(async move { axum::serve(plain, redirect.into_make_service()).await });
        let app = Router::new().route("/", get(async || "hello"));
        let address = std::net::SocketAddr::from(([0, 0, 0, 0], 443));
        axum_server::bind_rustls(address, config).serve(app.into_make_service()).await
    }
}

/// A test of a handler that waits for half a minute.
pub mod test {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::routing::post;
    use axum::{Json, Router};
    use std::time::Duration;
    use tower::ServiceExt;

    fn app() -> Router {
        Router::new().route(
            "/sum",
            post(async |Json(numbers): Json<Vec<u32>>| {
                tokio::time::sleep(Duration::from_secs(30)).await;
                Json(numbers.iter().sum::<u32>())
            }),
        )
    }

    pub async fn adds_slowly() {
        tokio::time::pause();
        let request = Request::post("/sum").header("content-type", "application/json");
        let response = app().oneshot(request.body(Body::from("[1,2,3]")).unwrap()).await.unwrap();
        assert_eq!(to_bytes(response.into_body(), usize::MAX).await.unwrap(), "6");
    }
}

/// An OpenAPI document, and a page to read it.
pub mod openapi {
    use axum::extract::Path;
    use axum::http::StatusCode;
    use axum::{Json, Router};
    use utoipa::{OpenApi, ToSchema};
    use utoipa_axum::router::OpenApiRouter;
    use utoipa_axum::routes;
    use utoipa_rapidoc::RapiDoc;

    #[derive(OpenApi)]
    #[openapi(info(title = "Books", version = "1.0"))]
    struct Document;

    #[derive(serde::Serialize, ToSchema)]
    struct Book {
        title: String,
    }

    /// Shows a book.
    #[utoipa::path(get, path = "/books/{id}", params(("id" = u32, Path)), responses((status = 200, body = Book), (status = 404)))]
    async fn book(Path(id): Path<u32>) -> Result<Json<Book>, StatusCode> {
        (id == 1).then(|| Json(Book { title: "Emma".to_string() })).ok_or(StatusCode::NOT_FOUND)
    }

    pub fn app() -> Router {
        let routes = OpenApiRouter::with_openapi(Document::openapi()).routes(routes!(book));
        let (router, document) = routes.split_for_parts();
        router.merge(RapiDoc::with_openapi("/openapi.json", document).path("/docs"))
    }
}

/// Metrics for Prometheus, and log lines of a request that have its ID.
pub mod observe {
    use axum::Router;
    use axum::extract::Request;
    use axum::routing::get;
    use axum_prometheus::PrometheusMetricLayer;
    use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
    use tower_http::trace::TraceLayer;

    pub fn app() -> Router {
        let (metrics, handle) = PrometheusMetricLayer::pair();
        let trace = TraceLayer::new_for_http().make_span_with(|request: &Request| {
            let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
            tracing::info_span!("request", method = %request.method(), path = request.uri().path(), id)
        });
        Router::new()
            .route("/", get(async || "hello"))
            .route("/metrics", get(async move || handle.render()))
            .layer(metrics)
            .layer(PropagateRequestIdLayer::x_request_id())
            .layer(trace)
            .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
    }
}
