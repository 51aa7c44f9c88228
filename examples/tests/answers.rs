//! Asks each example, as its users' own tests would: without a socket.

#[path = "../another_protocol.rs"]
mod another_protocol;
#[path = "../auth.rs"]
mod auth;
#[path = "../behind_a_proxy.rs"]
mod behind_a_proxy;
#[path = "../event_stream.rs"]
mod event_stream;
#[path = "../graceful_shutdown.rs"]
mod graceful_shutdown;
#[path = "../hello.rs"]
mod hello;
#[path = "../https.rs"]
mod https;
#[path = "../json_api.rs"]
mod json_api;
#[path = "../rate_limit.rs"]
mod rate_limit;

use highwire::App;
use highwire::testing::Client;

fn client(app: App) -> Client {
    Client::new(app).expect("an app")
}

#[test]
fn hello_greets() {
    let mut client = client(hello::app());
    assert_eq!((client.get("/").send().text(), client.get("/Ann").send().text()), ("Hello, World!", "Hello, Ann!"));
}

#[test]
fn tasks_are_kept() {
    let mut client = client(json_api::app());
    let created = client.post("/tasks").body(r#"{"title":"write"}"#).field("content-type", "application/json").send();
    assert_eq!((created.status().as_u16(), created.text()), (201, "1"));
    assert_eq!(client.get("/tasks/1").send().text(), r#"{"title":"write","done":false}"#);
    let wrong = client.post("/tasks").body(r#"{"name":"write"}"#).field("content-type", "application/json").send();
    assert_eq!(wrong.status(), 422);
    assert_eq!(client.delete("/tasks/1").send().status(), 204);
    let gone = client.get("/tasks/1").send();
    assert_eq!((gone.status().as_u16(), gone.text()), (404, "there is no task 1\n"));
    assert_eq!(client.get("/tasks").send().text(), "{}");
}

#[test]
fn ticks_go_on_where_they_ended() {
    let mut client = client(event_stream::app());
    assert!(client.get("/").send().text().contains("EventSource('/ticks')"));
    let answer = client.get("/ticks").field("last-event-id", "4").send();
    assert!(answer.text().starts_with("data: tick 5\nid: 5\n\ndata: tick 6\n"), "{}", answer.text());
    assert_eq!(answer.text().matches("data: ").count(), 10);
}

#[test]
fn only_those_who_are_known_get_in() {
    let mut client = client(auth::app());
    assert_eq!(client.get("/").send().status(), 200);
    let refused = client.get("/private/me").send();
    assert_eq!((refused.status().as_u16(), refused.field("www-authenticate")), (401, "Bearer"));
    let answer = client.get("/private/me").field("authorization", "Bearer open-sesame").send();
    assert_eq!(answer.text(), "You are Ali.");
}

#[test]
fn callers_are_limited() {
    let mut client = client(rate_limit::app());
    assert_eq!(client.get("/costly").send().status(), 200);
    assert_eq!(client.get("/").send().field("ratelimit-limit"), "5");
}

#[test]
fn the_proxies_word_is_taken() {
    let mut client = client(behind_a_proxy::app().expect("networks"));
    let answer = client.get("/").field("x-forwarded-for", "192.0.2.1").field("x-request-id", "r1").send();
    assert_eq!(answer.text(), "192.0.2.1 asks, as request r1.");
}

#[test]
fn slow_answers_come() {
    assert_eq!(client(graceful_shutdown::app()).get("/slow").send().text(), "This one is waited for.");
}

#[test]
fn everybody_is_sent_to_https() {
    let answer = client(https::app()).get("/a").send();
    assert_eq!((answer.status().as_u16(), answer.field("location")), (308, "https://test:8443/a"));
}

#[test]
fn another_protocol_has_to_be_asked_for() {
    let answer = client(another_protocol::app()).get("/echo").send();
    assert_eq!((answer.status().as_u16(), answer.field("upgrade")), (426, "echo"));
}
