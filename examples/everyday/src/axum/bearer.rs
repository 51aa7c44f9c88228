//! Routes for those who have a token.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_extra::TypedHeader;
use axum_extra::headers::Authorization;
use axum_extra::headers::authorization::Bearer;

async fn authorized(token: Option<TypedHeader<Authorization<Bearer>>>, request: Request, next: Next) -> Response {
    match token {
        Some(TypedHeader(token)) if token.token() == "secret" => next.run(request).await,
        _ => (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response(),
    }
}

pub fn app() -> Router {
    let admin = Router::new().route("/users", get(async || "all of them")).layer(from_fn(authorized));
    Router::new().route("/", get(async || "hello")).nest("/admin", admin)
}
