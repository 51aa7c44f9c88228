//! Tests `App::on_start` and `App::on_stop` on real servers.
//!
//! Needs a real kernel, because the hooks run on the threads of a server.

use crate::engines;
use highwire::server::Engine;
use highwire::{App, State, task, time};
use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use testkit::http1::get;

type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(log: &Log, what: &'static str) {
    log.lock().expect("no panic").push(what);
}

/// Returns a hook that notes `what` after a wait and a task of the worker.
fn hook(
    log: &Log,
    what: &'static str,
) -> impl Fn() -> std::pin::Pin<Box<dyn Future<Output = Result<(), Error>>>> + Send + Sync + use<> {
    let log = log.clone();
    move || {
        let log = log.clone();
        Box::pin(async move {
            time::sleep(Duration::from_millis(5)).await;
            note(&task::spawn(async move { log }).await.expect("its output"), what);
            Ok(())
        })
    }
}

fn on(engine: Engine, app: App) -> App {
    app.configure(|config| (config.engine, config.workers) = (engine, 2))
}

#[test]
fn hooks_run_once_before_the_first_connection_and_after_the_last() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let log = Log::default();
        let handled = log.clone();
        let (begins, begun) = std::sync::mpsc::channel();
        let nested = App::new().on_start(hook(&log, "nested")).on_stop(hook(&log, "nested stop"));
        let app = App::new()
            .on_start(hook(&log, "start"))
            .nest("/api", nested)
            .on_start(hook(&log, "second"))
            .on_stop(hook(&log, "stop"))
            .get("/", move || note(&handled, "request"))
            .get("/slow", move || {
                let begins = begins.clone();
                async move {
                    begins.send(()).expect("the test waits");
                    time::sleep(Duration::from_millis(100)).await;
                    "slow"
                }
            });
        let handle = on(engine, app).listen("127.0.0.1:0").expect("an address").start().expect("a start");
        let address = handle.addresses()[0].clone();
        get(&address, "/");
        // Several connections, so that both workers have some; their requests end before the hook.
        let mut slow: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
        for stream in &mut slow {
            stream.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
        }
        (0..slow.len()).for_each(|_| begun.recv_timeout(Duration::from_secs(20)).expect("a request"));
        handle.shutdown();
        for mut stream in slow {
            let mut response = String::new();
            stream.read_to_string(&mut response).expect("a response");
            assert!(response.ends_with("slow"), "{response}");
        }
        handle.join().expect("an end");
        assert_eq!(
            *log.lock().expect("no panic"),
            ["start", "nested", "second", "request", "nested stop", "stop"],
            "{engine:?}"
        );
    }
}

#[test]
fn a_hook_that_fails_stops_the_start() {
    let app = App::new().get("/", || "hello").on_start(|| async { Err(Error::other("no database")) });
    let server = on(Engine::Readiness, app).listen("127.0.0.1:0").expect("an address");
    let address = server.addresses()[0].clone();
    assert_eq!(server.start().expect_err("the hook fails").to_string(), "no database");
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
    let app = App::new().get("/", || "hello").on_stop(|| async { Ok::<(), Error>(()) });
    let refused = on(Engine::Threads, app).listen("127.0.0.1:0").expect("an address").start().expect_err("no worker");
    assert!(refused.to_string().contains("`threads` has no worker"), "{refused}");
}

#[test]
fn a_hook_at_the_stop_has_a_deadline() {
    let app = App::new()
        .on_stop(|| async {
            std::future::pending::<()>().await;
            Ok::<(), Error>(())
        })
        .get("/", || "hello")
        .configure(|config| config.timeouts.shutdown = Duration::ZERO);
    let handle = on(Engine::Readiness, app).listen("127.0.0.1:0").expect("an address").start().expect("a start");
    assert!(get(&handle.addresses()[0], "/").ends_with("hello"));
    handle.shutdown();
    handle.join().expect("an end");
}

#[test]
fn a_test_client_starts_with_the_apps_functions_and_with_their_errors() {
    let words = Arc::new(OnceLock::new());
    let app = App::new()
        .state(words.clone())
        .get("/", |State(words): State<Arc<OnceLock<&'static str>>>| words.get().copied().unwrap_or("nothing"));
    let late = words.clone();
    let app = app.on_start(move || {
        let late = late.clone();
        async move {
            highwire::time::sleep(Duration::from_millis(20)).await;
            late.set("read")
        }
    });
    let mut client = highwire::testing::Client::new(app).expect("an app");
    assert_eq!(client.get("/").send().text(), "read");
    let failing = App::new().on_start(async || Err::<(), _>("no database"));
    let error = highwire::testing::Client::new(failing).expect_err("an error");
    assert!(error.to_string().contains("no database"), "{error}");
}
