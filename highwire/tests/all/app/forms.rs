//! Forms, credentials and content negotiation, as an application uses them.

use highwire::form::{Limits, MultipartError};
use highwire::testing::{Client, TestResponse};
use highwire::{Accept, App, Basic, Bearer, Form, Json, Multipart, Path, Problem, Query, Realm};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn client(app: App) -> Client {
    Client::new(app).expect("an app")
}

/// Checks that a response is a problem with this status and these members.
fn check_problem(answer: &TestResponse, status: u16, members: &[(&str, &str)]) {
    let context = format!("{:?} {}", answer.status(), answer.text());
    assert_eq!(answer.status().as_u16(), status, "{context}");
    assert_eq!(answer.header("content-type"), "application/problem+json", "{context}");
    let problem: BTreeMap<String, serde_json::Value> = answer.json();
    assert_eq!(problem["status"], status, "{context}");
    for (name, expected) in members {
        let found = problem.get(*name).unwrap_or_else(|| panic!("no {name} in {context}"));
        let found = found.as_str().map_or_else(|| found.to_string(), str::to_string);
        assert_eq!(found, *expected, "{name} of {context}");
    }
}

#[derive(Deserialize, Serialize)]
struct Order {
    items: Vec<Item>,
}

#[derive(Deserialize, Serialize)]
struct Item {
    name: String,
    count: u8,
}

#[derive(Deserialize)]
struct Sign {
    name: String,
    age: u8,
    #[serde(default)]
    likes: Vec<String>,
}

fn typed() -> Client {
    client(
        App::new()
            .post("/json", |Json(order): Json<Order>| Json(order))
            .post("/any", |Json(_): Json<serde_json::Value>| "taken")
            .get("/query", |Query(sign): Query<Sign>| format!("{} {} {:?}", sign.name, sign.age, sign.likes))
            .get("/pair/{left}/{right}", |Path((left, right)): Path<(u8, u8)>| format!("{left} {right}"))
            .get("/named/{left}/{right}", |Path(pair): Path<BTreeMap<String, u8>>| format!("{pair:?}"))
            .post("/form", |Form(sign): Form<Sign>| format!("{} {} {:?}", sign.name, sign.age, sign.likes)),
    )
}

