//! Tests the spans of requests: their fields, and that the handler's events are inside of them.

use highwire::middleware::{RequestSpan, TraceContext, TraceParent};
use highwire::testing::Client;
use highwire::{App, Handler, Path, StatusCode, time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// The fields of each span, in the order of their beginning; and the events, with the number of the span around each.
#[derive(Default)]
struct Seen {
    spans: Vec<BTreeMap<String, String>>,
    entered: Vec<u64>,
    events: Vec<(Option<u64>, String)>,
    closed: usize,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Seen>>);

struct Fields<'f>(&'f mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_string(), format!("{value:?}").trim_matches('"').to_string());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut seen = self.0.lock().expect("no panic");
        let mut fields = BTreeMap::new();
        attributes.record(&mut Fields(&mut fields));
        seen.spans.push(fields);
        span::Id::from_u64(seen.spans.len() as u64)
    }
    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        let mut seen = self.0.lock().expect("no panic");
        let at = span.into_u64() as usize - 1;
        values.record(&mut Fields(&mut seen.spans[at]));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let mut seen = self.0.lock().expect("no panic");
        let around = seen.entered.last().copied();
        seen.events.push((around, fields.remove("message").unwrap_or_default()));
    }
    fn enter(&self, span: &span::Id) {
        self.0.lock().expect("no panic").entered.push(span.into_u64());
    }
    fn exit(&self, _: &span::Id) {
        self.0.lock().expect("no panic").entered.pop();
    }
    fn try_close(&self, _: span::Id) -> bool {
        self.0.lock().expect("no panic").closed += 1;
        true
    }
}

fn app() -> App {
    App::new()
        .get("/plain/{id}", |Path(id): Path<u8>, trace: TraceParent| {
            tracing::info!("plain {id}");
            format!("{:032x}", trace.trace)
        })
        .get("/slow", async || {
            tracing::info!("before");
            time::sleep(Duration::from_millis(1500)).await;
            tracing::info!("after");
            StatusCode::ACCEPTED
        })
        .get("/panics", || -> &'static str { panic!("on purpose") })
        .get("/alone", (|| tracing::info!("alone")).with(RequestSpan))
        .with(RequestSpan)
}

#[test]
fn a_request_has_a_span_with_its_fields_around_its_events() {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        let mut client = Client::new(app()).expect("an app");
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        assert_eq!(client.get("/plain/7?secret=1").header("traceparent", parent).send().text(), trace);
        assert_eq!(client.get("/slow").send().status(), 202);
        assert_eq!(client.get("/panics").send().status(), 500);
        assert_eq!(client.post("/none").send().status(), 404);
    });
    let seen = recorder.0.lock().expect("no panic");
    let field = |span: usize, name: &str| seen.spans[span].get(name).map_or("", String::as_str).to_string();
    let expected = [
        ["GET /plain/{id}", "/plain/7", "/plain/{id}", "200", "0"],
        ["GET /slow", "/slow", "/slow", "202", "1500000"],
        ["GET /panics", "/panics", "/panics", "500", "0"],
        ["POST", "/none", "", "404", "0"],
    ];
    assert_eq!(seen.spans.len(), expected.len(), "{:?}", seen.spans);
    for (span, expected) in expected.iter().enumerate() {
        let names = ["otel.name", "url.path", "http.route", "http.response.status_code", "microseconds"];
        assert_eq!(names.map(|name| field(span, name)), *expected);
        assert_eq!(["otel.kind", "network.protocol.version"].map(|name| field(span, name)), ["server", "1.1"]);
        assert!(field(span, "client.address").starts_with("10."), "{:?}", seen.spans[span]);
    }
    assert_eq!(field(0, "trace_id"), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(field(0, "parent_span_id"), "b7ad6b7169203331");
    assert_eq!((field(0, "span_id").len(), field(1, "parent_span_id")), (16, String::new()));
    let events: Vec<(Option<u64>, &str)> = seen.events.iter().map(|(span, text)| (*span, text.as_str())).collect();
    assert_eq!(events[..3], [(Some(1), "plain 7"), (Some(2), "before"), (Some(2), "after")]);
    assert_eq!((seen.closed, seen.entered.len()), (4, 0));
}

#[test]
fn a_trace_that_is_there_goes_on_and_spans_nest() {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        let mut client = Client::new(app().with(TraceContext)).expect("an app");
        client.get("/alone").send();
    });
    let seen = recorder.0.lock().expect("no panic");
    assert_eq!(seen.spans.len(), 2);
    assert_eq!(seen.events, [(Some(2), "alone".to_string())]);
    // The inner span has the trace of the outer one.
    assert_eq!(seen.spans[0]["trace_id"], seen.spans[1]["trace_id"]);
}

#[test]
fn handlers_get_the_trace_also_without_a_subscriber() {
    let app = App::new().get("/", |trace: TraceParent| format!("{:032x}", trace.trace)).with(RequestSpan);
    let mut client = Client::new(app).expect("an app");
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let answer = client.get("/").header("traceparent", parent).send();
    assert_eq!(answer.text(), "0af7651916cd43dd8448eb211c80319c");
}
