//! Tests the OpenAPI document of an app: what it says of routes and types, and which apps it refuses.

use highwire::openapi::{self, OpenApi, SecurityScheme, hidden, operation};
use highwire::testing::Client;
use highwire::{
    App, Basic, Bearer, Form, Html, Json, Method, Multipart, Path, Problem, Query, Redirect, State, Status, StatusCode,
    blocking,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A point.
#[derive(Deserialize, JsonSchema, Serialize)]
struct Point {
    /// To the right.
    x: i32,
    #[serde(default)]
    label: String,
}

#[derive(Deserialize, JsonSchema)]
struct Window {
    /// The first.
    from: u8,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    row: u32,
    seat: char,
}

/// A drawing, which has points.
#[derive(Deserialize, JsonSchema, Serialize)]
struct Drawing {
    points: Vec<Point>,
}

fn document(app: App) -> Value {
    let mut client = Client::new(app.openapi(OpenApi::new("T", "1"))).unwrap_or_else(|error| panic!("{error}"));
    serde_json::from_str(client.get("/openapi.json").send().text()).expect("JSON")
}

fn fault(app: App) -> String {
    let is_documented = app.routes().any(|(_, path)| path == "/openapi.json");
    let app = if is_documented && app.routes().count() > 1 { app } else { app.openapi(OpenApi::new("T", "1")) };
    app.server().expect_err("an app without a document").to_string()
}

/// Sees something.
///
/// And *more*, in
/// two lines.
#[openapi::docs]
async fn see(Path((from, to)): Path<(u8, String)>) -> Result<Json<Point>, Problem> {
    Ok(Json(Point { x: i32::from(from), label: to }))
}

mod inner {
    /// Looks.
    #[super::openapi::docs]
    pub(super) fn look() -> &'static str {
        "looks"
    }
}

