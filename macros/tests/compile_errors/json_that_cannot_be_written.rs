//! `Json<T>` as a result, where `T` does not derive `Serialize`.

use highwire::{App, Json, check_handler};

struct Order;

async fn order() -> Json<Order> {
    Json(Order)
}

fn main() {
    let _ = App::new().post("/", check_handler!(order));
}
