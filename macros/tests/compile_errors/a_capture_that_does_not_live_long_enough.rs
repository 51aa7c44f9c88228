//! A closure that borrows from the function around it.

use highwire::{App, check_handler};

fn main() {
    let name = String::from("ann");
    let _ = App::new().get("/", check_handler!(|| name.len().to_string()));
}
