//! The app under test of `conformance/web`: extractors, forms, cookies, files, compression, middleware and events.

use bytes::Bytes;
use highwire::compress::{Compression, Decompression};
use highwire::cookie::{Cookie, Cookies, Keys};
use highwire::form::MultipartError;
use highwire::middleware::{
    BodyLimit, ClientAddress, Cors, RequestId, RequestIds, SecurityHeaders, Timeout, TrustedProxies,
};
use highwire::sse::{self, Event, LastEventId};
use highwire::{
    Accept, App, Basic, Bearer, Files, Form, Handler, Html, IntoResponse, Json, Method, Multipart, Path, Problem,
    Query, Redirect, Response, State, StatusCode, header,
};
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, SystemTime};

/// A temporary folder with the files that the cases request. Dropping the value removes it.
#[derive(Debug)]
pub struct Site {
    path: PathBuf,
}

/// The modification time of all files: Sun, 09 Sep 2001 01:46:40 GMT.
const CHANGED: Duration = Duration::from_secs(1_000_000_000);

/// The size of `large.bin` in bytes. The file is too large for the cache in memory.
pub const LARGE_BYTES: usize = 100_000;

impl Site {
    /// Creates the folder and its files. `name` distinguishes the folders of one process.
    ///
    /// # Panics
    /// Panics if the files cannot be written.
    pub fn new(name: &str) -> Site {
        let site = Site { path: std::env::temp_dir().join(format!("highwire-web-{name}-{}", std::process::id())) };
        let large = "x".repeat(LARGE_BYTES);
        for (path, content) in [
            ("a.txt", "0123456789abcdefghij"),
            ("empty.txt", ""),
            ("large.bin", &large),
            ("script.js", "let a = 1;\n"),
            ("script.js.gz", "as if by gzip"),
            ("script.js.br", "as if by br"),
            ("docs/index.html", "<p>docs"),
            ("list/b & c.txt", "b"),
            (".hidden", "hidden"),
            ("app.html", "<p>app"),
            ("missing.html", "<p>missing"),
        ] {
            let path = site.path.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(&site.path)).expect("a folder");
            std::fs::write(&path, content).expect("a file");
            let file = std::fs::File::options().write(true).open(&path).expect("a file");
            file.set_modified(SystemTime::UNIX_EPOCH + CHANGED).expect("a date");
        }
        site
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &FilePath {
        &self.path
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // On an error, files stay in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Returns the app under test.
///
/// # Panics
/// Panics if the app's parts are invalid.
pub fn app(site: &Site) -> App {
    let folder = || Files::new(site.path());
    App::new()
        .get("/hello", || "Hello, World!")
        .state(Keys::new(&["a secret of the corpus, which is long enough"]).expect("a secret"))
        .nest("/values", values())
        .nest("/who", who())
        .files("/files", folder().precompressed().cache_control("*.txt", "max-age=60"))
        .files("/listing", folder().listing())
        .files("/app", folder().single_page("app.html"))
        .files("/errors", folder().error_page(StatusCode::NOT_FOUND, "missing.html"))
        .nest("/coded", coded())
        .nest("/around", around())
        .get("/events", events)
        .configure(|config| {
            config.workers = 1;
            config.method_override = true;
            config.memory = Some(256 * 1024 * 1024);
        })
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Order {
    name: String,
    count: u8,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
struct Page {
    page: u32,
    #[serde(default)]
    tag: Vec<String>,
}

/// Routes for extractors and response types.
fn values() -> App {
    App::new()
        .post("/json", |Json(order): Json<Order>| Json(order))
        .post("/text", |text: String| text)
        .post("/form", |Form(order): Form<Order>| Json(order))
        .post("/parts", parts)
        .get("/query", |Query(page): Query<Page>| format!("{} {:?}", page.page, page.tag))
        .get("/path/{id}", |Path(id): Path<u8>| format!("{id}"))
        .any("/method", |method: Method| method.to_string())
        .get("/html", || Html("<p>html"))
        .get("/see-other", || Redirect::see_other("/hello"))
        .get("/permanent", || Redirect::permanent("/hello"))
        .get("/problem", || Problem::new(StatusCode::CONFLICT, "somebody was quicker").with_number("version", 7))
        .get("/created", || (StatusCode::CREATED, "made"))
        .get("/accept", accept)
}

fn accept(accept: Accept) -> Result<Response, Problem> {
    Ok(match accept.media_type_or_406(&["application/json", "text/html"])? {
        "text/html" => Response::html("<p>42"),
        _ => Response::bytes("application/json", "42"),
    })
}

async fn parts(mut multipart: Multipart) -> Result<String, MultipartError> {
    let mut told = String::new();
    while let Some(part) = multipart.next().await {
        let part = part?;
        let (name, file) = (part.name().to_string(), part.file_name().unwrap_or("-").to_string());
        told.push_str(&format!("{name} {file} {}\n", part.text(1000).await?));
    }
    Ok(told)
}

/// Routes for cookies and credentials.
fn who() -> App {
    App::new()
        .get("/cookie", |cookies: Cookies| {
            cookies.get("a").map_or_else(|| "none".to_string(), |value| value.into_owned())
        })
        .get("/set", |mut cookies: Cookies| {
            cookies.add(Cookie::new("a", "b c").secure(false));
            cookies.remove(Cookie::new("old", "").secure(false));
            (cookies, "set")
        })
        .get("/signed", |mut cookies: Cookies, keys: State<Keys>| {
            cookies.signed(&keys).get("a").unwrap_or_else(|| "none".to_string())
        })
        .get("/private", |mut cookies: Cookies, keys: State<Keys>| {
            cookies.private(&keys).get("a").unwrap_or_else(|| "none".to_string())
        })
        .get("/basic", |basic: Basic| match basic.is("ada", "s:cret") {
            true => Ok(format!("hello {}", basic.user)),
            false => Err(basic.refuse()),
        })
        .get("/bearer", |bearer: Bearer| if bearer.is("x1y2") { Ok("come in") } else { Err(bearer.refuse()) })
}

/// Routes for compressed answers and request bodies.
fn coded() -> App {
    let long = "a line of text that comes again and again\n".repeat(50);
    let page = long.clone();
    let tagged = long.clone();
    App::new()
        .get("/long", move || long.clone())
        .get("/short", || "short")
        .get("/image", || Response::bytes("image/png", vec![0; 4000]))
        .get("/as-it-is", move || {
            Response::text(page.clone()).with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-transform"))
        })
        .get("/tagged", move || {
            Response::text(tagged.clone()).with_header(header::ETAG, HeaderValue::from_static("\"1\""))
        })
        .post("/body", |body: Bytes| body)
        .with(Compression::new())
        .with(Decompression::new())
}

/// Routes for middleware.
fn around() -> App {
    let open = Cors::new().origin("https://a.example").methods([Method::PUT]).credentials();
    let cors = App::new().get("/", || "here").put("/", || "put").with(open);
    let proxies = || TrustedProxies::new(["10.0.0.0/8", "127.0.0.0/8"]).expect("networks");
    let address = |ClientAddress(address): ClientAddress| address.to_string();
    let slow = async || {
        highwire::time::sleep(Duration::from_secs(3)).await;
        "late"
    };
    App::new()
        .nest("/cors", cors)
        .nest("/secured", App::new().get("/", || "safe").with(SecurityHeaders::new()))
        .nest("/named", App::new().get("/", |id: RequestId| id.to_string()).with(RequestIds::new()))
        .nest("/behind", App::new().get("/", address).with(proxies()))
        .nest("/forwarded", App::new().get("/", address).with(proxies().by_forwarded()))
        .get("/slow", slow.with(Timeout::new(Duration::from_millis(20))))
        .post("/small", (|body: Bytes| body).with(BodyLimit::new(5)))
        .get("/panic", panics)
}

fn panics() -> &'static str {
    // Skips the panic hook, which would print a message for each of many calls.
    std::panic::resume_unwind(Box::new("on purpose"))
}

/// Sends two events, or only the second if the client already has the first.
fn events(LastEventId(last): LastEventId) -> Response {
    let (mut events, response) = sse::channel();
    highwire::spawn(async move {
        let first = Event::new("one\ntwo").id("1").name("news").retry(Duration::from_secs(2));
        let second = Event::new("three").id("2");
        let left = if last.as_deref() == Some("1") { vec![second] } else { vec![first, second] };
        for event in left {
            if events.send(event).await.is_err() {
                return;
            }
        }
        events.finish();
    });
    let told = HeaderValue::from_static("events");
    response.into_response().with_header(HeaderName::from_static("x-told"), told)
}
