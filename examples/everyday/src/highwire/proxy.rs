//! Another server behind a prefix.

use highwire::App;
use highwire::client::Error;
use highwire::proxy::Proxy;

pub fn app(upstream: &str) -> Result<App, Error> {
    Ok(App::new().get("/", || "own").any("/api/{*rest}", Proxy::to([upstream])?.strip_prefix("/api")))
}
