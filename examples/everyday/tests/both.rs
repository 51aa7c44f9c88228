//! Sends the same requests to each task on Highwire and on axum, and compares their lengths with docs/everyday.md.

use everyday_example::{axum as theirs, highwire as ours};
use highwire::client::Redirects;
use highwire::client::blocking::{Client, Response};
use highwire::server::Handle;
use highwire::{App, Method, StatusCode};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    })
}

/// Serves a router by axum. It ends with the process.
fn serve(router: axum::Router) -> String {
    let listener = runtime().block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    runtime()
        .spawn(async move { axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await });
    url
}

fn start(app: App) -> (Handle, String) {
    let server = app.configure(|config| config.workers = 1).listen("127.0.0.1:0").expect("a port");
    let server = server.start().expect("a server");
    let url = format!("http://{}", server.addresses()[0]);
    (server, url)
}

fn client() -> Client {
    let client = highwire::client::Client::builder().redirects(Redirects::none()).without_decompression().build();
    Client::of(client.expect("settings")).expect("a client")
}

/// Checks the app and the router by the same function.
fn both(ours: App, theirs: axum::Router, check: impl Fn(&Client, &str)) {
    let (server, url) = start(ours);
    let check = |url: &str| check(&client(), url);
    check(&url);
    server.shutdown();
    server.join().expect("an end");
    check(&serve(theirs));
}

fn get(client: &Client, url: &str) -> Response {
    client.get(url).send().expect("an answer")
}

fn text(client: &Client, url: &str) -> (u16, String) {
    let answer = get(client, url);
    (answer.status().as_u16(), answer.text().expect("text"))
}

fn header<'r>(answer: &'r Response, name: &str) -> &'r str {
    answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[test]
