//! Routes for those who have a token.

use highwire::middleware::before;
use highwire::{App, Bearer, FromRequest, Request, Response};

fn authorized(request: &mut Request<'_>) -> Result<(), Response> {
    let token = Bearer::from_request(request)?;
    if token.is("secret") { Ok(()) } else { Err(token.refuse()) }
}

pub fn app() -> App {
    let admin = App::new().get("/users", || "all of them").with(before(authorized));
    App::new().get("/", || "hello").nest("/admin", admin)
}
