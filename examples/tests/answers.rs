//! Tests each example without sockets, as users can test their own programs.

#[path = "../another_protocol.rs"]
mod another_protocol;
#[path = "../auth.rs"]
mod auth;
#[cfg(feature = "axum")]
#[path = "../axum_router.rs"]
mod axum_router;
#[path = "../behind_a_proxy.rs"]
mod behind_a_proxy;
#[cfg(feature = "books")]
#[path = "../books.rs"]
mod books;
#[path = "../calls_an_api.rs"]
mod calls_an_api;
#[path = "../crawler.rs"]
mod crawler;
#[cfg(feature = "sqlx")]
#[path = "../database.rs"]
mod database;
#[cfg(target_os = "linux")]
#[path = "../embedded.rs"]
mod embedded;
#[path = "../event_stream.rs"]
mod event_stream;
#[cfg(feature = "compress")]
#[path = "../files.rs"]
mod files;
#[path = "../gateway.rs"]
mod gateway;
#[path = "../graceful_shutdown.rs"]
mod graceful_shutdown;
#[path = "../hello.rs"]
mod hello;
#[path = "../https.rs"]
mod https;
#[path = "../json_api.rs"]
mod json_api;
#[cfg(all(feature = "cookies", feature = "templates"))]
#[path = "../login.rs"]
mod login;
#[path = "../rate_limit.rs"]
mod rate_limit;
#[path = "../testing.rs"]
mod testing;
#[path = "../ticker.rs"]
mod ticker;
#[path = "../upload.rs"]
mod upload;
#[path = "../websocket.rs"]
mod websocket;

use highwire::App;
use highwire::testing::Client;
use std::fs;
use std::path::PathBuf;

fn client(app: App) -> Client {
    Client::new(app).expect("an app")
}

