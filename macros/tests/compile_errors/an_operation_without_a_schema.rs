//! A type in an OpenAPI document that does not derive `JsonSchema`.

use highwire::openapi::operation;
use highwire::{App, Json};

#[derive(serde::Serialize)]
struct Order;

fn order() -> Json<Order> {
    Json(Order)
}

fn main() {
    let _ = App::new().get("/", operation(order));
}
