//! How does a server behind a proxy know who asks?

use highwire::App;
use highwire::middleware::{AccessLog, ClientAddress, NotANetwork, RequestId, RequestIds, TrustedProxies};

/// The routes. Only what these proxies say is believed.
///
/// # Errors
/// Where a network is none.
pub(crate) fn app() -> Result<App, NotANetwork> {
    let app = App::new()
        .get("/", |ClientAddress(address): ClientAddress, id: RequestId| format!("{address} asks, as request {id}."))
        .with(TrustedProxies::new(["127.0.0.0/8", "10.0.0.0/8", "::1"])?)
        .with(RequestIds::new().trust_incoming())
        .with(AccessLog::json(std::io::stdout()));
    Ok(app)
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(app()?.listen("127.0.0.1:8080")?.run()?)
}
