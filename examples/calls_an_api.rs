//! Calls another service from a handler, on the handler's own worker, and answers with what it says.

use highwire::client::{Client, Error};
use highwire::{App, Json, Path, State};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the other service says about a city.
#[derive(Deserialize, Serialize)]
struct Weather {
    temperature: f32,
}

/// Returns the app, whose handlers ask the service through this client. A test can give it `Client::to` another app.
pub(crate) fn app(client: Client) -> App {
    App::new().state(client).get("/weather/{city}", weather)
}

/// Returns a client of the service at this URL.
///
/// # Errors
/// Returns an error if the URL is invalid.
pub(crate) fn client(service: &str) -> Result<Client, Error> {
    Client::builder().base_url(service).timeout(Duration::from_secs(5)).build()
}

/// Asks the service. If it fails, the client of this server gets 502, or 504 if it was too slow.
async fn weather(State(client): State<Client>, Path(city): Path<String>) -> Result<Json<Weather>, Error> {
    let response = client.get("/v1/current").query(&[("city", &city)]).bearer("a token").send().await?;
    Ok(Json(response.error_for_status()?.json().await?))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:9000".to_string());
    Ok(app(client(&service)?).listen("127.0.0.1:8080")?.run()?)
}
