//! Sends prices to any number of subscribers, over WebSockets and as Server-Sent Events. A subscriber that reads too
//! slowly gets the latest price only.
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
        if socket.subscribe(&topics, PRICES, Start::Next).is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    })
}

/// Returns the app and its topics.
pub(crate) fn app() -> (App, Topics) {
    let prices = Topic::new().slow_reader(SlowReader::LatestOnly);
    let topics = Topics::builder().topic("prices/+", prices).build();
    let app = App::new()
        .state(topics.clone())
        .get("/", || Html(PAGE))
        .get("/ticks", ticks)
        .get("/events", |State(topics): State<Topics>, last: LastEventId| {
            topics.events(PRICES, Start::Next, last).ok()
        });
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
        topics.publish(PRICES, text).expect("a valid topic");
    }
    server.join().map(drop)
}
