//! Sends events to a page as soon as they happen (Server-Sent Events).

use highwire::sse::{self, Event, LastEventId};
use highwire::{App, Html, time};
use std::time::Duration;

const PAGE: &str = "<!doctype html><title>Ticks</title><ol id=ticks></ol><script>
new EventSource('/ticks').onmessage = event => {
  const item = document.createElement('li');
  item.textContent = event.data;
  document.getElementById('ticks').append(item);
};
</script>";

/// Returns the app.
pub(crate) fn app() -> App {
    App::new().get("/", || Html(PAGE)).get("/ticks", |LastEventId(last): LastEventId| {
        let (mut events, response) = sse::channel();
        // A browser that connects again sends the id of the last event that it has seen.
        let next = last.and_then(|id| id.parse::<u64>().ok()).map_or(0, |seen| seen + 1);
        highwire::spawn(async move {
            for number in next..next + 10 {
                if events.send(Event::new(format!("tick {number}")).id(number.to_string())).await.is_err() {
                    // The client has disconnected.
                    return;
                }
                time::sleep(Duration::from_secs(1)).await;
            }
            events.finish();
        });
        response
    })
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
