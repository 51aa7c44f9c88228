//! An OpenAPI document, and a page to read it.

use highwire::openapi::{self, OpenApi, operation};
use highwire::{App, Json, Path};
use schemars::JsonSchema;

#[derive(serde::Serialize, JsonSchema)]
struct Book {
    title: String,
}

/// Shows a book.
#[openapi::docs]
fn book(Path(id): Path<u32>) -> Option<Json<Book>> {
    (id == 1).then(|| Json(Book { title: "Emma".to_string() }))
}

pub fn app() -> App {
    App::new().get("/books/{id}", operation!(book)).openapi(OpenApi::new("Books", "1.0").page("/docs"))
}
