//! A program's own type as an argument, without `FromRequest`.

use highwire::{App, Path, check_handler};

struct User;

fn show(_: Path<u32>, _: User) -> &'static str {
    "a user"
}

fn main() {
    let _ = App::new().get("/users/{id}", check_handler!(show));
}
