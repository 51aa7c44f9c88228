//! State that is not `Sync`.

use highwire::App;
use std::cell::Cell;

fn main() {
    let _ = App::new().state(Cell::new(1));
}