#[test]
fn operations_say_what_their_types_say() {
    let problem = |text: &str| json!({"description": text, "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}});
    let string = json!({"type": "string"});
    let words = json!({"description": "OK", "content": {"text/plain": {"schema": string}}});
    let no_path = problem("Nothing has this path.");
    let large = json!({"description": "The body is too large."});
    let app = App::new()
        .get("/a/{from}/b/{to}", operation!(see))
        .get("/look", operation!(inner::look).tag("t").deprecated())
        .get("/rows/{row}/{seat}", operation(|Path(Place { row, seat }): Path<Place>| format!("{row}{seat}")))
        .get("/files/{*rest}", operation(|| ()))
        .get("/query", operation(|Query(window): Query<Window>| format!("{} {:?}", window.from, window.tags)))
        .post("/maybe", operation(|_: Option<Json<Vec<u8>>>, _: Option<Bearer>| StatusCode::ACCEPTED).id("maybe"))
        .put("/points", operation(blocking(|Json(point): Json<Point>, _: Basic| Status::<201, _>(Json(point)))))
        .post("/form", operation(|Form(_): Form<Place>| Redirect::see_other("/")))
        .post("/upload", operation(async |_: Multipart| Html("done")))
        .delete(
            "/all",
            operation(|_: State<u8>| -> Option<String> { None })
                .security("key")
                .summary("Deletes")
                .description("all")
                .response::<409, Json<Point>>("It is locked."),
        )
        .state(1_u8);
    let settings = OpenApi::new("T", "1")
        .description("d")
        .server("https://t.example")
        .tag("t", "some")
        .security_scheme("key", SecurityScheme::Header("x-key"));
    let mut client = Client::new(app.openapi(settings)).unwrap_or_else(|error| panic!("{error}"));
    let answer = client.get("/openapi.json").send();
    assert_eq!(answer.header("content-type"), "application/json");
    let document: Value = serde_json::from_str(answer.text()).expect("JSON");
    let expected = json!({
        "openapi": "3.1.1",
        "info": {"title": "T", "version": "1", "description": "d"},
        "servers": [{"url": "https://t.example"}],
        "tags": [{"name": "t", "description": "some"}],
        "paths": {
            "/a/{from}/b/{to}": {"get": {
                "operationId": "see",
                "summary": "Sees something",
                "description": "And *more*, in\ntwo lines.",
                "parameters": [
                    {"name": "from", "in": "path", "required": true, "schema": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}},
                    {"name": "to", "in": "path", "required": true, "schema": string},
                ],
                "responses": {
                    "200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Point"}}}},
                    "404": no_path,
                    "default": problem("Any other status."),
                },
            }},
            "/look": {"get": {"operationId": "look", "summary": "Looks", "tags": ["t"], "deprecated": true, "responses": {"200": words}}},
            "/rows/{row}/{seat}": {"get": {
                "operationId": "get_rows_row_seat",
                "parameters": [
                    {"name": "row", "in": "path", "required": true, "schema": {"type": "integer", "format": "uint32", "minimum": 0, "maximum": 4_294_967_295_u32}},
                    {"name": "seat", "in": "path", "required": true, "schema": {"type": "string", "minLength": 1, "maxLength": 1}},
                ],
                "responses": {"200": words, "404": no_path},
            }},
            "/files/{rest}": {"get": {
                "operationId": "get_files_rest",
                "parameters": [{"name": "rest", "in": "path", "required": true, "schema": string}],
                "responses": {"200": {"description": "OK"}},
            }},
            "/query": {"get": {
                "operationId": "get_query",
                "parameters": [
                    {"name": "from", "in": "query", "required": true, "description": "The first.", "schema": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}},
                    {"name": "tags", "in": "query", "required": false, "schema": {"type": "array", "items": string, "default": []}},
                ],
                "responses": {"200": words, "400": problem("The query is malformed or does not fit.")},
            }},
            "/maybe": {"post": {
                "operationId": "maybe",
                "requestBody": {"required": false, "content": {"application/json": {"schema": {"type": "array", "items": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}}}}},
                "security": [{"bearer": []}, {}],
                "responses": {
                    "400": problem("The JSON is malformed."),
                    "401": problem("The token is missing or not valid."),
                    "413": large,
                    "415": problem("The body is not JSON."),
                    "422": problem("The JSON does not fit."),
                    "default": {"description": "Any other status."},
                },
            }},
            "/points": {"put": {
                "operationId": "put_points",
                "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PointInput"}}}},
                "security": [{"basic": []}],
                "responses": {
                    "201": {"description": "Created", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Point"}}}},
                    "400": problem("The JSON is malformed."),
                    "401": problem("The name or the password is missing or wrong."),
                    "413": large,
                    "415": problem("The body is not JSON."),
                    "422": problem("The JSON does not fit."),
                },
            }},
            "/form": {"post": {
                "operationId": "post_form",
                "requestBody": {"required": true, "content": {
                    "application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Place"}},
                    "multipart/form-data": {"schema": {"$ref": "#/components/schemas/Place"}},
                }},
                "responses": {
                    "3XX": {"description": "A redirect."},
                    "400": problem("The form is malformed."),
                    "413": large,
                    "415": problem("The body is not a form."),
                    "422": problem("The form does not fit."),
                },
            }},
            "/upload": {"post": {
                "operationId": "post_upload",
                "requestBody": {"required": true, "content": {"multipart/form-data": {}}},
                "responses": {
                    "200": {"description": "OK", "content": {"text/html": {"schema": string}}},
                    "400": problem("The form is malformed."),
                    "413": large,
                    "415": problem("The body is not a multipart form."),
                },
            }},
            "/all": {"delete": {
                "operationId": "delete_all",
                "summary": "Deletes",
                "description": "all",
                "security": [{"key": []}],
                "responses": {
                    "200": words,
                    "404": {"description": "There is no such thing."},
                    "409": {"description": "It is locked.", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Point"}}}},
                },
            }},
        },
        "components": {
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-key"},
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    });
    for (name, value) in expected.as_object().expect("an object") {
        if name == "paths" {
            for (path, operations) in value.as_object().expect("an object") {
                assert_eq!(document["paths"][path], *operations, "{path}: {:#}", document["paths"][path]);
            }
        } else if name != "components" {
            assert_eq!(document[name], *value, "{name}");
        }
    }
    assert_eq!(document["paths"].as_object().map(serde_json::Map::len), Some(10));
    assert_eq!(document["components"]["securitySchemes"], expected["components"]["securitySchemes"]);
    let schemas = document["components"]["schemas"].as_object().expect("an object");
    assert_eq!(schemas.keys().collect::<Vec<_>>(), ["Place", "Point", "PointInput", "Problem"]);
    // serde reads a point without a label, and always writes one.
    assert_eq!(schemas["PointInput"]["required"], json!(["x"]));
    assert_eq!(schemas["Point"]["required"], json!(["x", "label"]));
    assert_eq!(schemas["Point"]["description"], "A point.");
    assert_eq!(schemas["Point"]["properties"]["x"]["description"], "To the right.");
}

#[test]
fn a_type_that_contains_one_with_two_schemas_has_two() {
    let app = App::new().post("/", operation(|Json(drawing): Json<Drawing>| Json(drawing)));
    let document = document(app);
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["Drawing"]["properties"]["points"]["items"]["$ref"], "#/components/schemas/Point");
    assert_eq!(schemas["DrawingInput"]["properties"]["points"]["items"]["$ref"], "#/components/schemas/PointInput");
    assert!(!document.to_string().contains("components/re"), "{document}");
}

#[test]
fn maps_and_nested_apps_and_hosts_are_described() {
    let app = App::new()
        .nest("/api", App::new().get("/any", operation(|Query(_): Query<BTreeMap<String, u8>>| ())))
        .host("www.example.com", App::new().get("/", operation(|| "www")))
        .files("/static", ".")
        .ws("/ws", async |_| {})
        .get("/page", hidden(|| Html("for people")));
    let document = document(app);
    let paths: Vec<&String> = document["paths"].as_object().expect("an object").keys().collect();
    assert_eq!(paths, ["/", "/api/any"]);
    assert_eq!(document["paths"]["/"]["get"]["servers"], json!([{"url": "//www.example.com"}]));
    assert_eq!(document["paths"]["/api/any"]["get"]["parameters"][0]["schema"]["type"], "object");
}

