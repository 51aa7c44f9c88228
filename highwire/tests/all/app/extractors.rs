//! Extractors: what an app must provide for them, what requests may lack, and those that wait.

use highwire::testing::Client;
use highwire::{
    App, AsyncFromRequest, Basic, Bearer, Extension, FromRequest, IntoResponse, Json, MatchedPath, Path, PerWorker,
    Provided, Query, Request, Response, State, StatusCode, blocking, time,
};
use std::cell::Cell;
use std::time::Duration;

fn error(app: App) -> String {
    app.server().err().map(|error| error.to_string()).unwrap_or_default()
}

#[derive(Clone)]
struct Pool;

fn listed(_: State<Pool>) -> &'static str {
    "listed"
}

async fn counted(_: PerWorker<Cell<u32>>) -> &'static str {
    "counted"
}

#[test]
fn an_app_that_does_not_provide_what_a_handler_needs_is_an_error_at_the_start() {
    let text = error(App::new().get("/orders/{id}", listed));
    for part in ["GET /orders/{id}", "extractors::listed`", "State<Pool> needs a value that `App::state` adds"] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    let text = error(App::new().any("/count", counted));
    for part in ["(any method) /count", "extractors::counted`", "PerWorker<Cell<u32>> needs"] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    let text = error(App::new().get("/", blocking(|_: State<Pool>| "")));
    assert!(text.contains("extractors::an_app_that") && text.contains("State<Pool>"), "{text}");
    assert!(error(App::new().fallback(listed)).starts_with("the fallback: the handler"));
    assert!(error(App::new().fallback(|path: MatchedPath| path.as_str().to_string())).contains("it has no path"));
    assert!(error(App::new().get("/", |_: Result<State<Pool>, Response>| "")).contains("State<Pool>"));
    assert!(error(App::new().get("/", |_: (State<Pool>, Query<()>)| "")).contains("State<Pool>"));
    let limited = App::new().get("/", listed).with(highwire::middleware::BodyLimit::new(1));
    assert!(error(limited).contains("State<Pool>"));
}

#[test]
fn the_values_of_the_apps_around_an_app_count() {
    let inner = || App::new().get("/orders", listed).get("/count", counted);
    assert_eq!(error(App::new().nest("/api", inner()).state(Pool).per_worker(|| Cell::new(0_u32))), "");
    assert!(error(App::new().nest("/api", inner().state(Pool))).contains("GET /api/count"));
    // Those of a nested app do not count outside of it.
    assert!(
        error(App::new().nest("/api", App::new().state(Pool).get("/", listed)).get("/", listed)).contains("GET /:")
    );
    assert_eq!(error(App::new().get("/", |pool: Option<State<Pool>>| pool.is_some().to_string())), "");
}

/// The user that a token belongs to.
struct User(String);

impl AsyncFromRequest for User {
    type Parts = (Bearer, State<Duration>);

    async fn from_parts((bearer, wait): (Bearer, State<Duration>)) -> Result<User, Response> {
        time::sleep(*wait).await;
        match bearer.token.strip_prefix("of-") {
            Some(name) => Ok(User(name.to_string())),
            None => Err(bearer.refuse()),
        }
    }
}

/// The quota of a user.
struct Quota(usize);

impl AsyncFromRequest for Quota {
    type Parts = Bearer;

    async fn from_parts(bearer: Bearer) -> Result<Quota, Response> {
        if bearer.token == "of-nobody" {
            Err(StatusCode::FORBIDDEN.into_response())
        } else {
            Ok(Quota(bearer.token.len()))
        }
    }
}

#[test]
fn extractors_may_wait() {
    let of = async |User(name): User, Path(item): Path<u32>, Quota(quota): Quota, Json(body): Json<u8>| {
        format!("{name} {item} {quota} {body}")
    };
    for wait in [Duration::ZERO, Duration::from_secs(3)] {
        let mut client = Client::new(App::new().post("/items/{item}", of).state(wait)).expect("a client");
        let mut answer = |token: &str, path: &str| {
            let request = client.post(path).header("authorization", format!("Bearer {token}"));
            let answer = request.header("content-type", "application/json").body("5").send();
            (answer.status().as_u16(), answer.text().to_string())
        };
        assert_eq!(answer("of-ann", "/items/7"), (200, "ann 7 6 5".to_string()));
        assert_eq!(answer("ann", "/items/7").0, 401);
        assert_eq!(answer("of-nobody", "/items/7").0, 403);
        assert_eq!(answer("of-ann", "/items/x").0, 404, "what needs no waiting is refused first");
        assert_eq!(answer("(", "/items/7").0, 401);
        assert_eq!(answer("of-bob", "/items/8"), (200, "bob 8 6 5".to_string()));
    }
    assert!(error(App::new().get("/", async |_: User| "")).contains("State<Duration>"));
}

