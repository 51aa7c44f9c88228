//! An OpenAPI document, and a page to read it.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::{Json, Router};
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_rapidoc::RapiDoc;

#[derive(OpenApi)]
#[openapi(info(title = "Books", version = "1.0"))]
struct Document;

#[derive(serde::Serialize, ToSchema)]
struct Book {
    title: String,
}

/// Shows a book.
#[utoipa::path(get, path = "/books/{id}", params(("id" = u32, Path)), responses((status = 200, body = Book), (status = 404)))]
async fn book(Path(id): Path<u32>) -> Result<Json<Book>, StatusCode> {
    (id == 1).then(|| Json(Book { title: "Emma".to_string() })).ok_or(StatusCode::NOT_FOUND)
}

pub fn app() -> Router {
    let routes = OpenApiRouter::with_openapi(Document::openapi()).routes(routes!(book));
    let (router, document) = routes.split_for_parts();
    router.merge(RapiDoc::with_openapi("/openapi.json", document).path("/docs"))
}
