//! Tests the service with Debian's PostgreSQL.

use highwire::client::CookieJar;
use highwire::client::multipart::{Form, Part};
use highwire::cookie::Keys;
use highwire::testing::{Client, TestResponse};
use sqlx::postgres::PgPoolOptions;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use testkit::ports::free_port;
use testkit::postgresql::Postgresql;

/// A database, a folder, and what the service needs of them.
struct Place {
    database: Postgresql,
    folder: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Place {
    /// Returns `None` if PostgreSQL is not installed.
    fn new(name: &str) -> Option<Place> {
        let database = match Postgresql::start(free_port()) {
            Ok(database) => database,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("not run: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let folder = std::env::temp_dir().join(format!("highwire-tasks-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Some(Place { database, folder, runtime: runtime.expect("a runtime") })
    }

    fn app(&self) -> highwire::App {
        let _entered = self.runtime.enter();
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(2))
            .connect_lazy(&self.database.url())
            .expect("a URL");
        let keys = Keys::new(&[b"a secret of the tests, 32 bytes ok"]).expect("a key");
        tasks::app(pool, keys, self.folder.clone())
    }

    fn client(&self) -> Client {
        Client::new(self.app()).expect("an app and a database").at_real_pace().cookie_jar(CookieJar::new())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn credentials(name: &str, password: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("name".to_string(), name.to_string()), ("password".to_string(), password.to_string())])
}

fn status(answer: &TestResponse) -> u16 {
    answer.status().as_u16()
}

#[path = "login.rs"]
mod login;

#[test]
fn the_test_of_the_tutorial_passes() {
    let Some(place) = Place::new("login") else { return };
    login::people_share_tasks_in(&place.database.url());
}

#[test]
fn people_sign_up_log_in_and_log_out() {
    let Some(place) = Place::new("people") else { return };
    let (mut ann, mut other) = (place.client(), place.client());
    assert_eq!(status(&ann.get("/tasks").send()), 401);
    let refused = ann.post("/people").json(&credentials("", "short")).send();
    assert_eq!((status(&refused), refused.header("content-type")), (422, "application/problem+json"));
    assert!(refused.text().contains("/password") && refused.text().contains("/name"), "{}", refused.text());

    let signed = ann.post("/people").json(&credentials("ann", "open sesame")).send();
    assert_eq!((status(&signed), signed.header("cache-control")), (200, "no-store"));
    assert_eq!(status(&ann.get("/tasks").send()), 200);
    assert_eq!(status(&other.post("/people").json(&credentials("ann", "another one")).send()), 409);
    assert_eq!(status(&other.get("/tasks").send()), 401);

    for (name, password) in [("ann", "wrong password"), ("nobody", "open sesame"), ("ann' or 1=1 --", "open sesame")] {
        assert_eq!(status(&other.post("/session").json(&credentials(name, password)).send()), 403, "{name}");
    }
    assert_eq!(status(&other.post("/session").json(&credentials("an\0n", "open sesame")).send()), 422);
    assert_eq!(status(&other.post("/session").json(&credentials("ann", "open sesame")).send()), 200);
    assert_eq!(status(&other.get("/tasks").send()), 200);
    assert_eq!(status(&other.request(highwire::Method::DELETE, "/session").send()), 204);
    assert_eq!(status(&other.get("/tasks").send()), 401);
    assert_eq!(status(&ann.get("/tasks").send()), 200, "another session goes on");
    let guesses: Vec<u16> =
        (0..12).map(|_| status(&other.post("/session").json(&credentials("ann", "a guess")).send())).collect();
    assert!(guesses.contains(&403) && guesses.ends_with(&[429]), "{guesses:?}");
}

#[test]
fn tasks_are_kept_changed_and_told() {
    let Some(place) = Place::new("tasks") else { return };
    let mut client = place.client();
    client.post("/people").json(&credentials("ann", "open sesame")).send();
    let mut events = client.get("/tasks/events").open();
    assert_eq!(status(events.received(&mut client)), 200);

    let added = client.post("/tasks").json(&BTreeMap::from([("text", "buy milk")])).send();
    assert_eq!((status(&added), added.text()), (201, r#"{"id":1,"text":"buy milk","done":false,"file":null}"#));
    assert_eq!(status(&client.post("/tasks").json(&BTreeMap::from([("text", "")])).send()), 422);
    let patch = |client: &mut Client, path: &str| {
        client.request(highwire::Method::PATCH, path).json(&BTreeMap::from([("done", true)])).send()
    };
    assert_eq!(patch(&mut client, "/tasks/1").text(), r#"{"id":1,"text":"buy milk","done":true,"file":null}"#);
    assert_eq!((status(&patch(&mut client, "/tasks/2")), status(&patch(&mut client, "/tasks/x"))), (404, 404));
    let events = events.received(&mut client).text().to_string();
    assert!(events.contains(r#""done":false"#) && events.contains(r#""done":true"#), "{events}");

    // Another process has the same tasks, and pages of 50.
    let mut client = place.client();
    client.post("/session").json(&credentials("ann", "open sesame")).send();
    for number in 2..=60 {
        client.post("/tasks").json(&BTreeMap::from([("text", number.to_string())])).send();
    }
    let ids = |answer: TestResponse| -> Vec<u64> {
        let tasks: Vec<serde_json::Value> = answer.json();
        tasks.iter().filter_map(|task| task["id"].as_u64()).collect()
    };
    assert_eq!(ids(client.get("/tasks").send()), (1..=50).collect::<Vec<_>>());
    assert_eq!(ids(client.get("/tasks?after=50").send()), (51..=60).collect::<Vec<_>>());
    let metrics = client.get("/metrics").send();
    assert!(metrics.text().contains(r#"http_route="/tasks""#), "{}", metrics.text());
}

#[test]
fn files_are_stored_and_only_for_people() {
    let Some(place) = Place::new("files") else { return };
    let (mut client, mut stranger) = (place.client(), place.client());
    client.post("/people").json(&credentials("ann", "open sesame")).send();
    client.post("/tasks").json(&BTreeMap::from([("text", "read it")])).send();
    let form = |name: &str, bytes: Vec<u8>| Form::new().part("file", Part::bytes(bytes).file_name(name.to_string()));
    let long = vec![b'x'; 300_000];
    let stored = client.post("/tasks/1/file").multipart(form("../../a page.html", long.clone())).send();
    assert_eq!(
        (status(&stored), stored.text()),
        (200, r#"{"id":1,"text":"read it","done":false,"file":"a page.html"}"#)
    );
    let file = client.get("/files/1/a%20page.html").send();
    assert_eq!((file.bytes() == long, file.header("content-disposition")), (true, "attachment"));
    for path in ["/files/1/a%20page.html", "/files/1/", "/files/../files/1/a%20page.html"] {
        assert_eq!(status(&stranger.get(path).send()), 401, "{path}");
    }
    assert_eq!(status(&stranger.post("/tasks/1/file").multipart(form("b", vec![1])).send()), 401);
    assert_eq!(status(&client.post("/tasks/9/file").multipart(form("b", vec![1])).send()), 404);
    assert_eq!(status(&client.post("/tasks/1/file").multipart(form("b", vec![1; 21 << 20])).send()), 413);
    // Another file replaces the first one.
    let replaced = client.post("/tasks/1/file").multipart(form("agenda.txt", b"agenda".to_vec())).send();
    assert!(replaced.text().contains("agenda.txt"), "{}", replaced.text());
    assert_eq!(client.get("/files/1/agenda.txt").send().text(), "agenda");
    assert_eq!(status(&client.get("/files/1/a%20page.html").send()), 404);
    let left: Vec<_> =
        std::fs::read_dir(&place.folder).expect("the folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["1"], "nothing of what was refused is left");
}

#[test]
fn without_a_database_the_server_does_not_start_and_requests_get_500() {
    let Some(mut place) = Place::new("none") else { return };
    let mut client = place.client();
    client.post("/people").json(&credentials("ann", "open sesame")).send();
    place.database = Postgresql::start(free_port()).expect("another database, without tables");
    let lost = client.get("/tasks").send();
    assert_eq!((status(&lost), lost.text().contains("sqlx")), (500, false), "{}", lost.text());
    let _entered = place.runtime.enter();
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(1));
    let pool = pool.connect_lazy("postgres://test@127.0.0.1:1/test").expect("a URL");
    let app = tasks::app(pool, Keys::random().expect("random bytes"), place.folder.clone());
    assert!(Client::new(app).is_err());
}
