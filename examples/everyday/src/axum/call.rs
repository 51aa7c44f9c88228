//! A call of another service, with a time limit and, if it has trouble, again.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use std::time::Duration;

#[derive(Clone)]
struct Service {
    client: ClientWithMiddleware,
    url: String,
}

#[derive(serde::Deserialize, serde::Serialize)]
struct Weather {
    temperature: f32,
}

async fn fetch(service: &Service, city: &str) -> Result<Weather, Error> {
    let mut url = reqwest::Url::parse(&format!("{}/current", service.url)).map_err(Error::middleware)?;
    url.query_pairs_mut().append_pair("city", city);
    Ok(service.client.get(url).send().await?.error_for_status()?.json().await?)
}

async fn weather(State(service): State<Service>, Path(city): Path<String>) -> Result<Json<Weather>, StatusCode> {
    fetch(&service, &city).await.map(Json).map_err(|error| {
        tracing::error!(%error, "the service failed");
        StatusCode::BAD_GATEWAY
    })
}

pub fn app(url: &str) -> Result<Router, reqwest::Error> {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
    let retry = RetryTransientMiddleware::new_with_policy(ExponentialBackoff::builder().build_with_max_retries(3));
    let service = Service { client: ClientBuilder::new(client).with(retry).build(), url: url.to_string() };
    Ok(Router::new().route("/weather/{city}", get(weather)).with_state(service))
}
