//! A minimal server with two routes.

use highwire::{App, Path};

/// Returns the app.
pub(crate) fn app() -> App {
    App::new().get("/", || "Hello, World!").get("/{name}", |Path(name): Path<String>| format!("Hello, {name}!"))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
