//! Tests templates in apps: escaping, errors with file and line, all kinds of handlers, and folders that change.
#![expect(clippy::unwrap_used, reason = "in a test, a panic shows the failed step")]

use highwire::templates::{Template, Templates};
use highwire::testing::Client;
use highwire::{App, IntoResponse, Reply, State, StatusCode, blocking, time};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

type Values = BTreeMap<&'static str, &'static str>;

fn ann() -> Values {
    Values::from([("name", "Ann <b>\"&'")])
}

fn hello() -> Template<Values> {
    Template("hello.html", ann())
}

fn templates() -> Templates {
    let texts = [
        ("hello.html", "Hello, {{ name }}!"),
        ("hello.json", r#"{"name": {{ name }}}"#),
        ("hello.txt", "Hello, {{ name }}!"),
        ("hello", "Hello, {{ name }}!"),
        ("missing.html", "first\nsecond {{ nme }}"),
        ("condition.html", "{% if nme %}yes{% else %}no{% endif %}"),
        ("include.html", "{% include 'missing.html' %}"),
    ];
    Templates::new(texts).unwrap()
}

const ESCAPED: &str = "Hello, Ann &lt;b&gt;&quot;&amp;&#x27;!";

#[test]
fn values_are_escaped_as_the_name_of_the_template_demands() {
    let templates = templates();
    for (name, expected) in [
        ("hello.html", ESCAPED),
        ("hello", ESCAPED),
        ("hello.txt", "Hello, Ann <b>\"&'!"),
        ("hello.json", r#"{"name": "Ann <b>\"&'"}"#),
        ("condition.html", "no"),
    ] {
        assert_eq!(templates.render(name, ann()).unwrap(), expected, "{name}");
    }
}

#[test]
fn every_kind_of_handler_responds_with_a_template() {
    let app = App::new()
        .state(templates())
        .get("/plain", hello)
        .get("/async", async || {
            time::sleep(Duration::from_millis(1)).await;
            hello()
        })
        .get("/blocking", blocking(hello))
        .get("/later", |reply: Reply| drop(std::thread::spawn(move || reply.send(hello()))))
        .get("/status", || (StatusCode::CREATED, hello()))
        .get("/text", || Template("hello.txt", ann()))
        .get("/json", || Template("hello.json", ann()))
        .get("/render", |State(templates): State<Templates>| templates.render("hello.html", ann()))
        .not_found(|_| (StatusCode::NOT_FOUND, hello()))
        .on_error(|_, _| hello());
    let mut client = Client::new(app).unwrap();
    for path in ["/plain", "/async", "/blocking", "/later", "/status", "/nowhere"] {
        let answer = client.get(path).send();
        assert_eq!((answer.text(), answer.header("content-type")), (ESCAPED, "text/html; charset=utf-8"), "{path}");
        let status = if path == "/status" {
            201
        } else if path == "/nowhere" {
            404
        } else {
            200
        };
        assert_eq!(answer.status().as_u16(), status, "{path}");
    }
    assert_eq!(client.get("/text").send().header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(client.get("/json").send().header("content-type"), "application/json");
    assert_eq!(client.get("/render").send().text(), ESCAPED);
    assert_eq!(client.post("/plain").send().text(), ESCAPED, "405 is an error of the app");
}

#[test]
fn an_error_names_the_template_and_the_line_but_not_to_the_client() {
    let templates = templates();
    for (name, expected) in [
        ("missing.html", "missing.html, line 2: undefined value"),
        ("include.html", "include.html, line 1: could not render include"),
        ("nothing.html", "template not found"),
    ] {
        let error = templates.render(name, ann()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let error = templates.render("include.html", ann()).unwrap_err().to_string();
    assert!(error.contains("missing.html, line 2"), "{error}");
    let app = App::new().state(templates).get("/", || Template("missing.html", ann()));
    let answer = Client::new(app).unwrap().get("/").send();
    assert_eq!((answer.status().as_u16(), answer.text()), (500, "internal server error\n"));
    let answer = Client::new(App::new().get("/", hello)).unwrap().get("/").send();
    assert_eq!(answer.status(), 500, "an app without templates");
    let error = Templates::new([("a.html", "fine"), ("b.html", "one\ntwo\n{% if %}")]).unwrap_err().to_string();
    assert!(error.starts_with("b.html, line 3: syntax error"), "{error}");
}

#[test]
fn two_apps_on_one_thread_have_their_own_templates() {
    let app = |text: &'static str| {
        App::new().state(Templates::new([("a.html", text)]).unwrap()).get("/", || Template("a.html", ()))
    };
    let (mut one, mut two) = (Client::new(app("one")).unwrap(), Client::new(app("two")).unwrap());
    for _ in 0..2 {
        assert_eq!((one.get("/").send().text(), two.get("/").send().text()), ("one", "two"));
    }
    assert_eq!(Template("a.html", ()).into_response().status(), 500, "outside of a handler");
    // An app without templates does not get those of the app in whose handler it runs.
    let inner = || {
        let app = App::new().get("/", || Template("a.html", ()));
        Client::new(app).unwrap().get("/").send().status().to_string()
    };
    let outer = App::new().state(Templates::new([("a.html", "")]).unwrap()).get("/", inner);
    assert_eq!(Client::new(outer).unwrap().get("/").send().text(), "500 Internal Server Error");
}

/// Returns a new folder with files. Its name is that of the test.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("templates-{name}"));
    let _ = fs::remove_dir_all(&folder);
    for (file, text) in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn the_files_of_a_folder_have_their_paths_as_names() {
    let files =
        [("a.html", "a"), ("in/b.html", "{% include 'a.html' %}b"), (".hidden/c.html", "{% if %}"), ("in/.d", "{{")];
    let templates = Templates::folder(folder("names", &files)).unwrap();
    assert_eq!(templates.render("in/b.html", ()).unwrap(), "ab");
    for (files, expected) in [
        (&[("a.html", "{{ x"), ("b.html", "")][..], "a.html, line 1: syntax error"),
        (&[("in/c.html", "\n{% nothing %}")], "in/c.html, line 2: syntax error"),
    ] {
        let error = Templates::folder(folder("invalid", files)).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let binary = folder("binary", &[("a.html", "")]);
    fs::write(binary.join("a.html"), [0xff]).unwrap();
    assert!(Templates::folder(&binary).unwrap_err().to_string().contains("a.html"));
    fs::write(binary.join("a.html"), vec![b'a'; 4 * 1024 * 1024 + 1]).unwrap();
    assert!(Templates::folder(&binary).unwrap_err().to_string().contains("more than 4 MiB"));
    assert!(Templates::folder(binary.join("nothing")).is_err());
    let deep = folder("deep", &[]);
    fs::create_dir_all(deep.join("d/".repeat(16))).unwrap();
    assert!(Templates::folder(&deep).unwrap_err().to_string().contains("more than 16 folders"));
}

#[test]
fn a_changed_folder_is_loaded_again_if_that_is_on() {
    let folder = folder("reload", &[("a.html", "old")]);
    let fixed = Templates::folder(&folder).unwrap();
    let reloaded = fixed.clone().reload(true);
    let mut client = Client::new(
        App::new().state(reloaded).get("/", || Template("a.html", ())).get("/b", || Template("b.html", ())),
    )
    .unwrap();
    assert_eq!(client.get("/").send().text(), "old");
    // The time of change may be too coarse to tell two writes apart, so each write gets a time of its own.
    let mut time = SystemTime::UNIX_EPOCH;
    let mut write = |name: &str, text: &str| {
        time += Duration::from_secs(1);
        fs::write(folder.join(name), text).unwrap();
        fs::File::options().write(true).open(folder.join(name)).unwrap().set_modified(time).unwrap();
    };
    write("a.html", "new");
    assert_eq!(client.get("/").send().text(), "new");
    write("a.html", "{% if %}");
    let answer = client.get("/").send();
    assert_eq!(answer.status(), 500);
    assert!(answer.text().starts_with("a.html, line 1: syntax error"), "{}", answer.text());
    write("a.html", "again");
    assert_eq!(client.get("/").send().text(), "again");
    assert!(client.get("/b").send().text().starts_with("template not found"), "the error is shown");
    write("b.html", "b");
    assert_eq!(client.get("/b").send().text(), "b");
    fs::remove_file(folder.join("b.html")).unwrap();
    assert_eq!(client.get("/b").send().status(), 500);
    assert_eq!(fixed.render("a.html", ()).unwrap(), "old", "without reload");
}

#[test]
fn filters_and_globals_are_there_when_templates_are_parsed() {
    let texts = [("a.html", "{{ site }}: {{ name | shout }}")];
    let templates = Templates::new(texts).unwrap().configure(|environment| {
        environment.add_filter("shout", |text: String| text.to_uppercase());
        environment.add_global("site", "here");
    });
    assert_eq!(templates.unwrap().render("a.html", Values::from([("name", "ann")])).unwrap(), "here: ANN");
}

#[test]
fn endless_recursion_is_an_error_even_on_a_small_stack() {
    let text = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}";
    let texts = [("macro.html", text), ("include.html", "{% include 'include.html' %}")];
    let app = App::new()
        .state(Templates::new(texts).unwrap())
        .get("/macro", blocking(|State(templates): State<Templates>| templates.render("macro.html", ())))
        .get("/include", blocking(|State(templates): State<Templates>| templates.render("include.html", ())));
    let mut client = Client::new(app).unwrap();
    for path in ["/macro", "/include", "/macro"] {
        assert_eq!(client.get(path).send().status(), 500, "{path}");
    }
}

#[test]
fn functions_that_configure_are_all_called() {
    let templates = Templates::new([("a.html", "{{ one }}{{ two }}{{ both }}")]).unwrap();
    let templates = templates.configure(|environment| {
        environment.add_global("one", 1);
        environment.add_global("both", "first");
    });
    let templates = templates.unwrap().configure(|environment| {
        environment.add_global("two", 2);
        environment.add_global("both", "second");
    });
    assert_eq!(templates.unwrap().render("a.html", ()).unwrap(), "12second");
}
