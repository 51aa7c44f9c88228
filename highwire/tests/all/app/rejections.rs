//! Tests `App::on_rejection`, which words the refusals of extractors.

use highwire::testing::Client;
use highwire::{
    App, Bearer, Form, FromRequest, IntoResponse, Json, Path, Problem, Query, Request, Response, StatusCode, blocking,
};

#[derive(serde::Deserialize)]
struct Named {
    name: String,
}

/// An extractor that refuses in its own words.
struct Own;

impl FromRequest for Own {
    fn from_request(_: &mut Request<'_>) -> Result<Own, Response> {
        Err((StatusCode::CONFLICT, "own words").into_response())
    }
}

/// An extractor that refuses with a problem and repeated fields.
struct Schemes;

impl FromRequest for Schemes {
    fn from_request(_: &mut Request<'_>) -> Result<Schemes, Response> {
        let mut response = Problem::new(StatusCode::UNAUTHORIZED, "who are you?").into_response();
        for scheme in ["Basic", "Digest"] {
            response.add_header(
                highwire::HeaderName::from_static("www-authenticate"),
                highwire::HeaderValue::from_static(scheme),
            );
        }
        Err(response)
    }
}

fn word(request: &Request<'_>, problem: Problem) -> (StatusCode, String) {
    (problem.status(), format!("{} {}: {}", request.method(), request.path(), problem.detail()))
}

fn app() -> App {
    App::new()
        .get("/path/{id}", |Path(id): Path<u8>| id.to_string())
        .get("/query", async |Query(Named { name }): Query<Named>| name)
        .post("/json", |Json(Named { name }): Json<Named>| name)
        .post("/form", blocking(|Form(Named { name }): Form<Named>| name))
        .get("/bearer", |bearer: Bearer| bearer.token)
        .get("/own", |_: Own| "")
        .get("/schemes", |_: Schemes| "")
        .get("/handler", || Problem::new(StatusCode::GONE, "from the handler"))
}

#[test]
fn refusals_of_extractors_get_the_apps_words() {
    let mut client = Client::new(app().on_rejection(word)).expect("an app");
    for (path, status, text) in [
        ("/path/300", 404, "GET /path/300: "),
        ("/query?x=y", 400, "GET /query: the query does not fit: "),
        ("/bearer", 401, "GET /bearer: "),
    ] {
        let answer = client.get(path).send();
        assert_eq!((answer.status().as_u16(), answer.text().starts_with(text)), (status, true), "{}", answer.text());
        assert!(answer.header("content-type").starts_with("text/plain"), "{path}");
    }
    let json = client.post("/json").header("content-type", "application/json").body("{").send();
    assert_eq!((json.status().as_u16(), json.text().starts_with("POST /json: ")), (400, true), "{}", json.text());
    let form = client.post("/form").header("content-type", "application/x-www-form-urlencoded").body("a=b").send();
    assert!(form.text().starts_with("POST /form: the form does not fit: "), "{}", form.text());
}

#[test]
fn the_fields_of_the_refusal_stay_and_other_responses_are_left_alone() {
    let mut client = Client::new(app().on_rejection(word)).expect("an app");
    assert!(client.get("/bearer").send().header("www-authenticate").starts_with("Bearer"));
    let schemes = client.get("/schemes").send();
    assert_eq!(schemes.headers().get_all("www-authenticate").iter().collect::<Vec<_>>(), ["Basic", "Digest"]);
    assert_eq!(client.get("/own").send().text(), "own words");
    assert!(client.get("/handler").send().text().contains(r#""detail":"from the handler""#));
    assert_eq!(client.get("/path/7").send().text(), "7");
    // An app without the function, on the same thread.
    let mut other = Client::new(app()).expect("an app");
    assert_eq!(other.get("/path/300").send().header("content-type"), "application/problem+json");
    assert!(client.get("/path/300").send().header("content-type").starts_with("text/plain"));
}

#[test]
fn a_nested_app_cannot_word_refusals() {
    let error = Client::new(App::new().nest("/api", app().on_rejection(word))).expect_err("an error at the start");
    assert!(error.to_string().contains("on_rejection"), "{error}");
}
