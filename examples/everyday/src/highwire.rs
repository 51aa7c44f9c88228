//! The tasks on Highwire.

/// JSON in and out.
pub mod json {
    use highwire::{App, Json, Path, State, StatusCode};
    use std::collections::HashMap;
    use std::sync::Mutex;

    #[derive(Clone, serde::Deserialize, serde::Serialize)]
    struct Note {
        text: String,
    }

    type Notes = Mutex<HashMap<u32, Note>>;

    fn show(notes: State<Notes>, Path(id): Path<u32>) -> Option<Json<Note>> {
        notes.lock().unwrap().get(&id).cloned().map(Json)
    }

    fn put(notes: State<Notes>, Path(id): Path<u32>, Json(note): Json<Note>) -> StatusCode {
        notes.lock().unwrap().insert(id, note);
        StatusCode::NO_CONTENT
    }

    pub fn app() -> App {
        App::new().get("/notes/{id}", show).put("/notes/{id}", put).state(Notes::default())
    }
}

/// A query with defaults, and pages.
pub mod query {
    use highwire::{App, Json, Query};

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

    fn list(Query(Page { page, size }): Query<Page>) -> Json<Vec<usize>> {
        Json((0..100).skip(page * size).take(size).collect())
    }

    pub fn app() -> App {
        App::new().get("/numbers", list)
    }
}

/// Any error with `?`: 500, and a line in the log with what has failed.
pub mod errors {
    use highwire::{App, IntoResponse, Problem, Response, StatusCode, blocking};

    struct Error(Box<dyn std::error::Error + Send + Sync>);

    impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Error {
        fn from(error: E) -> Error {
            Error(error.into())
        }
    }

    impl IntoResponse for Error {
        fn into_response(self) -> Response {
            tracing::error!(error = %self.0, "a request failed");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error").into_response()
        }
    }

    fn count() -> Result<String, Error> {
        let number: u32 = std::fs::read_to_string("/proc/sys/kernel/ostype")?.trim().parse()?;
        Ok(number.to_string())
    }

    pub fn app() -> App {
        App::new().get("/count", blocking(count))
    }
}

/// Values that keep rules: 422 with what is wrong in which field.
pub mod validation {
    use garde::Validate;
    use highwire::{App, Json, Valid};

    #[derive(serde::Deserialize, Validate)]
    struct Account {
        #[garde(length(min = 2, max = 20))]
        name: String,
        #[garde(range(min = 18))]
        age: u8,
    }

    fn open(Valid(Json(Account { name, age })): Valid<Json<Account>>) -> String {
        format!("{name}, {age}")
    }

    pub fn app() -> App {
        App::new().post("/accounts", open)
    }
}

/// A login with a session in an encrypted cookie.
pub mod login {
    use highwire::cookie::Keys;
    use highwire::session::{Session, SessionError, Sessions};
    use highwire::{App, Form, IntoResponse, Redirect, Response, StatusCode};

    #[derive(serde::Deserialize)]
    struct Login {
        name: String,
        password: String,
    }

    async fn home(mut session: Session<String>) -> Result<Response, SessionError> {
        match session.load().await? {
            Some(name) => Ok((session, format!("hello, {name}")).into_response()),
            None => Ok(Redirect::see_other("/login").into_response()),
        }
    }

    async fn log_in(mut session: Session<String>, Form(login): Form<Login>) -> Result<Response, SessionError> {
        if login.password != "open sesame" {
            return Ok(StatusCode::FORBIDDEN.into_response());
        }
        session.renew().await?;
        session.save(&login.name).await?;
        Ok((session, Redirect::see_other("/")).into_response())
    }

    pub fn app(secret: &[u8]) -> App {
        let keys = Keys::new(&[secret]).unwrap();
        App::new().get("/", home).post("/login", log_in).state(Sessions::in_cookies(keys))
    }
}

