//! Two arguments that take the body.

use highwire::{App, Json};

fn order(_: Json<u8>, _: String) {}

fn main() {
    let _ = App::new().post("/", order);
}
