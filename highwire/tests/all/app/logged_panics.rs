//! Tests that the log line of a panic names the route and the message.

use highwire::testing::Client;
use highwire::{App, Handler, Response, StatusCode, middleware};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line.0.trim_end().to_string());
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn fails() -> Response {
    panic!("at {}", "once")
}

async fn fails_later() -> Response {
    highwire::time::sleep(std::time::Duration::from_millis(1)).await;
    panic!("later")
}

#[test]
fn the_line_names_method_route_and_message() {
    let app = App::new().get("/users/{id}", fails).post("/later", fails_later).fallback(fails);
    // The middleware has its turn although the handler has panicked.
    let mark = || middleware::after(|response: &mut Response| response.set_status(StatusCode::BAD_GATEWAY));
    let app = app.get("/within", fails.with(mark())).get("/within-later", fails_later.with(mark()));
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let mut client = Client::new(app).expect("an app");
        for (method, path) in [("GET", "/users/7"), ("POST", "/later"), ("PUT", "/elsewhere")] {
            let method = method.parse().expect("a method");
            assert_eq!(client.request(method, path).send().status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert_eq!(client.get("/within").send().status(), StatusCode::BAD_GATEWAY);
        assert_eq!(client.get("/within-later").send().status(), StatusCode::BAD_GATEWAY);
    });
    let expected = [
        r#"message=a handler or middleware panicked: at once route="GET /users/{id}""#,
        r#"message=a handler or middleware panicked: later route="POST /later""#,
        r#"message=a handler or middleware panicked: at once route="(fallback)""#,
        r#"message=a handler or middleware panicked: at once route="GET /within""#,
        r#"message=a handler or middleware panicked: later route="GET /within-later""#,
    ];
    assert_eq!(*lines.0.lock().expect("no panic"), expected);
}
