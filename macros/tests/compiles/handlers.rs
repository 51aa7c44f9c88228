//! Handlers that `check_handler!` accepts.

use highwire::{App, Json, Method, Path, Problem, Request, State, blocking, check_handler};
use std::sync::Arc;

fn plain(_: Path<u32>, _: Method) -> &'static str {
    "plain"
}

async fn later(_: State<String>, Json(number): Json<u8>) -> Result<Json<u8>, Problem> {
    Ok(Json(number))
}

fn request(request: &Request<'_>) -> String {
    request.path().to_string()
}

fn main() {
    let name = Arc::new(String::from("ann"));
    let captured = name.clone();
    let app = App::new()
        .get("/plain/{id}", check_handler!(plain))
        .post("/later", check_handler!(later))
        .get("/request", request)
        .get("/blocking", blocking(|| "blocked"))
        .get("/closure", check_handler!(move || name.to_string()))
        .get("/async", check_handler!(move || {
            let name = captured.clone();
            async move { name.to_string() }
        }))
        .state(String::new());
    assert!(app.server().is_ok());
}