#[test]
fn a_refusal_after_a_wait_is_the_response_although_another_argument_is_a_reply() {
    use highwire::Handler;
    use highwire::middleware::{Next, OwnedRequest, after, from_fn};
    let of = || async |reply: highwire::Reply, User(name): User| reply.send(name);
    let app = |wait: Duration| {
        App::new()
            .get("/bare", of())
            .get("/after", of().with(after(|response: &mut Response| response.set_status(response.status()))))
            .get("/around", of().with(from_fn(async |request: OwnedRequest, next: Next| next.run(request).await)))
            .state(wait)
    };
    for wait in [Duration::ZERO, Duration::from_secs(3)] {
        let mut client = Client::new(app(wait)).expect("a client");
        for path in ["/bare", "/after", "/around"] {
            let mut status = |token: &str| {
                let answer = client.get(path).header("authorization", format!("Bearer {token}")).send();
                (answer.status().as_u16(), answer.text().to_string())
            };
            assert_eq!(status("of-ann"), (200, "ann".to_string()), "{path}");
            assert_eq!(status("ann").0, 401, "{path} {wait:?}");
        }
    }
    let both = |found: Result<(highwire::Reply, Json<u8>), Response>| match found {
        Ok(_) => "both",
        Err(_) => "refused",
    };
    assert_eq!(Client::new(App::new().post("/", both)).expect("a client").post("/").send().text(), "refused");
}

#[test]
fn an_option_is_for_absence_only() {
    let app = App::new()
        .get("/basic", |user: Option<Basic>| user.map_or("-".to_string(), |basic| basic.user))
        .get("/bearer", |bearer: Option<Bearer>| bearer.map_or("-".to_string(), |bearer| bearer.token))
        .get("/query", |query: Option<Query<Vec<(String, u8)>>>| {
            query.map_or(-1, |query| query.0.len() as i32).to_string()
        })
        .post("/json", |json: Option<Json<u8>>| json.map_or("-".to_string(), |json| json.0.to_string()))
        .get("/extension", |found: Option<Extension<u8>>| found.is_some().to_string())
        .fallback(|path: Option<MatchedPath>| path.is_some().to_string());
    let mut client = Client::new(app).expect("a client");
    let mut get = |path: &str, authorization: &str| {
        let request = client.get(path);
        let request = if authorization.is_empty() { request } else { request.header("authorization", authorization) };
        let answer = request.send();
        if answer.status() == 200 { answer.text().to_string() } else { answer.status().as_u16().to_string() }
    };
    for (path, authorization, expected) in [
        ("/basic", "", "-"),
        ("/basic", "Bearer x1", "-"),
        ("/basic", "Basic YWRhOnNlY3JldA==", "ada"),
        ("/basic", "Basic ===", "401"),
        ("/bearer", "", "-"),
        ("/bearer", "Basic YWRhOnNlY3JldA==", "-"),
        ("/bearer", "bearer x1", "x1"),
        ("/bearer", "Bearer", "401"),
        ("/query", "", "-1"),
        ("/query?a=1&b=2", "", "2"),
        ("/query?a=x", "", "400"),
        ("/extension", "", "false"),
        ("/nothing", "", "false"),
    ] {
        assert_eq!(get(path, authorization), expected, "{path} {authorization}");
    }
    let mut post = |media_type: &str, body: &str| {
        let request = client.post("/json").body(body.to_string());
        let request = if media_type.is_empty() { request } else { request.header("content-type", media_type) };
        let answer = request.send();
        if answer.status() == 200 { answer.text().to_string() } else { answer.status().as_u16().to_string() }
    };
    assert_eq!(post("", ""), "-");
    assert_eq!(post("application/json", "7"), "7");
    assert_eq!(post("application/json", "700"), "422");
    assert_eq!(post("application/json", ""), "400");
    assert_eq!(post("text/plain", "7"), "415");
}

