//! The same in an async function, whose errors are no responses.

use highwire::{App, check_handler};

async fn show() -> Result<&'static str, std::io::Error> {
    Ok("a user")
}

fn main() {
    let _ = App::new().get("/", check_handler!(show));
}
