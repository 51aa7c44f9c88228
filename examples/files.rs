//! Serves a folder of static files, with caching in browsers and compression.

use highwire::compress::Compression;
use highwire::{App, Files, StatusCode};
use std::path::PathBuf;

/// Returns the app.
pub(crate) fn app(folder: impl Into<PathBuf>) -> App {
    let files = Files::new(folder)
        // The names of these files change with their content, so browsers can reuse them without a request.
        .cache_control("assets/*", "public, max-age=31536000, immutable")
        // Browsers request all other files each time, and get 304 if a file has not changed.
        .cache_control("*", "no-cache")
        // Sends `app.js.br` in place of `app.js` if it exists and the client accepts it. Such a file is compressed
        // once, so the highest level is affordable.
        .precompressed()
        .error_page(StatusCode::NOT_FOUND, "404.html");
    // Compresses other files while they are sent, if their type is compressible.
    App::new().files("/", files).with(Compression::new())
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app("public").listen("127.0.0.1:8080")?.run()
}
