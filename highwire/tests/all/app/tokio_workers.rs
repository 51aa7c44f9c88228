//! Tests tokio on the workers' own threads: tasks and timers that are not `Send`, wakes in both directions, sockets that
//! stay with their thread, bytes of an upgrade as tokio's streams, and a server as a future of tokio.
//!
//! Needs a real kernel, because tokio has its own sockets, threads and timers.

use crate::engines;
use highwire::server::{Engine, Handle};
use highwire::{App, State, Upgrade, task};
use std::cell::Cell;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::http1::{self, Http1};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

/// The longest time that a request may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(app: App, engine: Engine) -> Handle {
    let app = app.configure(|config| {
        config.engine = engine;
        config.workers = 1;
    });
    app.listen("127.0.0.1:0").and_then(|server| server.start()).expect("a server that starts")
}

/// Starts an app on each engine with workers, and lets `ask` send requests.
fn on_each_engine(app: impl Fn() -> App, ask: impl Fn(&mut dyn FnMut(&str) -> String)) {
    for engine in [Engine::Readiness, Engine::Uring] {
        if !engines::has(engine) {
            continue;
        }
        let handle = start(app(), engine);
        let address = handle.addresses()[0].clone();
        let mut client = Http1::new(http1::connect(&address));
        ask(&mut |path| get(&mut client, path));
        drop(client);
        handle.shutdown();
        handle.join().expect("a server that ends");
    }
}

fn get(client: &mut Http1<TcpStream>, path: &str) -> String {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("the server reads");
    let response = client.response().expect("a response");
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.text().to_string()
}

fn name() -> String {
    thread::current().name().unwrap_or_default().to_string()
}

#[test]
fn local_tasks_timers_and_our_tasks_run_on_the_workers_own_thread() {
    let app = || {
        App::new().get("/local", async || {
            let (here, shared) = (name(), Rc::new(Cell::new(0)));
            let other = shared.clone();
            let local = tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                // A task of tokio may use the worker, too.
                let ours = task::spawn(async move {
                    highwire::time::sleep(Duration::from_millis(2)).await;
                    other.set(other.get() + 1);
                    name()
                });
                (name(), ours.await.expect("its output"))
            });
            let (theirs, ours) = local.await.expect("its output");
            tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await.expect_err("it waits");
            assert_eq!((&here, &here), (&theirs, &ours));
            format!("{} {here}", shared.get())
        })
    };
    on_each_engine(app, |ask| {
        for _ in 0..20 {
            assert_eq!(ask("/local"), "1 highwire-0");
        }
    });
}

#[test]
fn an_idle_worker_hears_of_what_other_threads_wake_and_spawn() {
    type Kept = Arc<Mutex<Option<Runtime>>>;
    type Waiting = Arc<Mutex<Option<oneshot::Sender<&'static str>>>>;
    let (runtime, waiting) = (Kept::default(), Waiting::default());
    let app = || {
        App::new()
            .state(runtime.clone())
            .state(waiting.clone())
            .get("/keep", |State(kept): State<Kept>| {
                *kept.lock().expect("no panic") = Some(Runtime::current());
                "kept"
            })
            .get("/wait", async |State(waiting): State<Waiting>| {
                let (sender, receiver) = oneshot::channel();
                *waiting.lock().expect("no panic") = Some(sender);
                receiver.await.expect("a word")
            })
    };
    on_each_engine(app, |ask| {
        ask("/keep");
        // The worker has nothing to do now.
        let kept = runtime.lock().expect("no panic").take().expect("a runtime");
        let (sender, receiver) = std::sync::mpsc::channel();
        kept.spawn(async move { sender.send(name()) });
        assert_eq!(receiver.recv_timeout(PATIENCE).as_deref(), Ok("highwire-0"));
        thread::scope(|scope| {
            scope.spawn(|| {
                let until = Instant::now() + PATIENCE;
                while Instant::now() < until {
                    if let Some(sender) = waiting.lock().expect("no panic").take() {
                        return sender.send("woken").expect("the handler waits");
                    }
                    thread::yield_now();
                }
            });
            assert_eq!(ask("/wait"), "woken");
        });
    });
}