#[test]
fn refusals_in_the_apps_words_have_no_schema() {
    let app = App::new()
        .get("/{id}", operation(|Path(_): Path<u8>| ()))
        .on_rejection(|_, problem: Problem| problem.detail().to_string());
    let document = document(app);
    assert_eq!(document["paths"]["/{id}"]["get"]["responses"]["404"], json!({"description": "Nothing has this path."}));
}

#[test]
fn what_cannot_be_described_is_an_error_at_start() {
    fn plain() {}
    for (app, faults) in [
        (
            App::new().get("/a", plain).post("/b", async || ()).get("/c", operation(plain)),
            &[
                "GET /a: the handler `all::app::openapi::what_cannot_be_described_is_an_error_at_start::plain` has no description",
                "POST /b: the handler `",
                "register `operation(handler)`",
            ][..],
        ),
        (App::new().any("/", operation(plain)), &["(any method) /: OpenAPI cannot describe this method"]),
        (
            App::new().route(Method::from_bytes(b"PURGE").expect("a method"), "/", operation(plain)),
            &["PURGE /: OpenAPI cannot describe this method"],
        ),
        (
            App::new().get("/", operation(plain)).host("h", App::new().get("/", operation(|| ()).id("h"))),
            &["GET h/: for OpenAPI this is GET /, which has a description"],
        ),
        (App::new().get("/", operation(plain).security("s")), &["GET /: the security scheme `s` is unknown"]),
        (
            App::new().get("/a", operation(plain).id("x")).get("/b", operation(plain).id("x")),
            &["GET /b: two operations have the id `x`"],
        ),
        (
            App::new().get("/u/{id}", operation(plain)).delete("/u/{name}", operation(plain)),
            &["DELETE /u/{name}: for OpenAPI this is the path of GET /u/{id}; give the parameters the same names"],
        ),
        (
            App::new().get("/f/{path}", operation(plain)).get("/f/{*path}", operation(|| ()).id("all")),
            &["GET /f/{*path}: for OpenAPI this is GET /f/{path}, which has a description"],
        ),
        (
            App::new()
                .get("/", operation(|_: Bearer| ()))
                .openapi(OpenApi::new("A", "1").security_scheme("bearer", SecurityScheme::Header("x-key"))),
            &["GET /: the security scheme `bearer` has two definitions"],
        ),
        (
            App::new()
                .openapi(OpenApi::new("A", "1").security_scheme("a key", SecurityScheme::Header("x-key")))
                .get("/", operation(plain)),
            &["the security scheme `a key` has a name that OpenAPI does not permit"],
        ),
        (App::new().openapi(OpenApi::new("A", "1")), &["App::openapi was called twice"]),
        (App::new().nest("/n", App::new().openapi(OpenApi::new("A", "1"))), &["a nested app has called openapi"]),
    ] {
        let said = fault(app);
        for expected in faults {
            assert!(said.contains(expected), "{said}\nlacks {expected}");
        }
    }
}

#[test]
fn the_page_shows_the_operations_and_runs_only_its_own_script() {
    let app = App::new()
        .get("/a/{from}/b/{to}", operation!(see))
        .openapi(OpenApi::new("<T>", "1").page("/docs").document("/d"));
    let mut client = Client::new(app).expect("an app");
    let page = client.get("/docs").send();
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.header("content-security-policy").starts_with("default-src 'none'; "), "{page:?}");
    for part in ["&lt;T&gt;", "Sees something", "/a/{from}/b/{to}", "To the right.", "uint8", "href=\"/d\""] {
        assert!(page.text().contains(part), "{part} is not in {}", page.text());
    }
    assert_eq!(client.get("/openapi.json").send().status(), 404);
}

#[test]
fn security_is_what_the_extractors_and_the_program_demand() {
    let app = App::new()
        .get("/either", operation(|_: Option<Basic>, _: Option<Bearer>| ()))
        .get("/demanded", operation(|_: Option<Bearer>| ()).security("bearer"))
        .get("/both", operation(|_: Bearer| ()).security("key"))
        // Only a later route makes the scheme known.
        .get("/handled", operation(|_: Result<Bearer, highwire::Response>, _: Option<highwire::Tls>| ()));
    let settings = OpenApi::new("T", "1").security_scheme("key", SecurityScheme::Cookie("k"));
    let written = app.openapi(settings).openapi_document().expect("a document");
    let document: Value = serde_json::from_str(&written).expect("JSON");
    let of = |path: &str| document["paths"][path]["get"]["security"].clone();
    assert_eq!(of("/either"), json!([{"basic": []}, {"bearer": []}, {}]));
    assert_eq!(of("/demanded"), json!([{"bearer": []}]));
    assert_eq!(of("/both"), json!([{"bearer": [], "key": []}]));
    assert_eq!(of("/handled"), json!([{"bearer": []}, {}]));
    assert_eq!(document["paths"]["/handled"]["get"]["responses"], json!({"200": {"description": "OK"}}));
}
