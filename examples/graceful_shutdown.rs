//! Stops a server from its program, after the requests in progress are finished (graceful shutdown).

use highwire::{App, time};
use std::time::Duration;

/// Returns the app.
pub(crate) fn app() -> App {
    App::new().get("/slow", async || {
        time::sleep(Duration::from_secs(3)).await;
        "This one is waited for."
    })
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    let server =
        app().configure(|config| config.timeouts.shutdown = Duration::from_secs(10)).listen("127.0.0.1:8080")?;
    // `run` stops at SIGTERM and Ctrl-C. After `start`, the program decides when to stop.
    let handle = server.start()?;
    println!("serving on {}; press Enter to stop", handle.addresses()[0]);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    handle.shutdown();
    println!("{}", handle.join()?);
    Ok(())
}
