//! More arguments than a handler may have.

use highwire::{App, Method};

fn many(_: Method, _: Method, _: Method, _: Method, _: Method, _: Method, _: Method, _: Method, _: Method, _: Method) {}

fn main() {
    let _ = App::new().get("/", many);
}
