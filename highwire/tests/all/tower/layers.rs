//! Tests an unchanged axum `Router` on Highwire: its extractors, bodies in both directions, and its own middleware.

use axum::extract::{Path, Query, State};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Json, Router, middleware};
use bytes::Bytes;
use highwire::testing::Client;
use highwire::{App, HeaderName, HeaderValue, Method, Peer, tower};
use http_body::{Body as HttpBody, Frame};
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

fn router() -> Router {
    Router::new()
        .route("/hello", get(async || "from axum"))
        .route(
            "/users/{id}",
            get(async |Path(id): Path<u32>, State(greeting): State<&'static str>| format!("{greeting} {id}")),
        )
        .route("/query", get(async |Query(query): Query<HashMap<String, String>>| Json(query)))
        .route("/json", post(async |Json(value): Json<serde_json::Value>| Json(value)))
        .route("/echo", post(async |body: axum::body::Body| body))
        .route("/peer", get(async |Extension(peer): Extension<Peer>| peer.to_string()))
        .route("/drops", post(async |body: axum::body::Body| drop(body)))
        .route(
            "/many",
            get(async || {
                ([("set-cookie", "a=1")], axum::response::AppendHeaders([("set-cookie", "b=2")]), "x").into_response()
            }),
        )
        .layer(middleware::map_response(async |mut response: axum::response::Response| {
            response.headers_mut().insert("x-layer", axum::http::HeaderValue::from_static("axum"));
            response
        }))
        .with_state("user")
}

fn client() -> Client {
    let app = App::new().get("/own", || "from Highwire").fallback(tower::service(router()));
    Client::new(app).expect("an app")
}

#[test]
fn a_router_answers_beside_our_own_routes() {
    let mut client = client();
    for (path, body) in
        [("/own", "from Highwire"), ("/hello", "from axum"), ("/users/7", "user 7"), ("/query?a=b", r#"{"a":"b"}"#)]
    {
        let answer = client.get(path).send();
        assert_eq!((answer.status().as_u16(), answer.text()), (200, body), "{path}");
        assert_eq!(answer.header("x-layer"), if path == "/own" { "" } else { "axum" });
    }
    assert_eq!(client.get("/users/x").send().status(), 400);
    assert_eq!(client.get("/missing").send().status(), 404);
    assert_eq!(client.request(Method::DELETE, "/hello").send().status(), 405);
    assert!(client.get("/peer").send().text().starts_with("10."));
    let many = client.get("/many").send();
    let cookies: Vec<_> = many.headers().get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    let head = client.request(Method::HEAD, "/hello").send();
    assert_eq!((head.header("content-length"), head.bytes()), ("9", &b""[..]));
}

#[test]
fn bodies_cross_both_ways() {
    let mut client = client();
    let answer = client.post("/json").header("content-type", "application/json").body(r#"{"a":[1,2]}"#).send();
    assert_eq!(answer.text(), r#"{"a":[1,2]}"#);
    // More bytes than the channel between Highwire and axum holds.
    let long: Vec<u8> = (0..600_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let answer = client.post("/echo").body(long.clone()).send();
    assert!(answer.bytes() == long, "{} bytes", answer.bytes().len());
    for body in [&b""[..], b"x"] {
        assert_eq!(client.post("/echo").body(body).send().bytes(), body);
    }
    assert_eq!(client.post("/drops").body("x".repeat(100)).send().status(), 200);
    assert_eq!(client.get("/hello").send().text(), "from axum");
}

/// A body that ends with trailers, and is never ready after them, as those of tonic.
struct Trailed(Vec<Frame<Bytes>>);

impl HttpBody for Trailed {
    type Data = Bytes;
    type Error = Infallible;
    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.pop().map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))))
    }
}

#[test]
fn trailers_end_a_body() {
    let router = Router::new().route(
        "/",
        get(async || {
            let trailers =
                axum::http::HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))]);
            let data = Frame::data(Bytes::from_static(b"data"));
            axum::response::Response::new(axum::body::Body::new(Trailed(vec![Frame::trailers(trailers), data])))
        }),
    );
    let mut client = Client::new(App::new().fallback(tower::service(router))).expect("an app");
    let answer = client.get("/").send();
    assert_eq!((answer.text(), answer.trailers()["x-sum"].as_bytes()), ("data", &b"7"[..]));
}