#[test]
fn many_handlers_wait_for_sockets_of_tokio_at_the_same_time() {
    const CLIENTS: usize = 100;
    // Answers each byte with the next one.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                use std::io::{Read, Write};
                let (mut stream, mut byte) = (stream, [0]);
                while stream.read_exact(&mut byte).is_ok() {
                    byte[0] = byte[0].wrapping_add(1);
                    stream.write_all(&byte).expect("the handler reads");
                }
            });
        }
    });
    let app = move || {
        App::new().get("/next", move || async move {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
            let mut byte = [0];
            for _ in 0..10 {
                stream.write_all(&byte).await.expect("the service reads");
                stream.read_exact(&mut byte).await.expect("the service answers");
            }
            byte[0].to_string()
        })
    };
    for engine in [Engine::Readiness, Engine::Uring] {
        if !engines::has(engine) {
            continue;
        }
        let handle = start(app(), engine);
        let address = &handle.addresses()[0];
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| assert_eq!(get(&mut Http1::new(http1::connect(address)), "/next"), "10"));
            }
        });
        handle.shutdown();
        handle.join().expect("a server that ends");
    }
}

#[test]
fn a_worker_ends_although_a_blocking_job_of_tokio_does_not() {
    let app = || {
        App::new().get("/", async || {
            tokio::task::spawn_blocking(|| {
                loop {
                    thread::park();
                }
            });
            "begun"
        })
    };
    let begun = Instant::now();
    on_each_engine(app, |ask| assert_eq!(ask("/"), "begun"));
    assert!(begun.elapsed() < PATIENCE, "the server waited for the job");
}

/// Returns what is received, in parts that are smaller than what arrives.
async fn echo(mut reader: impl AsyncRead + Unpin, mut writer: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut part = [0; 7];
    while let count @ 1.. = reader.read(&mut part).await? {
        writer.write_all(&part[..count]).await?;
    }
    writer.flush().await?;
    writer.shutdown().await?;
    writer.write_all(b"more").await.expect_err("our direction has ended");
    Ok(())
}

#[test]
fn the_bytes_of_an_upgrade_are_streams_of_tokio() {
    let app = || {
        App::new().get("/echo", |upgrade: Upgrade| {
            upgrade.accept("echo", async |stream| {
                let (reader, writer) = stream.split();
                echo(reader, writer).await.expect("the client reads");
            })
        })
    };
    for engine in [Engine::Readiness, Engine::Uring, Engine::Threads] {
        use std::io::{Read, Write};
        if !engines::has(engine) {
            continue;
        }
        let handle = start(app(), engine);
        let mut stream = http1::connect(&handle.addresses()[0]);
        stream
            .write_all(b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            .expect("sent");
        let sent: Vec<u8> = (0..200_000).map(|at| (at % 251) as u8).collect();
        let mut writing = stream.try_clone().expect("a clone");
        let received = thread::scope(|scope| {
            scope.spawn(|| {
                writing.write_all(&sent).expect("the server reads");
                writing.shutdown(std::net::Shutdown::Write).expect("an end");
            });
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("the server ends its direction");
            received
        });
        let head = received.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
        assert!(received[head..] == sent, "{} of {} bytes", received.len() - head, sent.len());
        handle.shutdown();
        handle.join().expect("a server that ends");
    }
}

#[test]
fn a_server_is_a_future_of_tokio_that_ends_with_its_signal() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stats = runtime.block_on(async {
        let server = App::new().get("/", || "hello").listen("127.0.0.1:0").expect("a server");
        let address = server.addresses()[0].clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = server.serve().with_graceful_shutdown(async move {
            let _ = stopped.await;
        });
        let asking = async move {
            let mut stream = loop {
                match tokio::net::TcpStream::connect(&address).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            };
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.expect("sent");
            let mut response = String::new();
            stream.read_to_string(&mut response).await.expect("a response");
            assert!(response.ends_with("\r\n\r\nhello"), "{response}");
            stop.send(()).expect("the server waits for the signal");
        };
        let serving = tokio::time::timeout(PATIENCE, serving);
        let (served, ()) = tokio::join!(serving, asking);
        served.expect("the server ends").expect("no worker fails")
    });
    assert_eq!(stats.requests, 1, "{stats}");
}

