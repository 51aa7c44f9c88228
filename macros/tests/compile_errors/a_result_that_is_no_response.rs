//! A program's own type as a result, without `IntoResponse` or `Json` around it.

use highwire::{App, check_handler};

struct User;

fn show() -> User {
    User
}

fn main() {
    let _ = App::new().get("/", check_handler!(show));
}
