//! Files of a folder, compressed, with one page for all other paths.

use highwire::compress::Compression;
use highwire::{App, Files};

pub fn app(folder: &str) -> App {
    App::new().files("/", Files::new(folder).single_page("index.html")).with(Compression::new())
}
