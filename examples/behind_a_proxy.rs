//! Finds the address of the client if the server is behind a proxy.

use highwire::App;
use highwire::middleware::{AccessLog, ClientAddress, NotANetwork, RequestId, RequestIds, TrustedProxies};

/// Returns the app. It trusts the `X-Forwarded-*` fields of these proxies only.
///
/// # Errors
/// Returns an error if a network is malformed.
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
