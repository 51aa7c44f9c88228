//! How is a site's folder served, kept by browsers as long as it may be, and compressed?

use highwire::compress::Compression;
use highwire::{App, Files, StatusCode};
use std::path::PathBuf;

/// The routes.
pub(crate) fn app(folder: impl Into<PathBuf>) -> App {
    let files = Files::new(folder)
        // Their names change with what is in them, so that nobody has to ask again.
        .cache_control("assets/*", "public, max-age=31536000, immutable")
        // Everything else is asked for each time, and answered 304 where it is the same.
        .cache_control("*", "no-cache")
        // `app.js.br` in place of `app.js`, where it is there: compressed once, and as well as can be.
        .precompressed()
        .error_page(StatusCode::NOT_FOUND, "404.html");
    // Whatever is not, is compressed as it is sent.
    App::new().files("/", files).with(Compression::new())
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app("public").listen("127.0.0.1:8080")?.run()
}
