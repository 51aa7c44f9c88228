//! Scripts of another site may call, with cookies; browsers get the usual headers for safety.

use highwire::App;
use highwire::middleware::{Cors, SecurityHeaders};

pub fn app() -> App {
    App::new()
        .get("/", || "hello")
        .with(Cors::new().origin("https://example.com").credentials())
        .with(SecurityHeaders::new())
}
