//! Responses for browsers: event streams, redirects, HTML.

use highwire::sse::{self, Event, LastEventId};
use highwire::testing::Client;
use highwire::{App, Html, Redirect, time};
use std::time::Duration;

#[test]
fn events_arrive_in_order_and_silence_is_broken() {
    let app = App::new().get("/events", |LastEventId(last): LastEventId| {
        let (mut events, response) = sse::channel();
        highwire::spawn(async move {
            let seen = last.unwrap_or_else(|| "nothing".to_string());
            events.send(Event::new(seen).id("7")).await.expect("a reader");
            // This is longer than the handler timeout. The comments in the stream restart that timeout.
            time::sleep(Duration::from_secs(100)).await;
            events.send(Event::new("later").name("done")).await.expect("a reader");
            events.finish();
        });
        response
    });
    let mut client = Client::new(app).expect("an app");
    let answer = client.get("/events").send();
    let silence = ":\n\n".repeat(6);
    assert_eq!(answer.text(), format!("data: nothing\nid: 7\n\n{silence}data: later\nevent: done\n\n"));
    for (name, value) in
        [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("x-accel-buffering", "no")]
    {
        assert_eq!(answer.header(name), value);
    }
    let again = client.get("/events").header("last-event-id", "41").send();
    assert!(again.text().starts_with("data: 41\n"));
    let long = "x".repeat(sse::LAST_EVENT_ID_BYTES + 1);
    assert!(client.get("/events").header("last-event-id", long).send().text().starts_with("data: nothing\n"));
}

#[test]
fn clients_are_sent_elsewhere() {
    let app = App::new()
        .get("/see", || Redirect::see_other("/a?b=c"))
        .get("/now", || Redirect::temporary("https://x.example/"))
        .get("/moved", || Redirect::permanent("/new"))
        .get("/wrong", || Redirect::permanent("/a\r\nSet-Cookie: b"))
        .get("/page", || Html("<p>hello</p>"));
    let mut client = Client::new(app).expect("an app");
    for (path, status, target) in
        [("/see", 303, "/a?b=c"), ("/now", 307, "https://x.example/"), ("/moved", 308, "/new"), ("/wrong", 500, "")]
    {
        let answer = client.get(path).send();
        assert_eq!((answer.status().as_u16(), answer.header("location")), (status, target), "{path}");
        assert_eq!(answer.header("set-cookie"), "");
    }
    let page = client.get("/page").send();
    assert_eq!((page.text(), page.header("content-type")), ("<p>hello</p>", "text/html; charset=utf-8"));
}
