//! Tests an app without sockets and without waiting: `cargo test -p examples`.

use highwire::middleware::Timeout;
use highwire::{App, Handler, Json, Path, State, StatusCode, time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A lamp that goes out after some minutes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Lamp {
    minutes: u64,
}

type Lamps = Arc<Mutex<BTreeMap<String, Lamp>>>;

fn light(lamps: State<Lamps>, Path(name): Path<String>, Json(lamp): Json<Lamp>) -> StatusCode {
    let duration = Duration::from_secs(60 * lamp.minutes);
    lamps.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), lamp);
    highwire::spawn(async move {
        time::sleep(duration).await;
        lamps.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
    });
    StatusCode::CREATED
}

/// Returns the app. The tests call this function too.
pub(crate) fn app() -> App {
    let slow = async |Path(seconds): Path<u64>| {
        time::sleep(Duration::from_secs(seconds)).await;
        "done"
    };
    App::new()
        .put("/lamps/{name}", light)
        .get("/lamps", |lamps: State<Lamps>| Json(lamps.lock().unwrap_or_else(PoisonError::into_inner).clone()))
        .get("/slow/{seconds}", slow.with(Timeout::new(Duration::from_secs(10))))
        .state(Lamps::default())
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire::testing::Client;

    #[test]
    fn a_lamp_goes_out_after_its_time() {
        let mut client = Client::new(app()).expect("an app");
        assert_eq!(client.put("/lamps/desk").json(&Lamp { minutes: 90 }).send().status(), 201);
        client.advance(Duration::from_secs(89 * 60));
        let lit: BTreeMap<String, Lamp> = client.get("/lamps").send().json();
        assert_eq!(lit, BTreeMap::from([("desk".to_string(), Lamp { minutes: 90 })]));
        // The hour and a half of the lamp passes in virtual time only.
        client.advance(Duration::from_secs(60));
        assert_eq!(client.get("/lamps").send().text(), "{}");
    }

    #[test]
    fn what_is_wrong_with_a_request_is_told() {
        let mut client = Client::new(app()).expect("an app");
        let answer =
            client.put("/lamps/desk").header("content-type", "application/json").body(r#"{"minutes":-1}"#).send();
        assert_eq!(
            (answer.status(), answer.header("content-type")),
            (StatusCode::UNPROCESSABLE_ENTITY, "application/problem+json")
        );
        assert!(answer.text().contains("minutes"), "{}", answer.text());
    }

    #[test]
    fn whoever_takes_too_long_is_left() {
        let mut client = Client::new(app()).expect("an app");
        assert_eq!(client.get("/slow/9").send().text(), "done");
        assert_eq!(client.get("/slow/11").send().status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
