//! Tests `Valid` and `Checked`, which check extracted values.

use garde::Validate;
use highwire::testing::Client;
use highwire::{App, Checked, Form, Json, Path, Problem, Query, Request, Valid};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize, Validate)]
struct Order {
    #[garde(length(min = 1, max = 10))]
    item: String,
    #[garde(dive)]
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize, Validate)]
struct Line {
    #[garde(range(min = 1, max = 9))]
    count: u32,
}

#[derive(Debug, Deserialize, Validate)]
struct Page {
    #[garde(range(max = 100))]
    page: u32,
}

fn app() -> App {
    App::new()
        .post("/orders", |Valid(Json(order)): Valid<Json<Order>>| format!("{} {}", order.item, order.lines.len()))
        .get("/list", async |Valid(Query(Page { page })): Valid<Query<Page>>| page.to_string())
        .get("/pages/{page}", |Valid(Path(Page { page })): Valid<Path<Page>>| page.to_string())
        .post("/form", |checked: Checked<Form<Page>>| {
            format!(
                "{} {}",
                checked.value.0.page,
                checked.errors.iter().map(|error| &*error.pointer).collect::<String>()
            )
        })
}

fn refused(client: &mut Client, order: &Value) -> Value {
    let answer = client.post("/orders").json(order).send();
    assert_eq!((answer.status().as_u16(), answer.header("content-type")), (422, "application/problem+json"));
    answer.json()
}

#[test]
fn each_broken_rule_is_named_by_its_place() {
    let mut client = Client::new(app()).expect("an app");
    let good = json!({"item": "tea", "lines": [{"count": 1}, {"count": 9}]});
    assert_eq!(client.post("/orders").json(&good).send().text(), "tea 2");
    let problem = refused(&mut client, &json!({"item": "", "lines": [{"count": 1}, {"count": 0}]}));
    assert_eq!(problem["in"], "body");
    let pointers: Vec<_> =
        problem["errors"].as_array().expect("a list").iter().map(|error| &error["pointer"]).collect();
    assert_eq!(pointers, ["/item", "/lines/1/count"]);
    // A client cannot make the list long.
    let many: Vec<_> = (0..1000).map(|_| json!({"count": 0})).collect();
    let problem = refused(&mut client, &json!({"item": "tea", "lines": many}));
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(32));
    // What is no order at all is refused as without rules.
    assert_eq!(client.post("/orders").json(&json!({"item": 1})).send().status(), 422);
    assert_eq!(client.post("/orders").body("{}").send().status(), 415);
}

#[test]
fn queries_paths_and_forms_are_checked_too() {
    let mut client = Client::new(app()).expect("an app");
    assert_eq!(client.get("/list?page=100").send().text(), "100");
    let query: Value = client.get("/list?page=101").send().json();
    assert_eq!((&query["in"], &query["errors"][0]["pointer"]), (&json!("query"), &json!("/page")));
    let path = client.get("/pages/101").send();
    assert_eq!((path.status().as_u16(), &path.json::<Value>()["in"]), (422, &json!("path")));
    assert_eq!(client.post("/form").form(&[("page", "7")]).send().text(), "7 ");
    assert_eq!(client.post("/form").form(&[("page", "700")]).send().text(), "700 /page");
}

#[test]
fn the_apps_words_apply() {
    let word = |_: &Request<'_>, problem: Problem| format!("worded: {}", problem.detail());
    let mut client = Client::new(app().on_rejection(word)).expect("an app");
    let answer = client.get("/list?page=101").send();
    assert_eq!((answer.status().as_u16(), answer.text()), (422, "worded: the query breaks rules"));
}
