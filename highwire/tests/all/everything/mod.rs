//! An app that uses features of this crate, and a server for the app, for tests with third-party clients. The features
//! are forms, uploads, cookies, sessions, credentials, redirects, files, events, compressed responses, and requests
//! from pages of other origins.

use crate::engines;
use crate::folder::{Place, bytes};
use crate::served::body_of;
use highwire::compress::{Compression, Decompression};
use highwire::cookie::{Cookie, Cookies, Keys, SameSite};
use highwire::form::MultipartError;
use highwire::middleware::Cors;
use highwire::server::{Engine, Handle};
use highwire::session::{Session, SessionError, Sessions};
use highwire::sse::{self, Event, LastEventId};
use highwire::tls::TlsConfig;
use highwire::{
    App, Basic, Bearer, Body, Form, Html, IntoResponse, Json, Method, Multipart, Path, Redirect, Response, State,
    StatusCode, body, header, time,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A running server. Dropping the value stops the server.
pub(crate) struct Site {
    handle: Option<Handle>,
    /// The addresses for plain HTTP and for HTTPS.
    addresses: [String; 2],
}

impl Site {
    /// Serves an app on an engine, over HTTP and HTTPS. Returns `None`, and reports that, if this machine lacks the engine.
    pub(crate) fn start(engine: &str, app: App) -> Option<Site> {
        let engine = match engine {
            "uring" => Engine::Uring,
            _ => Engine::Readiness,
        };
        if !engines::has(engine) {
            return None;
        }
        let app = app.configure(|config| {
            config.engine = engine;
            config.workers = 2;
            config.limits.body_bytes = 1 << 20;
        });
        let server = app.listen("127.0.0.1:0").expect("a free port");
        let tls = TlsConfig::new().self_signed(["localhost", "127.0.0.1"]);
        let handle = server.listen_tls("127.0.0.1:0", tls).expect("a free port").start().expect("the server starts");
        let addresses = [handle.addresses()[0].clone(), handle.addresses()[1].clone()];
        Some(Site { handle: Some(handle), addresses })
    }

    /// Returns the URL of a path. `scheme` is `http` or `https`.
    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{}{path}", self.addresses[usize::from(scheme == "https")])
    }

    /// Returns the URL with the host `localhost`. For a browser, this is another site than the IP address.
    pub(crate) fn named(&self, scheme: &str, path: &str) -> String {
        self.url(scheme, path).replace("127.0.0.1", "localhost")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.abort();
            // An error here does not matter, because the test has made its assertions.
            let _ = handle.join();
        }
    }
}

/// The length of the large file in bytes, which is not a multiple of the length of a buffer.
pub(crate) const LARGE: usize = 3_000_011;

/// The modification date of the files, as in a header field.
pub(crate) const CHANGED: &str = "Fri, 15 Jan 2021 08:00:00 GMT";

/// Returns text that compresses well.
pub(crate) fn text(lines: usize) -> String {
    (0..lines).map(|line| format!("Line {line}: {} readers\n", line * line)).collect()
}

/// Writes the files to serve: a large one, a text, one in a folder, and ten seconds of sound.
pub(crate) fn place(name: &str) -> Place {
    let place = Place::new(name);
    place.write("large.bin", bytes(LARGE));
    place.write("text.txt", text(2000));
    place.write("inner/a b.txt", "a file");
    place.write("tone.wav", tone());
    place
}

/// Returns a WAV file of ten seconds with one channel, 44,100 samples per second, and 16 bits per sample.
fn tone() -> Vec<u8> {
    const RATE: u32 = 44_100;
    let length = 10 * RATE * 2;
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + length).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    wav.extend(RATE.to_le_bytes());
    wav.extend((RATE * 2).to_le_bytes());
    wav.extend(b"\x02\0\x10\0data");
    wav.extend(length.to_le_bytes());
    wav.extend((0..length / 2).flat_map(|sample| ((sample % 100) as i16 * 100).to_le_bytes()));
    wav
}

