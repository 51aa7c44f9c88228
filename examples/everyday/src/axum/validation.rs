//! Values that keep rules: 422 with what is wrong in which field.

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use garde::Validate;

#[derive(serde::Deserialize, Validate)]
struct Account {
    #[garde(length(min = 2, max = 20))]
    name: String,
    #[garde(range(min = 18))]
    age: u8,
}

struct Valid<T>(T);

impl<S, T> FromRequest<S> for Valid<T>
where
    S: Send + Sync,
    T: Validate<Context = ()>,
    Json<T>: FromRequest<S, Rejection = JsonRejection>,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Valid<T>, Response> {
        let Json(value) = Json::<T>::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        match value.validate() {
            Ok(()) => Ok(Valid(value)),
            Err(report) => Err((StatusCode::UNPROCESSABLE_ENTITY, report.to_string()).into_response()),
        }
    }
}

async fn open(Valid(Account { name, age }): Valid<Account>) -> String {
    format!("{name}, {age}")
}

pub fn app() -> Router {
    Router::new().route("/accounts", post(open))
}
