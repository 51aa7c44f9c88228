//! A gateway: one address for several services. Each has servers of its own, which are chosen by their load and asked
//! whether they are healthy.

use highwire::App;
use highwire::client::Error;
use highwire::middleware::{AccessLog, RequestIds};
use highwire::proxy::{Balance, HealthCheck, Proxy};

/// Returns the app: `/users` and `/orders` go to these servers, and everything else is answered here.
///
/// # Errors
/// Returns an error if a URL is invalid.
pub(crate) fn app(users: &[String], orders: &[String]) -> Result<App, Error> {
    let users = Proxy::to(users)?.balance(Balance::LeastPending).health_check(HealthCheck::new("/health"));
    // The same customer always gets the same server, which has the orders in its cache.
    let orders = Proxy::to(orders)?.strip_prefix("/orders").balance(Balance::Header("x-customer".to_string()));
    Ok(App::new()
        .get("/", || "a gateway")
        .proxy("/users", users)
        .proxy("/orders", orders)
        .with(RequestIds::new())
        .with(AccessLog::json(std::io::stdout())))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let urls = |ports: [u16; 2]| ports.map(|port| format!("http://127.0.0.1:{port}")).to_vec();
    Ok(app(&urls([9000, 9001]), &urls([9100, 9101]))?.listen("127.0.0.1:8080")?.run()?)
}