/// Returns a hash of bytes (FNV-1a), which continues the hash `begun`.
pub(crate) fn sum(bytes: impl IntoIterator<Item = u8>, begun: u64) -> u64 {
    bytes.into_iter().fold(begun, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The hash of no bytes.
pub(crate) const NOTHING: u64 = 0xcbf2_9ce4_8422_2325;

/// Named gates at which handlers wait until a client opens them, so that a test decides the order of events.
#[derive(Default)]
struct Gates {
    open: Mutex<BTreeSet<String>>,
}

impl Gates {
    fn open(&self, name: String) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }

    async fn wait(&self, name: &str) {
        while !self.open.lock().unwrap_or_else(PoisonError::into_inner).contains(name) {
            time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The sender of the reports that pages make at their end.
pub(crate) struct Reports(pub(crate) Mutex<Sender<String>>);

/// Returns the app. The page that it serves sends its results to `reports`.
pub(crate) fn app(place: &Place, reports: Sender<String>) -> App {
    let session = Cookie::new("session", "").secure(false);
    App::new()
        .get("/page", || Html(include_str!("page.html")))
        .post("/report", |report: String, reports: State<Arc<Reports>>| {
            let sender = reports.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Fails if the report arrives after the test has given up.
            let _ = sender.send(report);
            StatusCode::NO_CONTENT
        })
        .state(Arc::new(Reports(Mutex::new(reports))))
        .state(Arc::<Gates>::default())
        .state(Sessions::in_cookies(Keys::random().expect("random bytes")).with_cookie(session))
        .state(Keys::random().expect("random bytes"))
        .files("/files", place.files().listing())
        .get("/text", || text(2000))
        .post("/form", |Form(fields): Form<BTreeMap<String, String>>| Json(fields))
        .post("/parts", parts)
        .post("/json", |Json(value): Json<serde_json::Value>| Json(value))
        .put("/store/{name}", store)
        .post("/store/{name}", store)
        .any("/method", |method: Method, body: String| format!("{method} {body}"))
        .any("/see-other", || Redirect::see_other("/method"))
        .any("/temporary", || Redirect::temporary("/method"))
        .any("/permanent", || Redirect::permanent("/temporary"))
        .get("/basic", |basic: Basic| match basic.is("ada", "s\u{e9}:cret") {
            true => Ok(format!("hello {}", basic.user)),
            false => Err(basic.refuse()),
        })
        .get("/bearer", |bearer: Bearer| if bearer.is("x1y2") { Ok("come in") } else { Err(bearer.refuse()) })
        .get("/count", count)
        .get("/signed", signed)
        .nest("/cookies", jar())
        .get("/trailers", || {
            let sum = (header::ETAG, header::HeaderValue::from_static("\"the sum\""));
            Response::stream(body_of(["one ", "two"])).with_trailers(|| vec![sum])
        })
        .post("/open/{gate}", |Path(gate): Path<String>, gates: State<Arc<Gates>>| {
            gates.open(gate);
            StatusCode::NO_CONTENT
        })
        .get("/drip/{gate}", drip)
        .get("/events/{gate}", events)
        .get("/ticks", ticks)
        .with(Compression::new())
        .with(Decompression::new())
}

/// Returns an app for requests from pages of other origins. `/open` permits the origins `allowed`, and `/closed`
/// permits only two other origins.
pub(crate) fn elsewhere(allowed: [String; 2]) -> App {
    let cors = |origins: [String; 2]| {
        let cors = origins.into_iter().fold(Cors::new(), Cors::origin);
        cors.methods([Method::PUT])
            .allow_headers([header::HeaderName::from_static("x-thing"), header::CONTENT_TYPE])
            .expose([header::HeaderName::from_static("x-answer")])
            .credentials()
    };
    let routes = || {
        let answer = ([(header::HeaderName::from_static("x-answer"), header::HeaderValue::from_static("42"))], "put");
        App::new()
            .put("/thing", move || answer.clone())
            .delete("/thing", || "deleted")
            .get("/cookies", |cookies: Cookies| Json(all(&cookies)))
    };
    let closed = cors(["https://one.example".to_string(), "https://two.example".to_string()]);
    App::new().nest("/open", routes().with(cors(allowed))).nest("/closed", routes().with(closed))
}

#[derive(serde::Serialize)]
struct Told {
    name: String,
    file: Option<String>,
    media_type: Option<String>,
    text: String,
}

async fn parts(mut multipart: Multipart) -> Result<Json<Vec<Told>>, MultipartError> {
    let mut all = Vec::new();
    while let Some(part) = multipart.next().await {
        let part = part?;
        let (name, file) = (part.name().to_string(), part.file_name().map(str::to_string));
        let media_type = part.content_type().map(str::to_string);
        all.push(Told { name, file, media_type, text: part.text(100_000).await? });
    }
    Ok(Json(all))
}

async fn store(Path(name): Path<String>, mut body: Body) -> Result<Response, Response> {
    let (mut length, mut total) = (0, NOTHING);
    while let Some(part) = body.next().await {
        let part = part.map_err(IntoResponse::into_response)?;
        length += part.len();
        total = sum(part, total);
    }
    Ok((StatusCode::CREATED, format!("{name} {length} {total}")).into_response())
}

async fn count(mut session: Session<u32>) -> Result<(Session<u32>, String), SessionError> {
    let visits = session.load().await?.unwrap_or_default() + 1;
    session.save(&visits).await?;
    Ok((session, visits.to_string()))
}

fn signed(mut cookies: Cookies, keys: State<Keys>) -> (Cookies, String) {
    let visits = cookies.signed(&keys).get("visits").and_then(|visits| visits.parse().ok()).unwrap_or(0) + 1;
    cookies.signed(&keys).add(Cookie::new("visits", visits.to_string()).secure(false).http_only(false));
    (cookies, visits.to_string())
}

fn all(cookies: &Cookies) -> BTreeMap<String, String> {
    cookies.iter().map(|(name, value)| (name.to_string(), value.into_owned())).collect()
}

/// Returns the cookies to set, each with a value that must be encoded.
fn set() -> [Cookie; 3] {
    let value = "a b;\u{e9}";
    [
        Cookie::new("seen", value).secure(false).http_only(false),
        Cookie::new("hidden", value).secure(false).max_age(Duration::from_secs(3600)),
        Cookie::new("strict", value).secure(false).http_only(false).same_site(SameSite::Strict),
    ]
}

fn jar() -> App {
    App::new()
        .get("/", |cookies: Cookies| Json(all(&cookies)))
        .get("/set", |mut cookies: Cookies| {
            set().into_iter().for_each(|cookie| cookies.add(cookie));
            (cookies, "set")
        })
        .get("/remove", |mut cookies: Cookies| {
            set().into_iter().for_each(|cookie| cookies.remove(cookie));
            (cookies, "removed")
        })
}

/// Sends one word, and another one when the gate opens.
fn drip(Path(gate): Path<String>, gates: State<Arc<Gates>>) -> Response {
    let (mut sender, receiver) = body::channel();
    highwire::spawn(async move {
        if sender.send("one ").await.is_ok() {
            gates.wait(&gate).await;
            if sender.send("two").await.is_ok() {
                sender.finish();
            }
        }
    });
    Response::stream(receiver).with_header(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"))
}

/// Sends two words as [`drip`] does, but as events.
fn events(Path(gate): Path<String>, gates: State<Arc<Gates>>) -> Response {
    let (mut events, response) = sse::channel();
    highwire::spawn(async move {
        if events.send(Event::new("one\nand a half").name("word").id("1")).await.is_ok() {
            gates.wait(&gate).await;
            if events.send(Event::new("two").id("2")).await.is_ok() {
                events.finish();
            }
        }
    });
    response
}

/// Sends two events on each connection, until the client has received the event with the id 6.
fn ticks(LastEventId(last): LastEventId) -> Response {
    let next = last.and_then(|id| id.parse::<u32>().ok()).unwrap_or(0) + 1;
    if next > 6 {
        return Response::new(StatusCode::NO_CONTENT);
    }
    let (mut events, response) = sse::channel();
    highwire::spawn(async move {
        for number in next..next + 2 {
            let event = Event::new(format!("tick {number}")).id(number.to_string()).retry(Duration::from_millis(10));
            if events.send(event).await.is_err() {
                return;
            }
        }
        events.finish();
    });
    response
}