fn json() {
    both(ours::json::app(), theirs::json::app(), |client, url| {
        let note = format!("{url}/notes/7");
        assert_eq!(text(client, &note).0, 404);
        let put = client.put(&note).json(&BTreeMap::from([("text", "hello")])).send().expect("an answer");
        assert_eq!(put.status(), 204);
        assert_eq!(text(client, &note), (200, r#"{"text":"hello"}"#.to_string()));
        let wrong = client.put(&note).json(&BTreeMap::from([("other", 1)])).send().expect("an answer");
        assert_eq!(wrong.status(), 422);
    });
}

#[test]
fn query() {
    both(ours::query::app(), theirs::query::app(), |client, url| {
        assert_eq!(text(client, &format!("{url}/numbers")).1, "[0,1,2]");
        assert_eq!(text(client, &format!("{url}/numbers?page=2&size=2")).1, "[4,5]");
        assert_eq!(text(client, &format!("{url}/numbers?page=x")).0, 400);
    });
}

#[test]
fn errors() {
    both(ours::errors::app(), theirs::errors::app(), |client, url| {
        let (status, text) = text(client, &format!("{url}/count"));
        assert!(status == 500 && text.contains("internal server error") && !text.contains("invalid digit"), "{text}");
    });
}

#[test]
fn validation() {
    both(ours::validation::app(), theirs::validation::app(), |client, url| {
        let open = |name: &str, age: u8| {
            let body = format!(r#"{{"name":"{name}","age":{age}}}"#);
            let answer = client.post(&format!("{url}/accounts")).header("content-type", "application/json").body(body);
            let answer = answer.send().expect("an answer");
            (answer.status().as_u16(), answer.text().expect("text"))
        };
        assert_eq!(open("ann", 20), (200, "ann, 20".to_string()));
        let (status, text) = open("a", 17);
        assert!(status == 422 && text.contains("name") && text.contains("age"), "{text}");
    });
}

#[test]
fn login() {
    let secret = [7; 64];
    both(ours::login::app(&secret), theirs::login::app(&secret), |client, url| {
        let home = get(client, url);
        assert_eq!((home.status(), header(&home, "location")), (StatusCode::SEE_OTHER, "/login"));
        let log_in = |password: &str| {
            let form = BTreeMap::from([("name", "ann"), ("password", password)]);
            client.post(&format!("{url}/login")).form(&form).send().expect("an answer")
        };
        assert_eq!(log_in("wrong").status(), 403);
        let answer = log_in("open sesame");
        let cookie = header(&answer, "set-cookie");
        for part in ["__Host-session=", "HttpOnly", "Secure", "SameSite=Lax", "Path=/"] {
            assert!(cookie.contains(part) && !cookie.contains("ann"), "{cookie}");
        }
        let cookie = cookie.split(';').next().unwrap_or_default().to_string();
        let with = |cookie: &str| client.get(url).header("cookie", cookie).send().expect("an answer");
        let answer = with(&cookie);
        assert_eq!(header(&answer, "cache-control"), "no-store");
        assert_eq!(answer.text().expect("text"), "hello, ann");
        assert_eq!(with(&format!("{cookie}x")).status(), 303, "a forged cookie");
    });
}

#[test]
fn bearer() {
    both(ours::bearer::app(), theirs::bearer::app(), |client, url| {
        assert_eq!(text(client, url).1, "hello");
        let refused = get(client, &format!("{url}/admin/users"));
        assert_eq!(
            (refused.status().as_u16(), header(&refused, "www-authenticate").starts_with("Bearer")),
            (401, true)
        );
        let with = |token: &str| client.get(&format!("{url}/admin/users")).bearer(token).send().expect("an answer");
        assert_eq!((with("other").status().as_u16(), with("secret").status().as_u16()), (401, 200));
    });
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("highwire-everyday-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn bytes(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(&self.0).expect("the folder").flatten();
        entries.map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn upload() {
    for is_ours in [true, false] {
        let folder = Folder::new(if is_ours { "ours" } else { "theirs" });
        let (_server, url) = match is_ours {
            true => {
                let (server, url) = start(ours::upload::app(folder.0.clone()));
                (Some(server), url)
            }
            false => (None, serve(theirs::upload::app(folder.0.clone()))),
        };
        let send = |bytes: usize| {
            let part = highwire::client::multipart::Part::bytes(vec![b'x'; bytes]).file_name("a");
            let form = highwire::client::multipart::Form::new().part("file", part);
            client().post(&url).multipart(form).send()
        };
        assert_eq!(send(3 << 20).expect("an answer").text().expect("text"), "3145728 bytes");
        // The server may close while the rest is on its way.
        assert!(send(11 << 20).is_ok_and(|answer| answer.status() == 413) || !is_ours);
        assert_eq!(folder.bytes(), [3 << 20], "nothing of the refused one is left");
    }
}

#[test]
fn files() {
    let folder = Folder::new("files");
    std::fs::write(folder.0.join("index.html"), "page ".repeat(2000)).expect("a file");
    std::fs::write(folder.0.join("a.txt"), "text").expect("a file");
    let path = folder.0.to_str().expect("text").to_string();
    both(ours::files::app(&path), theirs::files::app(&path), |client, url| {
        assert_eq!(text(client, &format!("{url}/a.txt")), (200, "text".to_string()));
        for path in ["/", "/any/page"] {
            let page = client.get(&format!("{url}{path}")).header("accept-encoding", "gzip").send().expect("an answer");
            assert_eq!((page.status().as_u16(), header(&page, "content-encoding")), (200, "gzip"), "{path}");
        }
    });
}

#[test]
fn cors() {
    both(ours::cors::app(), theirs::cors::app(), |client, url| {
        let preflight = client.request(Method::OPTIONS, url).header("origin", "https://example.com");
        let preflight = preflight.header("access-control-request-method", "POST").send().expect("an answer");
        assert_eq!(header(&preflight, "access-control-allow-origin"), "https://example.com");
        assert_eq!(header(&preflight, "access-control-allow-credentials"), "true");
        assert_eq!(header(&get(client, url), "x-content-type-options"), "nosniff");
    });
}

#[test]
fn rate_limit() {
    both(ours::rate_limit::app(), theirs::rate_limit::app(), |client, url| {
        let statuses: Vec<u16> = (0..8).map(|_| text(client, url).0).collect();
        assert_eq!(statuses[..5], [200; 5]);
        assert!(statuses[5..].contains(&429), "{statuses:?}");
    });
}

#[test]
fn limits() {
    both(ours::limits::app(), theirs::limits::app(), |client, url| {
        let post = |bytes: usize| client.post(url).body("x".repeat(bytes)).send().expect("an answer").status().as_u16();
        assert_eq!((post(0), post(10), post(1001)), (200, 503, 413));
    });
}

#[test]
fn events() {
    both(ours::events::app(), theirs::events::app(), |client, url| {
        let news = format!("{url}/news");
        let publish =
            |text: &str| client.post(&news).body(text.to_string()).send().expect("an answer").status().as_u16();
        let read = |mut answer: Response, text: &str| {
            let (mut all, mut buffer) = (String::new(), [0; 1000]);
            while !all.contains(text) {
                let count = std::io::Read::read(&mut answer, &mut buffer).expect("an event");
                all.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            all
        };
        let reader = get(client, &news);
        assert_eq!(publish("one"), 200);
        let first = read(reader, "data: one").replace("id:", "id: ").replace("data:", "data: ");
        let id = first.lines().find_map(|line| line.strip_prefix("id:")).expect("an id").trim().to_string();
        assert_eq!(publish("two"), 200);
        let resumed = client.get(&news).header("last-event-id", &id).send().expect("an answer");
        assert!(!read(resumed, "two").contains("one"));
    });
}

#[test]
fn chat() {
    both(ours::chat::app(), theirs::chat::app(), |_, url| {
        let url = format!("{}/chat", url.replace("http:", "ws:"));
        let connect = || tungstenite::connect(&url).expect("a connection").0;
        let (mut ann, mut bob) = (connect(), connect());
        // Bob may not be subscribed yet when Ann's first message arrives.
        while bob_hears(&mut ann, &mut bob) != "hello" {}
    });
}

type Socket = tungstenite::WebSocket<tungstenite::stream::MaybeTlsStream<std::net::TcpStream>>;

fn bob_hears(ann: &mut Socket, bob: &mut Socket) -> String {
    if let tungstenite::stream::MaybeTlsStream::Plain(stream) = bob.get_ref() {
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a time limit");
    }
    ann.send("hello".into()).expect("a connection");
    bob.read().map(|message| message.to_text().unwrap_or_default().to_string()).unwrap_or_default()
}

#[test]
fn call() {
    // The service has trouble with every other request.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let service = App::new().get("/current", move |query: highwire::RawQuery| {
        assert_eq!(query.0, "city=S%C3%A3o+Paulo");
        match count.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Err(StatusCode::SERVICE_UNAVAILABLE),
            _ => Ok(highwire::Json(BTreeMap::from([("temperature", 21.5)]))),
        }
    });
    let (_server, service) = start(service);
    let theirs = theirs::call::app(&service).expect("settings");
    both(ours::call::app(&service).expect("settings"), theirs, |client, url| {
        let weather = text(client, &format!("{url}/weather/S%C3%A3o%20Paulo"));
        assert_eq!(weather, (200, r#"{"temperature":21.5}"#.to_string()));
    });
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    let nobody = "http://127.0.0.1:1";
    let theirs = theirs::call::app(nobody).expect("settings");
    both(ours::call::app(nobody).expect("settings"), theirs, |client, url| {
        assert_eq!(text(client, &format!("{url}/weather/x")).0, 502);
    });
}

#[test]
fn proxy() {
    let (_server, upstream) = start(App::new().get("/users", || "from the upstream"));
    both(ours::proxy::app(&upstream).expect("a URL"), theirs::proxy::app(&upstream), |client, url| {
        assert_eq!(text(client, url).1, "own");
        assert_eq!(text(client, &format!("{url}/api/users")).1, "from the upstream");
    });
}

#[test]
fn test() {
    ours::test::adds_slowly();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(theirs::test::adds_slowly());
}

#[test]
fn openapi() {
    both(ours::openapi::app(), theirs::openapi::app(), |client, url| {
        let (_, document) = text(client, &format!("{url}/openapi.json"));
        assert!(document.contains("/books/{id}") && document.contains("Shows a book"), "{document}");
        assert!(text(client, &format!("{url}/docs")).1.contains("<html"));
        assert_eq!(text(client, &format!("{url}/books/1")).1, r#"{"title":"Emma"}"#);
    });
}

#[test]
fn observe() {
    let theirs = {
        let _entered = runtime().enter();
        theirs::observe::app()
    };
    both(ours::observe::app(), theirs, |client, url| {
        let answer = get(client, url);
        assert!(header(&answer, "x-request-id").len() >= 16);
        assert!(text(client, &format!("{url}/metrics")).1.contains("duration_seconds"));
    });
}

/// Returns the lines of code of a file: those that are neither empty nor a comment. (Comments with three slashes reach the OpenAPI
/// document.)
fn lines(side: &str, task: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{side}/{task}.rs"));
    let text = std::fs::read_to_string(path).expect(task);
    let is_code = |line: &&str| !line.trim().is_empty() && !line.starts_with("//!") && !line.trim().starts_with("// ");
    text.lines().filter(is_code).map(str::to_string).collect()
}

#[test]
fn the_page_has_the_tasks_and_their_lengths() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/everyday.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let tasks: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| [")?.split_once("](#")?.1.split(')').next()).collect();
    assert_eq!(tasks.len(), 20);
    let (mut all_ours, mut all_theirs) = (0, 0);
    for task in tasks {
        let (ours, theirs) = (lines("highwire", task), lines("axum", task));
        let (our_count, their_count) = (ours.len(), theirs.len());
        assert!(our_count <= their_count, "{task}: {our_count} lines, axum {their_count}");
        (all_ours, all_theirs) = (all_ours + our_count, all_theirs + their_count);
        let row = format!("(#{task}) | {our_count} | {their_count} |");
        assert!(page.contains(&row), "{task}: the page has no row with `{row}`");
        let section = page.split(&format!("\n## {task}\n")).nth(1);
        let section = section.unwrap_or_else(|| panic!("the page has no section {task}"));
        let shown = section.split("```rust,ignore\n").nth(1).and_then(|rest| rest.split("```").next());
        let shown: Vec<&str> = shown.unwrap_or_default().lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(shown, ours, "{task}");
    }
    let sum = format!("| all | {all_ours} | {all_theirs} |");
    assert!(page.contains(&sum) && all_ours * 100 <= all_theirs * 85, "{sum}");
}
