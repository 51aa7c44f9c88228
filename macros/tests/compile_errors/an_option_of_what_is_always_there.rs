//! `Option` around an extractor that has no absence.

use highwire::{App, Path, check_handler};

fn show(_: Option<Path<u32>>) {}

fn main() {
    let _ = App::new().get("/{id}", check_handler!(show));
}
