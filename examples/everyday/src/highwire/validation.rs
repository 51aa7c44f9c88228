//! Values that keep rules: 422 with what is wrong in which field.

use garde::Validate;
use highwire::{App, Json, Valid};

#[derive(serde::Deserialize, Validate)]
struct Account {
    #[garde(length(min = 2, max = 20))]
    name: String,
    #[garde(range(min = 18))]
    age: u8,
}

fn open(Valid(Json(Account { name, age })): Valid<Json<Account>>) -> String {
    format!("{name}, {age}")
}

pub fn app() -> App {
    App::new().post("/accounts", open)
}
