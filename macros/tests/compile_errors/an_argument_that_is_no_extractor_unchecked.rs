//! The same without `check_handler!`.

use highwire::{App, Path};

struct User;

fn show(_: Path<u32>, _: User) -> &'static str {
    "a user"
}

fn main() {
    let _ = App::new().get("/users/{id}", show);
}
