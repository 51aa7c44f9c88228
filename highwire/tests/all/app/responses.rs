//! What handlers return: tuples of a status, header fields and a body.

use highwire::testing::Client;
use highwire::{App, HeaderMap, HeaderName, HeaderValue, IntoResponse, StatusCode, header};

/// Sends one request to an app, and returns the status, the value of `x-a` and the body.
fn sent<R: IntoResponse>(make: impl Fn() -> R + Send + Sync + 'static) -> (u16, String, String) {
    let mut client = Client::new(App::new().get("/", make)).expect("a client");
    let answer = client.get("/").send();
    let all: Vec<_> = answer.headers().get_all("x-a").iter().map(|value| value.to_str().expect("text")).collect();
    (answer.status().as_u16(), all.join(","), answer.text().to_string())
}

#[test]
fn parts_of_tuples_are_added_to_the_response() {
    let of = |status: u16, field: &str, text: &str| (status, field.to_string(), text.to_string());
    assert_eq!(sent(|| ([("x-a", "1")], "text")), of(200, "1", "text"));
    assert_eq!(sent(|| ([("x-a", String::from("1")), ("x-a", String::from("2"))], "text")), of(200, "1,2", "text"));
    assert_eq!(sent(|| (StatusCode::CREATED, [("x-a", "1")], "text")), of(201, "1", "text"));
    assert_eq!(sent(|| ([(HeaderName::from_static("x-a"), 7)], "text")), of(200, "7", "text"));
    let map = || {
        HeaderMap::from_iter(
            [("x-a", "1"), ("x-b", "-")]
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))),
        )
    };
    assert_eq!(sent(move || (map(), "text")), of(200, "1", "text"));
    assert_eq!(sent(map), of(200, "1", ""));
    assert_eq!(sent(move || (StatusCode::ACCEPTED, map(), [("x-a", "2")], "text")), of(202, "2,1", "text"));
    let twice = || {
        let mut map = HeaderMap::new();
        map.append("x-a", HeaderValue::from_static("1"));
        map.append("x-a", HeaderValue::from_static("2"));
        map
    };
    assert_eq!(sent(move || (twice(), "text")), of(200, "1,2", "text"));
    assert_eq!(sent(|| (None::<HeaderMap>, "text")), of(200, "", "text"));
    assert_eq!(sent(|| (Some([("x-a", "1")]), "text")), of(200, "1", "text"));
    assert_eq!(sent(|| Ok::<_, std::convert::Infallible>((StatusCode::OK, "text"))), of(200, "", "text"));
}

#[test]
fn a_field_that_cannot_be_sent_makes_the_response_a_500() {
    for (name, value) in [("x-a", "1\r\nx-b: 2"), ("x a", "1"), ("", "1")] {
        let (status, field, text) = sent(move || (StatusCode::CREATED, [(name, value)], "secret"));
        assert_eq!((status, &*field, &*text), (500, "", "internal server error\n"), "{name:?} {value:?}");
        let (status, field, _) = sent(move || ([("x-a", "outer")], [(name, value)], "secret"));
        assert_eq!((status, &*field), (500, ""), "nothing is added to the error");
    }
}

#[test]
fn a_media_type_of_the_handler_replaces_that_of_the_body() {
    let app = App::new().get("/", || ([(header::CONTENT_TYPE, "text/css")], "p {}"));
    let answer = Client::new(app).expect("a client").get("/").send();
    assert_eq!(answer.headers().get_all("content-type").iter().collect::<Vec<_>>(), ["text/css"]);
}
