//! Starting and stopping servers. Needs a real kernel, because the tests are about sockets, threads and ports.

use crate::engines;
use highwire::server::{Balance, Engine, Handle};
use highwire::{App, Error, IntoResponse, Peer, PerWorker, Reply, Response, State, blocking};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use testkit::http1::{PATIENCE, body, connect, exchange_text, get as ask};

fn start(app: App, engine: Engine) -> Handle {
    let app = app.configure(|config| config.engine = engine);
    app.listen("127.0.0.1:0").expect("a free port").start().expect("the server starts")
}

#[test]
fn both_balances_serve_on_every_engine_with_several_workers() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        for balance in [Balance::ReusePort, Balance::Handoff] {
            let app = App::new().get("/", || "here").configure(|config| {
                config.workers = 3;
                config.balance = balance;
            });
            let handle = start(app, engine);
            for _ in 0..30 {
                assert_eq!(body(&ask(&handle.addresses()[0], "/")), "here");
            }
            handle.shutdown();
            let report = handle.join().expect("the server ends");
            assert_eq!((report.accepted, report.cut), (30, 0), "{engine:?} {balance:?}");
        }
    }
}

#[test]
fn several_servers_live_in_one_process() {
    for engine in engines::available(engines::ALL) {
        let servers: Vec<_> =
            ["a", "b"].into_iter().map(|name| (name, start(App::new().get("/", move || name), engine))).collect();
        for (name, handle) in &servers {
            assert_eq!(body(&ask(&handle.addresses()[0], "/")), *name);
        }
        for (_, handle) in servers {
            handle.shutdown();
            handle.join().expect("the server ends");
        }
    }
}

#[test]
fn a_port_that_another_server_has_is_refused_by_name() {
    for workers in [1, 2] {
        let app = || App::new().get("/", || "").configure(|config| config.workers = workers);
        let first = app().listen("127.0.0.1:0").expect("a free port").start().expect("the server starts");
        let address = first.addresses()[0].clone();
        let Err(Error::System(error)) = app().listen(&address) else { panic!("two servers share {address}") };
        assert_eq!(error.to_string(), format!("cannot listen on {address}: it is already in use"));
        first.abort();
        first.join().expect("the server ends");
    }
}

#[test]
fn a_graceful_stop_finishes_what_is_under_way_and_lets_the_idle_go() {
    for engine in engines::available(engines::ALL) {
        let (tell, begun) = mpsc::channel();
        let tell = std::sync::Mutex::new(tell);
        let (release, gate) = mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let app = App::new().get("/", || "").get(
            "/slow",
            blocking(move || {
                tell.lock().expect("no panic").send(()).expect("the test waits");
                gate.lock().expect("no panic").recv().expect("the test releases");
                "finished"
            }),
        );
        let handle = start(app, engine);
        let address = handle.addresses()[0].clone();
        let mut idle = connect(&address);
        let busy = std::thread::spawn(move || ask(&address, "/slow"));
        begun.recv_timeout(PATIENCE).expect("the handler begins");
        handle.shutdown();
        assert_eq!(idle.read(&mut [0; 10]).expect("an orderly end"), 0, "{engine:?}");
        release.send(()).expect("the handler waits");
        let answer = busy.join().expect("no panic");
        assert!(answer.contains("Connection: close") && answer.ends_with("finished"), "{engine:?}: {answer}");
        assert_eq!(handle.join().expect("the server ends").cut, 0, "{engine:?}");
    }
}

/// An answer whose body fails at once.
struct Fails;

impl IntoResponse for Fails {
    fn into_response(self) -> Response {
        let (sender, receiver) = highwire::body::channel();
        drop(sender);
        Response::stream(receiver)
    }
}

#[test]
fn a_graceful_stop_does_not_wait_on_where_the_last_connection_is_cut_by_its_handler() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let (give, take) = mpsc::channel();
        let give = Mutex::new(give);
        let app = App::new()
            .get("/", move |reply: Reply| give.lock().expect("no panic").send(reply).expect("the test waits"))
            .configure(|config| {
                let never = Duration::ZERO;
                (config.timeouts.head, config.timeouts.handler, config.timeouts.linger) = (never, never, never);
                config.timeouts.shutdown = Duration::from_secs(3600);
            });
        let handle = start(app, engine);
        let mut stream = connect(&handle.addresses()[0]);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the server reads");
        let reply: Reply = take.recv_timeout(PATIENCE).expect("the handler runs");
        let mut idle = connect(&handle.addresses()[0]);
        handle.shutdown();
        // The idle connection ends when the worker has noticed the shutdown.
        assert_eq!(idle.read(&mut [0; 10]).expect("an orderly end"), 0);
        reply.send(Fails);
        let (tell, hear) = mpsc::channel();
        std::thread::spawn(move || tell.send(handle.join().map(drop)));
        let ended = hear.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{engine:?} does not stop"));
        ended.expect("the server ends");
    }
}

#[test]
fn an_abort_cuts_and_says_so() {
    for engine in engines::available(engines::ALL) {
        let app = App::new().get("/never", async || std::future::pending::<()>().await);
        let handle = start(app, engine);
        let mut stream = connect(&handle.addresses()[0]);
        stream.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").expect("the server reads");
        while handle.connections() == 0 {
            std::thread::yield_now();
        }
        handle.abort();
        let end = stream.read(&mut [0; 10]);
        assert!(matches!(end, Ok(0) | Err(_)), "{engine:?}: {end:?}");
        handle.join().expect("the server ends");
    }
}

