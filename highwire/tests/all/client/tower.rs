//! Tests of the client without sockets, as a tower service, and in tasks of tokio.

use crate::served::{serve, stop};
use bytes::Bytes;
use highwire::client::{Background, Body, Client, Error, block_on, blocking};
use highwire::testing;
use highwire::{App, Json, Path, Redirect, Response, StatusCode, header};
use http_body::Body as HttpBody;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tower_service::Service;

const LONG: usize = 700_000;

fn app() -> App {
    App::new()
        .get("/hello", || "Hello")
        .get("/users/{id}", |Path(id): Path<u64>| Json(BTreeMap::from([("id", id)])))
        .post("/echo", |body: Bytes| body)
        .post("/parts", |body: highwire::Body| {
            let trailers =
                || vec![(header::HeaderName::from_static("server-timing"), "a;dur=1".parse().expect("valid"))];
            Response::stream(body).with_trailers(trailers)
        })
        .get("/old", || Redirect::temporary("/hello"))
        .get("/late", async || {
            highwire::time::sleep(Duration::from_secs(60)).await;
            "late"
        })
        .get("/long", || vec![b'x'; LONG])
}

/// The same requests with and without sockets.
async fn each_shape(client: &Client) -> Result<(), Error> {
    assert_eq!(client.get("/hello").send().await?.text().await?, "Hello");
    let user: BTreeMap<String, u64> = client.get("/users/7").send().await?.json().await?;
    assert_eq!(user, BTreeMap::from([("id".to_string(), 7)]));
    assert_eq!(client.get("/old").send().await?.uri().path(), "/hello");
    assert_eq!(client.get("/none").send().await?.status(), StatusCode::NOT_FOUND);
    let head = client.head("/hello").send().await?;
    assert_eq!((head.content_length(), head.text().await?), (Some(5), String::new()));
    let long = client.post("/echo").body(vec![b'y'; LONG]).send().await?.bytes().await?;
    assert!(long == vec![b'y'; LONG]);
    let (mut sender, body) = Body::channel();
    highwire::spawn(async move {
        for _ in 0..LONG / 50_000 {
            sender.send(vec![b'z'; 50_000]).await.expect("a reader");
        }
        sender.finish();
    });
    let mut response = client.post("/parts").body(body).send().await?;
    let mut length = 0;
    while let Some(part) = response.next().await.transpose()? {
        length += part.len();
    }
    assert_eq!((length, response.trailers().len()), (LONG, 1));
    let late = client.get("/late").timeout(Duration::from_millis(20)).send().await;
    assert!(late.expect_err("too slow").is_timeout());
    // A body that nobody reads holds nothing up.
    drop(client.get("/long").send().await?);
    Ok(())
}

#[test]
fn requests_are_the_same_with_and_without_sockets() {
    let client = Client::to(app()).expect("an app");
    block_on(each_shape(&client)).expect("a worker").expect("responses");
    let (handle, url) = serve(app());
    let client = Client::builder().base_url(&url).build().expect("a client");
    block_on(each_shape(&client)).expect("a worker").expect("responses");
    stop([handle]);
    assert!(Client::to(App::new().get("no slash", || "")).is_err());
}

#[test]
fn a_blocking_client_needs_no_sockets() {
    let client = blocking::Client::to(app()).expect("an app");
    assert_eq!(client.get("/hello").send().and_then(blocking::Response::text).expect("text"), "Hello");
}

/// A request in this process cannot change the protocol, and says so.
#[test]
fn protocols_need_sockets() {
    let client = blocking::Client::to(app()).expect("an app");
    let connect = client.request(http::Method::CONNECT, "http://app/").send();
    assert!(connect.expect_err("no socket").to_string().contains("cannot change the protocol"));
}

/// The test client runs the same test against an app in the process and against a real server.
#[test]
fn a_test_becomes_a_real_call() {
    let (handle, url) = serve(app());
    for mut client in [testing::Client::new(app()).expect("an app"), testing::Client::connect(&url).expect("a URL")] {
        let answer = client.get("/users/7").header("accept", "application/json").send();
        assert_eq!((answer.status().as_u16(), answer.text()), (200, "{\"id\":7}"));
        assert_eq!(client.post("/echo").body("x").send().bytes(), b"x");
        assert_eq!(client.get("/old").send().header("location"), "/hello");
        assert_eq!(client.post("/parts").body("x").send().trailers().len(), 1);
        assert_eq!(client.get("/users/x").send().status(), 404);
    }
    stop([handle]);
    assert!(testing::Client::connect("nonsense").is_err());
}

