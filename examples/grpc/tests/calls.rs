//! Calls the service with tonic's own client, over sockets.

use grpc_example::proto::prices_client::PricesClient;
use grpc_example::proto::{Item, Price};
use grpc_example::{Shop, app};
use highwire::server::Handle;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

fn item(name: &str) -> Item {
    Item { name: name.to_string() }
}

/// Starts the service and connects a client.
async fn start(shop: Shop) -> (Handle, PricesClient<Channel>) {
    let server = app(shop).configure(|config| config.workers = 2).listen("127.0.0.1:0").expect("a port");
    let server = server.start().expect("a server");
    let url = format!("http://{}", server.addresses()[0]);
    (server, PricesClient::connect(url).await.expect("a connection"))
}

fn cents(answer: Result<tonic::Response<Price>, Status>) -> Result<u64, (Code, String)> {
    answer.map(|price| price.into_inner().cents).map_err(|status| (status.code(), status.message().to_string()))
}

#[tokio::test(flavor = "current_thread")]
async fn each_kind_of_call_is_answered_and_errors_have_their_codes() {
    let (server, mut client) = start(Shop::default()).await;
    assert_eq!(cents(client.get(item("bread")).await), Ok(500));
    assert_eq!(
        cents(client.get(item("nothing")).await),
        Err((Code::NotFound, "the shop does not have it".to_string()))
    );
    assert_eq!(cents(client.get(item("")).await), Err((Code::InvalidArgument, "an item has a name".to_string())));

    let watched = client.watch(item("milk")).await.expect("a stream").into_inner();
    let prices: Vec<u64> = watched.take(3).map(|price| price.expect("a price").cents).collect().await;
    assert_eq!(prices, [400, 401, 402]);

    let many = (0..5000).map(|number| item(&number.to_string()));
    let digits: u64 = (0..5000_u32).map(|number| number.to_string().len() as u64).sum();
    assert_eq!(cents(client.sum(tokio_stream::iter(many)).await), Ok(digits * 100));

    // Each question is asked only after the answer to the last one, so nothing may wait for the end of the stream.
    let (questions, asked) = tokio::sync::mpsc::unbounded_channel();
    let asked = tokio_stream::wrappers::UnboundedReceiverStream::new(asked);
    questions.send(item("a")).expect("a reader");
    let mut answers = client.ask(asked).await.expect("a stream").into_inner();
    for name in ["a", "aa", "aaa"] {
        let price = answers.message().await.expect("an answer").expect("a price");
        assert_eq!(price.cents, name.len() as u64 * 100);
        questions.send(item(&"a".repeat(name.len() + 1))).expect("a reader");
    }
    answers.message().await.expect("the answer to the fourth");
    questions.send(item("nothing")).expect("a reader");
    // An error after answers: its code is in the trailers.
    assert_eq!(answers.message().await.map_err(|status| status.code()), Err(Code::NotFound));
    stop(server);
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_ends_with_its_client_and_with_its_deadline() {
    let shop = Shop::default();
    let (server, mut client) = start(shop.clone()).await;
    let mut watched = client.watch(item("milk")).await.expect("a stream").into_inner();
    watched.message().await.expect("a price");
    assert_eq!(shop.watchers.load(Ordering::Relaxed), 1);
    drop(watched);
    wait_for(&shop.watchers, 0).await;

    // The client's deadline ends a call that would take a minute.
    let mut slow = Request::new(item("slow"));
    slow.set_timeout(Duration::from_millis(100));
    let code = client.get(slow).await.expect_err("no answer").code();
    assert!(matches!(code, Code::Cancelled | Code::DeadlineExceeded), "{code:?}");

    // Many watchers on one connection, one of which is not read: the others get their prices.
    let unread = client.watch(item("unread")).await.expect("a stream").into_inner();
    for _ in 0..20 {
        let watched = client.watch(item("milk")).await.expect("a stream").into_inner();
        assert_eq!(watched.take(5).fold(0, |seen, _| seen + 1).await, 5);
    }
    drop((unread, client));
    wait_for(&shop.watchers, 0).await;
    stop(server);
}

#[tokio::test(flavor = "current_thread")]
async fn long_messages_pass_in_both_directions_beside_a_route_of_highwire() {
    let (server, client) = start(Shop::default()).await;
    let mut client = client.max_decoding_message_size(usize::MAX);
    // Longer than tonic's own limit on the server, 4 MiB, and than every window.
    assert_eq!(cents(client.get(item(&"x".repeat(4_000_000))).await), Ok(400_000_000));
    let refused = cents(client.get(item(&"x".repeat(5_000_000))).await).expect_err("a refusal");
    assert_eq!(refused.0, Code::OutOfRange, "{refused:?}");
    assert_eq!(cents(client.get(item("bread")).await), Ok(500), "the connection goes on");
    let url = format!("http://{}/health", server.addresses()[0]);
    let health =
        tokio::task::spawn_blocking(move || highwire::client::blocking::Client::new()?.get(&url).send()?.text());
    assert_eq!(health.await.expect("a thread").expect("an answer"), "ok");
    stop(server);
}

async fn wait_for(count: &AtomicUsize, expected: usize) {
    let begun = Instant::now();
    while count.load(Ordering::Relaxed) != expected {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} watchers", count.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn stop(server: Handle) {
    server.shutdown();
    server.join().expect("a server that ends");
}
