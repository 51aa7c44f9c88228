//! `Json<T>` as an argument, where `T` does not derive `Deserialize`.

use highwire::{App, Json, check_handler};

struct Order;

fn order(_: Json<Order>) {}

fn main() {
    let _ = App::new().post("/", check_handler!(order));
}
