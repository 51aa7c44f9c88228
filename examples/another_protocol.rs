//! How is another protocol spoken on a connection that began with HTTP?

use highwire::{App, Upgrade};

/// The routes. The same route serves HTTP/2, where the protocol has a stream to itself.
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