/// Routes for those who have a token.
pub mod bearer {
    use highwire::middleware::before;
    use highwire::{App, Bearer, FromRequest, Request, Response};

    fn authorized(request: &mut Request<'_>) -> Result<(), Response> {
        let token = Bearer::from_request(request)?;
        if token.is("secret") { Ok(()) } else { Err(token.refuse()) }
    }

    pub fn app() -> App {
        let admin = App::new().get("/users", || "all of them").with(before(authorized));
        App::new().get("/", || "hello").nest("/admin", admin)
    }
}

/// Uploads to the disk, as they arrive, of at most 10 MiB.
pub mod upload {
    use highwire::form::MultipartError;
    use highwire::middleware::BodyLimit;
    use highwire::{App, Handler, Multipart, State};
    use std::path::PathBuf;

    async fn upload(folder: State<PathBuf>, mut form: Multipart) -> Result<String, MultipartError> {
        let mut bytes = 0;
        while let Some(part) = form.next().await {
            let file = part?.spool(&*folder).await?;
            bytes += file.len();
            file.keep();
        }
        Ok(format!("{bytes} bytes"))
    }

    pub fn app(folder: PathBuf) -> App {
        App::new().post("/", upload.with(BodyLimit::new(10 << 20))).state(folder)
    }
}

/// Files of a folder, compressed, with one page for all other paths.
pub mod files {
    use highwire::compress::Compression;
    use highwire::{App, Files};

    pub fn app(folder: &str) -> App {
        App::new().files("/", Files::new(folder).single_page("index.html")).with(Compression::new())
    }
}

/// Scripts of another site may call, with cookies; browsers get the usual headers for safety.
pub mod cors {
    use highwire::App;
    use highwire::middleware::{Cors, SecurityHeaders};

    pub fn app() -> App {
        App::new()
            .get("/", || "hello")
            .with(Cors::new().origin("https://example.com").credentials())
            .with(SecurityHeaders::new())
    }
}

/// One request a second for each address, with bursts of five.
pub mod rate_limit {
    use highwire::App;
    use highwire::middleware::RateLimit;
    use std::time::Duration;

    pub fn app() -> App {
        App::new().get("/", || "hello").with(RateLimit::new(1, Duration::from_secs(1)).burst(5))
    }
}

/// A time limit and a limit of bodies.
pub mod limits {
    use highwire::middleware::{BodyLimit, Timeout};
    use highwire::{App, time};
    use std::time::Duration;

    async fn slow(body: String) -> String {
        time::sleep(Duration::from_secs(body.len() as u64)).await;
        body
    }

    pub fn app() -> App {
        App::new().post("/", slow).with(Timeout::new(Duration::from_secs(2))).with(BodyLimit::new(1000))
    }
}

/// Events for any number of readers, who resume after a lost connection.
pub mod events {
    use highwire::sse::LastEventId;
    use highwire::topics::{PublishError, Start, Topic, Topics};
    use highwire::{App, IntoResponse, State};

    fn publish(topics: State<Topics>, text: String) -> Result<(), PublishError> {
        topics.publish("news", text).map(drop)
    }

    fn news(topics: State<Topics>, last: LastEventId) -> impl IntoResponse {
        topics.events("news", Start::Next, last)
    }

    pub fn app() -> App {
        let topics = Topics::builder().topic("news", Topic::new().history(100)).build();
        App::new().get("/news", news).post("/news", publish).state(topics)
    }
}

/// A chat over WebSockets.
pub mod chat {
    use highwire::topics::{Start, Topics};
    use highwire::ws::{WebSocket, WebSocketUpgrade};
    use highwire::{App, Response, State};

    fn chat(upgrade: WebSocketUpgrade, topics: State<Topics>) -> Response {
        upgrade.on_upgrade(async move |mut socket: WebSocket| {
            if socket.subscribe(&topics, "chat", Start::Next).is_ok() {
                while let Some(Ok(message)) = socket.recv().await {
                    let _ = topics.publish("chat", message);
                }
            }
        })
    }

