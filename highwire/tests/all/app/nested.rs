//! Nested apps: whose values their handlers see, and what only the outermost app may set.

use highwire::testing::Client;
use highwire::{App, Handler, Path, PerWorker, Response, State};

#[test]
fn each_app_sees_its_own_values_and_those_around_it() {
    let app = |name: &str| {
        let name = name.to_string();
        App::new()
            .state(name)
            .get("/text", |text: State<String>| text.0.to_string())
            .get("/number", |number: State<u32>| number.0.to_string())
            .get("/local", |local: PerWorker<&'static str>| local.to_string())
    };
    let a = app("a").per_worker(|| "own");
    let inner = App::new().state(7_u32).get("/text", |text: State<String>| text.0.to_string()).nest("/c", app("c"));
    let root = app("root").state(1_u32).per_worker(|| "around").nest("/a", a).nest("/b", app("b")).nest("/in", inner);
    let mut client = Client::new(root).expect("an app");
    for (path, expected) in [
        ("/text", "root"),
        ("/a/text", "a"),
        ("/b/text", "b"),
        ("/in/text", "root"),
        ("/in/c/text", "c"),
        ("/number", "1"),
        ("/a/number", "1"),
        ("/in/c/number", "7"),
        ("/local", "around"),
        ("/a/local", "own"),
        ("/b/local", "around"),
        ("/in/c/local", "around"),
    ] {
        assert_eq!(client.get(path).send().text(), expected, "{path}");
    }
}

#[test]
fn settings_that_would_be_lost_are_errors_at_the_start() {
    let error = |app: App| app.server().err().map(|error| error.to_string()).unwrap_or_default();
    let twice = App::new().state(1_u32).state(2_u32).get("/", || "");
    assert!(error(twice).contains("App::state was called twice with u32"), "two values of a type");
    let twice = App::new().per_worker(|| 1_u32).per_worker(|| 2_u32).get("/", || "");
    assert!(error(twice).contains("App::per_worker was called twice with u32"));
    for (nested, name) in [
        (App::new().fallback(|| ""), "fallback"),
        (App::new().not_found(|_: &highwire::Request<'_>| ""), "not_found"),
        (App::new().configure(|config| config.workers = 1), "configure"),
    ] {
        let text = error(App::new().get("/", || "").nest("/in", nested.get("/", || "")));
        assert!(text.contains(&format!("a nested app has called {name}, which only the outermost app may")), "{text}");
    }
}

#[test]
fn a_path_of_another_number_of_parameters_is_an_error_at_the_start() {
    let error = |app: App| app.server().err().map(|error| error.to_string()).unwrap_or_default();
    let handler = |Path(id): Path<u32>| id.to_string();
    assert_eq!(error(App::new().get("/users/{id}", handler)), "");
    let text = error(App::new().get("/users/{id}/posts/{post}", handler));
    assert!(text.contains("GET /users/{id}/posts/{post}: the handler `"), "{text}");
    assert!(text.contains("` can never be called: Path<u32> takes 1 parameter"), "{text}");
    // The parameters of the prefix count, too.
    let nested = App::new().get("/posts/{post}", async |Path((user, post)): Path<(u32, u32)>| format!("{user} {post}"));
    assert_eq!(error(App::new().nest("/users/{user}", nested)), "");
    let limited = App::new().get("/a", handler).with(highwire::middleware::BodyLimit::new(1));
    assert!(error(limited).contains("the template has 0 parameters"));
}

#[test]
fn a_panic_within_any_middleware_gets_the_apps_own_answer() {
    let fails = || -> &'static str { panic!("on purpose") };
    let later = async || -> &'static str {
        highwire::time::sleep(std::time::Duration::from_millis(1)).await;
        panic!("on purpose")
    };
    let mark = || highwire::middleware::after(|_: &mut Response| {});
    let nested = App::new().get("/now", fails).get("/later", later).with(mark());
    let app = App::new().nest("/nested", nested).get("/own", fails.with(mark())).get("/bare", fails).problems();
    let mut client = Client::new(app).expect("an app");
    for path in ["/nested/now", "/nested/later", "/own", "/bare"] {
        let answer = client.get(path).send();
        assert_eq!(
            (answer.status().as_u16(), answer.header("content-type")),
            (500, "application/problem+json"),
            "{path}"
        );
    }
    let nested = App::new().nest("/nested", App::new().problems()).server().expect_err("a setting of the whole server");
    assert!(nested.to_string().contains("a nested app has called on_error"), "{nested}");
}
