//! Tests of long bodies: uploads on a server, and responses that a client takes as a whole.

use crate::engines;
use crate::served::{serve, stop};
use bytes::Bytes;
use highwire::client::{Bounds, Client, Error, block_on};
use highwire::server::Engine;
use highwire::{App, Path, State};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

/// Long bodies come into their reader's memory in another way than short ones: uploads on a server, and whole responses
/// of a client, here one in a handler, so that both use the same driver.
#[test]
fn long_bodies_arrive_whole_on_each_engine() {
    const LENGTHS: [usize; 6] = [65_535, 98_303, 98_304, 98_305, 1_000_000, 9_000_000];
    fn body(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }
    for engine in engines::available(engines::ALL) {
        let client = Client::builder().max_body_bytes(LENGTHS[5]).build().expect("a client");
        let app = App::new()
            .post("/echo", |body: Bytes| body)
            .post("/through/{length}", async |Path(length): Path<usize>, State(state): State<(Client, Url)>| {
                let (client, url) = state;
                let url = url.get().expect("the address").clone() + "/echo";
                let sent = body(length);
                let got = client.post(&url).body(sent.clone()).send().await.expect("a response").bytes().await;
                (got.expect("a body") == sent).to_string()
            })
            .configure(move |config| {
                config.engine = engine;
                config.limits.body_bytes = LENGTHS[5] as u64;
            });
        let url = Url::default();
        let app = app.state((client, url.clone()));
        let (handle, address) = serve(app);
        url.set(address.clone()).expect("set once");
        let asked = block_on(async {
            for length in LENGTHS {
                let client = Client::builder().max_body_bytes(LENGTHS[5]).build().expect("a client");
                let got = client.post(&format!("{address}/echo")).body(body(length)).send().await?.bytes().await?;
                assert!(got == body(length), "{length} bytes, {engine:?}");
                if engine == Engine::Threads {
                    // A handler has no client there: its connection has a thread of its own and no event loop.
                    continue;
                }
                let through = client.post(&format!("{address}/through/{length}")).send().await?.text().await?;
                assert_eq!(through, "true", "{length} bytes, {engine:?}");
            }
            Ok::<_, Error>(())
        });
        asked.expect("a worker").expect("responses");
        stop([handle]);
    }
}

type Url = Arc<OnceLock<String>>;

/// A response that ends in the middle of a long body is an error, and one whose reader drops it does no harm.
#[test]
fn long_bodies_that_end_early_or_are_dropped() {
    const LENGTH: usize = 2_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 1000]);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
            let cut = [LENGTH - 1, 1_000_000, 100_000, 70_000][number % 4];
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&vec![b'x'; cut]);
        }
    });
    let client = Client::new();
    let asked = block_on(async {
        for _ in 0..8 {
            let response = client.get(&url).send().await?;
            let error = response.bytes().await.expect_err("the body is cut");
            assert!(error.is_body(), "{error}");
            let whole = client.get(&url).send().await?.bytes();
            let (mut whole, mut late) = (pin!(whole), pin!(highwire::time::sleep(Duration::from_millis(1))));
            // Drops the reader after a moment, wherever the body is then.
            poll_fn(|cx| match whole.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => late.as_mut().poll(cx),
            })
            .await;
        }
        Ok::<_, Error>(())
    });
    asked.expect("a worker").expect("responses");
}

/// After a long body, a connection receives the next head alone. Here each kind of response follows one, on one connection.
#[test]
fn every_kind_of_response_can_follow_a_long_body() {
    const LENGTH: usize = 600_000;
    async fn check(client: &Client, url: &str) -> Result<(), Error> {
        let long = || client.get(&format!("{url}/bytes/{LENGTH}")).send();
        for kind in 0..9 {
            let whole = long().await?.bytes().await?;
            assert_eq!(whole.len(), LENGTH, "before {kind}");
            match kind {
                0 => assert_eq!(client.get(&format!("{url}/bytes/5")).send().await?.text().await?, "xxxxx"),
                1 => assert_eq!(client.get(&format!("{url}/bytes/0")).send().await?.text().await?, ""),
                2 => {
                    let mut response = long().await?;
                    let mut count = 0;
                    while let Some(part) = response.next().await {
                        count += part?.len();
                    }
                    assert_eq!(count, LENGTH);
                }
                3 => {
                    let response = long().await?;
                    highwire::time::sleep(Duration::from_millis(20)).await;
                    assert_eq!(response.bytes().await?.len(), LENGTH);
                }
                4 => drop(long().await?),
                5 => {
                    let mut response = long().await?;
                    let first = response.next().await.expect("a part")?;
                    assert_eq!(first.len() + response.bytes().await?.len(), LENGTH);
                }
                6 => highwire::time::sleep(Duration::from_millis(20)).await,
                7 => {
                    let late = client.get(&format!("{url}/late")).timeout(Duration::from_millis(10)).send().await;
                    assert!(late.expect_err("a timeout").is_timeout());
                }
                _ => {
                    let parts = client.get(&format!("{url}/parts")).send().await?.bytes().await?;
                    assert_eq!(parts.len(), LENGTH);
                }
            }
        }
        Ok(())
    }
    for engine in engines::available(engines::EVENT_LOOPS) {
        let bounds = Bounds::default().connections(1);
        let client = Client::builder().bounds(bounds).retries(0).build().expect("a client");
        let app = App::new()
            .get("/bytes/{length}", |Path(length): Path<usize>| "x".repeat(length))
            .get("/late", async || highwire::time::sleep(Duration::from_millis(100)).await)
            .get("/parts", || {
                let (mut sender, receiver) = highwire::body::channel();
                highwire::spawn(async move {
                    for _ in 0..LENGTH / 10_000 {
                        sender.send("y".repeat(10_000)).await.expect("the body is wanted");
                    }
                    sender.finish();
                });
                highwire::Response::stream(receiver)
            })
            .get("/check", async |State(state): State<(Client, Url)>| {
                let (client, url) = state;
                let checked = check(&client, url.get().expect("the address")).await;
                checked.map_or_else(|error| error.to_string(), |()| "passed".to_string())
            })
            .configure(move |config| config.engine = engine);
        let url = Url::default();
        let (handle, address) = serve(app.state((client, url.clone())));
        url.set(address.clone()).expect("set once");
        let checked = block_on(async { Client::new().get(&format!("{address}/check")).send().await?.text().await });
        assert_eq!(checked.expect("a worker").expect("a response"), "passed", "{engine:?}");
        stop([handle]);
    }
}

/// A response that is left unread while another request is made must not hold the only connection, if its body is shorter
/// than what is received ahead of its reader.
#[test]
fn a_short_body_is_received_before_its_reader_asks_even_after_a_long_one() {
    let (handle, url) = serve(App::new().get("/{length}", |Path(length): Path<usize>| "x".repeat(length)));
    let asked = block_on(async {
        let bounds = Bounds::default().connections(1);
        let client = Client::builder().bounds(bounds).pool_timeout(Duration::from_secs(5)).build()?;
        assert_eq!(client.get(&format!("{url}/600000")).send().await?.bytes().await?.len(), 600_000);
        let unread = client.get(&format!("{url}/50000")).send().await?;
        assert_eq!(client.get(&format!("{url}/3")).send().await?.text().await?, "xxx");
        assert_eq!(unread.bytes().await?.len(), 50_000);
        Ok::<_, Error>(())
    });
    asked.expect("a worker").expect("responses");
    stop([handle]);
}