#[test]
fn a_server_starts_beside_the_tasks_of_a_runtime_with_one_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (word, heard) = oneshot::channel::<()>();
        let heard = Arc::new(Mutex::new(Some(heard)));
        // The hook waits for a task of the caller's runtime.
        let hook = move || heard.lock().expect("no panic").take().expect("the first call");
        let (stop, stopped) = oneshot::channel::<()>();
        let app = App::new().get("/", || "hello").on_start(hook);
        let stop = Arc::new(Mutex::new(Some(stop)));
        let app = app.on_start(move || {
            let _ = stop.lock().expect("no panic").take().map(|stop| stop.send(()));
            std::future::ready(Ok::<(), std::io::Error>(()))
        });
        let server = app.listen("127.0.0.1:0").expect("a server");
        let serving = server.serve().with_graceful_shutdown(async move { drop(stopped.await) });
        let telling = async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            word.send(()).expect("the hook waits");
        };
        let (served, ()) = tokio::join!(tokio::time::timeout(PATIENCE, serving), telling);
        served.expect("the server ends").expect("no worker fails");
    });
}

#[test]
fn a_server_that_is_stopped_while_it_starts_drops_its_hook() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (held, dropped) = oneshot::channel::<()>();
        let held = Arc::new(Mutex::new(Some(held)));
        let hook = move || {
            let held = held.lock().expect("no panic").take();
            async move {
                std::future::pending::<()>().await;
                drop(held);
                Ok::<(), std::io::Error>(())
            }
        };
        let stops = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let noted = stops.clone();
        let app = App::new().get("/", || "hello").on_start(hook).on_stop(move || {
            noted.store(true, std::sync::atomic::Ordering::Relaxed);
            std::future::ready(Ok::<(), std::io::Error>(()))
        });
        let serving = app.listen("127.0.0.1:0").expect("a server").serve();
        let serving = serving.with_graceful_shutdown(tokio::time::sleep(Duration::from_millis(5)));
        tokio::time::timeout(PATIENCE, serving).await.expect("the server ends").expect("no worker fails");
        assert!(dropped.await.is_err(), "the hook is dropped");
        assert!(!stops.load(std::sync::atomic::Ordering::Relaxed), "what has not started has no stop");
    });
}

#[test]
fn tasks_of_tokio_may_set_timers_of_an_idle_worker() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let app = || {
        let sender = sender.clone();
        App::new().get("/", move || {
            let sender = sender.clone();
            tokio::task::spawn_local(async move {
                for _ in 0..3 {
                    // The worker has armed its wait before this task runs.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let begun = Instant::now();
                    highwire::time::sleep(Duration::from_millis(20)).await;
                    sender.send(begun.elapsed()).expect("the test waits");
                    let late = highwire::time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
                    assert!(late.is_err());
                }
            });
            "begun"
        })
    };
    on_each_engine(app, |ask| {
        assert_eq!(ask("/"), "begun");
        for _ in 0..3 {
            let slept = receiver.recv_timeout(PATIENCE).expect("the timer rings");
            assert!(slept >= Duration::from_millis(18), "{slept:?}");
        }
    });
}

#[test]
fn a_server_ends_when_its_future_is_dropped_and_tells_if_it_cannot_start() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let server = App::new().get("/", || "hello").listen("127.0.0.1:0").expect("a server");
        let address = server.addresses()[0].clone();
        tokio::time::timeout(Duration::from_millis(50), server.serve()).await.expect_err("it serves");
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(&address).is_ok() {
            assert!(Instant::now() < until, "the server still listens");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let error = App::new().get("/", || "hello").server().expect("a server").serve().await.expect_err("no address");
        assert!(error.to_string().contains("no address to listen on"), "{error}");
    });
}
