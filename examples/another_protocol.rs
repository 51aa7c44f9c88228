//! Switches a connection from HTTP to another protocol (`Upgrade`).

use highwire::{App, Upgrade};

/// Returns the app. The same route serves HTTP/2, where each upgrade has a stream of its own.
pub(crate) fn app() -> App {
    App::new().get("/echo", |upgrade: Upgrade| {
        upgrade.accept("echo", async |mut stream| {
            while let Ok(Some(bytes)) = stream.read().await {
                if stream.write(bytes).await.is_err() {
                    return;
                }
            }
        })
    })
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
