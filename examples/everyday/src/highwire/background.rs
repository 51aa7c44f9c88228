//! Work after the response, for which a shutdown waits.

use highwire::{App, StatusCode, time};
use std::time::Duration;

fn order() -> StatusCode {
    highwire::spawn(async {
        time::sleep(Duration::from_secs(1)).await;
        tracing::info!("the mail is sent");
    });
    StatusCode::ACCEPTED
}

pub fn run() -> highwire::Result<()> {
    App::new().post("/orders", order).listen("127.0.0.1:8080")?.run()
}
