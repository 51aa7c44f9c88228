//! Values that keep rules: 422 with what is wrong in which field.

use axum::routing::post;
use axum::{Json, Router};
use axum_valid::Garde;
use garde::Validate;

#[derive(serde::Deserialize, Validate)]
struct Account {
    #[garde(length(min = 2, max = 20))]
    name: String,
    #[garde(range(min = 18))]
    age: u8,
}

async fn open(Garde(Json(Account { name, age })): Garde<Json<Account>>) -> String {
    format!("{name}, {age}")
}

pub fn app() -> Router {
    Router::new().route("/accounts", post(open))
}
