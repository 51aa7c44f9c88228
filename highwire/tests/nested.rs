//! Nested apps: whose values their handlers see, and what only the outermost app may set.

use highwire::testing::Client;
use highwire::{App, PerWorker, State};

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