#[test]
fn state_is_shared_and_local_values_belong_to_a_worker() {
    for engine in engines::available(engines::ALL) {
        let app = App::new()
            .state(Arc::new(AtomicUsize::new(0)))
            .per_worker(|| std::cell::Cell::new(0usize))
            .get("/state", |count: State<Arc<AtomicUsize>>| count.fetch_add(1, Ordering::Relaxed).to_string())
            .get("/local", |count: PerWorker<std::cell::Cell<usize>>| {
                count.set(count.get() + 1);
                count.get().to_string()
            })
            .get("/peer", |peer: Peer| peer.to_string())
            .configure(|config| config.workers = 1);
        let handle = start(app, engine);
        let address = &handle.addresses()[0];
        assert_eq!((body(&ask(address, "/state")), body(&ask(address, "/state"))), ("0", "1"));
        assert_eq!(body(&ask(address, "/local")), "1");
        assert!(body(&ask(address, "/peer")).starts_with("127.0.0.1:"));
        handle.shutdown();
        handle.join().expect("the server ends");
    }
}

#[test]
fn unix_sockets_serve_and_leave_no_file() {
    let folder = std::env::temp_dir().join(format!("highwire-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("socket");
    for engine in engines::available(engines::ALL) {
        let app = App::new().get("/peer", |peer: Peer| peer.to_string()).configure(|config| config.engine = engine);
        let server = app.listen(&format!("unix:{}", path.display())).expect("a free path");
        let handle = server.start().expect("the server starts");
        let stream = std::os::unix::net::UnixStream::connect(&path).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let answer = exchange_text(stream, "GET /peer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(body(&answer), "unix", "{engine:?}");
        handle.shutdown();
        handle.join().expect("the server ends");
        assert!(!path.exists(), "{engine:?}");
    }
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

#[test]
fn a_full_blocking_pool_is_503_and_recovers() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let (tell, begun) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let app = App::new()
        .get(
            "/",
            blocking(move || {
                tell.lock().expect("no panic").send(()).expect("the test waits");
                gate.lock().expect("no panic").recv().expect("the test releases");
                "done"
            }),
        )
        .configure(|config| {
            config.limits.blocking_threads = 1;
            config.limits.blocking_queue = 0;
        });
    let handle = start(app, Engine::Auto);
    let address = handle.addresses()[0].clone();
    let first = {
        let address = address.clone();
        std::thread::spawn(move || ask(&address, "/"))
    };
    begun.recv_timeout(PATIENCE).expect("the handler begins");
    let refused = ask(&address, "/");
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1"), "{refused}");
    release.send(()).expect("the handler waits");
    assert_eq!(body(&first.join().expect("no panic")), "done");
    release.send(()).expect("the gate is open");
    assert_eq!(body(&ask(&address, "/")), "done");
    handle.shutdown();
    handle.join().expect("the server ends");
}

/// Returns the first line of the answer to a request, or the error.
fn asked(address: &str) -> String {
    let answer = std::net::TcpStream::connect(address).and_then(|mut stream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    });
    answer.map_or_else(|error| error.to_string(), |answer| answer.lines().last().unwrap_or_default().to_string())
}

#[test]
fn both_families_may_share_a_port_in_either_order() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("not run: this machine has no IPv6");
        return;
    }
    for balance in [Balance::ReusePort, Balance::Handoff] {
        for v6_first in [false, true] {
            let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
            // A port that is free for all addresses, close to one that the system has chosen.
            let server = (1..50).find_map(|more| {
                let port = free.port().wrapping_add(more).max(1024);
                let pair = [format!("0.0.0.0:{port}"), format!("[::]:{port}")];
                let [one, other] = if v6_first { [&pair[1], &pair[0]] } else { [&pair[0], &pair[1]] };
                let app =
                    App::new().get("/", || "hello").configure(|config| (config.workers, config.balance) = (2, balance));
                let server = app.listen(one).ok()?;
                Some((port, server.listen(other).expect("the other family")))
            });
            let (port, server) = server.expect("a free port");
            assert_eq!(server.addresses().len(), 2);
            let handle = server.start().expect("cannot start");
            for _ in 0..8 {
                assert_eq!(asked(&format!("127.0.0.1:{port}")), "hello");
                assert_eq!(asked(&format!("[::1]:{port}")), "hello");
            }
            handle.abort();
            handle.join().expect("cannot stop");
        }
    }
}

#[test]
fn a_unix_socket_has_the_mode_that_is_set() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let path = std::env::temp_dir().join(format!("highwire-mode-{}", std::process::id()));
    let listen = |mode, group: &str| {
        let app = App::new().get("/", || "hello").configure(|config| {
            config.socket.unix_mode = Some(mode);
            config.socket.unix_group = Some(group.to_string());
        });
        app.listen(&format!("unix:{}", path.display()))
    };
    let own = own_group();
    for mode in [0o600, 0o660, 0o666] {
        let server = listen(mode, &own.to_string()).expect("an address");
        let metadata = std::fs::metadata(&path).expect("a socket");
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.gid()), (mode, own));
        drop(server);
        assert!(!path.exists());
    }
    let error = listen(0o660, "no-such-group").expect_err("an error").to_string();
    assert!(error.contains("there is no group \"no-such-group\""), "{error}");
    assert!(!path.exists());
}

/// Returns the group of new files of this process.
fn own_group() -> u32 {
    use std::os::unix::fs::MetadataExt;
    let path = std::env::temp_dir().join(format!("highwire-gid-{}", std::process::id()));
    std::fs::write(&path, "").expect("a file");
    let group = std::fs::metadata(&path).expect("a file").gid();
    std::fs::remove_file(&path).expect("the file can be removed");
    group
}
