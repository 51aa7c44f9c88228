//! Sends prices to any number of subscribers, over WebSockets and as Server-Sent Events. A subscriber that reads too
//! slowly skips prices: behind the 64 KiB that wait in its connection, only the latest price waits.
//!
//! Usage: ticker [INTERVAL], with the milliseconds between two prices (default 1000).

use highwire::sse::LastEventId;
use highwire::topics::{SlowReader, Start, Topic, Topics};
use highwire::ws::{WebSocket, WebSocketUpgrade};
use highwire::{App, Html, Response, State};
use std::time::Duration;

const PAGE: &str = "<!doctype html><meta name=viewport content='width=device-width'><title>Prices</title>
<p>WebSocket: <output id=socket></output><p>Server-Sent Events: <output id=events></output><script>
new WebSocket('/ticks').onmessage = event => document.getElementById('socket').textContent = event.data;
new EventSource('/events').onmessage = event => document.getElementById('events').textContent = event.data;
</script>";

const PRICES: &str = "prices/ACME";

/// Subscribes the connection. Its messages need no task of their own; the future only answers Ping and Close frames.
fn ticks(upgrade: WebSocketUpgrade, State(topics): State<Topics>) -> Response {
    upgrade.on_upgrade(async move |mut socket: WebSocket| {
        // A new subscriber gets the current price at once.
        if socket.subscribe(&topics, PRICES, Start::Last(1)).is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    })
}

/// Returns the app and its topics.
pub(crate) fn app() -> (App, Topics) {
    let prices = Topic::new().slow_reader(SlowReader::LatestOnly).history(1);
    let topics = Topics::builder().topic("prices/+", prices).build();
    let app = App::new()
        .state(topics.clone())
        .get("/", || Html(PAGE))
        .get("/ticks", ticks)
        .get("/events", |State(topics): State<Topics>, last: LastEventId| topics.events(PRICES, Start::Last(1), last));
    (app, topics)
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    let interval = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let (app, topics) = app();
    let server = app.listen("127.0.0.1:8080")?.start()?;
    // Any thread can publish.
    for number in 0_u64.. {
        std::thread::sleep(Duration::from_millis(interval));
        if server.is_finished() {
            break;
        }
        let cents = 10_000 + number * 7919 % 200;
        let text = format!("{{\"name\":\"ACME\",\"price\":{}.{:02}}}", cents / 100, cents % 100);
        // Fails only with a broker that is not connected.
        if let Err(error) = topics.publish(PRICES, text) {
            eprintln!("{error}");
        }
    }
    server.join().map(drop)
}
