//! Any error with `?`: 500, and a line in the log with what has failed.

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

struct Error(Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Error {
    fn from(error: E) -> Error {
        Error(error.into())
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        tracing::error!(error = %self.0, "a request failed");
        (StatusCode::INTERNAL_SERVER_ERROR, "internal server error").into_response()
    }
}

async fn count() -> Result<String, Error> {
    let number: u32 = tokio::fs::read_to_string("/proc/sys/kernel/ostype").await?.trim().parse()?;
    Ok(number.to_string())
}

pub fn app() -> Router {
    Router::new().route("/count", get(count))
}