#[test]
fn json_that_is_wrong_is_told_where() {
    let mut client = typed();
    let mut ask =
        |body: &str| client.post("/json").header("content-type", "application/json").body(body.to_string()).send();
    assert_eq!(ask(r#"{"items":[{"name":"a","count":1}]}"#).status(), 200);
    let wrong = ask("{\"items\":[{\"name\":\"a\",\"count\":1},\n{\"name\":\"b\",\"count\":300}]}");
    check_problem(&wrong, 422, &[("field", "items[1].count"), ("line", "2"), ("column", "23"), ("in", "body")]);
    check_problem(&ask(r#"{"items":[{"name":"a"}]}"#), 422, &[("field", "items[0]"), ("line", "1")]);
    check_problem(&ask("[]"), 422, &[("line", "1"), ("column", "2")]);
    check_problem(&ask("{\"items\":[\n}"), 400, &[("line", "2"), ("column", "1")]);
    check_problem(&ask(""), 400, &[("line", "1"), ("column", "0")]);
    check_problem(&ask(r#"{"items":[]} x"#), 400, &[("column", "14")]);
    let long = ask(&format!(r#"{{"items":[{{"name":"a","count":"{}"}}]}}"#, "x".repeat(100_000)));
    check_problem(&long, 422, &[("field", "items[0].count")]);
    assert!(long.bytes().len() < 1000, "the length of the error grows with the request");
    let other = client.post("/json").header("content-type", "text/json").body("{}").send();
    check_problem(&other, 415, &[("in", "content-type")]);
    assert_eq!(other.header("accept"), "application/json");
    let twice = client.post("/any").header("content-type", "application/json").header("content-type", "text/html");
    check_problem(&twice.body("{}").send(), 415, &[]);
}

#[test]
fn json_that_is_deep_is_refused() {
    let mut client = typed();
    let mut ask = |depth: usize| {
        let body = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        client.post("/any").header("content-type", "application/json").body(body).send()
    };
    assert_eq!(ask(127).text(), "taken");
    for depth in [128, 500_000] {
        check_problem(&ask(depth), 400, &[("line", "1"), ("column", "128")]);
    }
}

#[test]
fn queries_and_paths_that_do_not_fit_name_the_field() {
    let mut client = typed();
    assert_eq!(client.get("/query?name=a%20b&age=7&likes=x&likes=y").send().text(), "a b 7 [\"x\", \"y\"]");
    check_problem(&client.get("/query?name=a").send(), 400, &[("field", "age"), ("in", "query")]);
    check_problem(&client.get("/query?name=a&age=x").send(), 400, &[("field", "age")]);
    check_problem(&client.get("/query?name=a&age=1&name=b").send(), 400, &[("field", "name")]);
    check_problem(&client.get("/query?name=a&age=1&x=%ff").send(), 400, &[("offset", "15"), ("in", "query")]);
    assert_eq!(client.get("/pair/1/2").send().text(), "1 2");
    check_problem(&client.get("/pair/1/300").send(), 404, &[("in", "path")]);
    check_problem(&client.get("/named/1/x").send(), 404, &[("in", "path"), ("field", "right")]);
}

const URLENCODED: &str = "application/x-www-form-urlencoded";

#[test]
fn forms_that_are_wrong_are_told_where() {
    let mut client = typed();
    let mut ask =
        |kind: &str, body: &str| client.post("/form").header("content-type", kind).body(body.to_string()).send();
    assert_eq!(ask(URLENCODED, "name=a+b&age=7&likes=x&likes=%C3%A9").text(), "a b 7 [\"x\", \"é\"]");
    assert_eq!(ask("Application/X-www-form-urlencoded; charset=\"UTF-8\"", "name=a&age=7").status(), 200);
    check_problem(&ask(URLENCODED, "name=a&age=seven"), 422, &[("field", "age"), ("in", "form")]);
    check_problem(&ask(URLENCODED, "age=7"), 422, &[("field", "name")]);
    check_problem(&ask(URLENCODED, ""), 422, &[("field", "name")]);
    check_problem(&ask(URLENCODED, "name=a&age=%7"), 400, &[("offset", "11"), ("in", "body")]);
    check_problem(&ask(URLENCODED, &"a&".repeat(1001)), 413, &[("offset", "2000")]);
    check_problem(&ask("application/x-www-form-urlencoded; charset=iso-8859-1", "name=a&age=7"), 415, &[]);
    let other = ask("text/plain", "name=a");
    check_problem(&other, 415, &[]);
    assert_eq!(other.header("accept"), "application/x-www-form-urlencoded, multipart/form-data");
}

/// Returns a part: its delimiter, head and data.
fn part(disposition: &str, data: &str) -> String {
    format!("--B\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{data}\r\n")
}

const MULTIPART: &str = "multipart/form-data; boundary=B";

#[test]
fn a_form_comes_as_multipart_too() {
    let mut client = typed();
    let mut ask = |kind: &str, parts: &[String]| {
        let body = format!("{}--B--\r\n", parts.concat());
        client.post("/form").header("content-type", kind).body(body).send()
    };
    let (name, age) = (part("name=\"name\"", "a b"), part("name=age", "7"));
    let answer = ask(MULTIPART, &[name.clone(), age.clone(), part("name=likes", "x"), part("name=likes", "")]);
    assert_eq!(answer.text(), "a b 7 [\"x\", \"\"]");
    check_problem(&ask(MULTIPART, &[name.clone(), part("name=age", "x")]), 422, &[("field", "age")]);
    let file = part("name=age; filename=f", "7");
    let detail = ("detail", "the part is a file where a field is wanted");
    check_problem(&ask(MULTIPART, &[name.clone(), file]), 422, &[("field", "age"), detail]);
    check_problem(&ask(MULTIPART, &[part("x=y", "")]), 400, &[("offset", "5"), ("in", "body")]);
    check_problem(&ask("multipart/form-data", std::slice::from_ref(&name)), 400, &[("in", "content-type")]);
    check_problem(&ask("multipart/form-data; boundary=C", &[name, age]), 400, &[("offset", "0")]);
}

/// Lists the parts: `name (file name, media type): data`. Does not read the data of parts with the name `skipped`.
async fn describe(mut multipart: Multipart) -> Result<String, MultipartError> {
    let mut said = Vec::new();
    while let Some(part) = multipart.next().await {
        let part = part?;
        let (file, kind) = (part.file_name().unwrap_or("-"), part.content_type().unwrap_or("-"));
        let about = format!("{} ({file}, {kind})", part.name());
        said.push(match part.name() {
            "skipped" => about,
            _ => format!("{about}: {}", part.text(20).await?),
        });
    }
    Ok(said.join("\n"))
}

#[test]
fn parts_are_handed_on_as_they_are_named() {
    let mut client = client(App::new().post("/", describe));
    let mut ask = |body: String| client.post("/").header("content-type", MULTIPART).body(body).send();
    let file = "--B\r\ncontent-disposition: form-data; name=\"f\"; filename=\"../x y.txt\"\r\ncontent-type: text/csv\r\n\r\na,b\r\n";
    let all = [part("name=a", "1"), part("name=skipped", &"s".repeat(100_000)), file.to_string(), part("name=b", "")];
    let all = all.concat();
    let answer = ask(format!("{all}--B--\r\n"));
    assert_eq!(answer.text(), "a (-, -): 1\nskipped (-, -)\nf (../x y.txt, text/csv): a,b\nb (-, -): ");
    check_problem(&ask(part("name=a", &"x".repeat(21)) + "--B--"), 413, &[("field", "a"), ("in", "body")]);
    check_problem(&ask(part("name=a", "1")), 400, &[("in", "body")]);
    check_problem(&ask(part("name=a", "1") + "--Bx"), 400, &[("offset", "53")]);
    check_problem(&ask(part("name=\"a", "1") + "--B--"), 400, &[("offset", "5")]);
    let not_text = b"--B\r\nContent-Disposition: form-data; name=a\r\n\r\n\xff\r\n--B--".to_vec();
    let answer = client.post("/").header("content-type", MULTIPART).body(not_text).send();
    check_problem(&answer, 422, &[("field", "a")]);
    check_problem(&client.post("/").header("content-type", "multipart/mixed; boundary=B").send(), 415, &[]);
}

#[test]
fn a_multipart_body_is_bounded() {
    let limits = Limits::default().parts(2).head_bytes(100).part_bytes(1000).total_bytes(1500);
    let narrow = limits.clone().parts(1);
    let app = App::new()
        .state(limits)
        .post("/", describe)
        .post("/form", |Form(mut fields): Form<BTreeMap<String, String>>| fields.remove("name"))
        .post("/narrow", move |multipart: Multipart| describe(multipart.limited(narrow.clone())));
    let mut client = client(app);
    let mut ask = |path: &str, body: String| client.post(path).header("content-type", MULTIPART).body(body).send();
    let two = part("name=a", "") + &part("name=b", "");
    assert_eq!(ask("/", format!("{two}--B--")).text(), "a (-, -): \nb (-, -): ");
    check_problem(&ask("/", format!("{two}{two}--B--")), 413, &[]);
    check_problem(&ask("/narrow", format!("{two}--B--")), 413, &[]);
    check_problem(&ask("/", part(&format!("name={}", "a".repeat(100)), "")), 413, &[("offset", "5")]);
    check_problem(&ask("/", format!("--B\r\n{}", "a: b\r\n".repeat(1000))), 413, &[("offset", "5")]);
    let large = |bytes: usize| part("name=skipped", &"x".repeat(bytes));
    assert_eq!(ask("/", large(1001) + "--B--").text(), "skipped (-, -)", "an unread part has no size limit");
    check_problem(&ask("/", large(1500) + "--B--"), 413, &[]);
    check_problem(&ask("/", "x".repeat(1000)), 400, &[("offset", "0")]);
    let named = |bytes: usize| part("name=name", &"x".repeat(bytes)) + "--B--";
    assert_eq!(ask("/form", named(1000)).text().len(), 1000);
    let detail = ("detail", "the part is larger than 1000 bytes");
    check_problem(&ask("/form", named(1001)), 413, &[("field", "name"), detail, ("in", "body")]);
}

/// Returns true if this process has a descriptor of the file.
fn is_open(path: &std::path::Path) -> bool {
    let mut descriptors = std::fs::read_dir("/proc/self/fd").expect("a list");
    descriptors.any(|descriptor| descriptor.is_ok_and(|it| std::fs::read_link(it.path()).is_ok_and(|to| to == path)))
}

/// The folder for the files of parts.
#[derive(Clone)]
struct At(PathBuf);

/// Drops the files of all parts while the pool's only thread is busy, and then gives the pool another job.
async fn drop_many(at: highwire::State<At>, mut multipart: Multipart) -> Result<String, MultipartError> {
    let mut spools = Vec::new();
    while let Some(part) = multipart.next().await {
        spools.push(part?.spool(&at.0.0).await?);
    }
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let busy = async move {
        let wait = move || {
            begun.send(()).expect("the handler waits for it");
            held.recv().is_err()
        };
        highwire::spawn_blocking(wait).await
    };
    let mut busy = std::pin::pin!(busy);
    std::future::poll_fn(|cx| {
        assert!(busy.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    has_begun.recv().expect("the job begins");
    let count = spools.len();
    drop(spools);
    let mut other = std::pin::pin!(highwire::spawn_blocking(|| 7));
    let first = std::future::poll_fn(|cx| std::task::Poll::Ready(other.as_mut().poll(cx))).await;
    assert!(first.is_pending(), "removing {count} files fills the queue: {first:?}");
    drop(release);
    assert_eq!(busy.await, Ok(true));
    Ok(format!("{count} {:?}", other.await))
}

#[test]
fn files_that_are_dropped_leave_places_of_the_pool_to_others() {
    let folder = std::env::temp_dir().join(format!("highwire-spools-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let app = App::new()
        .state(At(folder.clone()))
        .post("/", drop_many)
        .configure(|config| (config.limits.blocking_threads, config.limits.blocking_queue) = (1, 2));
    let body = part("name=a", "x").repeat(20) + "--B--";
    let answer = client(app).post("/").header("content-type", MULTIPART).body(body).send();
    assert_eq!(answer.text(), "20 Ok(7)");
    let begun = Instant::now();
    while std::fs::read_dir(&folder).expect("a folder").next().is_some() {
        assert!(begun.elapsed() < PATIENCE, "dropped files are not removed");
        std::thread::yield_now();
    }
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

#[test]
fn a_part_is_spooled_kept_and_removed() {
    let folder = std::env::temp_dir().join(format!("highwire-spool-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let spool = async |at: highwire::State<At>, mut multipart: Multipart| {
        let mut said = String::new();
        while let Some(part) = multipart.next().await {
            let part = part?;
            let name = part.name().to_string();
            let spool = part.spool(&at.0.0).await?;
            assert!(!is_open(spool.path()), "a complete file is still open");
            let data = std::fs::read(spool.path()).expect("the file is there");
            said += &format!("{name} {} {} ", spool.len(), data.iter().filter(|&&byte| byte == b'x').count());
            if name == "keep" {
                std::fs::rename(spool.keep(), at.0.0.join("kept")).expect("the file can be renamed");
            }
        }
        Ok::<_, MultipartError>(said)
    };
    let app = App::new().state(At(folder.clone())).state(Limits::default().part_bytes(600_000)).post("/", spool).post(
        "/nowhere",
        async |mut multipart: Multipart| {
            let part = multipart.next().await.expect("a part")?;
            part.spool("/nowhere/at/all").await.map(|spool| spool.len().to_string())
        },
    );
    let mut client = client(app);
    let mut ask = |path: &str, body: String| client.post(path).header("content-type", MULTIPART).body(body).send();
    let files = || {
        let mut names: Vec<_> =
            std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("a file").file_name()).collect();
        names.sort();
        names
    };
    // Waits, because another thread removes files.
    let files_become = |expected: &[&str]| {
        let begun = Instant::now();
        while files() != expected {
            assert!(begun.elapsed() < PATIENCE, "{:?} instead of {expected:?}", files());
            std::thread::yield_now();
        }
    };
    let answer = ask("/", part("name=a", &"x".repeat(300_000)) + &part("name=b", "") + "--B--");
    assert_eq!(answer.text(), "a 300000 300000 b 0 0 ");
    files_become(&[]);
    assert_eq!(ask("/", part("name=keep", &"x".repeat(7)) + "--B--").text(), "keep 7 7 ");
    files_become(&["kept"]);
    check_problem(&ask("/", part("name=a", &"x".repeat(600_001)) + "--B--"), 413, &[("field", "a")]);
    files_become(&["kept"]);
    check_problem(&ask("/", part("name=a", &"x".repeat(500_000))), 400, &[("in", "body")]);
    files_become(&["kept"]);
    check_problem(&ask("/nowhere", part("name=a", "") + "--B--"), 500, &[("field", "a")]);
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

#[test]
fn what_is_acceptable() {
    let app = App::new().get("/", |accept: Accept| {
        let kind = accept.media_type_or_406(&["application/json", "text/html"])?;
        Ok::<_, Problem>(format!("{kind} {:?} {:?}", accept.language(&["en", "de"]), accept.charset(&["utf-8"])))
    });
    let mut client = client(app);
    assert_eq!(client.get("/").send().text(), "application/json Some(\"en\") Some(\"utf-8\")");
    let answer = client
        .get("/")
        .header("accept", "application/json;q=0.1")
        .header("accept", "text/html")
        .header("accept-language", "de-CH, en;q=0.5")
        .header("accept-charset", "latin1");
    assert_eq!(answer.send().text(), "text/html Some(\"en\") None");
    let refused = client.get("/").header("accept", "image/png").send();
    check_problem(&refused, 406, &[("available", "application/json, text/html"), ("in", "accept")]);
}

#[test]
fn credentials() {
    let app = |app: App| {
        app.get("/basic", |basic: Basic| format!("{} {} {}", basic.user, basic.password, basic.is("ada", "x:y")))
            .get("/token", |bearer: Bearer| format!("{} {}", bearer.token, bearer.is("x1")))
            .get("/forbidden", |bearer: Bearer| bearer.forbid())
            .get("/wrong", |basic: Basic| basic.refuse())
            .get("/shown", |basic: Option<Basic>, bearer: Option<Bearer>| format!("{basic:?} {bearer:?}"))
    };
    let mut client = client(app(App::new()));
    let mut ask = |path: &str, credentials: &str| client.get(path).header("authorization", credentials).send();
    assert_eq!(ask("/basic", "Basic YWRhOng6eQ==").text(), "ada x:y true");
    assert_eq!(ask("/basic", "bAsIc  Og== ").text(), "  false");
    assert_eq!(ask("/basic", "Basic w6k6w6k=").text(), "\u{e9} \u{e9} false");
    let challenge = "Basic realm=\"test\", charset=\"UTF-8\"";
    // These values are empty, without credentials, without a colon, not UTF-8, with a control character, not base64, or
    // of another scheme.
    for wrong in ["", "Basic", "Basic ", "Basic YWRh", "Basic /zo=", "Basic YTpiCg==", "Basic ?", "Bearer x1"] {
        let answer = ask("/basic", wrong);
        check_problem(&answer, 401, &[]);
        assert_eq!(answer.header("www-authenticate"), challenge, "{wrong}");
    }
    assert_eq!(ask("/wrong", "Basic YWRhOng6eQ==").header("www-authenticate"), challenge);
    assert_eq!(ask("/token", "Bearer x1").text(), "x1 true");
    assert_eq!(ask("/token", "bearer a.B-c_d~e+f/g==").text(), "a.B-c_d~e+f/g== false");
    for wrong in ["Bearer", "Bearer =", "Bearer a b", "Bearer a=b", "Basic YWRhOng6eQ=="] {
        let answer = ask("/token", wrong);
        check_problem(&answer, 401, &[]);
        assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"test\"", "{wrong}");
    }
    let forbidden = ask("/forbidden", "Bearer x1");
    check_problem(&forbidden, 403, &[]);
    assert_eq!(forbidden.header("www-authenticate"), "Bearer realm=\"test\", error=\"insufficient_scope\"");
    let shown = ask("/shown", "Basic YWRhOng6eQ==");
    assert_eq!(shown.text(), "Some(Basic { user: \"ada\", .. }) None");
    let twice =
        client.get("/basic").header("authorization", "Basic YWRhOng6eQ==").header("authorization", "Basic Og==");
    check_problem(&twice.send(), 401, &[]);
    let mut client = self::client(app(App::new().state(Realm("the \"door\"\n".to_string()))));
    let challenge = "Basic realm=\"the \\\"door\\\"\", charset=\"UTF-8\"";
    assert_eq!(client.get("/basic").send().header("www-authenticate"), challenge);
}
