//! A time limit and a limit of bodies.

use highwire::middleware::{BodyLimit, Timeout};
use highwire::{App, time};
use std::time::Duration;

async fn slow(body: String) -> String {
    time::sleep(Duration::from_secs(body.len() as u64)).await;
    body
}

pub fn app() -> App {
    App::new().post("/", slow).with(Timeout::new(Duration::from_secs(2))).with(BodyLimit::new(1000))
}