/// A temporary folder for one test. Dropping it removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("highwire-examples-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(feature = "books")]
#[test]
fn the_shelf_takes_books_and_says_what_is_wrong() {
    let mut client = client(books::app());
    let added = client
        .post("/books")
        .header("content-type", "application/json")
        .body(r#"{"title":"Emma","authors":["Jane Austen"]}"#)
        .send();
    assert_eq!(added.status(), 201);
    let text = r#"{"number":1,"title":"Emma","authors":["Jane Austen"],"year":null,"state":"used"}"#;
    assert_eq!(added.text(), text);
    assert_eq!(client.get("/books?author=Austen&limit=1").send().text(), format!("[{text}]"));
    assert_eq!(client.get("/books/1").send().text(), text);
    assert_eq!(client.get("/books?limit=0").send().status(), 422);
    assert_eq!(client.delete("/books/1").send().status(), 401);
    let removed = client.delete("/books/1").header("authorization", "Bearer librarian").send();
    assert_eq!(removed.status(), 204);
    assert!(client.get("/docs").send().text().contains("Lists books by number"));
}

#[cfg(target_os = "linux")]
#[test]
fn the_game_goes_on_while_requests_are_answered() {
    use highwire::client::blocking;
    use highwire::server::{Engine, Runtime};
    let server = embedded::app().listen("127.0.0.1:0").expect("an address");
    let url = format!("http://{}/tick", server.addresses()[0]);
    let asked = std::thread::spawn(move || {
        let client = blocking::Client::new().expect("a client");
        let ask =
            || client.get(&url).send().expect("a response").text().expect("a text").parse::<u64>().expect("a number");
        (ask(), ask())
    });
    let mut worker = server.into_worker(Runtime::new(Engine::Auto).expect("a driver")).expect("a worker");
    // A bound, so that a program that does not answer ends.
    embedded::play(&mut worker, |ticks| asked.is_finished() || ticks > 400).expect("a game");
    let (first, second) = asked.join().expect("answers");
    assert!(first <= second, "{first} {second}");
}

#[test]
fn hello_greets() {
    let mut client = client(hello::app());
    assert_eq!((client.get("/").send().text(), client.get("/Ann").send().text()), ("Hello, World!", "Hello, Ann!"));
}

#[test]
fn tasks_are_kept() {
    let mut client = client(json_api::app());
    let created = client.post("/tasks").body(r#"{"title":"write"}"#).header("content-type", "application/json").send();
    assert_eq!((created.status().as_u16(), created.text()), (201, "1"));
    assert_eq!(client.get("/tasks/1").send().text(), r#"{"title":"write","done":false}"#);
    let wrong = client.post("/tasks").body(r#"{"name":"write"}"#).header("content-type", "application/json").send();
    assert_eq!(wrong.status(), 422);
    assert_eq!(client.delete("/tasks/1").send().status(), 204);
    let gone = client.get("/tasks/1").send();
    assert_eq!((gone.status().as_u16(), gone.text()), (404, "there is no task 1\n"));
    assert_eq!(client.get("/tasks").send().text(), "{}");
}

#[test]
fn ticks_go_on_where_they_ended() {
    let mut client = client(event_stream::app());
    assert!(client.get("/").send().text().contains("EventSource('/ticks')"));
    let answer = client.get("/ticks").header("last-event-id", "4").send();
    assert!(answer.text().starts_with("data: tick 5\nid: 5\n\ndata: tick 6\n"), "{}", answer.text());
    assert_eq!(answer.text().matches("data: ").count(), 10);
}

#[test]
fn only_those_who_are_known_get_in() {
    let mut client = client(auth::app());
    assert_eq!(client.get("/").send().status(), 200);
    let refused = client.get("/private/me").send();
    assert_eq!((refused.status().as_u16(), refused.header("www-authenticate")), (401, "Bearer"));
    let answer = client.get("/private/me").header("authorization", "Bearer open-sesame").send();
    assert_eq!(answer.text(), "You are Ali.");
}

#[test]
fn callers_are_limited() {
    let mut client = client(rate_limit::app());
    assert_eq!(client.get("/costly").send().status(), 200);
    assert_eq!(client.get("/").send().header("ratelimit-limit"), "5");
}

#[test]
fn the_proxies_word_is_taken() {
    let mut client = client(behind_a_proxy::app().expect("networks"));
    let answer = client.get("/").header("x-forwarded-for", "192.0.2.1").header("x-request-id", "r1").send();
    assert_eq!(answer.text(), "192.0.2.1 asks, as request r1.");
}

#[test]
fn slow_answers_come() {
    assert_eq!(client(graceful_shutdown::app()).get("/slow").send().text(), "This one is waited for.");
}

#[test]
fn everybody_is_sent_to_https() {
    let answer = client(https::app()).get("/a").send();
    assert_eq!((answer.status().as_u16(), answer.header("location")), (308, "https://test:8443/a"));
    let answer = Client::https(https::app()).expect("an app").get("/").send();
    assert!(answer.text().starts_with("TLSv1.3 with TLS13_"), "{}", answer.text());
    assert_eq!(answer.header("strict-transport-security"), "max-age=300");
}

#[test]
fn another_protocol_has_to_be_asked_for() {
    let answer = client(another_protocol::app()).get("/echo").send();
    assert_eq!((answer.status().as_u16(), answer.header("upgrade")), (426, "echo"));
}

#[test]
fn a_websocket_is_opened_by_a_page_of_the_same_host_only() {
    let mut client = client(websocket::app());
    assert!(client.get("/").send().text().contains("new WebSocket('/echo')"));
    let mut open = |origin: &str| {
        let request = client.get("/echo").header("upgrade", "websocket");
        let request = request.header("sec-websocket-version", "13").header("host", "example.com");
        request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==").header("origin", origin).send()
    };
    assert_eq!(open("https://evil.example").status(), 403);
    let answer = open("https://example.com");
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

#[test]
fn prices_reach_an_event_stream() {
    let (app, topics) = ticker::app();
    let mut client = client(app);
    assert!(client.get("/").send().text().contains("new EventSource('/events')"));
    let mut events = client.get("/events").open();
    assert_eq!(events.received(&mut client).header("content-type"), "text/event-stream");
    topics.publish("prices/ACME", "1.00").expect("a valid topic");
    topics.publish("prices/OTHER", "2.00").expect("a valid topic");
    let text = events.received(&mut client).text();
    assert!(text.starts_with("data: 1.00\n") && !text.contains("2.00"), "{text}");
    assert!(!events.is_complete());
}

#[test]
fn uploads_are_kept_under_safe_names_and_never_replaced() {
    let folder = Folder::new("upload");
    let mut client = client(upload::app(&folder.0));
    assert!(client.get("/").send().text().contains("multipart/form-data"));
    let body = |file: &str| {
        format!(
            "--B\r\nContent-Disposition: form-data; name=title\r\n\r\nCrab\r\n--B\r\nContent-Disposition: form-data; \
             name=file; filename=\"../../crab.txt\"\r\n\r\n{file}\r\n--B--\r\n"
        )
    };
    let mut send = |body: String| {
        let answer = client.post("/").header("content-type", "multipart/form-data; boundary=B").body(body).send();
        (answer.status().as_u16(), answer.text().to_string())
    };
    let large = "x".repeat(1_000_000);
    assert_eq!(send(body(&large)), (200, "title: Crab\ncrab.txt: 1000000 bytes\n".to_string()));
    let (status, text) = send(body("another"));
    assert!(status == 409 && text.starts_with("crab.txt: "), "{status} {text}");
    assert_eq!(send(body("cut").replace("--B--", "")).0, 400);
    assert!(fs::read_to_string(folder.0.join("crab.txt")).expect("the first one") == large);
    // The blocking pool removes the files of the other uploads later.
    drop(client);
    let begun = std::time::Instant::now();
    while fs::read_dir(&folder.0).expect("a folder").count() > 1 {
        assert!(begun.elapsed().as_secs() < 20, "a file was left behind");
        std::thread::yield_now();
    }
}

#[cfg(feature = "compress")]
#[test]
fn a_site_is_kept_and_compressed() {
    let folder = Folder::new("files");
    let text = "let a = 1;\n".repeat(1000);
    fs::create_dir(folder.0.join("assets")).expect("a folder");
    for (path, text) in
        [("index.html", "<p>home"), ("404.html", "<p>nothing"), ("assets/app.js", &text), ("assets/app.js.br", "br")]
    {
        fs::write(folder.0.join(path), text).expect("a file");
    }
    let mut client = client(files::app(&folder.0));
    let home = client.get("/").send();
    assert_eq!((home.text(), home.header("cache-control")), ("<p>home", "no-cache"));
    let again = client.get("/").header("if-none-match", home.header("etag")).send();
    assert_eq!(again.status(), 304);
    let missing = client.get("/nothing").send();
    assert_eq!((missing.status().as_u16(), missing.text()), (404, "<p>nothing"));
    for (accepted, coding, shorter) in [("", "", false), ("br, gzip", "br", true), ("gzip", "gzip", true)] {
        let answer = client.get("/assets/app.js").header("accept-encoding", accepted).send();
        assert_eq!(answer.header("cache-control"), "public, max-age=31536000, immutable");
        assert_eq!((answer.header("content-encoding"), answer.bytes().len() < 1000), (coding, shorter), "{accepted}");
    }
}

#[cfg(feature = "axum")]
#[test]
fn axum_answers_what_highwire_has_no_route_for() {
    let mut client = client(axum_router::app());
    assert_eq!(client.get("/health").send().text(), "fine\n");
    let answer = client.get("/users/7").send();
    assert_eq!((answer.text(), answer.header("x-served-by")), (r#"{"id":7}"#, "axum"));
    assert_eq!(client.get("/nothing").send().status(), 404);
}

#[cfg(feature = "sqlx")]
#[test]
fn notes_are_in_the_database() {
    let mut client = client(database::app("sqlite::memory:"));
    for (number, text) in [(1, "milk"), (2, "'); drop table notes; --")] {
        let answer = client.post("/notes").body(text).send();
        assert_eq!((answer.status().as_u16(), answer.text()), (201, &*number.to_string()));
        assert_eq!(client.get(&format!("/notes/{number}")).send().text(), text);
    }
    assert_eq!(client.get("/notes/3").send().status(), 404);
    assert_eq!(self::client(database::app("sqlite:/no/such/folder")).get("/notes/1").send().status(), 500);
}

#[cfg(all(feature = "cookies", feature = "templates"))]
#[test]
fn visitors_log_in_and_out() {
    let keys = highwire::cookie::Keys::random().expect("random bytes");
    let mut client = Client::https(login::app(keys).expect("templates")).expect("an app");
    let answer = client.get("/").send();
    assert_eq!((answer.status().as_u16(), answer.header("location")), (303, "/login"));
    assert!(client.get("/login").send().text().contains(r#"<form method="post" action="/login">"#));
    let answer = client.post("/login").form(&[("name", "ann\"<b>"), ("password", "guess")]).send();
    assert_eq!(answer.status(), 403);
    assert!(answer.text().contains(r#"value="ann&quot;&lt;b&gt;""#), "{}", answer.text());
    assert!(answer.text().contains("The name or the password is wrong."));
    let answer = client.post("/login").form(&[("name", "ann"), ("password", "open sesame")]).send();
    assert_eq!((answer.status().as_u16(), answer.header("location")), (303, "/"));
    let (cookie, attributes) = answer.header("set-cookie").split_once(';').expect("a cookie");
    assert!(attributes.contains("Secure") && attributes.contains("HttpOnly"), "{attributes}");
    assert!(client.get("/").header("cookie", cookie).send().text().contains("Hello, ann!"));
    let answer = client.post("/logout").header("cookie", cookie).send();
    assert!(answer.header("set-cookie").contains("Max-Age=0"), "{}", answer.header("set-cookie"));
    client.advance(std::time::Duration::from_secs(24 * 60 * 60));
    assert_eq!(client.get("/").header("cookie", cookie).send().status(), 303, "it has expired");
}

/// Starts a server on a socket, and returns its URL. It stops when the handle is dropped.
fn serve(app: App) -> (Running, String) {
    let server = app.configure(|config| config.workers = 1).listen("127.0.0.1:0").expect("an address");
    let url = format!("http://{}", server.addresses()[0]);
    (Running(Some(server.start().expect("cannot start"))), url)
}

/// Stops a server when it is dropped.
struct Running(Option<highwire::server::Handle>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            handle.abort();
            let _ = handle.join();
        }
    }
}

#[test]
fn a_handler_asks_another_service() {
    let service = App::new().get("/v1/current", |highwire::RawQuery(query): highwire::RawQuery| {
        (query == "city=Bern").then_some("{\"temperature\":7.5}").ok_or(highwire::StatusCode::NOT_FOUND)
    });
    let (_service, url) = serve(service);
    let (_server, url) = serve(calls_an_api::app(calls_an_api::client(&url).expect("a URL")));
    let client = highwire::client::blocking::Client::new().expect("a client");
    let bern = client.get(&format!("{url}/weather/Bern")).send().expect("a response");
    assert_eq!(bern.text().expect("a body"), "{\"temperature\":7.5}");
    let nowhere = client.get(&format!("{url}/weather/Nowhere")).send().expect("a response");
    assert_eq!(nowhere.status(), 502);
}

#[test]
fn a_crawler_visits_each_page_once() {
    let page = |links: &'static str| move || highwire::Html(links);
    let site = App::new()
        .get("/", page("<a href=\"/a\">a</a> <a href=\"/b#c\">b</a> <a href=\"https://example.com/\">away</a>"))
        .get("/a", page("<a href=\"/\">home</a> <a href=\"/b\">b</a>"))
        .get("/b", page("<a href=\"/missing\">missing</a>"));
    let (_site, url) = serve(site);
    let seen = crawler::crawl(&format!("{url}/"), 10, 2).expect("an event loop");
    let seen = seen.iter().map(|(page, said)| (page.trim_start_matches(&url), said.as_str()));
    let expected = [("/", "200 OK"), ("/a", "200 OK"), ("/b", "200 OK"), ("/missing", "404 Not Found")];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
}

#[test]
fn a_gateway_has_several_services_behind_it() {
    let service = |name: &'static str| {
        App::new().any("/{*path}", move |request: &highwire::Request<'_>| format!("{name} {}", request.path()))
    };
    let (_users, users) = serve(service("users"));
    let (_orders, orders) = serve(service("orders"));
    let (_gateway, url) = serve(gateway::app(&[users], &[orders]).expect("an app"));
    let client = highwire::client::blocking::Client::new().expect("a client");
    for (path, expected) in [("/", "a gateway"), ("/users/7", "users /users/7"), ("/orders/8", "orders /8")] {
        let response = client.get(&format!("{url}{path}")).send().expect("a response");
        assert_eq!(response.text().expect("a body"), expected);
    }
}
