//! A test of a handler that waits for half a minute.

use highwire::testing::Client;
use highwire::{App, Json, time};
use std::time::Duration;

fn app() -> App {
    App::new().post("/sum", async |Json(numbers): Json<Vec<u32>>| {
        time::sleep(Duration::from_secs(30)).await;
        Json(numbers.iter().sum::<u32>())
    })
}

pub fn adds_slowly() {
    let mut client = Client::new(app()).unwrap();
    assert_eq!(client.post("/sum").json(&[1, 2, 3]).send().text(), "6");
}