#[test]
fn the_template_of_the_path_is_known_to_handlers_and_middleware() {
    let seen = highwire::middleware::before(|request: &mut Request<'_>| {
        let path = request.matched_path().unwrap_or("-").to_string();
        request.extensions().insert(path);
        Ok::<(), StatusCode>(())
    });
    let inner = App::new()
        .get("/{item}", |path: MatchedPath, Extension(seen): Extension<String>| format!("{} {seen}", path.as_str()));
    let app = App::new().nest("/items", inner).with(seen).fallback(|Extension(seen): Extension<String>| seen);
    let mut client = Client::new(app).expect("a client");
    assert_eq!(client.get("/items/7").send().text(), "/items/{item} /items/{item}");
    assert_eq!(client.get("/nothing").send().text(), "-");
}

#[test]
fn the_decoded_path_is_beside_the_raw_one() {
    let app = App::new().fallback(|request: &Request<'_>| format!("{} {}", request.path(), request.decoded_path()));
    let mut client = Client::new(app).expect("a client");
    assert_eq!(client.get("/a%2Fb/%c3%a9%ff?%20").send().text(), "/a%2Fb/%c3%a9%ff /a/b/é\u{fffd}");
    assert_eq!(client.get("/x/%2e%2e/admin").send().text(), "/x/%2e%2e/admin /admin");
}

struct Twice(String, String);

impl FromRequest for Twice {
    fn from_request(request: &mut Request<'_>) -> Result<Twice, Response> {
        let (Path(one), Path(two)) = <(Path<String>, Path<String>)>::from_request(request)?;
        Ok(Twice(one, two))
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        <(Path<String>, Path<String>)>::check(provided)
    }
}

#[test]
fn a_tuple_of_extractors_is_an_extractor() {
    let app = App::new().get("/{word}", |Twice(one, two): Twice| one + &two);
    assert_eq!(Client::new(app).expect("a client").get("/ab").send().text(), "abab");
    assert!(error(App::new().get("/{a}/{b}", |_: Twice| "")).contains("Path<String> takes 1 parameter"));
}

#[cfg(feature = "headers")]
#[test]
fn header_fields_are_types() {
    use highwire::TypedHeader;
    use highwire::headers::{ContentLength, Host, IfModifiedSince, SetCookie};
    let app = App::new()
        .post("/length", |TypedHeader(length): TypedHeader<ContentLength>| length.0.to_string())
        .get("/host", |TypedHeader(host): TypedHeader<Host>| host.to_string())
        .get("/since", |found: Option<TypedHeader<IfModifiedSince>>| if found.is_some() { "some" } else { "none" })
        .get("/set", || {
            let cookies: SetCookie =
                highwire::headers::Header::decode(&mut ["a=1", "b=2"].map(highwire::HeaderValue::from_static).iter())
                    .expect("cookies");
            (TypedHeader(cookies), "set")
        });
    let mut client = Client::new(app).expect("a client");
    assert_eq!(client.post("/length").body("four").send().text(), "4");
    assert_eq!(client.get("/host").header("host", "a.example:81").send().text(), "a.example:81");
    assert_eq!(client.get("/since").send().text(), "none");
    let refused = client.get("/since").header("if-modified-since", "yesterday").send();
    assert_eq!(
        (refused.status().as_u16(), refused.text()),
        (
            400,
            r#"{"title":"Bad Request","status":400,"detail":"the header field if-modified-since is malformed","in":"if-modified-since"}"#
        )
    );
    let set = client.get("/set").send();
    assert_eq!(set.headers().get_all("set-cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
}

#[test]
fn errors_outside_of_handlers_are_problems_if_the_app_says_so() {
    let app = App::new()
        .post("/", |_: String| "")
        .get("/panics", || -> &'static str { panic!("on purpose") })
        .configure(|config| config.limits.body_bytes = 3)
        .problems();
    let mut client = Client::new(app).expect("a client");
    let mut problem = |method: highwire::Method, path: &str, body: &str| {
        let answer = client.request(method, path).body(body.to_string()).send();
        assert_eq!(answer.header("content-type"), "application/problem+json", "{path}");
        let status = answer.status().as_u16();
        assert!(answer.text().contains(&format!("\"status\":{status}")), "{}", answer.text());
        status
    };
    assert_eq!(problem(highwire::Method::GET, "/none", ""), 404);
    assert_eq!(problem(highwire::Method::GET, "/", ""), 405);
    assert_eq!(problem(highwire::Method::POST, "/", "long"), 413);
    assert_eq!(problem(highwire::Method::GET, "/panics", ""), 500);
    assert_eq!(problem(highwire::Method::from_bytes(b"BREW").expect("a method"), "/", ""), 501);
}
