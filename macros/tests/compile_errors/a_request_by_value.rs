//! `Request` by value.

use highwire::{App, Request, check_handler};

fn show(request: Request<'static>) -> String {
    request.path().to_string()
}

fn main() {
    let _ = App::new().get("/", check_handler!(show));
}
