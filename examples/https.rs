//! Serves a site over HTTPS, with HTTP/2, and redirects plain HTTP there.

use highwire::tls::TlsConfig;
use highwire::{App, Https, Tls};
use std::time::Duration;

/// Returns the app.
pub(crate) fn app() -> App {
    App::new()
        .get("/", |tls: Option<Tls>| match tls {
            Some(tls) => format!("{} with {}, {}", tls.version, tls.cipher, tls.alpn.unwrap_or_default()),
            None => "in the clear".to_string(),
        })
        .https(Https::new().redirect(8443).hsts(Duration::from_secs(300)))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    // A real site uses `certificate_files("site.pem", "site.key")`, which reloads the files when they change.
    let tls = TlsConfig::new().self_signed(["localhost", "127.0.0.1"]);
    app().listen("127.0.0.1:8080")?.listen_tls("127.0.0.1:8443", tls)?.run()
}
