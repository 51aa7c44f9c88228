//! A call of another service, with a time limit and, if it has trouble, again.

use highwire::client::{Client, Error, Retry};
use highwire::{App, Json, Path, State};
use std::time::Duration;

#[derive(serde::Deserialize, serde::Serialize)]
struct Weather {
    temperature: f32,
}

async fn weather(client: State<Client>, Path(city): Path<String>) -> Result<Json<Weather>, Error> {
    let response = client.get("/current").query(&[("city", &city)]).send().await?;
    Ok(Json(response.error_for_status()?.json().await?))
}

pub fn app(service: &str) -> Result<App, Error> {
    let client = Client::builder().base_url(service).timeout(Duration::from_secs(5)).with(Retry::new()).build()?;
    Ok(App::new().get("/weather/{city}", weather).state(client))
}