async fn collect(body: impl HttpBody<Data = Bytes, Error = Error>) -> Result<(usize, usize), Error> {
    let mut body = Box::pin(body);
    let (mut length, mut trailers) = (0, 0);
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(data) => length += data.len(),
            Err(frame) => trailers += frame.into_trailers().map_or(0, |fields| fields.len()),
        }
    }
    Ok((length, trailers))
}

#[test]
fn the_client_is_a_service() {
    let (handle, url) = serve(app());
    let asked = block_on(async {
        let mut client = Client::new();
        let request = http::Request::post(format!("{url}/parts")).body("x".repeat(LONG)).expect("a request");
        let response = client.call(request).await?;
        assert_eq!(response.status(), 200);
        assert!(response.extensions().get::<highwire::client::Stats>().is_some());
        assert_eq!(collect(response.into_body()).await?, (LONG, 1));
        let nowhere = http::Request::get("/relative").body(String::new()).expect("a request");
        assert!(client.call(nowhere).await.expect_err("a relative URL").is_builder());
        Ok::<_, Error>(())
    });
    asked.expect("a worker").expect("responses");
    stop([handle]);
}

/// Tasks on several threads of tokio use one client, and may give up their requests.
#[test]
fn tasks_of_tokio_share_a_client() {
    const TASKS: usize = 20;
    let given_up = Arc::new(AtomicUsize::new(0));
    struct Count(Arc<AtomicUsize>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let counted = given_up.clone();
    let app = app().get("/held", move || {
        let count = Count(counted.clone());
        async move {
            highwire::time::sleep(Duration::from_secs(60)).await;
            drop(count);
            "held"
        }
    });
    let (handle, url) = serve(app);
    let client = Background::start(Client::new()).expect("a thread");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let get = |url: &str| http::Request::get(url).body(String::new()).expect("a request");
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let (client, url) = (client.clone(), url.clone());
                tokio::spawn(async move {
                    let request = http::Request::post(format!("{url}/parts")).body("x".repeat(LONG + number));
                    let response = client.send(request.expect("a request")).await?;
                    collect(response.into_body()).await
                })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.expect("no panic").expect("a body"), (LONG + number, 1));
        }
        let whole = client.send(get(&format!("{url}/long"))).await.expect("a response").into_body();
        assert!(whole.bytes(1000).await.expect_err("too long").is_body());
        assert!(client.send(get("http://127.0.0.1:1/")).await.expect_err("nobody listens").is_connect());
        // The handler is dropped when the task gives the request up.
        let held = tokio::time::timeout(Duration::from_millis(50), client.send(get(&format!("{url}/held")))).await;
        assert!(held.is_err());
        while given_up.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    // A request goes on although its client is gone, as in tower's `oneshot`.
    let last = client.send(get(&format!("{url}/long")));
    drop(client);
    let last = runtime.block_on(async { last.await.expect("a response").into_body().bytes(LONG).await });
    assert_eq!(last.expect("a body").len(), LONG);
    stop([handle]);
}

/// A body that is there at once is kept for redirects; one in parts is not.
#[test]
fn short_bodies_of_services_are_sent_again() {
    let again =
        || Response::new(StatusCode::TEMPORARY_REDIRECT).with_header(header::LOCATION, "/echo".parse().expect("valid"));
    let (handle, url) = serve(app().post("/again", again));
    let asked = block_on(async {
        for (length, status) in [(0, 200), (5, 200), (60_000, 200), (70_000, 307)] {
            let request = http::Request::post(format!("{url}/again")).body("x".repeat(length)).expect("a request");
            let response = Client::new().call(request).await?;
            assert_eq!(response.status().as_u16(), status, "{length} bytes");
            let expected = if status == 200 { length } else { 0 };
            assert_eq!(collect(response.into_body()).await?.0, expected);
        }
        Ok::<_, Error>(())
    });
    asked.expect("a worker").expect("responses");
    stop([handle]);
}
