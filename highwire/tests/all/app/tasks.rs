//! Tasks beside the requests: their outputs, their ends, and the shutdown that waits for them.

use highwire::testing::Client;
use highwire::{App, StatusCode, spawn, task, time};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_handle_returns_the_output_of_its_task() {
    let app = App::new()
        .get("/slow", async || {
            let task = spawn(async {
                time::sleep(Duration::from_secs(5)).await;
                "slow"
            });
            assert!(!task.is_finished());
            task.await
        })
        .get("/ready", async || {
            let task = spawn(async { "ready" });
            time::sleep(Duration::from_secs(1)).await;
            assert!(task.is_finished());
            task.await
        });
    let mut client = Client::new(app).expect("a client");
    assert_eq!(client.get("/slow").send().text(), "slow");
    assert_eq!(client.get("/ready").send().text(), "ready");
}

struct CountsDrops(Arc<AtomicUsize>);

impl Drop for CountsDrops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_aborted_task_is_dropped_and_has_no_output() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = drops.clone();
    let app = App::new().get("/", move || {
        let drops = counted.clone();
        async move {
            let counts = CountsDrops(drops.clone());
            let task = spawn(async move {
                let _counts = counts;
                time::sleep(Duration::from_secs(3600)).await;
            });
            time::sleep(Duration::from_secs(1)).await;
            task.abort();
            let error = task.await.expect_err("no output");
            assert!(error.is_cancelled() && !error.is_panic());
            format!("{error}, {} drop", drops.load(Ordering::Relaxed))
        }
    });
    assert_eq!(Client::new(app).expect("a client").get("/").send().text(), "the task was cancelled, 1 drop");
}

#[test]
fn a_task_may_abort_itself_in_its_first_step() {
    let app = App::new().get("/", async || {
        let own: Rc<RefCell<Option<task::JoinHandle<()>>>> = Rc::default();
        let inside = own.clone();
        *own.borrow_mut() = Some(spawn(async move {
            inside.borrow().iter().for_each(|own| own.abort());
            std::future::pending::<()>().await;
        }));
        time::sleep(Duration::from_secs(1)).await;
        let handle = own.borrow_mut().take().expect("a handle");
        handle.await.expect_err("no output").to_string()
    });
    assert_eq!(Client::new(app).expect("a client").get("/").send().text(), "the task was cancelled");
}

/// Panics when it is polled, and when it is dropped.
struct Panics;

impl Future for Panics {
    type Output = ();
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        panic!("on purpose");
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("again, on purpose");
    }
}

#[test]
fn a_task_that_would_panic_again_is_not_dropped() {
    let app = App::new().get("/", async || spawn(Panics).await.expect_err("no output").to_string());
    assert_eq!(Client::new(app).expect("a client").get("/").send().text(), "the task panicked");
}

#[test]
fn a_task_that_panics_tells_its_handle() {
    let app = App::new().get("/", async || {
        let error = spawn(async { panic!("on purpose") }).await.expect_err("no output");
        assert!(error.is_panic());
        error
    });
    let answer = Client::new(app).expect("a client").get("/").send();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

fn stopped_after(app: App, paths: &[&str]) -> (Duration, highwire::server::Stats) {
    use std::io::{Read, Write};
    let handle = app.listen("127.0.0.1:0").expect("a listener").start().expect("a server");
    for path in paths {
        let mut stream = std::net::TcpStream::connect(&handle.addresses()[0]).expect("a connection");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("room");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let begun = std::time::Instant::now();
    handle.shutdown();
    let stats = handle.join().expect("a report");
    (begun.elapsed(), stats)
}

#[test]
fn a_shutdown_waits_for_tasks_until_its_deadline() {
    let done = Arc::new(AtomicUsize::new(0));
    let counted = done.clone();
    let app = App::new()
        .get("/short", move || {
            let done = counted.clone();
            spawn(async move {
                time::sleep(Duration::from_millis(100)).await;
                done.fetch_add(1, Ordering::Relaxed);
            });
        })
        .get("/until-shutdown", || {
            spawn(async {
                task::shutdown().await;
                time::sleep(Duration::from_millis(50)).await;
            });
        });
    let (_, stats) = stopped_after(app, &["/short", "/until-shutdown"]);
    assert_eq!((done.load(Ordering::Relaxed), stats.tasks_cut), (1, 0));
    assert!(!stats.to_string().contains("tasks"));

    let app = App::new().configure(|config| config.timeouts.shutdown = Duration::from_millis(200)).get("/", || {
        spawn(time::sleep(Duration::from_secs(3600)));
    });
    let (waited, stats) = stopped_after(app, &["/", "/"]);
    assert!(waited >= Duration::from_millis(200));
    assert_eq!(stats.tasks_cut, 2);
    assert!(stats.to_string().contains("0 exchanges cut short, 2 tasks"), "{stats}");
}