    pub fn app() -> App {
        App::new().get("/chat", chat).state(Topics::new())
    }
}

/// A call of another service, with a time limit and, if it has trouble, again.
pub mod call {
    use highwire::client::{Client, Error, Retry};
    use highwire::{App, Json, Path, State};
    use std::time::Duration;

    #[derive(serde::Deserialize, serde::Serialize)]
    struct Weather {
        temperature: f32,
    }

    async fn weather(client: State<Client>, Path(city): Path<String>) -> Result<Json<Weather>, Error> {
        let response = client.get("/current").query(&[("city", &city)]).send().await?;
        Ok(Json(response.error_for_status()?.json().await?))
    }

    pub fn app(service: &str) -> Result<App, Error> {
        let client = Client::builder().base_url(service).timeout(Duration::from_secs(5)).with(Retry::new()).build()?;
        Ok(App::new().get("/weather/{city}", weather).state(client))
    }
}

/// Another server behind a prefix.
pub mod proxy {
    use highwire::App;
    use highwire::client::Error;
    use highwire::proxy::Proxy;

    pub fn app(upstream: &str) -> Result<App, Error> {
        Ok(App::new().get("/", || "own").any("/api/{*rest}", Proxy::to([upstream])?.strip_prefix("/api")))
    }
}

/// Work after the response, for which a shutdown waits.
pub mod background {
    use highwire::{App, StatusCode, time};
    use std::time::Duration;

    fn order() -> StatusCode {
        highwire::spawn(async {
            time::sleep(Duration::from_secs(1)).await;
            tracing::info!("the mail is sent");
        });
        StatusCode::ACCEPTED
    }

    pub fn run() -> highwire::Result<()> {
        App::new().post("/orders", order).listen("127.0.0.1:8080")?.run()
    }
}

/// HTTPS with files that are reloaded, and a redirect from HTTP.
pub mod https {
    use highwire::tls::TlsConfig;
    use highwire::{App, Https};

    pub fn run() -> highwire::Result<()> {
        let tls = TlsConfig::new().certificate_files("site.pem", "site.key");
        let app = App::new().get("/", || "hello").https(Https::new().redirect(443));
        app.listen("0.0.0.0:80")?.listen_tls("0.0.0.0:443", tls)?.run()
    }
}

/// A test of a handler that waits for half a minute.
pub mod test {
    use highwire::testing::Client;
    use highwire::{App, Json, time};
    use std::time::Duration;

    fn app() -> App {
        App::new().post("/sum", async |Json(numbers): Json<Vec<u32>>| {
            time::sleep(Duration::from_secs(30)).await;
            Json(numbers.iter().sum::<u32>())
        })
    }

    pub fn adds_slowly() {
        let mut client = Client::new(app()).unwrap();
        assert_eq!(client.post("/sum").json(&[1, 2, 3]).send().text(), "6");
    }
}

/// An OpenAPI document, and a page to read it.
pub mod openapi {
    use highwire::openapi::{self, OpenApi, operation};
    use highwire::{App, Json, Path};
    use schemars::JsonSchema;

    #[derive(serde::Serialize, JsonSchema)]
    struct Book {
        title: String,
    }

    /// Shows a book.
    #[openapi::docs]
    fn book(Path(id): Path<u32>) -> Option<Json<Book>> {
        (id == 1).then(|| Json(Book { title: "Emma".to_string() }))
    }

    pub fn app() -> App {
        App::new().get("/books/{id}", operation!(book)).openapi(OpenApi::new("Books", "1.0").page("/docs"))
    }
}

/// Metrics for Prometheus, and log lines of a request that have its ID.
pub mod observe {
    use highwire::App;
    use highwire::middleware::{RequestIds, RequestSpan};

    pub fn app() -> App {
        App::new().get("/", || "hello").metrics("/metrics").with(RequestIds::new()).with(RequestSpan)
    }
}
