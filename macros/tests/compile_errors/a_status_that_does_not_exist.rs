//! A status that no final response has.

use highwire::{App, Status};

fn main() {
    let _ = App::new().get("/", || Status::<99, _>("hello"));
}
