//! How is a server stopped by its own program, without losing what is under way?

use highwire::{App, time};
use std::time::Duration;

/// The routes.
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
    // `run` would stop at SIGTERM and Ctrl-C by itself; `start` leaves it to the program.
    let handle = server.start()?;
    println!("serving on {}; press Enter to stop", handle.addresses()[0]);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    handle.shutdown();
    println!("{}", handle.join()?);
    Ok(())
}
