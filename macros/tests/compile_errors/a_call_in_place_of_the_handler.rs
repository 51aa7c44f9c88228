//! The handler's result in place of the handler.

use highwire::App;

fn show() -> &'static str {
    "hello"
}

fn main() {
    let _ = App::new().get("/", show());
}
