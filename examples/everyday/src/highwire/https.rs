//! HTTPS with files that are reloaded, and a redirect from HTTP.

use highwire::tls::TlsConfig;
use highwire::{App, Https};

pub fn run() -> highwire::Result<()> {
    let tls = TlsConfig::new().certificate_files("site.pem", "site.key");
    let app = App::new().get("/", || "hello").https(Https::new().redirect(443));
    app.listen("0.0.0.0:80")?.listen_tls("0.0.0.0:443", tls)?.run()
}
